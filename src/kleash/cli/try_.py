"""`kleash try`: the same prompt to reference and policy, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kleash.cli.heat import coloured, legend, numbered
from kleash.cli.screen import screen
from kleash.report.wording import number

if TYPE_CHECKING:
    from kleash.training.compare import Pair


def run(
    run_dir: Path,
    prompts: Sequence[str],
    step: int | None = None,
    samples: int = 1,
    seed: int = 0,
    max_length: int | None = None,
) -> None:
    """Sample from the reference and from the policy, and print both.

    Args:
        run_dir: the run's folder.
        prompts: prompts, treated as the run treats its own.
        step: the checkpoint to sample from; None takes the last.
        samples: replies to each prompt, at least 1.
        seed: of sampling.
        max_length: tokens of a reply at most; None takes the run's limit.

    Raises:
        KleashError: no run or checkpoint there, or prompts that do not fit the model.
    """
    console = screen()
    with console.status("Loading the model and sampling"):
        from kleash.training.compare import side_by_side

        pairs = side_by_side(run_dir, list(prompts), step=step, samples=samples, seed=seed, max_length=max_length)
    if console.is_terminal:
        console.print(legend())
        for pair in pairs:
            _print_columns(console, pair)
        return
    for pair in pairs:
        _print_lines(pair)


def _print_columns(console: Console, pair: Pair) -> None:
    table = Table.grid(expand=True, padding=(0, 3, 0, 0))
    table.add_column(ratio=1)
    table.add_column(ratio=1)
    table.add_row(Text("reference", "dim"), Text(f"policy, KL {number(pair.kl)} nats", "dim"))
    table.add_row(Text(pair.reference_text), coloured(pair.tokens, pair.token_kl))
    console.print()
    console.print(Text(pair.prompt, "bold"))
    console.print(table)


def _print_lines(pair: Pair) -> None:
    print(f"prompt     {pair.prompt!r}")
    print(f"reference  {pair.reference_text!r}")
    print(f"policy     {pair.policy_text!r}")
    print(f"KL         {number(pair.kl)} nats: {numbered(pair.tokens, pair.token_kl)}\n")
