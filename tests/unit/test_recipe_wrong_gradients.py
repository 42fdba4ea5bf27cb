"""What wrong_gradients says of runs, on handwritten numbers."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from recipes.wrong_gradients import evidence as wrong  # noqa: E402

START = {"kl": 0.0, "reward": 0.1, "entropy": 4.0, "distinct_2": 0.9}


def runs(kl, reward):
    """Three seeds of each penalty, a hundredth apart."""
    return [
        {
            "penalty": penalty,
            "seed": seed,
            "before": START,
            "after": START | {"kl": kl[penalty] + 0.01 * seed, "reward": reward.get(penalty, 0.5)},
            "curves": {"kl": [0.0, kl[penalty]], "reward": [0.1, 0.5]},
        }
        for penalty in wrong.PENALTIES
        for seed in range(3)
    ]


AS_PUBLISHED = {
    wrong.EXACT: 1.0,
    wrong.K1_REWARD: 1.2,
    wrong.K3_LOSS: 1.5,
    wrong.K1_LOSS: 28.0,
    wrong.K3_REWARD: 12.0,
    wrong.NONE: 30.0,
}


def test_what_is_published_is_said_to_hold():
    section = wrong.section({"runs": runs(AS_PUBLISHED, {wrong.NONE: 0.99})})
    assert [claim.held for claim in section.expectations] == [True] * 7
    measured = {claim.claim: claim.measured for claim in section.expectations}
    assert measured["exact reaches more of the objective than k1 in the loss"] == "2.70 ± 0"
    assert measured["and ends as if there were none: its KL over that of no penalty"] == "0.933"
    assert "| no penalty | 30.0100 ± 0.0058 | 0.990 ± 0 | 4 ± 0 | 0.900 ± 0 | −2.01 ± 5.77e−4 |" in section.parts[1]


def test_penalties_that_all_hold_alike_are_not_called_wrong():
    alike = wrong.section({"runs": runs(dict.fromkeys(wrong.PENALTIES, 1.0), {})})
    assert [claim.held for claim in alike.expectations] == [True, False, True, False, False, False, False]
