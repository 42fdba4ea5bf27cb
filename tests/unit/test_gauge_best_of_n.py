import json
import math
from itertools import combinations

import numpy as np
import pytest

from kleash.errors import DataError
from kleash.gauge.best_of_n import (
    PromptSamples,
    best_of_n_weights,
    choice_probabilities,
    estimate,
    kl_estimate,
    measure,
    sampled_kl,
    win_rate,
)
from kleash.gauge.best_of_n_page import headline, notes, numbers, render

NAN = float("nan")


def samples(prompt, proxy, gold=None):
    texts = [f"{prompt} reply {i}" for i in range(len(proxy))]
    return PromptSamples(prompt, texts, np.array(proxy), None if gold is None else np.array(gold))


def measured(*prompts, sizes=(1, 2), **settings):
    return measure(list(prompts), sizes, model="org/base", settings=settings)


def test_the_weights_count_the_sets_whose_best_a_sample_is():
    sets = list(combinations(range(7), 3))
    counts = np.bincount([max(one) for one in sets], minlength=7)
    np.testing.assert_allclose(best_of_n_weights(7, 3), counts / len(sets), rtol=1e-13)


@pytest.mark.parametrize(("total", "n"), [(1, 1), (5, 1), (5, 5), (2000, 1000)])
def test_the_weights_sum_to_one_where_binomials_would_overflow(total, n):
    weights = best_of_n_weights(total, n)
    assert weights.sum() == pytest.approx(1.0, abs=1e-12)
    assert weights[-1] == pytest.approx(n / total)
    assert not weights[: n - 1].any()


def test_samples_that_tie_share_their_weight():
    # of the 3 pairs, two hold the last sample; the tied pair is shared by its two members
    found = choice_probabilities(np.array([1.0, 5.0, 1.0]), 2)
    np.testing.assert_allclose(found, [1 / 6, 2 / 3, 1 / 6])


def test_an_estimate_is_the_mean_over_prompts_with_its_standard_error():
    rewards = np.array([[0.0, 1.0, 2.0], [3.0, 3.0, 6.0]])
    # pairs of the first prompt: best 1, 2, 2; of the second: 3, 6, 6
    found = estimate(rewards, rewards, 2)
    assert found.value == pytest.approx((5 / 3 + 5) / 2)
    assert found.stderr == pytest.approx((5 - 5 / 3) / 2)
    assert found.prompts == 2
    assert estimate(rewards[:1], rewards[:1], 2).stderr is None


def test_gold_is_that_of_the_sample_the_proxy_chooses():
    found = estimate(np.array([[0.0, 1.0, 2.0]]), np.array([[10.0, 20.0, -5.0]]), 3)
    assert found.value == -5.0


def test_the_win_rate_of_distinct_rewards_is_n_over_n_plus_one():
    rewards = np.arange(9.0)[None]
    for n in (1, 2, 8):
        assert win_rate(rewards, rewards, n).value == pytest.approx(n / (n + 1))
    assert win_rate(np.ones((1, 4)), np.ones((1, 4)), 2).value == 0.5


def test_a_spread_of_rounding_alone_is_none():
    """Every prompt's win rate with n = 1 is a half, whatever its rewards."""
    rewards = np.random.default_rng(0).normal(size=(30, 7)).round()
    assert win_rate(rewards, rewards, 1).stderr == 0.0
    assert win_rate(rewards, rewards, 2).stderr > 0.0


def test_samples_without_a_score_are_left_out_and_prompts_with_too_few():
    rewards = np.array([[NAN, 4.0, 2.0, NAN], [NAN, NAN, 1.0, NAN]])
    found = estimate(rewards, rewards, 2)
    assert (found.value, found.prompts) == (4.0, 1)
    with pytest.raises(DataError, match=r"No prompt has 3 scored samples; the most is 2 of 4\. Draw more"):
        win_rate(rewards, rewards, 2)


def test_an_n_that_the_samples_do_not_allow_is_refused():
    for n in (0, 4):
        with pytest.raises(ValueError, match=f"n = {n}: .* from 3 samples for n from 1 to 3"):
            best_of_n_weights(3, n)


@pytest.mark.parametrize("n", [1, 2, 16])
def test_the_sampled_kl_without_ties_is_the_bound_and_with_ties_less(n):
    bound = math.log(n) - (n - 1) / n
    assert sampled_kl(np.random.default_rng(0).normal(size=40), n) == pytest.approx(bound, abs=1e-12)
    assert sampled_kl(np.full(40, 3.0), n) == 0.0
    partly = sampled_kl(np.array([0.0, 1.0, 1.0, 1.0, 2.0, 5.0]), n)
    assert 0 <= partly < bound or n == 1
    assert kl_estimate(np.array([[0.0, 1.0], [2.0, 2.0]]), n if n < 3 else 2).prompts == 2


def test_a_measurement_holds_every_size_and_says_what_is_chosen():
    found = measured(
        samples("Why?", [1.0, 2.0, 0.0, 3.0], [5.0, 4.0, 5.0, NAN]),
        samples("How?", [1.0, 1.0, NAN, 1.0], [0.0, 0.0, 0.0, 0.0]),
        sizes=(1, 2),
    )
    one, two = found.sizes
    assert one.proxy.value == pytest.approx((1.5 + 1.0) / 2)
    assert two.proxy.value == pytest.approx(((1 + 2 + 3 + 2 + 3 + 3) / 6 + 1.0) / 2)
    assert two.kl_bound == pytest.approx(math.log(2) - 1 / 2)
    # three samples have gold, and the pairs' best by proxy have 5, 4 and 4; the prompt with ties has 0 throughout
    assert two.gold.value == pytest.approx((13 / 3 + 0) / 2)
    assert (found.prompts, found.samples, found.unscored) == (2, 4, 1)
    assert found.tied_share == pytest.approx(3 / 7)
    why, how = found.examples
    assert [(choice.n, choice.completion, choice.gold) for choice in why.choices] == [
        (1, "Why? reply 0", 5.0),
        (2, "Why? reply 1", 4.0),
    ]
    assert [choice.completion for choice in how.choices] == ["How? reply 0", "How? reply 0"]


def test_the_record_is_plain_json():
    found = measured(samples("Why?", [1.0, 0.0, 2.0]), sizes=(2,)).to_dict()
    assert json.loads(json.dumps(found, allow_nan=False)) == json.loads(json.dumps(found))
    assert found["schema_version"] == 1
    assert found["sizes"][0]["proxy"] == {"value": pytest.approx(5 / 3), "stderr": None, "prompts": 1}
    assert found["sizes"][0]["gold"] is None


def test_the_sentence_and_the_notes_say_what_matters():
    found = measured(samples("a", [0.0, 1.0, 1.0, 2.0]), samples("b", [0.0, 1.0, NAN, NAN]), sizes=(1, 2))
    assert headline(found) == (
        "Best of 2: reward 1.25 ± 0.25, up from 0.75 ± 0.25 of a single sample, for at most 0.193 nats per sequence."
    )
    tied, unscored, few = notes(found)
    assert tied.startswith("33\u202f% of the samples share their reward")
    assert unscored == "2 samples got no score and are left out"
    assert few == "1 prompts have too few scored samples for the largest n"


def test_the_table_has_gold_where_it_was_measured():
    titles, rows = numbers(measured(samples("a", [0.0, 1.0, 2.0])))
    assert titles == ["n", "reward", "win rate", "KL at most", "KL with sampled ties"]
    assert rows == [["1", "1", "0.500", "0", "0"], ["2", "1.67", "0.667", "0.193", "0.193"]]
    titles, rows = numbers(measured(samples("a", [0.0, 1.0, 2.0], [3.0, 2.0, 1.0])))
    assert titles[3:5] == ["gold", "gold win rate"]
    assert rows[1][3:5] == ["1.33", "0.333"]


def test_the_page_shows_charts_table_and_samples_escaped():
    html = render(
        measured(samples("<why>", [0.0, 1.0, 2.0], [3.0, 2.0, 1.0]), samples("b", [1.0, 1.0, 0.0], [0.0] * 3))
    )
    assert html.count("<figure") == 6
    assert "Gold reward over √(KL bound)" in html
    assert "&lt;why&gt; reply 0" in html
    assert "<why>" not in html
    assert "Best of 1" in html
    assert "The KL is at most log n − (n − 1)/n, reached where draws never tie." in html
    assert "by gold" not in render(measured(samples("a", [0.0, 1.0, 2.0])))
