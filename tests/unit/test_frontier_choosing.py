"""Which checkpoint is chosen, which never is, and what is said when none qualifies."""

from pathlib import Path

import pytest

from kleash.errors import ConfigError, DataError
from kleash.frontier.choosing import choose
from kleash.frontier.pareto import pareto_front
from kleash.frontier.points import BEST_OF_N, EXACT, Mean, Point, Source

RUN = Source("runs/a", "RLOO", EXACT, "functions proxy", "gold")
OTHER = Source("runs/b", "PPO", EXACT, "functions proxy", "gold")
CHOSEN_FROM = Source("best.json", BEST_OF_N, "ranks", "functions proxy", "gold")
SAVED = Path("checkpoint")


def point(at, kl, gold, *, source=RUN, proxy=0.5, saved=True, alarms=(), stderr=0.02, kl_stderr=0.1):
    return Point(
        source=source,
        at=at,
        kl=Mean(kl, kl_stderr),
        proxy=None if proxy is None else Mean(proxy, stderr),
        gold=None if gold is None else Mean(gold, stderr),
        checkpoint=SAVED if saved else None,
        alarms=alarms,
    )


def test_the_best_gold_is_chosen_and_the_next_best_told_apart():
    points = [point(10, 1, 0.3), point(20, 3, 0.6), point(30, 6, 0.4)]
    found = choose(points)
    assert (found.chosen, found.runner_up, found.nearest) == (points[1], points[2], points[1])
    assert found.told_apart
    assert (found.lead.value, found.lead.stderr) == pytest.approx((0.2, 0.02 * 2**0.5))
    assert found.exclusions == ()
    assert found.sentences() == [
        "Best gold reward: runs/a step 20 (RLOO), gold 0.600 ± 0.020 at 3.00 ± 0.10 nats.",
        "Runner-up: runs/a step 30 (RLOO), gold 0.400 ± 0.020 at 6.00 ± 0.10 nats; 0.200 ± 0.028 less, told apart.",
    ]


def test_what_is_as_good_within_noise_and_nearer_is_told_within_one_method():
    points = [point(10, 1, 0.58), point(20, 3, 0.6), point(5, 0.5, 0.59, source=OTHER)]
    found = choose(points)
    assert found.chosen == points[1]
    assert not found.told_apart
    assert found.nearest == points[0]
    assert "not told apart at 95 %" in found.sentences()[1]
    assert found.sentences()[2].startswith("As good within noise and nearest to the start: runs/a step 10")


def test_the_limit_must_be_kept_by_the_whole_interval():
    points = [point(10, 2, 0.3), point(20, 3.9, 0.6, kl_stderr=0.1)]
    assert choose(points, max_kl=4.2).chosen == points[1]
    found = choose(points, max_kl=4.0)  # 3.9 + 1.96 * 0.1 = 4.096
    assert found.chosen == points[0]
    (over,) = found.exclusions
    assert over.sentence == "KL's 95 % interval reaches above 4 nats per sequence: runs/a step 20."
    assert "Nothing else qualifies." in found.sentences()


def test_a_suspect_one_is_never_chosen_however_good():
    suspect = point(30, 2, 0.99, alarms=("hacking/signature", "kl/spike"))
    found = choose([suspect, point(10, 1, 0.3)])
    assert found.chosen.at == 10
    assert found.runner_up is None
    assert found.sentences()[-1] == (
        "Under a warning or critical alarm (hacking/signature, kl/spike): runs/a step 30."
    )  # fmt: skip


def test_when_nothing_qualifies_each_group_has_its_sentence():
    points = [
        point(10, 1, 0.3, alarms=("kl/ramp",)),
        point(20, 2, 0.4, saved=False),
        point(30, 9, 0.5),
        point(40, 2, None),
        *(point(n, 1, 0.4, source=CHOSEN_FROM, saved=False) for n in (1, 2, 4, 8, 16)),
    ]
    found = choose(points, max_kl=5)
    assert (found.chosen, found.runner_up, found.nearest, found.lead) == (None, None, None, None)
    assert not found.told_apart
    assert found.sentences() == [
        "No checkpoint qualifies within 5 nats per sequence.",
        "Best-of-n is a way of sampling and no checkpoint: best.json n = 1, best.json n = 2, best.json n = 4, "
        "best.json n = 8 and 1 more.",
        "Without a held-out gold reward: runs/a step 40.",
        "Under a warning or critical alarm (kl/ramp): runs/a step 10.",
        "No checkpoint on disk: runs/a step 20.",
        "KL's 95 % interval reaches above 5 nats per sequence: runs/a step 30.",
    ]


def test_by_proxy():
    points = [point(10, 1, 0.9, proxy=0.1), point(20, 2, 0.1, proxy=0.9)]
    assert choose(points, by="proxy").chosen == points[1]


def test_a_reward_without_an_error_is_told_apart_from_nothing():
    found = choose([point(10, 1, 0.3, stderr=None), point(20, 1, 0.9, stderr=None)])
    assert found.chosen.at == 20
    assert not found.told_apart


def test_rewards_that_differ_are_not_ranked():
    other = Source("runs/c", "RLOO", EXACT, "model rm", "gold")
    points = [point(10, 1, 0.3), point(10, 1, 0.4, source=other)]
    assert choose(points).chosen == points[1]
    with pytest.raises(DataError, match=r"functions proxy in runs/a; model rm in runs/c.* or choose by gold"):
        choose(points, by="proxy")


@pytest.mark.parametrize(("by", "advice"), [("gold", "set reward.gold"), ("proxy", "choose by gold")])
def test_a_reward_that_nobody_measured(by, advice):
    points = [point(10, 1, None if by == "gold" else 0.3, proxy=None if by == "proxy" else 0.3)]
    with pytest.raises(DataError, match=f"No point has a held-out {by} reward.*{advice}"):
        choose(points, by=by)


@pytest.mark.parametrize("limit", [0.0, -1.0, float("nan")])
def test_a_limit_that_is_none(limit):
    with pytest.raises(ConfigError, match=f"max_kl = {limit}"):
        choose([point(10, 1, 0.3)], max_kl=limit)


def test_the_front_keeps_what_cannot_be_told_apart():
    start, cheap, dear = point(0, 0, 0.1), point(10, 1, 0.50), point(20, 5, 0.52)
    worse = point(30, 6, 0.2)  # less reward than `dear` for more drift, both beyond noise
    alike = point(40, 5.05, 0.51)  # a little less for a little more, both within noise of `dear`
    hacked = point(50, 0.5, 0.9, alarms=("kl/spike",))
    assert pareto_front([worse, dear, hacked, start, alike, cheap], "gold") == [start, cheap, dear, alike]


def test_the_front_drops_equal_reward_for_clearly_more_drift():
    near, far = point(10, 1, 0.5), point(20, 3, 0.5)
    assert pareto_front([near, far, point(30, 1, None)], "gold") == [near]
