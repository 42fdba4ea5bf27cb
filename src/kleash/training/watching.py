"""The monitor of a run with its ladder, in the process that writes: sees every step, and decides what is to be done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kleash.config.loader import to_dict
from kleash.config.schema import RunConfig
from kleash.errors import RunDirError
from kleash.monitor.actions import ROLL_BACK, Action, not_rolled_back, unreadable
from kleash.monitor.facts import facts_of_run
from kleash.monitor.ladder import Ladder
from kleash.monitor.monitor import Monitor
from kleash.monitor.suspects import calm
from kleash.runs.records import Event, Step
from kleash.training import state
from kleash.training.checkpoints import newest_trusted, on_disk


@dataclass(frozen=True)
class Decision:
    """What is to be done after a step.

    Args:
        action: a rung of the ladder, or None.
        checkpoint: for a roll back: the step and the folder to go back to.
        events: that belong to the decision, such as a rung that could not be taken.
        calm: whether no alarm was found lately, so that the target may be raised.
    """

    action: Action | None = None
    checkpoint: tuple[int, Path] | None = None
    events: Sequence[Event] = ()
    calm: bool = True


class Watch:
    """Watches one run.

    Attributes:
        events: its alarms so far.
    """

    def __init__(self, config: RunConfig, checkpoints: Path) -> None:
        """Watch a run of `config` whose checkpoints are in `checkpoints`."""
        self.events: list[Event] = []
        self._config, self._checkpoints = config, checkpoints
        self._monitor = Monitor()
        self._begun = False
        settings = config.monitor
        self._ladder = Ladder(settings.ladder, act_on=settings.act_on, patience=settings.patience)

    def take_up(self, steps: Iterable[Step], events: Iterable[Event], ladder: Mapping[str, Any] | None) -> None:
        """Go on with a run: see its recorded steps again, with the roll backs between them, and tell nothing.

        Args:
            steps: recorded so far.
            events: recorded so far.
            ladder: its saved state; None starts at the bottom.
        """
        self.events = list(events)
        rolled_back = {event.step for event in self.events if event.name == ROLL_BACK}
        for row in steps:
            self._observe(row)
            if row.step in rolled_back:
                self._monitor.rolled_back(row.step)
        if ladder is not None:
            self._ladder.load_state_dict(ladder)

    def observe(self, row: Step) -> list[Event]:
        """Show a step to the rules; returns the alarms that begin, grow or end."""
        found = self._observe(row)
        self.events += found
        return found

    def decide(self, step: int) -> Decision:
        """Return what is to be done after the step that was observed last."""
        action = self._ladder.decide(self._monitor.pressing, step)
        skipped: list[Event] = []
        while action is not None and action.kind == "roll_back":
            checkpoint, damaged = self._newest_trusted(step)
            skipped += damaged
            if checkpoint is not None:
                return Decision(action, checkpoint, skipped, calm=False)
            skipped.append(not_rolled_back(step, action))
            action = self._ladder.skip(action, step)
        return Decision(action, None, skipped, calm(self.events, step, self._config.monitor.patience))

    def rolled_back(self, step: int, to: int) -> list[Event]:
        """Forget what the weights that were given up for those of `to` have shown; returns the ends of the alarms."""
        self._ladder.rolled_back(step, to)
        ended = self._monitor.rolled_back(step)
        self.events += ended
        return ended

    def state_dict(self) -> dict[str, Any]:
        """Where the ladder stands; the rest follows from the record."""
        return self._ladder.state_dict()

    def _observe(self, row: Step) -> list[Event]:
        if not self._begun:
            self._begun = True
            self._monitor = Monitor(facts_of_run(to_dict(self._config), row), ignore=self._config.monitor.ignore)
        return self._monitor.observe(row)

    def _newest_trusted(self, step: int) -> tuple[tuple[int, Path] | None, list[Event]]:
        """The checkpoint to go back to, and an event for each newer one that cannot be read.

        A folder of a later step is left over from a run that was killed.
        """
        folders = {saved: folder for saved, folder in on_disk(self._checkpoints).items() if saved <= step}
        damaged: list[Event] = []
        while (newest := newest_trusted(folders, self.events, self._config.training)) is not None:
            folder = folders.pop(newest)
            try:
                state.read(folder)
            except RunDirError as error:
                damaged.append(unreadable(step, newest, str(error)))
            else:
                return (newest, folder), damaged
        return None, damaged
