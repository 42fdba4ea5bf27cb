"""A reward model as a reward function: it reads text with its own tokenizer, and scores as plain transformers does."""

import numpy as np
import pytest
import torch
import transformers as hf
from tiny_model import byte_tokenizer, save_tiny_model
from tiny_run import SIZES
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from kleash.config.schema import Model
from kleash.errors import ConfigError, DataError, ModelError
from kleash.models.saved_reward import Rendering
from kleash.models.scalar_loading import load_saved, load_scalar_model
from kleash.rewards.function import evaluate, resolve
from kleash.rewards.reward_model import RewardModel

CPU = torch.device("cpu")
PROMPTS = ["The sky is", "A", "Say something that takes a while:"]
COMPLETIONS = [" blue.", " very long answer to a short question", ""]


def saved_model(base, folder, rendering=None, members=1, **settings):
    """A saved reward model with random weights; float32, so that it is compared to 1e-5."""
    table = Model(name=str(base), dtype="float32", **settings)
    made = load_scalar_model(table, members=members, seed=0, context=64, device=CPU)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for _, parameter in made.trained():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    made.save(folder, rendering or Rendering())
    return folder


def reward(folder, **how):
    return RewardModel.from_folder(folder, device=CPU, **how)


@pytest.fixture(autouse=True)
def _float32(monkeypatch):
    monkeypatch.setattr("kleash.models.scalar_loading.pick_dtype", lambda device, wanted: torch.float32)


@pytest.fixture(scope="module")
def whole(tiny_model_dir, tmp_path_factory):
    return saved_model(tiny_model_dir, tmp_path_factory.mktemp("whole"), lora=False)


@pytest.fixture(scope="module")
def trio(tiny_model_dir, tmp_path_factory):
    return saved_model(tiny_model_dir, tmp_path_factory.mktemp("trio"), members=3)


def plain_scores(folder, texts, side="left"):
    """What a user of transformers gets: each text with its special tokens written out, one padded batch."""
    tokenizer = hf.AutoTokenizer.from_pretrained(folder, padding_side=side)
    model = hf.AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    batch = tokenizer(texts, add_special_tokens=False, return_tensors="pt", padding=True)
    positions = (batch.attention_mask.cumsum(dim=1) - 1).clamp(min=0)
    with torch.no_grad():
        return model(batch.input_ids, attention_mask=batch.attention_mask, position_ids=positions).logits[:, 0].tolist()


@pytest.mark.parametrize("side", ["left", "right"])
def test_plain_text_scores_as_in_transformers(whole, side):
    texts = [f"<|bos|>{prompt}{answer}<|eos|>" for prompt, answer in zip(PROMPTS, COMPLETIONS, strict=True)]
    scores = reward(whole)(PROMPTS, COMPLETIONS)
    assert all(isinstance(score, float) for score in scores)
    assert len({round(score, 3) for score in scores}) == 3
    np.testing.assert_allclose(scores, plain_scores(whole, texts, side), atol=1e-5)


def test_an_answer_that_spells_the_stop_token_out_ends_once(whole):
    assert reward(whole)(["a"], ["b<|eos|>"]) == reward(whole)(["a"], ["b"])


def test_messages_go_through_the_template_of_the_reward_model(whole):
    prompts = [[{"role": "user", "content": prompt}] for prompt in PROMPTS]
    completions = [[{"role": "assistant", "content": answer}] for answer in COMPLETIONS]
    texts = [
        f"<|bos|><|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n{answer}<|eos|>"
        for prompt, answer in zip(PROMPTS, COMPLETIONS, strict=True)
    ]
    np.testing.assert_allclose(reward(whole)(prompts, completions), plain_scores(whole, texts), atol=1e-5)


def test_texts_become_tokens_as_kleash_json_says(tiny_model_dir, tmp_path):
    folder = saved_model(tiny_model_dir, tmp_path, Rendering(False, True, "Be brief."), lora=False)
    own = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}]
    brief, kind = (
        f"<|bos|><|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHey"
        for system in ("Be brief.", "Be kind.")
    )
    scores = reward(folder)(["Hi", own], ["Hey", "Hey"])
    np.testing.assert_allclose(scores, plain_scores(folder, [brief, kind]), atol=1e-5)


@pytest.mark.parametrize("batch_size", [1, 2, 16])
def test_scores_depend_neither_on_batch_size_nor_on_company(trio, batch_size):
    ours = reward(trio, batch_size=batch_size)
    together = ours.member_scores(PROMPTS, COMPLETIONS)
    assert (together.shape, together.dtype) == ((3, 3), np.float64)
    for index in range(3):
        alone = ours.member_scores([PROMPTS[index]], [COMPLETIONS[index]])
        np.testing.assert_allclose(alone[:, 0], together[:, index], atol=1e-5)
    assert ours([], []) == []


@pytest.mark.parametrize("pad", ["<|eos|>", None])
def test_padding_with_the_stop_token_or_with_none_changes_no_score(tmp_path, pad, whole):
    expected = reward(whole)(PROMPTS, COMPLETIONS)
    model = hf.AutoModelForSequenceClassification.from_pretrained(whole, dtype=torch.float32)
    tokenizer = hf.AutoTokenizer.from_pretrained(whole)
    tokenizer.pad_token = pad
    model.config.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    np.testing.assert_allclose(reward(tmp_path)(PROMPTS, COMPLETIONS), expected, atol=1e-5)


def test_members_are_combined_as_asked(trio):
    scores = reward(trio).member_scores(PROMPTS, COMPLETIONS)
    assert scores.std(axis=0).min() > 1e-3
    by_hand = {
        "mean": scores.sum(axis=0) / 3,
        "worst_case": np.sort(scores, axis=0)[0],
        "mean_minus_sd": scores.sum(axis=0) / 3
        - 0.5 * np.sqrt(np.square(scores - scores.mean(axis=0)).sum(axis=0) / 3),
    }
    for combine, expected in by_hand.items():
        ours = reward(trio, combine=combine, sd_weight=0.5)
        np.testing.assert_allclose(ours(PROMPTS, COMPLETIONS), expected, rtol=1e-6)


def word_model(folder):
    """A reward model of another family, whose tokens are words: a policy's ids would mean nothing to it."""
    words = ["<pad>", "</s>", "<unk>", "the", "sky", "is", "blue", "green"]
    inner = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.decoder = decoders.WordPiece()
    tokenizer = hf.PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token="</s>", pad_token="<pad>", unk_token="<unk>", model_max_length=64
    )
    sizes = SIZES | {"vocab_size": 8, "bos_token_id": None, "eos_token_id": 1, "pad_token_id": 0}
    torch.manual_seed(2)
    hf.PhiForSequenceClassification(hf.PhiConfig(**sizes, num_labels=1)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_a_reward_model_with_another_tokenizer_reads_the_text(tmp_path):
    folder = word_model(tmp_path)
    model = hf.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        expected = [float(model(torch.tensor([[3, 4, 5, colour, 1]])).logits) for colour in (6, 7)]
    scores = reward(folder)(["the sky is", "the sky is"], ["blue", "green"])
    assert abs(scores[0] - scores[1]) > 1e-3
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    with pytest.raises(DataError, match="prompt 1 has no token in the tokenizer"):
        reward(folder)(["the sky", " "], ["is", "blue"])


def test_it_is_a_reward_function_whose_weights_wait_for_the_first_call(trio, monkeypatch):
    ours = reward(trio)
    loads = []

    def counted(saved, **how):
        loads.append(saved)
        return load_saved(saved, **how)

    monkeypatch.setattr("kleash.rewards.reward_model.load_saved", counted)
    function = resolve(ours, name="model", timeout=60)
    assert loads == []
    for _ in range(2):
        scores = evaluate(function, PROMPTS, COMPLETIONS, {"answer": [1, 2, 3]})
        assert scores == ours(PROMPTS, COMPLETIONS)
    assert loads == [ours.saved]


def test_scoring_keeps_no_gradient(trio):
    ours = reward(trio)
    ours(PROMPTS, COMPLETIONS)
    assert all(parameter.grad is None for _, parameter in ours._model.trained())


def test_what_is_too_long_is_refused_with_its_length(whole):
    with pytest.raises(
        DataError, match=r"prompt 1 has 509 tokens and its completion 4, together 513.* reads 512 at most"
    ):
        reward(whole)(["short", "x" * 508], ["abc", "abc"])
    assert len(reward(whole)(["x" * 508], ["ab"])) == 1
    with pytest.raises(DataError, match="prompt 0 has 1001 tokens"):
        reward(whole)(["x" * 1000], [""])


@pytest.mark.parametrize(
    ("prompts", "completions", "message"),
    [
        (["a", "b"], ["c"], "2 prompts for 1 completions"),
        (["a"], [[{"role": "user", "content": "b"}]], r"completion 0 is a list of messages with the roles \['user'\]"),
    ],
)
def test_calls_that_cannot_be_scored_are_refused(whole, prompts, completions, message):
    with pytest.raises(DataError, match=message):
        reward(whole)(prompts, completions)


def test_everything_but_the_weights_is_checked_at_construction(tiny_model_dir, tmp_path, whole):
    with pytest.raises(ModelError, match="head not found"):
        reward(tiny_model_dir)
    with pytest.raises(ConfigError, match="batch_size = 0"):
        reward(whole, batch_size=0)
    base = save_tiny_model(tmp_path / "base")
    folder = saved_model(base, tmp_path / "reward")
    (base / "config.json").unlink()
    with pytest.raises(ModelError, match="cannot be read as a Hugging Face model"):
        reward(folder)


def test_the_template_it_was_saved_with_counts(tmp_path):
    base = save_tiny_model(tmp_path / "base")
    folder = saved_model(base, tmp_path / "reward")
    before = reward(folder)([[{"role": "user", "content": "Hi"}]], ["Hey"])
    changed = byte_tokenizer()
    changed.chat_template = "{{ bos_token }}{% for message in messages %}{{ message.content }}{% endfor %}"
    changed.save_pretrained(base)
    assert reward(folder)([[{"role": "user", "content": "Hi"}]], ["Hey"]) == before
    changed.save_pretrained(folder)
    assert reward(folder)([[{"role": "user", "content": "Hi"}]], ["Hey"]) == reward(folder)(["Hi"], ["Hey"])
