"""Which value a sweep recommends, over made-up evaluations."""

from pathlib import Path

import pytest

from kleash.errors import DataError
from kleash.frontier.points import Mean, Source
from kleash.frontier.points import Point as Measured
from kleash.sweep.points import Point
from kleash.sweep.recommend import recommend

HERE = Path("here")


def point(beta, seed=None):
    values = {"algorithm.kl.beta": beta} if beta is not None else {}
    values |= {"training.seed": seed} if seed is not None else {}
    return Point("-".join(values.values()), values, {})


def measured(run, gold, kl, step=10, stderr=0.02, alarms=(), gold_is="lexicon"):
    source = Source(run.name, "RLOO", "exact", "proxy", gold_is)
    return Measured(source, step, Mean(kl, 0.1), None, Mean(gold, stderr), HERE, alarms)


def found_in(rewards, max_kl=None):
    """Recommend among runs, each with evaluations of (gold, KL)."""
    evaluations = {
        run: [measured(run, gold, kl, 10 * i) for i, (gold, kl) in enumerate(pairs, 1)]
        for run, pairs in rewards.items()
    }
    return recommend(list(rewards), evaluations, max_kl, "gold")


def test_the_best_checkpoint_of_each_value_is_compared():
    found = found_in({
        point("0"): [(0.5, 2.0), (0.2, 30.0)],
        point("0.05"): [(0.3, 1.0), (0.8, 4.0)],
        point("0.2"): [(0.3, 0.5), (0.4, 1.0)],
    })  # fmt: skip
    assert [value.label for value in found.values] == ["beta=0.05", "beta=0", "beta=0.2"]
    assert found.best.best_run.at == 20
    assert found.runner_up.label == "beta=0"
    assert found.told_apart
    said = found.sentences()
    assert said[0] == "Take beta=0.05: gold 0.800 ± 0.020 at 4.00 ± 0.10 nats per sequence, the best of 3 values."
    assert said[1] == (
        "Runner-up: beta=0, gold 0.500 ± 0.020 at 2.00 ± 0.10 nats per sequence; 0.300 ± 0.028 less, told apart."
    )
    assert "one run each: how much runs scatter is not in it" in said[2]


def test_a_limit_on_kl_changes_the_choice():
    found = found_in({point("0"): [(0.5, 2.0)], point("0.05"): [(0.8, 4.0)], point("0.2"): [(0.4, 1.0)]}, max_kl=3)
    assert found.best.label == "beta=0"
    said = found.sentences()
    assert "the best of 3 values within 3 nats per sequence" in said[0]
    assert said[-1] == (
        "beta=0.05 does not qualify: KL's 95 % interval reaches above 3 nats per sequence (1 of its points)."
    )


def test_values_that_cannot_be_told_apart_are_named_with_the_one_that_drifts_least():
    found = found_in({point("0"): [(0.50, 9.0)], point("0.05"): [(0.49, 4.0)], point("0.2"): [(0.48, 1.0)]})
    assert not found.told_apart
    assert found.nearest.label == "beta=0.2"
    said = " ".join(found.sentences())
    assert "not told apart at 95 %" in said
    assert "Nearest to the start among those that the best cannot be told from: beta=0.2, gold 0.480" in said


def test_equal_rewards_go_to_the_one_that_drifts_less():
    assert found_in({point("0"): [(0.5, 9.0)], point("0.1"): [(0.5, 2.0)]}).best.label == "beta=0.1"


def test_seeds_are_repeats_of_a_value():
    runs = {
        point("0", "0"): [(0.50, 4.0)], point("0", "1"): [(0.54, 4.4)], point("0", "2"): [(0.58, 4.2)],
        point("0.1", "0"): [(0.70, 2.0)], point("0.1", "1"): [(0.80, 2.2)], point("0.1", "2"): [(0.75, 2.1)],
    }  # fmt: skip
    found = found_in(runs)
    best = found.best
    assert best.label == "beta=0.1"
    assert best.reward.value == pytest.approx(0.75)
    assert best.spread == pytest.approx(0.05)
    assert best.reward.stderr == pytest.approx(0.05 / 3**0.5)
    assert best.kl.value == pytest.approx(2.1)
    assert best.best_run.source.name == "0.1-1"
    assert found.told_apart
    assert "± is over 3 seeds, whose rewards have a standard deviation of 0.0500." in found.sentences()


def test_two_seeds_that_scatter_tell_nothing_apart():
    runs = {
        point("0", "0"): [(0.30, 4.0)], point("0", "1"): [(0.60, 4.0)],
        point("0.1", "0"): [(0.50, 2.0)], point("0.1", "1"): [(0.80, 2.0)],
    }  # fmt: skip
    found = found_in(runs)
    assert found.best.label == "beta=0.1"
    assert not found.told_apart


def test_a_value_that_goes_wrong_with_one_seed_does_not_qualify():
    good, bad, other = point("0", "0"), point("0", "1"), point("0.1", "0")
    evaluations = {
        good: [measured(good, 0.9, 4.0)],
        bad: [measured(bad, 0.9, 4.0, alarms=("hacking/gold_split",))],
        other: [measured(other, 0.4, 1.0)],
    }
    found = recommend([good, bad, other, point("0.1", "1")], evaluations, None, "gold")
    assert found.best is None
    said = found.sentences()
    assert said[0] == "No value qualifies."
    assert said[1] == (
        "beta=0 does not qualify: seed 1: Under a warning or critical alarm (hacking/gold_split) (1 of its points)."
    )
    assert said[2] == "beta=0.1 does not qualify: seed 1: nothing was measured on held-out prompts."


def test_a_best_value_at_the_edge_is_said():
    said = found_in({point("0.1"): [(0.3, 4.0)], point("0.2"): [(0.5, 3.0)], point("0.4"): [(0.9, 2.0)]}).sentences()
    assert "algorithm.kl.beta = 0.4 is the largest value tried: a better one may lie beyond." in said
    inside = found_in({point("0.1"): [(0.3, 4.0)], point("0.2"): [(0.9, 3.0)], point("0.4"): [(0.5, 2.0)]}).sentences()
    assert not any("may lie beyond" in sentence for sentence in inside)
    at_zero = found_in({point("0"): [(0.9, 4.0)], point("0.2"): [(0.5, 3.0)]}).sentences()
    assert not any("may lie beyond" in sentence for sentence in at_zero)


def test_a_sweep_of_seeds_alone_gives_the_mean():
    said = found_in({point(None, "0"): [(0.5, 2.0)], point(None, "1"): [(0.7, 2.0)]}).sentences()
    assert said[0] == "Over 2 seeds: gold 0.60 ± 0.10 at 2 ± 0 nats per sequence."


def test_the_start_is_said_to_be_the_start():
    run, other = point("0"), point("0.1")
    evaluations = {
        run: [measured(run, 0.5, 0.0, step=0), measured(run, 0.2, 3.0)],
        other: [measured(other, 0.5, 0.0, step=0), measured(other, 0.1, 2.0)],
    }
    said = recommend([run, other], evaluations, None, "gold").sentences()
    assert said[1] == "That is where training started: none of the values has gained anything."


def test_different_rewards_are_not_ranked():
    run, other = point("0"), point("0.1")
    evaluations = {run: [measured(run, 0.5, 1.0)], other: [measured(other, 50.0, 1.0, gold_is="length")]}
    with pytest.raises(DataError, match="different gold rewards"):
        recommend([run, other], evaluations, None, "gold")


def test_a_runner_up_that_drifts_least_is_said_once():
    said = found_in({point("0"): [(0.50, 9.0)], point("0.05"): [(0.49, 4.0)]}).sentences()
    assert said[2] == "The runner-up is the nearest to the start among those that the best cannot be told from."
    assert not any(sentence.startswith("Nearest") for sentence in said)
