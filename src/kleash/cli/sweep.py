"""`kleash sweep`: train a run at several values of its settings, side by side, and say which value to take."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from kleash.cli.lines import labelled
from kleash.cli.screen import screen
from kleash.cli.sweep_progress import points_table, read_progress, watching_sweep
from kleash.cli.sweep_result import print_result
from kleash.errors import EXIT_DONE, ConfigError, KleashError
from kleash.sweep.grid import read_grid
from kleash.sweep.machine import share_machine
from kleash.sweep.points import check_points
from kleash.sweep.record import Sweep, begin, open_sweep
from kleash.sweep.scheduler import Scheduler, State, failure_code


class PointsFailed(KleashError):
    """Some points of a sweep did not finish; the exit code says what was worst."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def run(
    arguments: Sequence[str], *, resume: Path | None = None, jobs: int | None = None, max_nats: float | None = None
) -> None:
    """Train every point that is not at its end yet, then compare all.

    Args:
        arguments: run.toml and key=value settings, at least one with several values; none of them with `resume`.
        resume: folder of the sweep to go on with.
        jobs: points at once; None for as many as the machine has room for.
        max_nats: KL per sequence that the recommended checkpoint must stay below.

    Raises:
        KleashError: settings that cannot work, another sweep in the folder, or points that did not finish.
        KeyboardInterrupt: Ctrl-C or SIGTERM, after every point has saved a checkpoint.
    """
    sweep = _begun(arguments) if resume is None else _resumed(arguments, resume)
    share = share_machine(len(sweep.points), jobs)
    with watching_sweep(sweep) as view:
        view.fact(labelled("sweep", f"{len(sweep.points)} points in {sweep.folder}"))
        view.fact(labelled("machine", share.sentence))
        scheduler = Scheduler(sweep, share, view)
        scheduler.run()
    console = screen()
    _print_points(console, sweep, scheduler)
    print_result(console, sweep, max_nats)
    code = failure_code(scheduler.exit_codes, scheduler.states)
    if code != EXIT_DONE:
        raise PointsFailed(_unfinished(sweep, scheduler), code)


def _begun(arguments: Sequence[str]) -> Sweep:
    grid = read_grid(arguments)
    checked = check_points(grid)
    console = screen()
    for warning in checked.warnings:
        console.print(labelled("note", warning), soft_wrap=True)
    return begin(Path(checked.output_dir) / checked.name, grid.swept, checked.points)


def _resumed(arguments: Sequence[str], folder: Path) -> Sweep:
    if arguments:
        raise ConfigError(
            f"{' '.join(arguments)} has no effect with --resume {folder}: a sweep goes on with the settings it was "
            "started with, which are stored in it. Leave it out, or start another sweep without --resume."
        )
    return open_sweep(folder)


def _print_points(console: Console, sweep: Sweep, scheduler: Scheduler) -> None:
    found = {point: progress for point in sweep.points if (progress := read_progress(sweep, point)) is not None}
    console.print()
    console.print(points_table(sweep, scheduler.states, found))
    console.print()


def _unfinished(sweep: Sweep, scheduler: Scheduler) -> str:
    """Say which points did not finish, where to look and how to go on."""
    lines = []
    for point, state in scheduler.states.items():
        if state in (State.FAILED, State.INTERRUPTED):
            lines.append(f"{point.label} {state.value}: {sweep.log(point)} has what it said")
        elif state is State.STOPPED:
            lines.append(f"{point.label} was stopped by a rule: {sweep.log(point)} says by which")
    return (
        f"{len(lines)} of {len(sweep.points)} points did not finish, and are compared as far as they came.\n"
        + "\n".join(lines)
        + f"\n`kleash sweep --resume {sweep.folder}` tries again those that failed; the others are kept."
    )
