"""What ensembles says of runs, on handwritten numbers."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from recipes.ensembles import evidence as ensembles  # noqa: E402

ENDS = {ensembles.FREE: 0.0, ensembles.ONE: 0.2, "mean": 0.3, "worst case": 0.4, "mean minus sd": 0.5}


def measured(ends, fall=0.2):
    """Three seeds a hundredth apart, each falling from its best to its end."""
    runs = []
    for reward, end in ends.items():
        for seed in range(3):
            last = end + 0.01 * seed * (reward != ensembles.FREE)
            numbers = {"gold": [0.1, end + fall, last], "proxy": [0.0, 1.0, 2.0], "kl": [0.0, 2.0, 5.0]}
            runs.append(
                {"reward": reward, "seed": seed, "steps": [0, 16, 32], "distinct_2": [0.9, 0.8, 0.7], **numbers}
            )
    return {"runs": runs}


def test_what_is_published_is_said_to_hold():
    section = ensembles.section(measured(ENDS))
    assert all(claim.held for claim in section.expectations)
    said = {claim.claim: claim.measured for claim in section.expectations}
    assert said["worst case ends above mean"] == "0.100 ± 0"
    assert said["a small price helps: gold at the end with it and without"] == "0.2100 ± 0.0058"
    assert "| one | 0.4 ± 0 | 0.2100 ± 0.0058 | 2 ± 0 | 5 ± 0 |" in section.parts[1].replace("0.400", "0.4")


def test_what_makes_no_difference_is_said_not_to_hold():
    alike = ensembles.section(measured(dict.fromkeys(ENDS, 0.3), fall=0.0))
    assert [claim.held for claim in alike.expectations] == [False] * 7
