import json
from itertools import pairwise

import numpy as np
import pytest

from kleash.errors import DataError
from kleash.gauge.forecast import Forecast, favoured, forecast
from kleash.gauge.forecast_page import NOT_CLAIMED, headline, notes, numbers, paste, render
from kleash.gauge.tilting import PromptDraws

NAN = float("nan")


def draws(prompt, reward, gold=None):
    reward = np.array(reward, dtype=float)
    texts = [f"{prompt} reply {i}" for i in range(len(reward))]
    gold = None if gold is None else np.array(gold, dtype=float)
    return PromptDraws(prompt, texts, reward, reward, gold, np.full(len(reward), 4.0))


def prompts(gold=None, count=24, samples=64, spread=1.0):
    rng = np.random.default_rng(0)
    rows = spread * rng.normal(size=(count, samples))
    return [draws(f"prompt {i}", row, None if gold is None else gold(row, rng)) for i, row in enumerate(rows)]


def test_the_range_begins_where_the_kl_is_negligible_and_ends_where_claims_do():
    found = forecast(prompts(), None)
    betas = [point.beta for point in found.points]
    assert betas == sorted(betas, reverse=True)
    assert found.points[0].predicted.kl.value == pytest.approx(0.01, rel=0.1)
    assert all(point.predicted for point in found.points[:-1])
    assert found.points[-1].predicted is None
    ratios = [a / b for a, b in pairwise(betas)]
    assert ratios == pytest.approx([2**0.5] * len(ratios), rel=0.06)


def test_the_range_follows_the_scale_of_the_reward():
    small, large = forecast(prompts(), None), forecast(prompts(spread=1000.0), None)
    assert large.points[0].beta == pytest.approx(1000 * small.points[0].beta, rel=0.05)
    assert large.spread == pytest.approx(1000 * small.spread)


def test_betas_that_are_asked_for_and_the_runs_own():
    found = forecast(prompts(), [4.0, 2.0], also=3.0)
    assert [point.beta for point in found.points] == [4.0, 3.0, 2.0]
    assert len(forecast(prompts(), [4.0, 2.0], also=2.0).points) == 2


def test_gold_that_rises_with_the_reward_asks_for_the_longest_leash_that_is_claimed():
    found = forecast(prompts(gold=lambda row, rng: row + 0.1 * rng.normal(size=len(row))), None)
    claimed = [point for point in found.points if point.predicted]
    assert found.suggestion.beta == claimed[-1].beta
    assert found.suggestion.kl == claimed[-1].predicted.kl.value
    assert "gold still rises there, and these samples tell nothing about a longer leash" in found.suggestion.reason


def test_gold_that_turns_over_ends_the_leash_before_it_does():
    """Gold peaks at a reward of 0.5: an optimum with a mean reward of 1 / beta is past it at beta = 1."""
    found = forecast(prompts(gold=lambda row, _: -((row - 0.5) ** 2), count=40, samples=128), [8, 4, 2, 1.4])
    gains = [point.predicted.gold_per_nat for point in found.points]
    assert gains[0].low > 0 > gains[-1].high
    chosen = next(point for point in reversed(found.points) if point.predicted.gold_per_nat.low > 0)
    assert found.suggestion.beta == chosen.beta
    assert "it is the longest leash on which gold still rises beyond its interval: at beta" in found.suggestion.reason


def test_gold_that_falls_from_the_start_gets_no_suggestion():
    found = forecast(prompts(gold=lambda row, _: -row), [4.0, 2.0])
    assert (found.suggestion.beta, found.suggestion.kl) == (None, None)
    assert found.suggestion.reason.startswith("Gold does not rise with the reward beyond its interval, not even on")
    assert found.suggestion.reason.endswith("Mend the reward before training on it.")
    assert paste(found) == []
    assert headline(found) == found.suggestion.reason


def test_a_reward_that_saturates_ends_the_leash_where_a_nat_hardly_gains():
    """Half of the samples are paid 1: past log 2 nats nothing is left to gain."""
    rng = np.random.default_rng(0)
    rows = [draws(f"prompt {i}", rng.permutation(64) < 32) for i in range(24)]
    found = forecast(rows, None)
    assert "less than a quarter of the" in found.suggestion.reason
    assert 0.5 < found.suggestion.kl < 0.6931
    chosen = next(point for point in found.points if point.beta == found.suggestion.beta)
    gained = chosen.predicted.reward.value - found.start.reward.value
    assert chosen.beta < gained / chosen.predicted.kl.value / 4


def test_a_reward_without_gold_that_does_not_saturate():
    found = forecast(prompts(), None)
    assert found.suggestion.beta == found.points[-2].beta
    assert "these samples tell nothing about a longer leash, on which the reward would still rise" in headline(found)


def test_a_beta_at_which_the_kl_is_none_is_no_knee():
    found = forecast(prompts(), [1e9])
    assert found.points[0].predicted.kl.value == pytest.approx(0.0, abs=1e-9)
    assert "tell nothing about a longer leash" in found.suggestion.reason


def test_no_suggestion_where_nothing_is_claimed():
    found = forecast(prompts(count=2, samples=16), [0.1])
    assert found.suggestion.beta is None
    assert found.suggestion.reason.startswith("Nothing can be claimed at any of these betas: the effective sample size")
    assert NOT_CLAIMED in numbers(found)[1][0]


def test_the_favoured_samples_are_those_that_gain_most_one_of_a_prompt():
    rows = [draws("a", [0.0, NAN, 3.0, 2.9]), draws("b", [1.0, 0.0, 0.0, 0.0], gold=[5.0, 0, 0, 0])]
    first, second = favoured(rows, 1.0)
    e = np.exp
    assert (first.completion, first.gold, first.reward) == ("b reply 0", 5.0, 1.0)
    assert first.factor == pytest.approx(4 * e(1) / (e(1) + 3))
    assert (second.completion, second.gold) == ("a reply 2", None)
    assert second.factor == pytest.approx(3 * e(3) / (1 + e(3) + e(2.9)))


def test_constant_rewards_are_refused():
    with pytest.raises(DataError, match=r"pays all samples of a prompt the same \(1, 2\): no beta favours one over"):
        forecast([draws("a", [1.0] * 8), draws("b", [2.0] * 8)], None)


def test_rewards_that_are_none_are_refused():
    with pytest.raises(DataError, match=r"1 of 2 prompts have 4 scored samples, .* See why the reward gives no score"):
        forecast([draws("a", [1.0, 2.0, 3.0, 4.0]), draws("b", [NAN] * 4)], None)


def test_what_is_missing_is_counted_and_said():
    rows = prompts(gold=lambda row, _: row)
    rows[0].optimised[:3] = NAN
    rows.append(draws("silent", [NAN] * 64, [NAN] * 64))
    found = forecast(rows, [2.0, 0.01], notes=["the reference moves"])
    assert (found.unscored, found.left_out) == (67, 1)
    said = notes(found)
    assert said[:3] == [
        "the reference moves",
        "67 samples got no score and are left out",
        "1 prompts have too few scored samples and are left out",
    ]
    assert said[3].startswith("nothing is claimed at beta 0.01: ")


def test_the_record_is_plain_json_and_holds_nothing_that_is_not_claimed():
    found = forecast(prompts(), [2.0, 0.01], model="org/base", settings={"seed": 0}).to_dict()
    assert json.loads(json.dumps(found, allow_nan=False)) == json.loads(json.dumps(found))
    assert found["schema_version"] == 1
    assert found["points"][0]["predicted"]["kl"]["value"] == pytest.approx(1 / 8, rel=0.2)
    assert found["points"][1]["predicted"] is None
    assert found["points"][1]["reason"]


def test_the_lines_to_paste_hold_the_suggestion():
    found: Forecast = forecast(prompts(), [2.0])
    table, line = paste(found)
    assert table == "[algorithm.kl]"
    assert line == f"beta = 2  # or, to hold the KL itself: target_nats_per_sequence = {found.suggestion.kl:.3g}"


def test_the_table_has_gold_where_it_was_measured():
    assert numbers(forecast(prompts(), [2.0]))[0] == [
        "beta",
        "KL",
        "KL per token",
        "reward",
        "small-KL law",
        "effective samples",
    ]
    titles, rows = numbers(forecast(prompts(gold=lambda row, _: -row), [2.0]))
    assert titles[4] == "gold"
    assert rows[0][0] == "2"
    assert rows[0][4].startswith("−0.4")


def test_the_page_shows_charts_table_and_samples_escaped():
    rows = prompts(gold=lambda row, _: row)
    rows[0] = draws("<why>", [8.0, *rows[0].reward[1:]], rows[0].gold)
    html = render(forecast(rows, [4.0, 2.0, 0.01], model="org/base"))
    assert html.count("<figure") == 3
    assert "Plan: base" in html
    assert "&lt;why&gt;" in html
    assert "<why>" not in html
    assert "Gold reward over KL" in html
    assert "A hole in the reward that no sample of the reference shows cannot be predicted." in html
    assert html.index("beta 0.01</p>") < html.index("beta 2</p>") < html.index("beta 4</p>")
    assert render(forecast(prompts(), [4.0])).count("<figure") == 2
