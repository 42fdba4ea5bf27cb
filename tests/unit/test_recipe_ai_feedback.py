"""What ai_feedback says of judges and policies, on handwritten numbers."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from recipes.ai_feedback import evidence as feedback  # noqa: E402


def measured(agreement, alike, judge, lexicon):
    asked = {
        "asked": 48,
        "agreement": agreement,
        "position_bias": 1 - agreement,
        "ties": 40,
        "right_without_position": 0.5,
    }
    runs = [
        {"labels": name, "seed": seed, "gold_before": 0.1, "gold": gold + 0.01 * seed, "kl": 3.0, "distinct_2": 0.9}
        for name, gold in ((feedback.JUDGE, judge), (feedback.LEXICON, lexicon))
        for seed in range(3)
    ]
    return {"asked": asked, "alike": alike, "runs": runs}


def test_a_pair_is_turned_round():
    assert feedback.turned({"prompt": "p", "chosen": "a", "rejected": "b"}) == {
        "prompt": "p",
        "chosen": "b",
        "rejected": "a",
    }


def test_what_holds_is_said_to():
    section = feedback.section(measured(0.02, 0.7, 0.49, 0.49))
    assert all(claim.held for claim in section.expectations)
    assert [claim.measured for claim in section.expectations][2:] == ["0.4000 ± 0.0058", "1.00"]
    assert "| judge | 0.5000 ± 0.0058 | 3 ± 0 |" in section.parts[3]


def test_what_does_not_is_said_not_to():
    section = feedback.section(measured(0.9, 0.5, 0.05, 0.5))
    assert [claim.held for claim in section.expectations] == [False] * 4
