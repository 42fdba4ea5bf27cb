"""Train from Python: names or objects in, a finished run out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kleash.config.describe import toml
from kleash.config.loader import load
from kleash.errors import ConfigError
from kleash.runs.reader import RunReader
from kleash.training.given import Given
from kleash.training.observer import Observer, Silent
from kleash.training.run import resume as resume_run
from kleash.training.run import train as train_run

IN_MEMORY = "(in memory)"

RewardLike = str | Callable[..., Any]


def train(
    model: Any,
    prompts: Any = None,
    reward: RewardLike | Sequence[RewardLike] = (),
    *,
    comparisons: Any = None,
    demonstrations: Any = None,
    tokenizer: Any = None,
    gold: RewardLike | None = None,
    held_out: Any = None,
    settings: Mapping[str, Any] | None = None,
    resume: str | Path | None = None,
    observer: Observer | None = None,
) -> RunReader:
    """Fine-tune a model on a leash; returns a reader of the finished run (`run.path`, `run.steps()`, ...).

    Args:
        model: a hub id, a folder, or a loaded causal language model, which is trained in place.
        prompts: a path, a hub data set, or strings, dicts or a `datasets` object.
        reward: `module:function`, a function `f(prompts, completions, **columns)`, or several of either.
        comparisons: for `algorithm.type` "dpo" and "reward_model", instead of the two before: a path, a hub data set,
            or dicts or a `datasets` object with `prompt`, `chosen` and `rejected`.
        demonstrations: for "sft": the same with `prompt` and `completion`, `messages` or `text`.
        tokenizer: of a loaded model.
        gold: a reward that is only measured.
        held_out: prompts for evaluation; by default some of `prompts` are set aside.
        settings: everything else by dotted key, as on the command line:
            `{"training.steps": 50, "algorithm.kl.target_nats_per_sequence": 6}`.
        resume: the directory of an interrupted run to take up again, given the same objects.
        observer: who is told what happens; nobody by default.

    Raises:
        KleashError: see `kleash.errors`; RunStopped when a rule ends the run.

    Example:
        >>> run = train("demo", "demo", "kleash.demo.sentiment:positive",
        ...             settings={"algorithm.kl.target_nats_per_sequence": 6})  # doctest: +SKIP
    """
    if not isinstance(model, str) and tokenizer is None:
        raise ConfigError(f"model is a loaded {type(model).__name__} without a tokenizer. Pass tokenizer= as well")
    rewards = [reward] if isinstance(reward, str) or callable(reward) else list(reward)
    sources = {"prompts": prompts, "comparisons": comparisons, "demonstrations": demonstrations}
    in_memory = {name: source for name, source in (sources | {"held_out": held_out}).items() if not _is_name(source)}
    given = Given(
        **in_memory,
        functions=_functions(rewards),
        gold=gold if callable(gold) else None,
        model=None if isinstance(model, str) else model,
        tokenizer=tokenizer,
    )
    watcher = observer or Silent()
    if resume is not None:
        return RunReader(resume_run(Path(resume), observer=watcher, given=given))
    keys = _named(model, sources, rewards)
    if isinstance(gold, str):
        keys["reward.gold"] = gold
    if held_out is not None and given.held_out is None:
        keys["prompts.held_out_path"] = str(held_out)
    loaded = load(None, [f"{key}={toml(value)}" for key, value in (keys | dict(settings or {})).items()])
    return RunReader(train_run(loaded.config, observer=watcher, warnings=loaded.warnings, given=given))


def _named(model: Any, sources: Mapping[str, Any], rewards: Sequence[RewardLike]) -> dict[str, Any]:
    """Settings that say what was given: names as they are, objects as being in memory."""
    keys: dict[str, Any] = {"model.name": model if isinstance(model, str) else IN_MEMORY}
    for table, source in sources.items():
        if source is not None:
            keys[f"{table}.path"] = str(source) if _is_name(source) else IN_MEMORY
    if rewards:
        keys["reward.functions"] = [r if isinstance(r, str) else f"{IN_MEMORY} {_name(r)}" for r in rewards]
    return keys


def _is_name(source: Any) -> bool:
    return source is None or isinstance(source, str | Path)


def _functions(rewards: Sequence[RewardLike]) -> list[Callable[..., Any]]:
    """The rewards, if they are functions; nothing, if they are names."""
    functions = [reward for reward in rewards if callable(reward)]
    if functions and len(functions) < len(rewards):
        raise ConfigError("reward mixes names and functions. Pass either all names or all functions")
    return functions


def _name(function: Any) -> str:
    return str(getattr(function, "__name__", type(function).__name__))
