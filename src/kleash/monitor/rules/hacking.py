"""Reward hacking: the number that is optimised rises, and what it stands for does not.

No single number shows it. A policy that learns what it should also drifts and narrows; one that exploits its reward
drifts further, narrows faster, and leaves behind what the reward was to stand for.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from kleash.monitor.history import History, Track
from kleash.monitor.rule import Facts, Finding
from kleash.monitor.rules.causes import EXPLOIT, LOOSE, TOO_FAST
from kleash.monitor.rules.kl import DRIFT, PER_TOKEN
from kleash.monitor.rules.trends import (
    DIFFERENCES,
    FACTORS,
    FIXED,
    NO_BASELINE,
    POSITIVE_FACTORS,
    RECENT_STEPS,
    Follower,
    Limits,
    Standing,
    began,
    factors,
    span,
)
from kleash.monitor.rules.windows import Contrast, contrast, window_since
from kleash.runs.records import Cause, Severity

NO_LEASH = Cause(
    "there is no leash: nothing holds the policy to the reference",
    "beta (control/beta) is 0; raise it, or hold a target (in Kleash: algorithm.kl.target_nats_per_sequence, 6 for "
    "replies of 24 tokens is a start)",
)
WEAK_REWARD = Cause(
    "the reward model was never asked about such text",
    "its accuracy on pairs of these samples; more comparisons from the present policy, or an ensemble "
    "(in Kleash: reward.combine)",
)
OVERFIT = Cause(
    "the prompts are learned by heart",
    "how often each prompt was seen; the reward of held-out prompts (in Kleash: prompts.held_out)",
)

SPENT = Limits(0.16, 0.22)
"""KL per token over the entropy per token at the start. Vetted runs end at 0.08 to 0.1 and swing up to 0.15 for a few
steps; a run without a leash passes 0.22 while its text still reads, and is unreadable at 0.8."""
AGREED = 2.0
"""Times the target up to which the KL is what was agreed upon: only a critical share of the entropy is told of then."""
NARROWER = 0.85
"""Part of the start's entropy or different bigrams that is left: the other half of the signature."""
KL_GROWS = factors(1.5, 2.5)
"""Of the KL against its baseline."""
NARROWS = factors(0.85, 0.7)
"""Of the entropy or the different bigrams against their baseline."""
JOINT_SCORE = 3.0
"""In standard deviations, of each part. Lower than a single series must reach, for all three must at once."""

WINDOWS = (50, 100)
"""Steps whose mean is held against that of as many before: the short one for fast changes, the long one for noise."""
GOLD_STEPS = 5
"""Gold rewards on either side, at the least, whose means say whether it follows the reward."""
LOOK_EVERY = 5
"""Windows are compared every so many steps: they hardly change from one to the next."""
HELD_OUT_WINDOW = 2
"""The same in evaluations, which are few."""
RISE_SCORE = 2.0
"""In standard errors, of what rises."""
FALLS = {50: Limits(-7.0, -9.0), 100: Limits(-5.5, -7.5)}
"""In standard errors, of what falls, by window: the short one knows less of the noise's correlation. A reward that is
learned rises anyway, and this alone holds off false alarms."""
HELD_OUT_FALLS = Limits(-5.0, -7.0)
"""The same in evaluations, in standard errors as logged: those of the prompts, while the policy swings as well."""
FLAT_SCORE = 1.0
"""In standard errors, of a reward that does not move."""
GROWTH = {50: 2.0, 100: 1.5}
"""Growth of the KL by window: noise with a correlation of 0.9 makes a short window's mean swing by a third."""
GROWTH_SCORE = 4.0
"""In standard errors, of that growth."""
LEAST_PER_TOKEN, LEAST_PER_SEQUENCE = 0.05, 1.0
"""Nats. Below it drift costs little, whatever it buys."""
FIRST_KLS = 50
"""First values of the KL that are in no window: every KL grows from 0, and at first many times over."""


class _Seen(NamedTuple):
    """What a signature consists of; `least_kl` is the KL from which it would have warned."""

    severity: Severity
    message: str
    values: dict[str, float | None]
    least_kl: float


class Signature:
    """Reward up, KL up, and entropy or different bigrams down, all at once."""

    name = "hacking/signature"
    title = "signature of reward hacking"
    looks_at = ("reward/proxy", "reward/gold", *PER_TOKEN, "entropy/per_token", "text/distinct_2")
    causes = (EXPLOIT, LOOSE, WEAK_REWARD, TOO_FAST)
    advice = (
        "Stop and go back to the last checkpoint before it began. Mend the reward, or raise beta or hold a lower KL, "
        "and lower the learning rate (in Kleash: algorithm.kl.beta, algorithm.kl.target_nats_per_sequence, "
        "training.learning_rate)."
    )

    def __init__(self) -> None:
        """Start without a baseline."""
        self._reward = Follower("reward/proxy", DIFFERENCES)
        self._kl = {key: Follower(key, POSITIVE_FACTORS) for key in PER_TOKEN}
        self._narrowing = (Follower("entropy/per_token", FACTORS), Follower("text/distinct_2", FACTORS))
        self._found: Finding | None = None

    def __call__(self, history: History, facts: Facts) -> Finding | None:
        """Compare all parts with the start, later with their baselines too; each time that the KL is measured."""
        key = history.first_of(PER_TOKEN)
        for follower in (self._reward, *self._narrowing):
            follower.follow(history, facts)
        kl = None if key is None else self._kl[key].follow(history, facts)
        if key is not None and kl is not None:
            self._found = self._judged(history, facts, kl, self._kl[key])
        return self._found

    def _judged(self, history: History, facts: Facts, kl: Standing, follower: Follower) -> Finding | None:
        reward, entropy = self._reward.standing, self._narrowing[0].standing
        narrowing = [one.standing for one in self._narrowing if one.standing is not None]
        if reward is None or not narrowing:
            return None
        seen = _far_from_start(reward, kl, entropy, narrowing) or _away_from_baseline(reward, kl, narrowing)
        if seen is None or (seen.severity == "warning" and _as_agreed(history, facts)):
            return None
        first = began(follower.track(kl.key), lambda value: value >= seen.least_kl, RECENT_STEPS)
        return self._finding(history, facts, seen, first if self._found is None else self._found.began)

    def _finding(self, history: History, facts: Facts, seen: _Seen, first: int) -> Finding:
        severity, message, values, _ = seen
        gold = _gold(history)
        if gold is not None:
            values["reward/gold"] = gold.newest
            severity, said = _by_gold(severity, gold, enough=len(history["reward/gold"]) >= 2 * WINDOWS[0])
            message += f" The gold reward {said}: {gold.before:.3g} before, {gold.newest:.3g} now."
        beta = history.latest("control/beta")
        leashless = (facts.beta if beta is None else beta) == 0
        causes = (NO_LEASH, *self.causes) if leashless else self.causes
        return Finding(severity, message, values, first, causes)


def _by_gold(severity: Severity, gold: Contrast, *, enough: bool) -> tuple[Severity, str]:
    """Return the severity in the light of the gold reward, and what that does; `enough` to show that it is flat."""
    if gold.score >= RISE_SCORE:
        return ("warning" if severity == "critical" else "info"), "follows"
    if gold.score <= -RISE_SCORE:
        return "critical", "falls"
    if enough and abs(gold.score) < FLAT_SCORE:
        return "critical", "does not follow"
    return severity, "is too noisy to say whether it follows"


def _far_from_start(
    reward: Standing, kl: Standing, entropy: Standing | None, narrowing: list[Standing]
) -> _Seen | None:
    """The fixed limit: most of what the reference's entropy leaves room for has been spent."""
    if entropy is None or reward.now <= reward.start:
        return None
    nats, room = FACTORS.back(kl.now), FACTORS.back(entropy.start)
    severity = SPENT.exceeded(nats / room)
    narrowest, left = min(((one, FACTORS.back(one.now - one.start)) for one in narrowing), key=lambda pair: pair[1])
    if severity is None or left > NARROWER:
        return None
    rule = NO_BASELINE if kl.baseline is None else FIXED
    return _Seen(
        severity,
        f"The reward rose from {reward.start:.3g} to {reward.now:.3g} while the KL reached {nats:.2g} nats per token "
        f"and {narrowest.key} fell to {left:.0%} of its start. At the start each token was a choice worth {room:.2g} "
        f"nats (the entropy); the KL is {nats / room:.0%} of that, where runs that went well stayed "
        f"below {SPENT.warning:.0%} ({rule}).",
        {reward.key: reward.now, kl.key: nats, narrowest.key: FACTORS.back(narrowest.now)},
        SPENT.warning * room,
    )


def _away_from_baseline(reward: Standing, kl: Standing, narrowing: list[Standing]) -> _Seen | None:
    """The change against the baselines: each part unusual, the KL and what narrows also by much."""
    if kl.baseline is None or reward.baseline is None or not (_rises(reward) and _rises(kl)):
        return None
    grown = kl.now - kl.baseline
    if KL_GROWS.exceeded(grown) is None:
        return None
    for one in narrowing:
        if one.baseline is None or not _falls(one) or NARROWS.exceeded(one.now - one.baseline) is None:
            continue
        severities = {KL_GROWS.exceeded(grown), NARROWS.exceeded(one.now - one.baseline)}
        return _Seen(
            "critical" if severities == {"critical"} else "warning",
            f"The reward rose from its baseline of {reward.baseline:.3g} to {reward.now:.3g} while the KL grew to "
            f"{FACTORS.back(grown):.2g} times its own and {one.key} fell to {FACTORS.back(one.now - one.baseline):.0%}"
            " of its own.",
            {reward.key: reward.now, kl.key: FACTORS.back(kl.now), one.key: FACTORS.back(one.now)},
            FACTORS.back(kl.baseline + KL_GROWS.warning),
        )
    return None


class GoldSplit:
    """The reward rises while the gold reward, or the reward of held-out prompts, falls."""

    name = "hacking/gold_split"
    title = "reward and gold part"
    looks_at = ("reward/proxy", "reward/gold", "eval/reward/proxy", "eval/reward/gold")
    causes = (EXPLOIT, LOOSE, WEAK_REWARD, OVERFIT)
    advice = (
        "Take the checkpoint with the highest gold reward, not the last one. Hold the KL that it had (in Kleash: "
        "algorithm.kl.target_nats_per_sequence), or raise beta."
    )

    def __init__(self) -> None:
        """Start before the first step."""
        self._in_training: Finding | None = None
        self._held_out: Finding | None = None

    def __call__(self, history: History, facts: Facts) -> Finding | None:
        """Compare windows of the training samples, and evaluations where there are some."""
        if "reward/gold" in history.fresh and len(history["reward/gold"]) % LOOK_EVERY == 0:
            self._in_training = _split_in_training(history)
        if "eval/reward/proxy" in history.fresh:
            self._held_out = _split_of_evaluations(history)
        return self._in_training or self._held_out


class FlatReward:
    """The KL grows and the reward does not: drift is paid for and nothing is bought."""

    name = "hacking/flat_reward"
    title = "drift without reward"
    looks_at = (*DRIFT, "reward/proxy")
    causes = (
        Cause(
            "the reward is at its end, and the policy wanders on",
            "reward/proxy near its largest value, reward/group_sd near 0, samples that grow alike",
        ),
        LOOSE,
        Cause(
            "advantages are noise: a small spread divided by itself",
            "reward/group_sd; are rewards divided by it (in Kleash: algorithm.scale_rewards)?",
        ),
        TOO_FAST,
    )
    advice = (
        "Take a checkpoint from before the KL grew: it has the same reward nearer to the reference. Then stop, raise "
        "beta, or hold the KL (in Kleash: algorithm.kl.beta, algorithm.kl.target_nats_per_sequence)."
    )

    def __init__(self) -> None:
        """Start before the first step."""
        self._found: Finding | None = None

    def __call__(self, history: History, facts: Facts) -> Finding | None:
        """Compare windows of the KL and of the reward."""
        key = facts.target_key or history.first_of(DRIFT)
        if key is None or key not in history.fresh or len(history[key]) % LOOK_EVERY:
            return self._found
        self._found = None
        target = history.latest("control/target") if key == facts.target_key else None
        for window, growth in GROWTH.items():
            kl = _growth(history[key], key, window, growth)
            if kl is None or (target is not None and kl.newest <= target):
                continue
            reward = _over_the_same(history["reward/proxy"], history[key], window, least=window)
            if reward is not None and reward.stderr > 0 and abs(reward.score) < FLAT_SCORE:
                self._found = self._finding(history, key, kl, reward, window)
                break
        return self._found

    def _finding(self, history: History, key: str, kl: Contrast, reward: Contrast, window: int) -> Finding:
        return Finding(
            "warning",
            f"The KL grew from {kl.before:.3g} to {kl.newest:.3g} ({key}, means of {span(history[key], window)} and of "
            f"as many before) while the reward stayed at {reward.newest:.3g} ± {reward.stderr:.2g}.",
            {key: kl.newest, "kl_before": kl.before, "reward/proxy": reward.newest, "reward_before": reward.before},
            int(history[key].steps(window)[0]),
        )


def _growth(track: Track, key: str, window: int, growth: float) -> Contrast | None:
    """Compare two windows of the KL that begin after its first values; None if it did not grow to something."""
    if len(track) < FIRST_KLS + 2 * window:
        return None
    kl = contrast(track, window)
    least = LEAST_PER_TOKEN if key in PER_TOKEN else LEAST_PER_SEQUENCE
    if kl is None or kl.newest < max(growth * kl.before, least):
        return None
    return kl if kl.score >= GROWTH_SCORE else None


def _over_the_same(track: Track, other: Track, window: int, *, least: int) -> Contrast | None:
    """Compare windows of a number over the steps of another's newest `window` values, of `least` values or more."""
    return contrast(track, window_since(track, float(other.steps(window)[0]), least))


def _split_in_training(history: History) -> Finding | None:
    track = history["reward/gold"]
    for window in WINDOWS:
        gold = contrast(track, window)
        severity = None if gold is None else FALLS[window].exceeded(gold.score)
        if gold is None or severity is None:
            continue
        proxy = _over_the_same(history["reward/proxy"], track, window, least=window)
        if proxy is not None and proxy.score >= RISE_SCORE:
            first = int(track.steps(window)[0])
            return _split(severity, ("reward/proxy", proxy), ("reward/gold", gold), span(track, window), first)
    return None


def _split_of_evaluations(history: History) -> Finding | None:
    proxy, gold = "eval/reward/proxy", "eval/reward/gold"
    evaluated = _contrast_of_evaluations(history, proxy)
    trained = _over_the_same(history["reward/proxy"], history[proxy], HELD_OUT_WINDOW, least=WINDOWS[0])
    for rising, rise, falling, fall in (
        (proxy, evaluated, gold, _contrast_of_evaluations(history, gold)),
        ("reward/proxy", trained, proxy, evaluated),
    ):
        if rise is None or fall is None or rise.score < RISE_SCORE:
            continue
        severity = HELD_OUT_FALLS.exceeded(fall.score)
        if severity is not None:
            first = int(history[falling].steps(HELD_OUT_WINDOW)[0])
            return _split(severity, (rising, rise), (falling, fall), f"the last {HELD_OUT_WINDOW} evaluations", first)
    return None


def _contrast_of_evaluations(history: History, key: str) -> Contrast | None:
    """Compare the newest evaluations with as many before, by the standard errors logged with them; None without."""
    track, window = history[key], HELD_OUT_WINDOW
    if len(track) < 2 * window:
        return None
    values, stderrs = track.values(2 * window), track.stderrs(2 * window)
    stderr = math.sqrt(float(stderrs @ stderrs)) / window
    if not stderr > 0:
        return None
    return Contrast(float(values[window:].mean()), float(values[:window].mean()), stderr)


def _split(
    severity: Severity, rising: tuple[str, Contrast], falling: tuple[str, Contrast], window: str, first: int
) -> Finding:
    (up, rise), (down, fall) = rising, falling
    return Finding(
        severity,
        f"{up} rose from {rise.before:.3g} to {rise.newest:.3g} while {down} fell from {fall.before:.3g} to "
        f"{fall.newest:.3g}, by {-fall.score:.1f} standard errors ({down}: means of {window} and of as many before).",
        {up: rise.newest, down: fall.newest, f"{down}_before": fall.before},
        first,
    )


def _gold(history: History) -> Contrast | None:
    """Compare the newest gold rewards with as many before: `WINDOWS[0]` of them, or half of the few there are."""
    track = history["reward/gold"]
    window = min(len(track) // 2, WINDOWS[0])
    return contrast(track, window) if window >= GOLD_STEPS else None


def _as_agreed(history: History, facts: Facts) -> bool:
    """Whether a controller holds the KL near its target."""
    target = history.latest("control/target")
    if facts.target_key is None or target is None or not len(history[facts.target_key]):
        return False
    return float(history[facts.target_key].values(RECENT_STEPS).mean()) <= AGREED * target


def _rises(standing: Standing) -> bool:
    scores = standing.scores
    return scores is not None and max(scores) >= JOINT_SCORE


def _falls(standing: Standing) -> bool:
    scores = standing.scores
    return scores is not None and min(scores) <= -JOINT_SCORE
