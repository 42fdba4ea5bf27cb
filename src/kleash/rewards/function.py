"""Rewards as functions: what they get, what they may return, and how several make one number.

A reward function is TRL's kind: `f(prompts, completions, **columns) -> list[float | None]`, plain or async.
For plain prompts both lists hold strings. For chat, a prompt is its list of messages and a completion is
`[{"role": "assistant", "content": ...}]`, as in TRL.

Differs from TRL: a function gets only the columns it names (all of them with `**columns`); a sequence that
any one function leaves unscored has no total, where TRL adds up the others; a NaN is an error.
"""

from __future__ import annotations

import inspect
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from kleash.data.prompts import Message
from kleash.data.render import RenderedPrompt
from kleash.errors import ConfigError, DataError, near_match
from kleash.rewards.calling import call
from kleash.rewards.loading import load_function

Text = str | list[Message]
Score = float | None


REFERENCE_COMPLETIONS = "reference_completions"
"""The argument by which a reward asks for what the frozen reference wrote to the same prompts, one a completion."""


class RewardFunction(Protocol):
    """Scores completions: one number each, higher is better, None for no score."""

    def __call__(
        self, prompts: list[Text], completions: list[Text], **columns: list[Any]
    ) -> Sequence[Score] | Awaitable[Sequence[Score]]:
        """Return one score a completion, in their order."""
        ...


@dataclass(frozen=True)
class Reward:
    """A reward function under a name.

    Attributes:
        name: what metrics and error messages call it.
        function: the function itself.
        timeout: seconds that one call may take; None for no limit.
    """

    name: str
    function: Callable[..., Any]
    timeout: float | None = None


class RewardBatch(NamedTuple):
    """What a reward function is called with: three parallel collections, one entry a completion."""

    prompts: list[Text]
    completions: list[Text]
    columns: dict[str, list[Any]]


class Scores(NamedTuple):
    """One entry a completion; None where there is no score.

    Attributes:
        total: the weighted sum of all functions; None where any of them gave None.
        by_function: each function's own scores, unweighted, by its name.
    """

    total: list[Score]
    by_function: dict[str, list[Score]]


def resolve(reference: str | Callable[..., Any], *, name: str | None = None, timeout: float | None = None) -> Reward:
    """Return the reward that a setting or an argument means.

    Args:
        reference: ``module:function``, ``path/to/file.py:function``, or the function itself.
        name: what to call it; the function's own name by default.
        timeout: seconds that one call may take; None for no limit.

    Raises:
        ConfigError: nothing callable is found there, or the timeout is not positive.
    """
    if timeout is not None and not timeout > 0:
        raise ConfigError(
            f"timeout = {timeout} gives a reward no time at all. Give seconds above 0, or none for no limit."
        )
    function = load_function(reference) if isinstance(reference, str) else reference
    if not callable(function):
        raise ConfigError(
            f"reward = {reference!r} is a {type(reference).__name__}. Pass a function, or a string 'module:function'."
        )
    own_name = getattr(function, "__name__", type(function).__name__)
    return Reward(name or str(own_name), function, timeout)


def reward_batch(rendered: Sequence[RenderedPrompt], completions: Sequence[str]) -> RewardBatch:
    """Lay out prompts and completions as reward functions expect them.

    Args:
        rendered: one a completion.
        completions: the texts, without special tokens.

    Returns:
        Messages for what was rendered as chat, strings for the rest; a column that a prompt lacks is None.
    """
    names = {name: None for item in rendered for name in item.prompt.columns}
    return RewardBatch(
        prompts=[
            item.text if item.messages is None else [dict(message) for message in item.messages] for item in rendered
        ],
        completions=[
            text if item.messages is None else [{"role": "assistant", "content": text}]
            for item, text in zip(rendered, completions, strict=True)
        ],
        columns={name: [item.prompt.columns.get(name) for item in rendered] for name in names},
    )


def score(
    rewards: Sequence[Reward],
    weights: Sequence[float],
    prompts: list[Text],
    completions: list[Text],
    columns: Mapping[str, list[Any]],
) -> Scores:
    """Score completions by several rewards: total_i = sum_f weight_f * reward_fi.

    Args:
        rewards: run one after another; their names differ.
        weights: one a reward.
        prompts: one a completion.
        completions: what is scored.
        columns: further columns of the prompts, one entry a completion.

    Raises:
        ConfigError: not one weight a reward, or two rewards of one name.
        DataError: a reward raised, ran out of time, or returned something that is not one number or
            None each.
    """
    if len(weights) != len(rewards):
        raise ConfigError(f"{len(weights)} reward weights for {len(rewards)} rewards. Give one weight a reward.")
    for name, count in Counter(reward.name for reward in rewards).items():
        if count > 1:
            raise ConfigError(
                f"{count} rewards are called '{name}', so their scores could not be told apart. Give each a"
                " name of its own."
            )
    by_function = {reward.name: evaluate(reward, prompts, completions, columns) for reward in rewards}
    total = [_weighted_sum(weights, values) for values in zip(*by_function.values(), strict=True)]
    return Scores(total, by_function)


def evaluate(
    reward: Reward, prompts: list[Text], completions: list[Text], columns: Mapping[str, list[Any]]
) -> list[Score]:
    """Call one reward and check its answer: one finite number or None a completion."""
    accepted = accepted_columns(reward, columns)
    arguments = {"prompts": prompts, "completions": completions, **columns}
    answer = call(reward.name, reward.function, {name: arguments[name] for name in accepted}, reward.timeout)
    return _checked_scores(reward.name, answer, len(completions))


def accepted_columns(reward: Reward, columns: Mapping[str, Any]) -> list[str]:
    """Return which of prompts, completions and the columns a reward takes, in its own signature's terms.

    Raises:
        DataError: it requires an argument that is not there; checked before a run starts as well.
    """
    offered = ["prompts", "completions", *columns]
    try:
        parameters = inspect.signature(reward.function).parameters.values()
    except ValueError:  # some compiled callables have no signature to read
        return offered
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        accepted = offered
    else:
        names = {parameter.name for parameter in parameters}
        accepted = [name for name in offered if name in names]
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        if parameter.default is parameter.empty and parameter.name not in accepted:
            raise DataError(
                f"Reward '{reward.name}' requires '{parameter.name}', which it cannot be given: it gets"
                f" {', '.join(offered)}.{near_match(parameter.name, offered)} Add that column to the prompts,"
                " or give the argument a default."
            )
    return accepted


def takes(reward: Reward, argument: str) -> bool:
    """Whether a reward's signature names an argument."""
    try:
        return argument in inspect.signature(reward.function).parameters
    except ValueError:  # some compiled callables have no signature to read
        return False


def _weighted_sum(weights: Sequence[float], values: Sequence[Score]) -> Score:
    total = 0.0
    for weight, value in zip(weights, values, strict=True):
        if value is None:
            return None
        total += weight * value
    return total


def _checked_scores(name: str, answer: Any, count: int) -> list[Score]:
    values = answer.tolist() if hasattr(answer, "tolist") else answer
    if not isinstance(values, list | tuple):
        raise DataError(
            f"Reward '{name}' returned a {type(answer).__name__} ({answer!r:.80}). It must return a list with"
            " one number or None a completion."
        )
    if len(values) != count:
        raise DataError(
            f"Reward '{name}' returned {len(values)} scores for {count} completions. It must return one each,"
            " in their order, with None where there is no score."
        )
    return [_checked_score(name, index, value) for index, value in enumerate(values)]


def _checked_score(name: str, index: int, value: Any) -> Score:
    number = value.item() if hasattr(value, "item") else value
    if number is None:
        return None
    if not isinstance(number, int | float):
        raise DataError(
            f"Reward '{name}' returned {value!r} (a {type(value).__name__}) for completion {index}. A score"
            " is a number, or None for no score."
        )
    if not math.isfinite(number):
        raise DataError(
            f"Reward '{name}' returned {number} for completion {index}, from which nothing can be learned."
            " Return a finite number, or None for no score."
        )
    return float(number)
