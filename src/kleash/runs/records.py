"""What a run records: steps, samples, events and checkpoints, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

Split = Literal["train", "eval", "before", "after"]
Severity = Literal["info", "warning", "critical"]
Status = Literal["running", "finished", "interrupted", "stopped", "failed"]

SPLITS: tuple[str, ...] = get_args(Split)
SEVERITIES: tuple[str, ...] = get_args(Severity)
STATUSES: tuple[str, ...] = get_args(Status)


@dataclass(frozen=True)
class Step:
    """The numbers of one training step.

    Args:
        step: how many updates had been made when it was measured; the first step is 0.
        metrics: value by key of the metric catalogue. None: not measured in this step. NaN and infinities are
            kept.
        stderr: standard error of those metrics that are means, in the metric's own unit.
        notes: words that belong to the step, such as why beta moved.

    Raises:
        ValueError: a standard error without its metric.
    """

    step: int
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    stderr: Mapping[str, float] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        orphans = sorted(set(self.stderr) - set(self.metrics))
        if orphans:
            raise ValueError(
                f"Step {self.step} has a standard error for {', '.join(orphans)} but no such metric, so "
                "nothing could be drawn with it. Record the metric too."
            )


@dataclass(frozen=True)
class Sample:
    """One completion and how far each of its tokens drifted.

    Args:
        step: the step it was sampled in.
        split: "train", "eval", or the held-out pairs "before" and "after" training.
        prompt_index: which prompt, counted within the split; "before" and "after" share it.
        sample_index: which of the completions of that prompt.
        prompt: the text the model was given.
        completion: the text it wrote.
        tokens: the completion's tokens as text, in order.
        token_kl: KL(policy ‖ reference) at each token's position, nats; one a token.
        reward: the proxy reward; None where it gave no score.
        gold: the reward that is only measured; None where there is none.
        kl: KL(policy ‖ reference), nats per sequence.
        stopped: True where the completion ended with a stop token and not at the length limit.

    Raises:
        ValueError: another number of tokens than of KL values.
    """

    step: int
    split: Split
    prompt_index: int
    sample_index: int
    prompt: str
    completion: str
    tokens: tuple[str, ...]
    token_kl: tuple[float, ...]
    reward: float | None
    gold: float | None
    kl: float
    stopped: bool

    def __post_init__(self) -> None:
        if len(self.tokens) != len(self.token_kl):
            raise ValueError(
                f"The {self.split} sample {self.prompt_index}.{self.sample_index} of step {self.step} has "
                f"{len(self.tokens)} tokens but {len(self.token_kl)} KL values. Give one value a token."
            )


@dataclass(frozen=True)
class Cause:
    """Something that may be behind an event, and how to find out whether it is."""

    text: str
    check: str


@dataclass(frozen=True)
class Event:
    """Something worth telling: an alarm, what was done about one, a checkpoint before an interruption.

    Args:
        step: the step it was noticed in.
        severity: "info", "warning" or "critical".
        name: of what happened, such as the alarm's rule; the end of an alarm has the name of its start.
        message: one or two sentences, with the numbers.
        values: the numbers by name.
        began: the step it began in, at or before `step`; None for what has no duration.
        causes: likely ones, the likeliest first.
        advice: what to do.
        ends: whether it says that the alarm of this name is over. Then `values["last"]` is the last step under it,
            or without that the step before `step`.
    """

    step: int
    severity: Severity
    name: str
    message: str
    values: Mapping[str, float | None] = field(default_factory=dict)
    began: int | None = None
    causes: tuple[Cause, ...] = ()
    advice: str = ""
    ends: bool = False


@dataclass(frozen=True)
class Checkpoint:
    """A saved state of the run and the numbers it was saved with. `path` is its folder."""

    step: int
    path: Path
    metrics: Mapping[str, float | None] = field(default_factory=dict)
