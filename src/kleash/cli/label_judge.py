"""`kleash label judge`: a language model or a reward function votes on the pairs of a label store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from kleash.cli.screen import bars, screen
from kleash.config.schema import Judge as JudgeSettings
from kleash.errors import ConfigError
from kleash.labels.store import LabelStore
from kleash.report.wording import number
from kleash.rewards.function import resolve
from kleash.rewards.judge import JudgeTally
from kleash.rewards.judge_reward import make_judge
from kleash.rewards.judging import Progress, ScoreTally, judge_queue, score_queue

NOISE = ("tie_within", "noise", "seed")


def run(
    store: str,
    *,
    model: str | None = None,
    reward: str | None = None,
    annotator: str | None = None,
    limit: int | None = None,
    **options: Any,
) -> None:
    """Vote on what the annotator has not voted on, and print what was counted.

    Args:
        store: file or URL of the label store.
        model: a judge; `options` are then those of the `judge` table, with `rubric` a file.
        reward: a reward function, `module:function`; `options` are then tie_within, noise and seed.
        annotator: whose votes they are; None takes the name of the model or the function.
        limit: pairs at most.
        options: those that were given.

    Raises:
        KleashError: not exactly one of model and reward, an option of the other, or a store, judge or function
            that cannot be used.
    """
    console = screen()
    if reward is None and model is not None:
        _refuse([name for name in options if name in NOISE], f"--model {model}", "--reward")
        table = _by_judge(console, store, annotator, limit, model, options)
    elif model is None and reward is not None:
        _refuse([name for name in options if name not in NOISE], f"--reward {reward}", "--model")
        table = _by_reward(console, store, annotator, limit, reward, options)
    else:
        raise ConfigError("Say who votes: --model for a judge or --reward for a function, one of the two.")
    console.print(table)


def _by_judge(
    console: Console, location: str, annotator: str | None, limit: int | None, model: str, options: dict[str, Any]
) -> Table:
    if "rubric" in options:
        options = options | {"rubric": _rubric(options["rubric"])}
    with LabelStore.open(location) as store:
        judge = make_judge(JudgeSettings(model=model, **options))
        with _bar(console) as progress:
            return judge_table(judge_queue(store, judge, annotator or model, limit=limit, progress=progress))


def _by_reward(
    console: Console, location: str, annotator: str | None, limit: int | None, reference: str, options: dict[str, Any]
) -> Table:
    reward = resolve(reference)
    with LabelStore.open(location) as store, _bar(console) as progress:
        tally = score_queue(store, reward, annotator or reward.name, limit=limit, progress=progress, **options)
    return score_table(tally)


def judge_table(tally: JudgeTally) -> Table:
    """What a judge came to: questions, requests, tokens and cost."""
    table = _table()
    _rows(
        table,
        ("asked", tally.asked, "pairs, each in both orders"),
        ("answered", tally.answered, "stored with a choice"),
        ("ties", tally.ties, "called a tie twice, or the orders disagree"),
        ("unparsable", tally.unparsable, "stored without a choice, the replies in the note"),
        ("failed", tally.failed, "not stored; asked again next time"),
        ("requests sent again", tally.retried, ""),
        ("both orders agree", _percent(tally.agreement), "of the answered"),
        ("position bias", _percent(tally.position_bias), "of the answered: the same letter in both orders"),
        ("input tokens", tally.input_tokens, ""),
        ("output tokens", tally.output_tokens, ""),
    )
    if tally.unmetered:
        _rows(table, ("replies without a token count", tally.unmetered, "not in tokens and cost"))
    cost = "not known: give both prices" if tally.cost is None else "tokens times prices; failed requests left out"
    _rows(table, ("cost", number(tally.cost), cost))
    return table


def score_table(tally: ScoreTally) -> Table:
    """What a reward function came to."""
    table = _table()
    _rows(
        table,
        ("scored", tally.scored, "pairs, stored with a choice"),
        ("ties", tally.ties, "too close to call"),
        ("turned round", tally.flipped, "by the noise"),
        ("unscored", tally.unscored, "stored without a choice"),
    )
    return table


def _table() -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_column(style="dim")
    return table


def _rows(table: Table, *rows: tuple[str, int | str, str]) -> None:
    for title, value, explanation in rows:
        table.add_row(title, str(value), explanation)


def _percent(share: float | None) -> str:
    return number(None) if share is None else f"{share:.1%}"


@contextmanager
def _bar(console: Console) -> Iterator[Progress]:
    """Show how many pairs are done; nothing where the console is no terminal."""
    with bars(console, transient=True) as progress:
        task = progress.add_task("pairs", count="")
        yield lambda done, total: progress.update(task, completed=done, total=total, count=f"{done}/{total}")


def _rubric(path: Path) -> str:
    """The words of a rubric file."""
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(
            f'--rubric {path} cannot be read: {reason}. Give a text file that says what "better" means.'
        ) from error
    if not text:
        raise ConfigError(f'--rubric {path} is empty. Write into it what "better" means, or leave --rubric out.')
    return text


def _refuse(names: Sequence[str], chosen: str, other: str) -> None:
    """Refuse options that have no effect.

    Raises:
        ConfigError: there are any.
    """
    if names:
        given = ", ".join(f"--{name.replace('_', '-')}" for name in names)
        raise ConfigError(f"{given} has no effect with {chosen}: it belongs to {other}. Leave it out.")
