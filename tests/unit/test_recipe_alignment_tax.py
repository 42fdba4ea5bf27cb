"""What alignment_tax says of models, on handwritten numbers."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from recipes.alignment_tax import evidence as tax  # noqa: E402


def measured(loss, sums, reward):
    """Loss and share of right sums by model, three seeds a thousandth apart."""
    names = (tax.PRICED, tax.PRICED_MORE, tax.MIXED, tax.MIXED_MORE)
    return {
        "pretrained": {"loss": 4.0, "sums": 0.9},
        "damaged": [{"loss": 5.0 + 0.001 * seed, "sums": 0.1} for seed in range(3)],
        "runs": [
            {
                "model": name,
                "seed": seed,
                "loss": loss[name] + 0.001 * seed,
                "sums": sums[name],
                "reward_before": 0.1,
                "reward": reward[name],
                "kl": 3.0,
            }
            for name in names
            for seed in range(3)
        ],
    }


PUBLISHED = measured(
    {tax.PRICED: 5.2, tax.PRICED_MORE: 5.0, tax.MIXED: 4.6, tax.MIXED_MORE: 4.2},
    {tax.PRICED: 0.1, tax.PRICED_MORE: 0.1, tax.MIXED: 0.4, tax.MIXED_MORE: 0.8},
    {tax.PRICED: 0.6, tax.PRICED_MORE: 0.1, tax.MIXED: 0.6, tax.MIXED_MORE: 0.55},
)


def test_the_damage_that_is_left_is_counted_from_the_pretrained_model():
    assert tax.damage_left(PUBLISHED, tax.PRICED_MORE) == pytest.approx([1.0, 1.0, 1.0])
    assert tax.damage_left(PUBLISHED, tax.MIXED_MORE)[0] == pytest.approx(0.2)


def test_what_is_published_is_said_to_hold():
    section = tax.section(PUBLISHED)
    assert all(claim.held for claim in section.expectations)
    assert section.expectations[-1].measured == "0.0500 ± 0"
    assert "| pretrained | 4.000 | 90 % |" in section.parts[1]


def test_what_does_not_hold_is_said_not_to():
    names = (tax.PRICED, tax.PRICED_MORE, tax.MIXED, tax.MIXED_MORE)
    low, same = dict.fromkeys(names, 4.1), dict.fromkeys(names, 0.1)
    worse = measured(low | {tax.MIXED_MORE: 5.0}, same, same | {tax.MIXED_MORE: -0.5})
    worse["damaged"] = [{"loss": 3.9 + 0.1 * (seed == 2) + 1e-6, "sums": 0.95} for seed in range(3)]
    assert [claim.held for claim in tax.section(worse).expectations][:2] == [False, False]
    assert [claim.held for claim in tax.section(worse).expectations][-4:] == [False, False, False, False]
