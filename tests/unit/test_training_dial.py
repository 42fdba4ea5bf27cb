"""A run exported on a shorter leash: what is written is what was measured, and what cannot be held is refused."""

import json
import shutil

import numpy as np
import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from tiny_jobs import settings_of, write_data
from tiny_run import Remembering, settings
from transformers import AutoModelForCausalLM

from kleash.config.loader import load
from kleash.errors import ConfigError, DataError, ModelError, RunDirError
from kleash.gauge.statistics import mean
from kleash.runs.records import Event
from kleash.training import dial as dialling
from kleash.training import export as exporting
from kleash.training.dial import measure_dial
from kleash.training.export import export_within
from kleash.training.observer import Silent
from kleash.training.run import train

ADAPTER = "adapter_model.safetensors"
TOKENS = torch.tensor([[256, 104, 101, 108, 108, 111]])


def prompts_file(folder, count=40, name="prompts.txt"):
    path = folder / name
    path.write_text("\n".join(f"prompt number {i} says" for i in range(count)), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def run(tiny_model_dir, tmp_path_factory):
    """6 nats from its reference."""
    folder = tmp_path_factory.mktemp("run")
    prompts_file(folder)
    config = settings(tiny_model_dir, folder, "prompts.held_out=16", "training.learning_rate=0.02", "training.steps=8")
    return train(config, observer=Silent())


def within(run, out, limit=3.0, **how):
    given = {"prompts": None, "step": None, "merge": False, "observer": Remembering()}
    return export_within(run, out, max_nats=limit, **given | how)


@pytest.fixture(scope="module")
def leashed(run, tmp_path_factory):
    out = tmp_path_factory.mktemp("leashed") / "out"
    return within(run, out), out


def test_the_interval_of_the_scale_that_is_taken_ends_below_the_limit(leashed):
    dial, _ = leashed
    chosen = dial.at(dial.scale)
    assert 0 < dial.scale < 1
    assert 1.0 < chosen.kl.value < chosen.kl.high <= 3.0
    assert (dial.prompts, dial.samples, chosen.kl.count) == (16, 8, 128)
    scales = [point.scale for point in dial.points]
    assert scales == sorted(scales)
    assert (scales[0], scales[-1]) == (0.0, 1.0)
    assert scales.index(dial.scale) == len(scales) - 3  # then the one that failed, and the whole adapter
    assert dial.points[-2].kl.high > 3.0
    assert dial.points[-1].kl.low > 3.0


def test_at_scale_0_nothing_has_moved(leashed):
    first = leashed[0].points[0]
    assert first.kl.value == pytest.approx(0, abs=1e-6)
    assert first.reward is not None


def test_what_is_saved_is_the_trained_adapter_with_its_up_projection_scaled(run, leashed):
    dial, out = leashed
    trained, saved = (load_file(folder / ADAPTER) for folder in (run / "checkpoints" / "step_8", out))
    assert trained.keys() == saved.keys()
    for name, tensor in saved.items():
        expected = trained[name] * dial.scale if "lora_B" in name else trained[name]
        torch.testing.assert_close(tensor, expected, rtol=1e-6, atol=0)


def test_the_card_and_the_file_beside_it_tell_what_was_tried(leashed):
    dial, out = leashed
    card = (out / "README.md").read_text(encoding="utf-8")
    written = json.loads((out / "kleash.json").read_text(encoding="utf-8"))
    assert card.startswith("---\nbase_model: ")
    assert "library_name: peft" in card
    assert f"# run, step 8, scale {dial.scale:g}\n" in card
    assert "**On a leash of 3 nats per sequence.** Scale " in card
    assert "on 16 prompts (held out of the run), 8 replies to each" in card
    assert card.count("\n| ") == 1 + len(dial.points) + 4  # two tables, with their headers
    assert "that of scale 1, and not of what is exported here" in card
    assert written["limit"] == 3.0
    assert [point["kl"]["value"] for point in written["points"]] == [point.kl.value for point in dial.points]
    assert written["settings"]["prompts"] == "held out of the run"


def test_merged_it_is_one_model_and_that_one_is_measured(run, leashed, tiny_model_dir, tmp_path):
    dial = within(run, tmp_path / "merged", merge=True)
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged", dtype=torch.float32).eval()
    base = AutoModelForCausalLM.from_pretrained(tiny_model_dir, dtype=torch.float32)
    scaled = PeftModel.from_pretrained(base, leashed[1]).eval()
    assert dial.settings["merged"] is True
    assert dial.scale == leashed[0].scale  # float32: merging rounds next to nothing
    with torch.no_grad():
        torch.testing.assert_close(merged(TOKENS).logits, scaled(TOKENS).logits, rtol=1e-4, atol=1e-4)
    assert "library_name: transformers" in (tmp_path / "merged" / "README.md").read_text(encoding="utf-8")


def test_where_the_whole_adapter_is_within_the_limit_it_is_exported_as_it_is(run, tmp_path):
    dial = within(run, tmp_path / "out", limit=50.0)
    trained = run / "checkpoints" / "step_8"
    assert dial.scale == 1.0
    assert (tmp_path / "out" / ADAPTER).read_bytes() == (trained / ADAPTER).read_bytes()
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "The whole adapter lies within the limit of 50 nats per sequence and is exported as it was trained" in card


def test_the_same_command_gives_the_same_numbers(run, leashed, tmp_path):
    assert within(run, tmp_path / "again").to_dict() == leashed[0].to_dict()


def test_an_earlier_checkpoint_can_be_taken(run, tmp_path):
    dial = within(run, tmp_path / "start", step=0)
    assert (dial.step, dial.scale, dial.at(1.0).kl.value) == (0, 1.0, 0.0)


def test_other_prompts_are_halved_to_search_and_to_measure(run, tmp_path):
    others = prompts_file(tmp_path, 20, "others.txt")
    dial = within(run, tmp_path / "out", prompts=str(others))
    assert (dial.prompts, dial.settings["search_prompts"], dial.settings["prompts"]) == (10, 10, str(others))


def test_a_prompt_that_comes_twice_is_counted_once(run, tmp_path):
    repeated = tmp_path / "repeated.txt"
    repeated.write_text("\n".join(["the same"] * 30 + [f"number {i}" for i in range(9)]), encoding="utf-8")
    with pytest.raises(DataError, match=r"repeated.txt: 10 different prompts, and the dial needs 16 \(half of them"):
        within(run, tmp_path / "out", prompts=str(repeated))


def test_a_curve_has_a_point_at_each_scale_and_looks_for_none(run):
    dial = measure_dial(run, (1.0, 0.0, 0.5), prompts=None, progress=Silent().progress)
    assert [point.scale for point in dial.points] == [0.0, 0.5, 1.0]
    assert (dial.limit, dial.scale, dial.searched) == (None, None, ())
    kls = [point.kl.value for point in dial.points]
    assert kls == sorted(kls)


def test_a_reward_that_is_gone_is_noted_and_the_leash_is_cut_all_the_same(run, tmp_path):
    copied = shutil.copytree(run.parent.parent, tmp_path / "copy")
    (run.parent.parent / "reward.py").rename(run.parent.parent / "gone.py")
    try:
        dial = measure_dial(copied / "runs" / "run", (1.0,), prompts=None, progress=Silent().progress)
    finally:
        (run.parent.parent / "gone.py").rename(run.parent.parent / "reward.py")
    assert dial.points[0].reward is None
    assert dial.points[0].kl.value > 1
    assert dial.notes[0].startswith("the reward is not measured: ")


def test_a_judge_is_not_asked(run, monkeypatch):
    config, folder = exporting.checkpoint_of(run, None)
    judged = load(None, ["reward.judge.model=demo"], base=config.model_dump(mode="json")).config
    monkeypatch.setattr(dialling, "checkpoint_of", lambda *_: (judged, folder))
    dial = measure_dial(run, (1.0,), prompts=None, progress=Silent().progress)
    assert dial.notes == ("the run's judge is not asked: the reward is not measured, gold is where there is one",)
    assert dial.points[0].reward is None


@pytest.mark.parametrize("limit", [0.0, -1.0, float("nan"), float("inf")])
def test_a_limit_that_is_none(run, tmp_path, limit):
    with pytest.raises(
        ConfigError, match=rf"--max-nats {limit:g} is no limit: only the reference itself is 0 nats away"
    ):
        within(run, tmp_path / "out", limit=limit)


def test_a_limit_that_so_few_prompts_cannot_show_is_refused(run, tmp_path, monkeypatch):
    monkeypatch.setattr(dialling, "mean", lambda values, clusters: mean(np.asarray(values) * 100, clusters))
    with pytest.raises(ModelError) as caught:
        within(run, tmp_path / "out")
    assert "no scale of the adapter can be shown to lie within --max-nats 3: at scale 0." in str(caught.value)
    assert "nats per sequence over 16 prompts. More prompts make the interval shorter: --prompts FILE" in str(
        caught.value
    )
    assert not (tmp_path / "out").exists()


@pytest.fixture
def no_weights(monkeypatch):
    """A policy that is loaded fails the test."""
    monkeypatch.setattr(dialling, "load_policy", lambda *_, **__: pytest.fail("weights were loaded"))


def changed(run, monkeypatch, *overrides):
    """The same run, had it been trained with other settings."""
    config, folder = exporting.checkpoint_of(run, None)
    other = load(None, list(overrides), base=config.model_dump(mode="json")).config
    monkeypatch.setattr(exporting, "checkpoint_of", lambda *_: (other, folder))


@pytest.mark.parametrize(
    ("overrides", "error", "said"),
    [
        (
            ["model.lora=false"],
            ModelError,
            "trained whole weights: there is no adapter to scale. Train with an adapter",
        ),
        (
            ["model.reference=another"],
            ModelError,
            "is measured from model.reference = 'another', and scaling the adapter",
        ),
        (["prompts.held_out=0"], DataError, "held out: 0 different prompts, and the dial needs 8 .*: --prompts FILE"),
        (["prompts.held_out=7"], DataError, "held out: 7 different prompts, and the dial needs 8"),
        (
            ["prompts=gone.txt"],
            DataError,
            "the run's data cannot be read any more: .*Give other prompts: --prompts FILE",
        ),
    ],
)
def test_runs_that_cannot_be_held(run, tmp_path, monkeypatch, no_weights, overrides, error, said):
    changed(run, monkeypatch, *overrides)
    with pytest.raises(error, match=said):
        within(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_suspect_checkpoint_is_refused(run, tmp_path, monkeypatch, no_weights):
    alarm = Event(6, "critical", "kl/spike", "far", {}, began=5)
    monkeypatch.setattr(exporting, "suspicions", lambda events, step: [alarm] if step == 8 else [])
    with pytest.raises(RunDirError, match=r"step 8 in .* is suspect: it lies under kl/spike .*--allow-suspect"):
        within(run, tmp_path / "out")


def test_a_base_that_has_changed_is_refused(run, tmp_path, tiny_model_dir, monkeypatch):
    other = shutil.copytree(tiny_model_dir, tmp_path / "model")
    model = AutoModelForCausalLM.from_pretrained(other)
    with torch.no_grad():
        model.model.norm.weight.add_(0.1)
    model.save_pretrained(other)
    changed(run, monkeypatch, f"model={other}")
    with pytest.raises(RunDirError, match="the reference has changed: its weights hash to"):
        within(run, tmp_path / "out")


@pytest.mark.parametrize("job", ["dpo", "sft"])
def test_runs_that_learned_from_text_are_held_on_given_prompts(tiny_model_dir, tmp_path, job):
    write_data(tmp_path)
    config = load(None, settings_of(job, tiny_model_dir, tmp_path, "training.learning_rate=0.01")).config
    run = train(config, observer=Silent())
    whole = measure_dial(run, (1.0,), prompts=str(prompts_file(tmp_path)), progress=Silent().progress).points[0]
    assert whole.kl.value > 0.05
    dial = within(run, tmp_path / "out", limit=whole.kl.value / 2, prompts=str(prompts_file(tmp_path)))
    assert 0.3 < dial.scale < 1
    assert dial.at(dial.scale).kl.high <= whole.kl.value / 2
    assert dial.at(dial.scale).gold is not None
    assert dial.at(dial.scale).reward is None


def test_a_reward_model_has_no_leash(tiny_model_dir, tmp_path, no_weights):
    write_data(tmp_path)
    config = load(None, settings_of("reward_model", tiny_model_dir, tmp_path, "training.steps=1")).config
    run = train(config, observer=Silent())
    with pytest.raises(ModelError, match="is a reward model: it writes no text, so that it has no KL to hold"):
        within(run, tmp_path / "out")
