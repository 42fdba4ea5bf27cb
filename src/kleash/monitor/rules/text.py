"""Text: loops within a reply, fewer different words, the same reply to every prompt."""

from __future__ import annotations

from kleash.monitor.history import History
from kleash.monitor.rule import Facts, Finding
from kleash.monitor.rules.trends import DIFFERENCES, FACTORS, Limits, Watch, began, beginning, factors, newest
from kleash.runs.records import Cause

LOOPS_FROM_START = Limits(0.1, 0.25)
"""Shares of 4-grams. Text of a healthy model repeats one in a hundred; at one in four it is hard to read on."""
LOOPS_FROM_BASELINE = Limits(0.08, 0.2)
"""The same against what the run had settled on."""
DISTINCT_FROM_START = factors(0.8, 0.6)
"""Runs that learn keep 0.9 of the reference's different bigrams; at half of them the text counts as unreadable."""
DISTINCT_FROM_BASELINE = factors(0.8, 0.6)
"""The same: the share depends on how many tokens a step has, and hardly on chance."""
SAME_ANSWER = factors(0.5, 0.3)
"""Part of the different bigrams that is left when n replies share theirs: towards 1 / n."""
WITHOUT_LOOPS = 0.1
"""Rise of the repeated 4-grams up to which the loss of bigrams is not put down to loops within a reply."""


class Repetition:
    """Replies repeat their own words."""

    name = "text/repetition"
    title = "loops"
    looks_at = ("text/repeated_4gram",)
    causes = (
        Cause(
            "a phrase that the reward likes is written again and again",
            "samples with the highest reward: which phrase repeats, and does a second copy of it raise the reward?",
        ),
        Cause("the leash is too loose", "the KL when it began; control/beta at 0 or at its floor"),
        Cause("replies run on to the limit for want of a stop token", "length/stop_rate, and how the samples end"),
        Cause("the learning rate is too high", "the learning rate; optim/grad_norm when it began"),
    )
    advice = (
        "Go back to a checkpoint before it began. Raise beta or hold a lower KL (in Kleash: algorithm.kl.beta, "
        "algorithm.kl.target_nats_per_sequence), and let the reward count a phrase once."
    )

    def __init__(self) -> None:
        """Start without a baseline."""
        self._watch = Watch(
            "text/repeated_4gram", DIFFERENCES, from_start=LOOPS_FROM_START, from_baseline=LOOPS_FROM_BASELINE
        )

    def __call__(self, history: History, facts: Facts) -> Finding | None:
        """Compare the newest share with the start, later with the baseline."""
        shift = self._watch.look(history, facts)
        if shift is None:
            return None
        message = (
            f"{shift.now:.0%} of the 4-grams already occurred in the same reply; it was {shift.level:.1%} of "
            f"{shift.against}."
        )
        return Finding(shift.severity, message, shift.values, shift.began)


class Diversity:
    """The replies of a step have fewer different bigrams than those of the first steps, which are the reference's."""

    name = "text/diversity"
    title = "diversity falling"
    looks_at = ("text/distinct_2",)
    causes = (
        Cause(
            "the replies turn into what the reward likes best",
            "samples of the newest step beside the first step's; reward/group_sd falling with it",
        ),
        Cause("replies loop", "text/repeated_4gram"),
        Cause("the leash is too loose to keep the reference's variety", "the KL when it began; control/beta"),
        Cause(
            "a step has more or longer replies than before: more text repeats more", "length/mean, and the batch size"
        ),
    )
    advice = (
        "Read the samples. If they are poorer, go back to a checkpoint before it began, and raise beta or hold a lower "
        "KL (in Kleash: algorithm.kl.beta, algorithm.kl.target_nats_per_sequence)."
    )

    def __init__(self) -> None:
        """Start without a baseline."""
        self._watch = Watch(
            "text/distinct_2", FACTORS, from_start=DISTINCT_FROM_START, from_baseline=DISTINCT_FROM_BASELINE
        )

    def __call__(self, history: History, facts: Facts) -> Finding | None:
        """Compare the newest share with the start, later with the baseline."""
        shift = self._watch.look(history, facts)
        if shift is None:
            return None
        message = (
            f"{shift.now:.0%} of the bigrams are different ones, {shift.now / shift.level:.0%} of the "
            f"{shift.level:.0%} of {shift.against}."
        )
        return Finding(shift.severity, message, shift.values, shift.began)


class SameAnswer:
    """All prompts get nearly the same reply: bigrams recur among the replies of a step, not within one.

    `text/distinct_2` is taken over all replies of a step: n equal replies have an n-th of the bigrams of n different
    ones. A loop within the replies has the same effect, but raises `text/repeated_4gram`, which looks at each alone.
    """

    name = "text/same_answer"
    title = "the same answer to every prompt"
    looks_at = ("text/distinct_2", "text/repeated_4gram")
    causes = (
        Cause(
            "one reply pleases the reward whatever was asked",
            "read the newest samples of different prompts side by side",
        ),
        Cause("the reward does not look at the prompt", "the reward of a good reply under another prompt"),
        Cause("the leash is too loose", "the KL when it began; control/beta at 0 or at its floor"),
    )
    advice = (
        "Go back to a checkpoint before it began. Let the reward see the prompt, and raise beta or hold a lower KL (in "
        "Kleash: algorithm.kl.beta, algorithm.kl.target_nats_per_sequence)."
    )

    def __init__(self) -> None:
        """Start before the first step."""
        self._start: tuple[float, float] | None = None
        self._found: Finding | None = None

    def __call__(self, history: History, facts: Facts) -> Finding | None:
        """Look for few different bigrams without repetition within replies, where both were measured."""
        if all(key in history.fresh for key in self.looks_at) and self._started(history, facts):
            self._found = self._judged(history)
        return self._found

    def _judged(self, history: History) -> Finding | None:
        assert self._start is not None
        distinct_2, repeated_4gram = self.looks_at
        distinct, repeated = (newest(history[key], key) for key in self.looks_at)
        start, repeated_before = self._start
        severity = SAME_ANSWER.exceeded(FACTORS.into(distinct / start))
        if severity is None or repeated - repeated_before > WITHOUT_LOOPS:
            return None
        half = start * FACTORS.back(SAME_ANSWER.warning / 2)
        first = began(history[distinct_2], lambda value: value <= half) if self._found is None else self._found.began
        return Finding(
            severity,
            f"{distinct:.0%} of the bigrams are different ones, {distinct / start:.0%} of the {start:.0%} at the "
            f"start, while only {repeated:.1%} of the 4-grams repeat within a reply: the replies share their text.",
            {distinct_2: distinct, repeated_4gram: repeated, "level": start},
            first,
        )

    def _started(self, history: History, facts: Facts) -> bool:
        """Whether it is known where both numbers began."""
        if self._start is None:
            distinct_2, repeated_4gram = self.looks_at
            distinct = beginning(history[distinct_2], facts, distinct_2, above=0.0)
            repeated = beginning(history[repeated_4gram], facts, repeated_4gram)
            if distinct is not None and repeated is not None:
                self._start = (distinct, repeated)
        return self._start is not None
