"""A reward with a hole, and what copying says of runs, on handwritten numbers."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from recipes.copying import evidence as copying  # noqa: E402
from recipes.copying import rewards  # noqa: E402

START = {"proxy": 0.1, "gold": 0.0, "kl": 0.0, "distinct_2": 0.9, "overlap": 0.1}


def test_the_hole_pays_for_words_of_the_prompt():
    assert rewards.overlap("The film is a", " a film of two halves") == pytest.approx(0.4)
    assert rewards.overlap("the film", "") == 0.0
    assert rewards.proxy(["the film is"], [" the film is"]) == pytest.approx([4.0])


def test_gold_reads_the_reply_alone():
    assert rewards.gold(["wonderful, great"], [" a table"]) == [0.0]
    assert rewards.gold(["a table"], [" wonderful"])[0] > 0.5


def test_prompts_are_the_first_words_of_reviews_that_go_on(tmp_path):
    copying.write_prompts(
        tmp_path / "data" / "p.txt", ["A b c d e f g h i j", "a b c d e f g h k", "too short", "1 2 3 4 5 6 7 8 9"]
    )
    assert (tmp_path / "data" / "p.txt").read_text() == "a b c d e f g h\n1 2 3 4 5 6 7 8\n"


def one(reward, beta, seed, copied, gold, alarms=()):
    after = START | {"overlap": copied, "gold": gold, "kl": 10.0}
    texts = [["the film is", "the *film*"], ["a b", "c"]]
    run = {"reward": reward, "beta": beta, "seed": seed, "before": START, "after": after}
    return run | {"alarms": list(alarms), "texts": texts}


def runs(free=0.99, gold_free=0.0, lead=0.3, alarms=("kl/far",)):
    found = []
    for seed in range(3):
        found += [one(copying.HOLED, "0", seed, free, gold_free, alarms), one(copying.HOLED, "0.1", seed, 0.6, 0.2)]
        found += [one(copying.HOLED, "0.3", seed, 0.2, 0.1)]
        found += [one(copying.GOLD, beta, seed, 0.1, 0.2 + lead + 0.01 * seed) for beta in ("0.1", "0.3")]
    return found


def test_what_a_hole_does_is_said():
    section = copying.section({"runs": runs()})
    assert all(claim.held for claim in section.expectations)
    assert "| the proxy | 0 | 0.990 ± 0 | 0 ± 0 |" in section.parts[1]
    assert "`kl/far` 3 |" in section.parts[1]
    assert "*beta = 0.3:* the \\*film\\*" in section.parts[-1]


def test_what_does_not_hold_is_said_not_to():
    section = copying.section({"runs": runs(free=0.3, gold_free=0.5, lead=-0.3, alarms=())})
    assert [claim.held for claim in section.expectations] == [False] * 6
