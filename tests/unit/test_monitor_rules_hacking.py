import numpy as np
import pytest
from rule_findings import findings, loudest, rows, wobbling

from kleash.monitor.rule import Facts
from kleash.monitor.rules.hacking import FlatReward, GoldSplit, Signature

HELD = Facts(target_key="kl/exact_per_sequence")


def hacked(steps=12, **instead):
    """Five steps as the reference, then a reward that rises with 0.9 nats per token of 3, and entropy at 75 %."""
    columns = {
        "reward__proxy": (0.2, 0.9),
        "kl__exact_per_token": (0.01, 0.9),
        "entropy__per_token": (3.0, 2.25),
        **instead,
    }
    return rows(**{key: [before] * 5 + [after] * (steps - 5) for key, (before, after) in columns.items()})


def test_reward_up_kl_far_and_entropy_down_is_critical():
    found = findings(Signature(), hacked())
    assert found[:6] == [None] * 6
    assert found[6].severity == "critical"
    assert found[6].began == 5
    assert found[6].values == {
        "reward/proxy": pytest.approx(0.9),
        "kl/exact_per_token": pytest.approx(0.9),
        "entropy/per_token": pytest.approx(2.25),
    }
    assert found[6].message == (
        "The reward rose from 0.2 to 0.9 while the KL reached 0.9 nats per token and entropy/per_token fell to 75% of "
        "its start. At the start each token was a choice worth 3 nats (the entropy); the KL is 30% of that, where runs "
        "that went well stayed below 16% (fixed limit: fewer than 230 measurements so far, so the run's own noise is "
        "not known)."
    )
    assert "has found what the reward likes" in found[6].causes[0].text


def test_without_a_leash_that_is_the_first_cause():
    by_log = findings(Signature(), hacked(control__beta=(0.0, 0.0)))[-1]
    by_fact = findings(Signature(), hacked(), Facts(beta=0.0))[-1]
    for found in (by_log, by_fact):
        assert found.causes[0].text == "there is no leash: nothing holds the policy to the reference"
        assert "target_nats_per_sequence" in found.causes[0].check
    assert "no leash" not in findings(Signature(), hacked(control__beta=(0.1, 0.1)))[-1].causes[0].text


@pytest.mark.parametrize(
    "change",
    [
        {"kl__exact_per_token": (0.01, 0.47)},
        {"entropy__per_token": (3.0, 2.6)},
        {"reward__proxy": (0.9, 0.9)},
        {"reward__proxy": (0.9, 0.2)},
    ],
    ids=["near", "varied", "flat", "worse"],
)
def test_two_parts_of_the_signature_are_learning(change):
    assert loudest(findings(Signature(), hacked(**change))) is None


def test_fewer_different_bigrams_do_in_place_of_entropy():
    found = findings(Signature(), hacked(entropy__per_token=(3.0, 3.0), text__distinct_2=(0.9, 0.7)))[-1]
    assert found.severity == "critical"
    assert "text/distinct_2 fell to 78% of its start" in found.message


@pytest.mark.parametrize(("nats", "severity"), [(0.49, "warning"), (0.65, "warning"), (0.67, "critical")])
def test_the_severity_is_that_of_the_share_of_the_entropy(nats, severity):
    assert loudest(findings(Signature(), hacked(kl__exact_per_token=(0.01, nats)))) == severity


def test_half_as_far_warns_unless_a_controller_holds_it_at_its_target():
    far = {"kl__exact_per_token": (0.01, 0.5), "kl__exact_per_sequence": (0.24, 12.0)}
    assert loudest(findings(Signature(), hacked(**far, control__target=(6.0, 6.0)), HELD)) is None
    assert loudest(findings(Signature(), hacked(**far, control__target=(5.0, 5.0)), HELD)) == "warning"
    assert loudest(findings(Signature(), hacked(**far))) == "warning"


def test_a_gold_reward_that_falls_makes_it_critical_and_one_that_does_weaker():
    far = {"kl__exact_per_token": (0.01, 0.5)}
    against = findings(Signature(), hacked(**far, reward__gold=(0.5, 0.4)))[-1]
    assert against.severity == "critical"
    assert against.message.endswith("The gold reward falls: 0.483 before, 0.4 now.")
    follows = findings(Signature(), hacked(**far, reward__gold=(0.3, 0.6)))[-1]
    assert follows.severity == "info"
    assert follows.message.endswith("The gold reward follows: 0.35 before, 0.6 now.")
    assert findings(Signature(), hacked(reward__gold=(0.3, 0.6)))[-1].severity == "warning"


def settled(kl=0.2, entropy=2.6, reward=0.6, steps=300):
    """A run with a baseline, and ten steps that leave it."""
    return rows(
        reward__proxy=[*wobbling(0.5, steps), *[reward] * 10],
        kl__exact_per_token=[*wobbling(0.1, steps), *[kl] * 10],
        entropy__per_token=[*wobbling(3.2, steps), *[entropy] * 10],
    )


def test_after_a_baseline_the_same_is_told_by_the_change():
    found = findings(Signature(), settled())
    assert loudest(found[:301]) is None
    assert found[-1].severity == "warning"
    assert found[-1].began == 300
    assert found[-1].message == (
        "The reward rose from its baseline of 0.5 to 0.6 while the KL grew to 2 times its own and entropy/per_token "
        "fell to 81% of its own."
    )
    assert loudest(findings(Signature(), settled(kl=0.3, entropy=2.1))) == "critical"


@pytest.mark.parametrize("change", [{"kl": 0.14}, {"entropy": 2.9}, {"reward": 0.5}, {"reward": 0.4}])
def test_after_a_baseline_two_parts_are_still_learning(change):
    assert loudest(findings(Signature(), settled(**change))) is None


def parting(proxy, gold, steps=200, seed=0):
    noise = 0.1 * np.random.default_rng(seed).standard_normal((2, steps))
    time = np.arange(steps)
    return rows(reward__proxy=0.5 + proxy * time + noise[0], reward__gold=0.5 + gold * time + noise[1])


def test_gold_that_falls_by_one_sd_in_20_steps_while_the_reward_rises_is_critical():
    found = findings(GoldSplit(), parting(0.005, -0.005))
    first = next(one for one in found if one is not None)
    assert first.severity == "critical"
    assert found.index(first) == 99
    assert first.began == 50
    assert first.message.startswith("reward/proxy rose from 0.6")
    assert "while reward/gold fell from 0.3" in first.message
    assert "(reward/gold: means of the last 50 steps and of as many before)" in first.message
    assert first.values["reward/gold"] == pytest.approx(0.5 - 0.005 * 74.5, abs=0.05)


@pytest.mark.parametrize(("proxy", "gold"), [(0.005, 0.0), (0.005, 0.002), (-0.005, -0.005), (0.0, -0.005), (0.0, 0.0)])
def test_rewards_that_do_not_part_are_not_told_of(proxy, gold):
    for seed in range(5):
        assert loudest(findings(GoldSplit(), parting(proxy, gold, seed=seed))) is None


def evaluations(proxy, gold):
    found = []
    for first, second in zip(proxy, gold, strict=True):
        found += [{"eval/reward/proxy": first, "eval/reward/gold": second}, {}, {}]
    return found


def test_held_out_rewards_are_compared_by_their_standard_errors():
    stderr = {"eval/reward/proxy": 0.03, "eval/reward/gold": 0.03}
    # Means of two fall from 0.5 to 0.32: 0.18 over sqrt(4) 0.03 / 2 = 0.03 is 6 standard errors.
    steps = evaluations([0.5, 0.5, 0.7, 0.7], [0.5, 0.5, 0.32, 0.32])
    found = findings(GoldSplit(), steps, stderr=stderr)
    assert found[:9] == [None] * 9
    assert found[9].severity == found[11].severity == "warning"
    assert found[9].began == 6
    assert "eval/reward/gold fell from 0.5 to 0.32, by 6.0 standard errors" in found[9].message
    assert loudest(findings(GoldSplit(), evaluations([0.5, 0.5, 0.7, 0.7], [0.5, 0.5, 0.28, 0.28]), stderr=stderr)) == (
        "critical"
    )
    assert (
        loudest(findings(GoldSplit(), evaluations([0.5, 0.5, 0.7, 0.7], [0.5, 0.5, 0.36, 0.36]), stderr=stderr)) is None
    )
    assert loudest(findings(GoldSplit(), steps)) is None, "without standard errors nobody can say"


def test_a_held_out_reward_that_falls_while_the_trained_one_rises_is_told_of():
    trained = parting(0.005, 0.0, steps=120)
    steps = [{"reward/proxy": row["reward/proxy"]} for row in trained]
    for number, value in zip((20, 50, 80, 119), (0.6, 0.6, 0.35, 0.35), strict=True):
        steps[number]["eval/reward/proxy"] = value
    found = findings(GoldSplit(), steps, stderr={"eval/reward/proxy": 0.03})[-1]
    assert found.severity == "critical"
    assert "while eval/reward/proxy fell from 0.6 to 0.35" in found.message


def drifting(growth, gain, steps=100, seed=0, level=4.0, before=50, key="kl__exact_per_sequence", **more):
    """Return steps of which the second half, after some that no window holds, has a larger KL."""
    noise = np.random.default_rng(seed).standard_normal((2, steps))
    noise -= noise.reshape(2, 2, -1).mean(axis=2).repeat(steps // 2, axis=1)
    half = np.repeat([0.0, 1.0], steps // 2)
    return rows(
        **{key: [level] * before + [*(level * (np.where(half, growth, 1.0) + 0.05 * noise[0]))]},
        reward__proxy=[0.6] * before + [*(0.6 + gain * half + 0.05 * noise[1])],
        **{key: [value] * (before + steps) for key, value in more.items()},
    )


def test_a_kl_that_doubles_for_no_reward_warns():
    found = findings(FlatReward(), drifting(2.5, 0.0))
    assert found[:149] == [None] * 149
    assert found[149].severity == "warning"
    assert found[149].began == 100
    assert found[149].message.startswith(
        "The KL grew from 4 to 10 (kl/exact_per_sequence, means of the last 50 steps and of as many before) while the "
        "reward stayed at 0.6 ± 0.0"
    )


@pytest.mark.parametrize(
    ("level", "key", "severity"),
    [
        (0.39, "kl__exact_per_sequence", None),
        (0.41, "kl__exact_per_sequence", "warning"),
        (0.019, "kl__k3_per_token", None),
        (0.021, "kl__k3_per_token", "warning"),
    ],
)
def test_a_kl_below_a_nat_a_sequence_or_a_twentieth_of_one_a_token_costs_nothing(level, key, severity):
    assert loudest(findings(FlatReward(), drifting(2.5, 0.0, level=level, key=key))) == severity


def test_every_kl_grows_from_zero_and_a_slow_healthy_run_is_not_told_of_it():
    for seed in range(20):
        rng, time = np.random.default_rng(seed), np.arange(1, 149)
        kl = 0.002 * time * np.exp(0.2 * rng.standard_normal(148))
        steps = rows(kl__k3_per_token=kl, reward__proxy=0.3 + 0.0005 * time + 0.1 * rng.standard_normal(148))
        assert loudest(findings(FlatReward(), steps)) is None, "its first windows begin at 0"
    assert loudest(findings(FlatReward(), drifting(2.5, 0.0, before=49))) is None


@pytest.mark.parametrize(("growth", "gain"), [(1.8, 0.0), (2.5, 0.05), (2.5, -0.05), (0.4, 0.0)])
def test_drift_that_is_small_or_buys_something_is_not_told_of(growth, gain):
    assert loudest(findings(FlatReward(), drifting(growth, gain))) is None


def test_a_kl_that_grows_towards_its_target_is_what_was_asked_for():
    held = drifting(2.5, 0.0, control__target=12.0)
    assert loudest(findings(FlatReward(), held, HELD)) is None
    assert loudest(findings(FlatReward(), drifting(2.5, 0.0, control__target=8.0), HELD)) == "warning"


def test_a_reward_that_can_not_vary_says_nothing_of_drift():
    steps = [row | {"reward/proxy": 0.5} for row in drifting(2.5, 0.0)]
    assert loudest(findings(FlatReward(), steps)) is None


def every(steps, rows_, between):
    """Return rows that are measured every so many steps, with the reward alone in between."""
    found = []
    for row in rows_:
        found += [row, *[{"reward/proxy": row["reward/proxy"]} | between] * (steps - 1)]
    return found


def test_a_kl_that_is_measured_seldom_is_held_against_the_reward_of_the_same_steps():
    sparse = every(4, drifting(2.5, 0.3), {})
    sparse[-200:] = [row | {"reward/proxy": 0.9} for row in sparse[-200:]]
    assert loudest(findings(FlatReward(), sparse)) is None, "the reward rose when the KL did, 200 steps ago"


def test_a_signature_stands_until_the_kl_is_measured_again():
    found = findings(Signature(), every(5, hacked(), {}))
    assert [number for number, one in enumerate(found) if one] == list(range(30, 60))
    assert found[30].began == 25, "the reward is judged as newly as it is known, the KL when it is measured"


def noisy_gold(rise, noise, seed, steps=120):
    """Return a run that drifts far while its gold reward rises by so much, with so much noise."""
    share, normal = np.arange(steps) / steps, np.random.default_rng(seed).standard_normal((2, steps))
    return rows(
        reward__proxy=3.0 * share + 0.1 * normal[0],
        kl__exact_per_token=0.76 * share + 1e-9,
        entropy__per_token=4.0 - 0.8 * share,
        reward__gold=rise * share + noise * normal[1],
    )


def test_a_gold_reward_that_rises_under_noise_makes_nothing_critical():
    severities = [loudest(findings(Signature(), noisy_gold(1.0, 0.5, seed))) for seed in range(20)]
    assert severities.count("critical") <= 1


def test_a_gold_reward_that_is_flat_over_fifty_steps_makes_it_critical():
    severities = [loudest(findings(Signature(), noisy_gold(0.0, 0.5, seed))) for seed in range(20)]
    assert severities.count("critical") >= 16


def test_a_few_gold_rewards_that_say_nothing_leave_the_severity():
    far = {"kl__exact_per_token": (0.01, 0.5)}
    gold = [0.3, 0.7] * 6
    found = findings(Signature(), [row | {"reward/gold": one} for row, one in zip(hacked(**far), gold, strict=True)])[
        -1
    ]
    assert found.severity == "warning"
    assert found.message.endswith("The gold reward is too noisy to say whether it follows: 0.5 before, 0.5 now.")
