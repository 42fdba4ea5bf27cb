"""Two processes train one policy: they stay alike, and together do what one would."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kleash.runs.reader import RunReader

WORKER = Path(__file__).parents[1] / "support" / "two_processes.py"


def launched(model, folder, processes, *overrides):
    """What each process left at its end."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(processes)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    command = [*launch, str(WORKER), str(model), str(folder), *overrides]
    done = subprocess.run(command, capture_output=True, text=True, timeout=170, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(path.read_text()) for path in sorted(folder.glob("rank_*.json"))]


@pytest.mark.slow
@pytest.mark.parametrize("overrides", [[], ["algorithm.type=grpo", "algorithm.loss_normalization=sequence"]])
def test_two_processes_make_the_update_that_one_makes_of_the_same_samples(tiny_model_dir, tmp_path, overrides):
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        folder.mkdir()
    (alone,) = launched(tiny_model_dir, one, 1, *overrides)
    first, second = launched(tiny_model_dir, two, 2, *overrides)
    assert first["weights"] == second["weights"]
    assert first["weights"] == pytest.approx(alone["weights"], abs=1e-5)
    assert max(abs(weight) for weight in alone["weights"]) > 1e-3
    with RunReader(one / "runs" / "run") as single, RunReader(two / "runs" / "run") as double:
        for key in (
            "kl/exact_per_sequence",
            "reward/proxy",
            "loss/policy",
            "loss/kl",
            "optim/grad_norm",
            "control/beta",
        ):
            ours, theirs = single.series(key), double.series(key)
            assert [step for step, _, _ in ours] == [step for step, _, _ in theirs]
            assert [v for _, v, _ in ours] == pytest.approx([v for _, v, _ in theirs], rel=1e-3, abs=1e-5), key


@pytest.mark.slow
def test_two_processes_with_samples_of_their_own_finish_alike(tiny_model_dir, tmp_path):
    first, second = launched(tiny_model_dir, tmp_path, 2, "own-samples", "prompts.held_out=4", "training.steps=6")
    assert first["weights"] == second["weights"]
    with RunReader(tmp_path / "runs" / "run") as reader:
        assert reader.status == "finished"
        assert len(reader.steps()) == 7
        assert len(reader.samples("before")) == len(reader.samples("after")) == 4
        assert len({sample.prompt for sample in reader.samples("train", 0)}) == 4
        assert reader.latest_checkpoint().step == 6


@pytest.mark.slow
def test_two_processes_tighten_and_go_back_alike(tiny_model_dir, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    ladder = ["training.steps=6", "training.checkpoint_every=1", "monitor.patience=2", "monitor.tighten_by=0.5"]
    for folder, processes in ((one, 1), (two, 2)):
        folder.mkdir()
        launched(tiny_model_dir, folder, processes, "alarms", 'monitor.ladder=["tighten", "roll_back"]', *ladder)
    (alone,) = [json.loads(path.read_text()) for path in one.glob("rank_*.json")]
    first, second = [json.loads(path.read_text()) for path in sorted(two.glob("rank_*.json"))]
    assert first["weights"] == second["weights"]
    assert first["weights"] == pytest.approx(alone["weights"], abs=1e-5)
    with RunReader(two / "runs" / "run") as reader:
        acted = {event.name: event.values for event in reader.events() if event.name.startswith("action/")}
        assert acted["action/tighten"] == {"before": 0.2, "after": 0.4}
        assert acted["action/roll_back"] == {"to": 0}
        assert [value for _, value, _ in reader.series("control/beta")] == [0.2, 0.2, 0.4, 0.4, 0.4, 0.4]
        assert reader.series("kl/exact_per_sequence")[4][1] == 0.0
