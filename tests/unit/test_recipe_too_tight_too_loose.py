"""What too_tight_too_loose says of runs, on handwritten numbers."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import pytest  # noqa: E402

from recipes.too_tight_too_loose import evidence as tight  # noqa: E402

START = {
    "gold": 0.1,
    "people": 0.0,
    "proxy": 0.0,
    "kl": 0.0,
    "entropy": 4.0,
    "distinct_2": 0.9,
    "repeated_4gram": 0.0,
    "length": 12.0,
}


def one(beta, seed, gold, proxy, kl, distinct=0.85, alarms=()):
    after = START | {"gold": gold, "people": gold, "proxy": proxy, "kl": kl, "distinct_2": distinct}
    texts = [["the film", "is *fine*"], ["a play", "of two"]]
    return {"beta": beta, "seed": seed, "before": START, "after": after, "alarms": list(alarms), "texts": texts}


HILL = [
    run
    for seed, noise in enumerate((-0.01, 0.0, 0.01))
    for run in (
        one("0.01", seed, 0.2 + noise, 9.0, 60.0, 0.1, ["kl/far"]),
        one("0.1", seed, 0.5 + 2 * noise, 2.0, 4.0),
        one("10", seed, 0.1 + noise, 0.1, 0.001),
    )
]


def said(runs):
    section = tight.section({"runs": runs, "recommended": ["Take beta=0.1.", "Runner-up: none.", "More."]})
    return section, {claim.claim: (claim.measured, claim.held) for claim in section.expectations}


def test_a_hill_is_said_to_be_one():
    section, claims = said(HILL)
    assert all(held for _, held in claims.values())
    assert claims["gold is higher in between than at beta 0.01"][0] == "0.3000 ± 0.0058"
    assert claims["at the loose end it says the same: distinct bigrams over the reference's"][0] == "0.111 ± 0"
    assert "> Take beta=0.1. Runner-up: none." in section.parts
    assert "*beta = 10:* is \\*fine\\*" in section.parts[-1]
    assert "| 0.01 | 0.2000 ± 0.0058 |" in section.parts[1]
    assert "3 of 3" in section.parts[1]


def test_a_slope_is_not_called_a_hill():
    slope = [
        run | {"after": run["after"] | {"gold": {"0.01": 0.9, "0.1": 0.5, "10": 0.1}[run["beta"]]}} for run in HILL
    ]
    claims = said(slope)[1]
    assert claims["gold is higher in between than at beta 0.01"] == ("0 ± 0", False)
    assert claims["gold is higher in between than at beta 10"][1]


def test_what_does_not_fall_or_fall_apart_is_said_not_to():
    calm = [run | {"after": run["after"] | {"proxy": 1.0, "kl": 1.0, "distinct_2": 0.8}, "alarms": []} for run in HILL]
    claims = said(calm)[1]
    assert claims["the larger beta, the less the proxy"] == ("in 0 of 2", False)
    assert claims["and the monitor warns"] == ("in 0 of 3", False)
    assert [held for claim, (_, held) in claims.items() if "end" in claim] == [False, False]


def test_the_beta_of_a_seed_is_chosen_by_the_others():
    gold = {("0.01", 0): 0.0, ("0.01", 1): 0.9, ("0.1", 0): 0.5, ("0.1", 1): 0.4}
    runs = [one(beta, seed, value, 0.0, 0.0) for (beta, seed), value in gold.items()]
    assert tight.leads(runs, "0.1") == pytest.approx([-0.5, 0.0])
