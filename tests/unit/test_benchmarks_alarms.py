"""The measurement of alarms: its healthy runs, its faults, the published rules, its counting, its page."""

from __future__ import annotations

import math
import re
import sys
import xml.etree.ElementTree
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.alarms import measure, nulls, page, picture, published, results, scenarios, traces  # noqa: E402
from benchmarks.alarms.numbers import Array, Numbers  # noqa: E402
from kleash.runs.records import Event, Step  # noqa: E402

STEADY = slice(300, None)


def lag_1(values: Array) -> float:
    return float(np.corrcoef(values[1:], values[:-1])[0, 1])


@pytest.mark.parametrize(("kind", "correlation"), [("independent", 0.0), ("ar", 0.9)])
def test_the_log_kl_of_a_healthy_run_has_the_stated_level_noise_and_autocorrelation(
    kind: str, correlation: float
) -> None:
    log_kl = np.log(nulls.healthy(kind, 20_000, 1).values["kl/exact_per_sequence"][STEADY])
    assert np.mean(log_kl) == pytest.approx(math.log(6), abs=0.03)
    assert np.std(log_kl) == pytest.approx(0.2, abs=0.01)
    assert lag_1(log_kl) == pytest.approx(correlation, abs=0.03)


@pytest.mark.parametrize(("kind", "correlation"), [("independent", 0.0), ("ar", 0.9)])
@pytest.mark.parametrize(
    ("key", "mean", "sd"),
    [
        ("reward/proxy", 0.70, 0.08),
        ("reward/gold", 0.50, 0.07),
        ("entropy/per_token", 3.0, 0.14),
        ("length/mean", 60.0, 5.5),
        ("text/distinct_2", 0.905, 0.015),
    ],
)
def test_other_series_have_theirs(kind: str, correlation: float, key: str, mean: float, sd: float) -> None:
    values = nulls.healthy(kind, 20_000, 2).values[key][STEADY]
    assert np.mean(values) == pytest.approx(mean, abs=0.15 * sd)
    assert np.std(values) == pytest.approx(sd, rel=0.07)
    assert lag_1(values) == pytest.approx(correlation, abs=0.03)


def test_stop_rates_are_shares_of_32_replies_with_their_binomial_noise() -> None:
    rates = nulls.healthy("independent", 20_000, 3).values["length/stop_rate"]
    assert set(np.unique(rates * 32 % 1)) == {0.0}
    assert np.mean(rates) == pytest.approx(0.95, abs=0.002)
    assert np.std(rates) == pytest.approx(math.sqrt(0.95 * 0.05 / 32), rel=0.05)


def test_the_root_of_the_kl_ramps_linearly_to_the_target_within_12_steps() -> None:
    kl = nulls.controlled_kl(20)
    assert kl[0] == 0
    assert kl[6] == pytest.approx(1.5)
    assert kl[12:].tolist() == [6.0] * 8


def test_held_out_measurements_come_every_10_steps_and_standard_errors_stand_beside_means() -> None:
    steps = nulls.null("ar", 21, 0)
    with_held_out = [step.step for step in steps if "eval/reward/proxy" in step.metrics]
    assert with_held_out == [0, 10, 20]
    assert steps[5].stderr["kl/exact_per_sequence"] > 0
    assert not any(key.startswith("eval/control/") for key in steps[10].metrics)


def test_held_out_rewards_vary_as_their_standard_errors_say() -> None:
    numbers = nulls.healthy("independent", 20_000, 4)
    rewards = numbers.values["eval/reward/proxy"][300::10]
    assert np.std(rewards) == pytest.approx(np.median(numbers.stderrs["eval/reward/proxy"][300::10]), rel=0.15)


def test_the_same_seed_gives_the_same_run_and_another_seed_another() -> None:
    first, again, other = (nulls.null("ar", 5, seed) for seed in (7, 7, 8))
    assert first == again
    assert first != other


def test_resampling_keeps_the_start_then_takes_blocks_of_the_steady_part() -> None:
    real = Numbers({"a": np.arange(500.0)}, {})
    values = nulls.resampled(real, 20_000, 0).values["a"]
    assert values[:200].tolist() == list(range(200))
    later = values[200:]
    assert later.min() == 200
    assert later.max() == 499
    joints = np.sum((np.diff(later) != 1) & (np.diff(later) != 200 - 499))
    assert len(later) / joints == pytest.approx(50, rel=0.15)


def test_a_fault_leaves_the_steps_before_it_alone() -> None:
    numbers = nulls.healthy("ar", scenarios.LONGEST, 5)
    for name, scenario in scenarios.SCENARIOS.items():
        if not scenario.other_log:
            changed = scenarios.faulty(scenario, numbers, 300)
            assert changed.steps(0, 300) == numbers.steps(0, 300), name
            assert changed.steps(300, 310) != numbers.steps(300, 310), name


def factor(name: str, key: str, delay: int) -> float:
    numbers = nulls.healthy("independent", scenarios.LONGEST, 6)
    changed = scenarios.faulty(scenarios.SCENARIOS[name], numbers, 300)
    return float(changed.values[key][300 + delay] / numbers.values[key][300 + delay])


@pytest.mark.parametrize(
    ("name", "key", "delay", "expected"),
    [
        ("ramp_100", "kl/exact_per_sequence", 100, 2),
        ("ramp_100", "kl/exact_per_token", 200, 4),
        ("ramp_25", "kl/exact_per_sequence", 25, 2),
        ("spike_4", "kl/exact_per_sequence", 0, 4),
        ("spike_4", "kl/exact_per_sequence", 4, 4),
        ("spike_4", "kl/exact_per_sequence", 5, 1),
        ("entropy_collapse", "entropy/per_token", 10, 0.2 + 0.8 / math.e),
        ("entropy_collapse", "eval/entropy/per_token", 300, 0.2),
        ("length_blow_up", "length/mean", 300, 3),
        ("length_blow_up", "length/stop_rate", 300, 0.2 / 0.95),
        ("length_blow_up", "kl/exact_per_sequence", 300, 1),
        ("loop", "text/distinct_2", 300, 1 / 3),
        ("no_signal", "reward/group_sd", 40, 0),
        ("hacking", "kl/exact_per_sequence", 60, 3),
        ("hacking", "entropy/per_token", 60, 0.6),
        ("gold_split", "kl/exact_per_sequence", 60, 1.5),
    ],
)
def test_a_fault_does_what_its_title_says(name: str, key: str, delay: int, expected: float) -> None:
    assert factor(name, key, delay) == pytest.approx(expected, rel=1e-6)


def test_a_log_of_another_trainer_has_sampled_kl_per_token_and_it_falls_below_zero() -> None:
    steps, onset = scenarios.scenario("negative_foreign", "independent", 4)
    assert 250 <= onset <= 600
    assert [key for key in steps[0].metrics if key.startswith("kl/")] == ["kl/k1_per_token"]
    after = [step.metrics["kl/k1_per_token"] for step in steps[onset + 20 :]]
    assert sum(after) / len(after) == pytest.approx(-1 / 60, abs=0.005)


def noise(rho: float, runs: int, steps: int) -> list[Array]:
    rng = np.random.default_rng(11)
    made = []
    for _ in range(runs):
        values = [rng.standard_normal()]
        for shock in math.sqrt(1 - rho**2) * rng.standard_normal(steps - 1):
            values.append(rho * values[-1] + shock)
        made.append(np.array(values))
    return made


@pytest.mark.parametrize(("rho", "rolling", "frozen"), [(0.0, 0.47, 0.40), (0.9, 0.35, 0.47)])
def test_rlwatch_rules_cry_wolf_as_often_as_its_own_detector(rho: float, rolling: float, frozen: float) -> None:
    runs = [6 * np.exp(0.2 * values) for values in noise(rho, 100, 1000)]
    for rule, expected in ((published.rolling_z, rolling), (published.frozen_z, frozen)):
        worst = [rule(kl).max() for kl in runs]
        assert np.mean([level >= 1 for level in worst]) > 0.85
        assert np.mean([level == 2 for level in worst]) == pytest.approx(expected, abs=0.15)


@pytest.mark.parametrize(("rho", "share"), [(0.0, 0.16), (0.9, 0.94)])
def test_a_cusum_holds_on_independent_noise_and_not_under_autocorrelation(rho: float, share: float) -> None:
    found = [published.cusum(values).max() > 0 for values in noise(rho, 100, 1000)]
    assert np.mean(found) == pytest.approx(share, abs=0.12)


def test_the_rolling_score_looks_at_the_99_values_before() -> None:
    kl = np.exp(np.random.default_rng(0).standard_normal(300))
    kl[250] = 1.01 * (kl[151:250].mean() + 3 * kl[151:250].std())
    levels = published.rolling_z(kl)
    assert levels[250] == published.WARNING
    kl[250] = 0.99 * (kl[151:250].mean() + 3 * kl[151:250].std())
    assert published.rolling_z(kl)[250] == published.SILENT


def test_low_entropy_counts_steps_in_a_row() -> None:
    entropy = np.full(200, 0.5)
    entropy[:30] = 2.0
    entropy[120] = 2.0
    levels = published.low_entropy(entropy)
    assert np.flatnonzero(levels == 1)[[0, -1]].tolist() == [54, 169]
    assert np.flatnonzero(levels == 2)[[0, -1]].tolist() == [79, 199]
    assert levels[120] == 0


def test_fixed_limits_of_published_rules() -> None:
    kl = np.array([-1.5, -0.5, 5.0, 9.5, 10.5])
    assert published.negative_kl(kl).tolist() == [1, 0, 0, 0, 0]
    assert published.outside_0_10(kl).tolist() == [1, 1, 0, 0, 1]
    assert published.above_target(kl / 6).tolist() == [0, 0, 0, 2, 2]


def test_reward_variance_is_held_against_the_first_20_steps_after_50() -> None:
    variance = np.ones(100)
    variance[[30, 60, 70]] = 4, 4, 7
    assert np.flatnonzero(published.reward_variance(variance)).tolist() == [60, 70]
    assert published.reward_variance(variance)[[60, 70]].tolist() == [1, 2]


def test_an_alarm_that_speaks_again_within_20_steps_has_not_begun_anew() -> None:
    levels = np.zeros(100, dtype=np.int64)
    levels[[10, 12, 30, 31, 52]] = 1, 1, 1, 2, 1
    onsets = measure.published_onsets("rule", levels)
    assert [(onset.step, onset.severity) for onset in onsets] == [(10, "warning"), (31, "critical"), (52, "warning")]


def test_ends_and_information_are_no_alarms() -> None:
    events = [
        Event(1, "warning", "a", "m"),
        Event(2, "info", "b", "m"),
        Event(3, "info", "a", "m", ends=True),
        Event(4, "critical", "c", "m"),
    ]
    assert [onset.rule for onset in measure.kleash_onsets(events)] == ["a", "c"]


def test_the_interval_of_a_rate_is_the_exact_poisson_one() -> None:
    low, high = measure.Rate(10, 1000).interval
    assert (low, high) == (pytest.approx(4.795, abs=0.001), pytest.approx(18.390, abs=0.001))
    low, high = measure.Rate(0, 1000).interval
    assert (low, high) == (0, pytest.approx(-math.log(0.025)))


def test_an_alarm_before_the_fault_detects_nothing() -> None:
    onsets = [
        measure.Onset(99, "critical", "early"),
        measure.Onset(104, "warning", "a"),
        measure.Onset(109, "critical", "b"),
    ]
    found = measure.detection(onsets, 100, 50)
    assert (found.first, found.critical, found.speaker) == (4, 9, ("a", "warning"))
    assert measure.detection(onsets[:1], 100, 50).first == math.inf
    assert measure.detection(onsets, 100, 4).speaker is None


def test_quantiles_of_delays_are_infinite_where_too_many_are_missed() -> None:
    each = [measure.Detection(delay, math.inf, None) for delay in (1, 2, 3, 4, 5, 6, 7, 8, math.inf, math.inf)]
    found = measure.Detections(each)
    assert found.delay(0.5) == 5
    assert found.delay(0.9) == math.inf
    assert found.caught_before(4) == 0.3


def test_a_trace_keeps_four_digits_and_what_was_not_measured() -> None:
    steps = [
        Step(0, {"reward/proxy": 0.123456, "time/total": 3.0, "eval/reward/proxy": 1.0}, {"reward/proxy": 0.01}),
        Step(1, {"reward/proxy": 7.0, "eval/reward/proxy": None}),
    ]
    again = traces.from_csv(traces.to_csv(steps)).steps()
    assert again[0] == Step(0, {"eval/reward/proxy": 1.0, "reward/proxy": 0.1235}, {"reward/proxy": 0.01})
    assert again[1] == Step(1, {"reward/proxy": 7.0})


def made_up(warnings: int, delay: float) -> results.Results:
    said = Counter({("kl/ramp", "warning"): warnings})
    sets = (measure.KLEASH, *published.PUBLISHED)
    healthy = {rules: measure.FalseAlarms(10, 20_000, 9, said) for rules in sets}
    each = [measure.Detection(delay, math.inf, ("kl/ramp", "warning"))] * 20
    faulty = {name: {rules: measure.Detections(each) for rules in sets} for name in scenarios.SCENARIOS}
    return results.Results(
        results.QUICK, dict.fromkeys(nulls.KINDS, healthy), dict.fromkeys(nulls.SCRIPTED, faulty), []
    )


@pytest.mark.parametrize(
    ("warnings", "delay", "rate", "spikes", "collapse"),
    [
        (1, 2.0, "kept: 0.25 (0.01 to 1.39)", "kept: 100 %, 100 %", "kept: 2, 2, 2 steps"),
        (5, 12.0, "**not kept:** 1.25 (0.41 to 2.92)", "**not kept:** 0 %, 0 %", "**not kept:** 12, 12, 12 steps"),
    ],
)
def test_the_page_says_which_promises_are_kept(
    warnings: int, delay: float, rate: str, spikes: str, collapse: str
) -> None:
    rows = page.promises(made_up(warnings, delay)).splitlines()
    assert "| at most 1 false critical alarm in 20,000 steps | kept: 0.00 (0.00 to 3.69) |" in rows[2]
    assert f"| at most 1 false warning in 5,000 steps | {rate} | {rate} | {rate} |" == rows[3]
    assert rows[6].startswith(f"| a KL spike of 4x or more is spoken of within 3 steps, in 90 % | {spikes} |")
    assert f"| {collapse} |" in rows[7]


def test_the_page_and_its_picture_name_every_rule_and_fault() -> None:
    found = made_up(1, 2.0)
    text, drawing = page.markdown(found), picture.svg(found)
    for scenario in scenarios.SCENARIOS.values():
        assert scenario.title in text
    for name in published.PUBLISHED:
        assert f"| {name} |" in text
        assert f">{name}</text>" in drawing
    assert not re.search(r"[{}]|nan|None", text)
    xml.etree.ElementTree.fromstring(drawing)


def seeds_on_the_page(words: str) -> range:
    page = (ROOT / "docs" / "alarms.md").read_text(encoding="utf-8")
    found = re.search(words, " ".join(page.split()))
    assert found is not None
    first, last = (int(group.replace(",", "")) for group in found.groups())
    return range(first, last + 1)


def test_the_page_names_seeds_of_evaluation_that_chose_no_threshold() -> None:
    number = r"([\d,]+)"
    choosing = seeds_on_the_page(rf"chosen on runs of the seeds {number} to {number}\.")
    evaluated = [
        seeds_on_the_page(rf"the seeds {number} to {number} \(healthy\)"),
        seeds_on_the_page(rf"{number} to {number} \(faulty\)"),
    ]
    assert choosing == results.CHOOSING_SEEDS == range(10_000)
    for seeds in evaluated:
        assert seeds.start >= 1_000_000 > choosing.stop
    assert evaluated[0].stop <= evaluated[1].start
    for seeds in (results.CHOOSING.healthy_seeds, results.CHOOSING.faulty_seeds):
        assert set(seeds) <= set(choosing)
