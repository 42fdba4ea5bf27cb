"""What hold_the_target reads from runs and says of them, on handwritten numbers."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from kleash.runs.records import Step  # noqa: E402
from kleash.runs.writer import RunWriter  # noqa: E402
from recipes.evidence.recipe import Run  # noqa: E402
from recipes.hold_the_target import evidence as hold  # noqa: E402


def test_a_run_has_settled_from_where_its_running_mean_stays_near():
    assert hold.settling([0.0] * 5 + [4.0] * 30, 4.0) == 12
    assert hold.settling([4.0] * 20, 4.0) == 0
    assert hold.settling([4.0] * 20 + [8.0] * 10, 4.0) is None
    assert hold.settling([1.0] * 20, 4.0) is None


@pytest.fixture
def run(tmp_path):
    """A finished run of 4 steps with a KL of 1, 2, 5 and 3 nats."""
    with RunWriter.create(tmp_path / "run", {"training": {"seed": 1}}, {}) as writer:
        for step, kl in enumerate((1.0, 2.0, 5.0, 3.0)):
            metrics = {"kl/exact_per_sequence": kl, "control/beta": 0.1 * (step + 1)}
            if step == 3:
                metrics |= {"eval/reward/proxy": 0.5, "eval/kl/exact_per_sequence": 3.5}
            writer.write_step(Step(step, metrics, {}))
        writer.set_status("finished")
    return Run({hold.CONTROLLER: hold.HELD, hold.TARGET: "4", hold.SEED: "1"}, tmp_path / "run")


def test_the_last_half_counts(run):
    found = hold.measure_run(run)
    assert (found["kl"], found["error"], found["target"], found["seed"]) == (4.0, 0.25, 4.0, 1)
    assert found["beta_last"] == pytest.approx(0.35)
    assert (found["held_out_reward"], found["held_out_kl"], found["path"]) == (0.5, 3.5, [1.0, 2.0, 5.0, 3.0])


def one(controller, seed, kl, target=None, beta=None, settled=20, error=0.1):
    return {
        "controller": controller,
        "target": target,
        "beta": beta,
        "seed": seed,
        "kl": kl,
        "error": target and error,
        "settled": target and settled,
        "steps": 120,
        "beta_last": 0.05,
        "held_out_reward": 0.4,
        "held_out_kl": kl,
        "path": [kl] * 120,
    }


def said(target_kl, slow_kl, quick_error, fixed_kl):
    runs = [one(hold.FIXED, seed, kl, beta="0.05") for seed, kl in enumerate(fixed_kl)]
    for seed in range(3):
        runs.append(one(hold.HELD, seed, target_kl[seed], 4.0, settled=30 + seed))
        runs.append(one(hold.SLOW, seed, slow_kl, 4.0, settled=None, error=0.6))
        runs.append(one(hold.QUICK, seed, 4.0, 4.0, error=quick_error))
    section = hold.section({"runs": runs})
    return {claim.claim: (claim.measured, claim.held) for claim in section.expectations}, section


def test_what_holds_is_said_to_hold():
    claims, section = said((4.0, 4.2, 3.8), 8.0, 0.3, (2.0, 3.0, 6.0))
    assert claims["`Target` holds 4 nats"] == ("0.0 ± 2.9 %; 30, 31, 32", True)
    assert claims["a fixed beta buys another KL with each seed: its largest over its least"] == ("3 at 0.05", True)
    assert claims["`Target` makes seeds alike: its largest KL over its least"] == ("1.11 at 4", True)
    assert [held for _, held in claims.values()] == [True] * 5
    assert "| 4 | Ziegler, 10,000 | 8 ± 0 | 100 ± 0 % | 60 ± 0 % | –, –, – |" in section.parts[1]


def test_what_does_not_hold_is_said_not_to():
    claims, _ = said((5.0, 6.0, 4.9), 4.2, 0.05, (2.0, 2.1, 2.2))
    assert [held for _, held in claims.values()] == [False] * 5
