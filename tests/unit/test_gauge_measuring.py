"""The measurement as a whole on tiny models: exact zeros, shared work, interruptions, refusals."""

import json
import math
import subprocess
import sys

import pytest
import torch
from gauge_files import save_adapter, save_run, tiny_gguf
from tiny_model import byte_tokenizer, save_tiny_model
from transformers import AutoModelForCausalLM, AutoTokenizer

import kleash.gauge
from kleash.errors import ConfigError, DataError, ModelError
from kleash.gauge import measure, measure_many
from kleash.gauge.models import Loader
from kleash.gauge.sources import checkpoints
from kleash.rollout.decoding import DecodingSampler

PROMPTS = [{"prompt": f"prompt number {i}", "category": "even" if i % 2 == 0 else "odd"} for i in range(6)]
TEXTS = ["a text that neither model wrote", "and another one, a little longer than that"]
QUICK = {"max_length": 8, "scale": False, "cache": False, "dtype": "float32"}


@pytest.fixture(scope="module")
def other_model_dir(tmp_path_factory):
    return save_tiny_model(tmp_path_factory.mktemp("other_model"), seed=1)


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("KLEASH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "gauge"


@pytest.fixture
def draws(monkeypatch):
    """How many prompts each call of the sampler was given."""
    asked = []
    sample = DecodingSampler.sample

    def counted(self, prompts, **options):
        asked.append(len(prompts))
        return sample(self, prompts, **options)

    monkeypatch.setattr(DecodingSampler, "sample", counted)
    return asked


def all_zero(gauge):
    found = [gauge.reverse, gauge.forward]
    return (
        all(set(reply.token_kl) == {0.0} for direction in found for reply in direction.replies)
        and gauge.corpus.reverse_per_token.maximum == gauge.corpus.forward_per_token.maximum == 0.0
        and gauge.corpus.reverse_per_token.mean.value == gauge.corpus.forward_per_token.mean.value == 0.0
        and gauge.corpus.probability_change.maximum == 0.0
        and gauge.corpus.top1_agreement.value == 1.0
        and all(direction.per_sequence.mean.high == direction.per_sequence.mean.low == 0.0 for direction in found)
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("batch_size", [1, 16, "auto"])
@pytest.mark.parametrize("chunk_bytes", [1, 4 * 261 * 7, 50_000_000])
def test_a_model_against_itself_is_exactly_zero(tiny_model_dir, tmp_path, monkeypatch, dtype, batch_size, chunk_bytes):
    monkeypatch.setattr("kleash.ops.chunked_logits.CHUNK_BYTES", chunk_bytes)
    copy = save_tiny_model(tmp_path / "copy")
    options = {**QUICK, "dtype": dtype, "batch_size": batch_size, "corpus": TEXTS}
    found = measure_many(tiny_model_dir, [tiny_model_dir, copy], PROMPTS, **options)
    assert [all_zero(gauge) for gauge in found] == [True, True]
    assert found[0].verdict == "Not moved: the KL is exactly 0 at every token of 12 replies."
    assert found[0].reference.dtype == dtype


def test_an_adapter_that_changes_nothing_reads_zero_and_one_that_does_reads_more(tiny_model_dir, tmp_path):
    zero = save_adapter(tiny_model_dir, tmp_path / "zero")
    tuned = save_adapter(tiny_model_dir, tmp_path / "tuned", scale=0.3)
    still, moved = measure_many(tiny_model_dir, [zero, tuned], PROMPTS, corpus=TEXTS, **QUICK)
    assert all_zero(still)
    assert moved.reverse.per_sequence.mean.low > 0.01
    assert moved.corpus.top1_agreement.value < 1


def test_an_adapter_measures_as_its_merged_model_does(tiny_model_dir, tmp_path):
    from peft import PeftModel

    adapter = save_adapter(tiny_model_dir, tmp_path / "adapter", scale=0.3)
    model = AutoModelForCausalLM.from_pretrained(tiny_model_dir, dtype=torch.float32)
    PeftModel.from_pretrained(model, adapter).merge_and_unload().save_pretrained(tmp_path / "merged")
    byte_tokenizer().save_pretrained(tmp_path / "merged")
    one, other = measure_many(tiny_model_dir, [adapter, tmp_path / "merged"], corpus=TEXTS, **QUICK)
    assert one.reverse is one.forward is None
    assert one.corpus.reverse_per_token.mean.value == pytest.approx(other.corpus.reverse_per_token.mean.value, rel=1e-3)
    assert one.corpus.reverse_per_token.mean.value > 1e-3


def test_a_gguf_file_measures_as_the_folder_it_was_made_from_and_says_what_it_is(tiny_model_dir, tmp_path):
    found = measure(tiny_model_dir, tiny_gguf(tiny_model_dir, tmp_path / "tiny.gguf"), PROMPTS, corpus=TEXTS, **QUICK)
    assert all_zero(found)
    assert any("dequantised by transformers" in note for note in found.notes)


def test_the_checkpoints_of_a_run_make_a_curve_on_one_load(tiny_model_dir, tmp_path, monkeypatch, draws):
    run = save_run(tiny_model_dir, tmp_path / "run", steps=(1, 4), scale=0.1)
    loads = []
    read = Loader._read
    monkeypatch.setattr(Loader, "_read", lambda self, source: loads.append(source.name) or read(self, source))
    found = measure_many(tiny_model_dir, checkpoints(run), PROMPTS, **QUICK)
    assert [gauge.tuned.name for gauge in found] == [f"{run}@1", f"{run}@4"]
    assert found[0].reverse.per_sequence.mean.high < found[1].reverse.per_sequence.mean.low
    assert loads == [str(tiny_model_dir)]
    assert draws == [6, 6, 6]  # each checkpoint once, the reference once for both


def test_several_models_read_what_each_alone_reads(tiny_model_dir, tmp_path, monkeypatch):
    """The reference's states on its own replies are kept, as far as they fit."""
    folders = [save_adapter(tiny_model_dir, tmp_path / str(seed), scale=0.3, seed=seed) for seed in (1, 2)]
    options = {**QUICK, "corpus": TEXTS}
    alone = [measure(tiny_model_dir, folder, PROMPTS, **options).to_dict() for folder in folders]
    for room in (0, 3000, 10**9):
        monkeypatch.setattr("kleash.gauge.models.REMEMBERED_BYTES", room)
        both = measure_many(tiny_model_dir, folders, PROMPTS, **options)
        assert [gauge.to_dict() for gauge in both] == alone


def test_replies_carry_what_they_were_made_of(tiny_model_dir, other_model_dir):
    found = measure(tiny_model_dir, other_model_dir, PROMPTS, samples=2, **QUICK)
    assert [(reply.prompt_index, reply.sample_index) for reply in found.reverse.replies][:4] == [
        (0, 0), (0, 1), (1, 0), (1, 1)
    ]  # fmt: skip
    for direction in (found.reverse, found.forward):
        assert len(direction.replies) == 12
        for reply in direction.replies:
            assert reply.kl == pytest.approx(math.fsum(reply.token_kl))
            assert len(reply.tokens) == len(reply.token_kl) == len(reply.token_classes) <= 8
            assert reply.stopped or len(reply.tokens) == 8
        mean = sum(reply.kl for reply in direction.replies) / 12
        assert direction.per_sequence.mean.value == pytest.approx(mean)
        assert direction.per_sequence.mean.prompts == 6
        assert direction.length.value == pytest.approx(sum(len(reply.tokens) for reply in direction.replies) / 12)
        assert direction.cut_share == sum(not reply.stopped for reply in direction.replies) / 12
        assert set(direction.by_category) == {"even", "odd"}
        positions = sum(bin.value * bin.count for bin in direction.by_position)
        classes = sum(kind.value * kind.count for kind in direction.by_class.values())
        assert positions == pytest.approx(12 * mean) == pytest.approx(classes)
        assert sum(token.mean_kl * token.count for token in direction.worst_tokens) <= 12 * mean * (1 + 1e-9)
        assert direction.worst_prompts[0].kl == max(prompt.kl for prompt in direction.worst_prompts)
    assert found.reverse.sampled_from == str(other_model_dir)
    assert found.forward.sampled_from == str(tiny_model_dir)


def test_the_scale_is_the_rounding_of_the_reference(tiny_model_dir, other_model_dir):
    found = measure(tiny_model_dir, other_model_dir, PROMPTS, **{**QUICK, "scale": True})
    assert 0 < found.scale.bf16_reverse.value < found.scale.int4_reverse.value
    assert found.scale.bf16_reverse.prompts == 6
    narrow = measure(tiny_model_dir, other_model_dir, PROMPTS, **{**QUICK, "scale": True, "dtype": "bfloat16"})
    assert narrow.scale.bf16_reverse is None
    assert "measured in bfloat16: bfloat16 rounding is part of both models" in narrow.notes


def test_a_result_is_json_and_a_data_frame(tiny_model_dir, other_model_dir):
    found = measure(tiny_model_dir, other_model_dir, PROMPTS[:1], **QUICK)
    plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert plain["schema_version"] == 1
    assert plain["reverse"]["per_sequence"]["mean"]["low"] is None  # one prompt has no interval
    frame = found.to_frame()
    assert frame["direction"].tolist() == ["reverse", "forward"]
    assert frame["kl"].tolist() == [found.reverse.replies[0].kl, found.forward.replies[0].kl]


def test_scores_of_both_models_are_paired_by_prompt(tiny_model_dir, other_model_dir):
    def length(completions, category):
        return [None if kind == "odd" else float(len(text)) for text, kind in zip(completions, category, strict=True)]

    found = measure(tiny_model_dir, other_model_dir, PROMPTS, scores=[length], **QUICK)
    (score,) = found.scores
    tuned = [len(reply.text) for reply in found.reverse.replies if reply.category == "even"]
    reference = [len(reply.text) for reply in found.forward.replies if reply.category == "even"]
    assert (score.name, score.tuned.prompts, score.difference.count) == ("length", 3, 3)
    assert score.tuned.value == pytest.approx(sum(tuned) / 3)
    assert score.difference.value == pytest.approx((sum(tuned) - sum(reference)) / 3)


def test_heads_that_differ_by_padding_rows_are_cut_and_that_is_said(tiny_model_dir, tmp_path):
    model = AutoModelForCausalLM.from_pretrained(tiny_model_dir, dtype=torch.float32)
    model.resize_token_embeddings(320, mean_resizing=False)
    with torch.no_grad():
        model.get_input_embeddings().weight[261:] = 5.0  # such rows would be drawn all the time
    padded = tmp_path / "padded"
    model.save_pretrained(padded)
    byte_tokenizer().save_pretrained(padded)
    for reference, tuned in ((tiny_model_dir, padded), (padded, tiny_model_dir)):
        found = measure(reference, tuned, PROMPTS, corpus=TEXTS, **QUICK)
        assert all_zero(found)
        assert any("both distributions run over the first 261 rows" in note for note in found.notes)


def save_with_tokenizer(source, folder, change):
    AutoModelForCausalLM.from_pretrained(source).save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(source)
    change(tokenizer)
    tokenizer.save_pretrained(folder)
    return folder


def test_another_tokenizer_is_refused_with_what_differs(tiny_model_dir, tmp_path):
    grown = tmp_path / "grown"
    model = AutoModelForCausalLM.from_pretrained(tiny_model_dir)
    model.resize_token_embeddings(262, mean_resizing=False)
    model.save_pretrained(grown)
    tokenizer = byte_tokenizer()
    tokenizer.add_tokens(["<tool>"])
    tokenizer.save_pretrained(grown)
    message = r"another tokenizer than the reference .*1 token only .*grown has \('<tool>'\).*its own family"
    with pytest.raises(ModelError, match=message):
        measure(tiny_model_dir, grown, PROMPTS, **QUICK)


def test_messages_need_a_chat_template_of_either_model(tiny_model_dir, tmp_path):
    def bare(tokenizer):
        tokenizer.chat_template = None

    plain = save_with_tokenizer(tiny_model_dir, tmp_path / "plain", bare)
    asked = [{"messages": [{"role": "user", "content": "hello"}]}]
    with pytest.raises(ModelError, match="has no chat template"):
        measure(plain, plain, asked, **QUICK)
    found = measure(plain, tiny_model_dir, asked, **QUICK)
    assert found.reverse.replies[0].prompt == "<|bos|><|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    assert f"with the chat template of {tiny_model_dir}" in found.notes[0]
    built_in = measure(plain, plain, limit=7, **QUICK)
    assert built_in.notes[0] == "prompts are plain text, continued as they stand by both models"


def test_the_built_in_prompts_are_asked_where_none_are_given(tiny_model_dir):
    found = measure(tiny_model_dir, tiny_model_dir, limit=7, **QUICK)
    assert len({reply.category for reply in found.reverse.replies}) == 7
    assert found.settings["prompts"] == "built-in"
    assert found.settings["prompt_count"] == 7


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (None, {}, r"No file '.*p\.jsonl'"),
        ("", {}, "holds no prompts"),
        ('{"prompt": "a"}\n', {"column": "promt"}, "has no column 'promt'.*Did you mean 'prompt'"),
        ('{"text": "a"}\n', {}, "has no column 'prompt'"),
        (json.dumps({"prompt": "x" * 600}) + "\n", {}, r"tokens long.*more than the context of 512"),
    ],
)
def test_prompts_that_cannot_be_used_are_refused_before_weights_are_read(
    tiny_model_dir, tmp_path, monkeypatch, content, options, message
):
    monkeypatch.setattr(Loader, "_read", lambda *_: pytest.fail("weights were read"))
    file = tmp_path / "p.jsonl"
    if content is not None:
        file.write_text(content)
    with pytest.raises(DataError, match=message):
        measure(tiny_model_dir, tiny_model_dir, file, **QUICK, **options)


@pytest.mark.parametrize(
    ("corpus", "message"),
    [([{"body": "x"}], "has no column 'text'"), (["x"] * 0, "holds no text of 2 tokens or more")],
)
def test_text_that_cannot_be_scored_is_refused(tiny_model_dir, corpus, message):
    with pytest.raises(DataError, match=message):
        measure(tiny_model_dir, tiny_model_dir, corpus=corpus, **QUICK)


def test_long_text_is_scored_in_windows_of_the_context(tiny_model_dir):
    found = measure(tiny_model_dir, tiny_model_dir, corpus=["x" * 600, "y"], **QUICK).corpus
    assert found.texts == 2
    assert found.tokens == (512 - 1) + (89 - 1) + 1  # BOS counts in, and the first token of a window is not predicted


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"samples": 0}, "samples = 0"),
        ({"max_length": 0}, "max_length = 0"),
        ({"batch_size": 0}, "batch_size = 0"),
        ({"temperature": 0.0}, "temperature = 0.0: greedy replies"),
        ({"seed": -1}, "seed = -1"),
        ({"dtype": "float8"}, "dtype = 'float8' is not known"),
        ({"limit": 0}, "limit = 0"),
    ],
)
def test_settings_out_of_range_are_refused(tiny_model_dir, options, message):
    with pytest.raises(ConfigError, match=message):
        measure(tiny_model_dir, tiny_model_dir, PROMPTS, **{**QUICK, **options})


def test_weights_that_are_not_finite_are_an_error_that_says_where(tiny_model_dir, tmp_path):
    model = AutoModelForCausalLM.from_pretrained(tiny_model_dir)
    with torch.no_grad():
        model.get_parameter("model.norm.weight")[0] = math.nan
    model.save_pretrained(tmp_path / "broken")
    byte_tokenizer().save_pretrained(tmp_path / "broken")
    with pytest.raises(ModelError, match=r"broken gives numbers that are not finite in float32, first at token 0 of"):
        measure(tiny_model_dir, tmp_path / "broken", PROMPTS, **QUICK)


def interrupting(at):
    """Progress that presses Ctrl-C once `at` sequences are done, counted from the first model on."""
    before, last = 0, 0

    def progress(stage, done, total):
        nonlocal before, last
        if done < last:
            before += total
        last = done
        if before + done >= at:
            raise KeyboardInterrupt

    return progress


def test_an_interrupted_measurement_keeps_what_is_finished_and_goes_on_from_there(
    tiny_model_dir, other_model_dir, monkeypatch, draws
):
    monkeypatch.setattr("kleash.gauge.pair.CHUNK_PROMPTS", 2)
    options = {**QUICK, "cache": True, "corpus": TEXTS}
    progress = interrupting(at=10)  # in the second chunk of three
    found = measure(tiny_model_dir, other_model_dir, PROMPTS, progress=progress, **options)
    assert found.partial
    assert found.verdict.startswith("Interrupted, so only on what was finished: ")
    assert 0 < len(found.reverse.replies) < 6
    assert found.corpus is None
    drawn = len(draws)
    whole = measure(tiny_model_dir, other_model_dir, PROMPTS, **options)
    assert not whole.partial
    assert len(draws) - drawn < 6
    assert whole.reverse.replies[: len(found.reverse.replies)] == found.reverse.replies
    fresh = measure(tiny_model_dir, other_model_dir, PROMPTS, **{**options, "cache": False})
    assert fresh.to_dict() == whole.to_dict()


def test_an_interrupt_before_anything_is_finished_stays_one(tiny_model_dir, other_model_dir):
    progress = interrupting(at=1)
    with pytest.raises(KeyboardInterrupt):
        measure(tiny_model_dir, other_model_dir, PROMPTS, progress=progress, **QUICK)


def test_an_interrupt_ends_the_list_of_models(tiny_model_dir, other_model_dir):
    progress = interrupting(at=24 + 20)  # 24 sequences a model: in the second model's second direction
    found = measure_many(tiny_model_dir, [other_model_dir] * 3, PROMPTS, progress=progress, **QUICK)
    assert [gauge.partial for gauge in found] == [False, True]


def test_progress_ends_at_its_total(tiny_model_dir, other_model_dir):
    calls = []
    options = {**QUICK, "scale": True, "samples": 2, "corpus": TEXTS}
    measure(tiny_model_dir, other_model_dir, PROMPTS, progress=lambda *call: calls.append(call), **options)
    done = [done for _, done, _ in calls]
    assert done == sorted(done)
    assert {total for *_, total in calls} == {2 * (2 * 12 + 2 * 6) + 2}
    assert done[-1] == calls[-1][2]


def test_a_second_measurement_comes_from_the_cache(tiny_model_dir, other_model_dir, cache_folder, draws):
    options = {**QUICK, "cache": True}
    first = measure(tiny_model_dir, other_model_dir, PROMPTS, **options)
    assert draws == [6, 6]
    assert measure(tiny_model_dir, other_model_dir, PROMPTS, **options).to_dict() == first.to_dict()
    assert draws == [6, 6]
    measure(tiny_model_dir, other_model_dir, PROMPTS, **{**options, "seed": 1})
    assert draws == [6, 6, 6, 6]
    for file in cache_folder.iterdir():
        file.write_bytes(b"damaged")
    assert measure(tiny_model_dir, other_model_dir, PROMPTS, **options).to_dict() == first.to_dict()


def test_without_the_cache_nothing_is_written(tiny_model_dir, cache_folder):
    measure(tiny_model_dir, tiny_model_dir, PROMPTS, **QUICK)
    assert not cache_folder.exists()


def test_the_batch_size_changes_no_number_beyond_rounding(tiny_model_dir, other_model_dir):
    one, many = (
        measure(tiny_model_dir, other_model_dir, corpus=TEXTS, **QUICK, batch_size=size).corpus for size in (1, 16)
    )
    assert one.reverse_per_token.mean.value == pytest.approx(many.reverse_per_token.mean.value, rel=1e-5)


def test_models_in_memory_can_be_measured(tiny_model_dir, other_model_dir):
    pairs = [
        (AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32), AutoTokenizer.from_pretrained(folder))
        for folder in (tiny_model_dir, other_model_dir)
    ]
    loaded = measure(*pairs, PROMPTS, **QUICK)
    named = measure(tiny_model_dir, other_model_dir, PROMPTS, **QUICK)
    assert loaded.tuned.kind == "memory"
    assert loaded.reverse.per_sequence.mean.value == pytest.approx(named.reverse.per_sequence.mean.value, rel=1e-5)


def test_a_result_can_be_read_without_torch():
    code = "import sys, kleash.gauge.records, kleash.gauge.verdict; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_package_gives_the_function_and_no_module():
    assert callable(kleash.gauge.measure)
    with pytest.raises(AttributeError, match="no attribute 'mesure'"):
        _ = kleash.gauge.mesure
