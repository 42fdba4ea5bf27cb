"""What follows from a step: its alarms, and what the settings have done about them, alike in all processes.

The process that writes watches and decides, and tells the others. Where the ladder stands and how often the leash was
shortened is saved with each checkpoint; what the rules have seen follows from the record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from accelerate.utils import broadcast_object_list

from kleash.config.algorithms import OnPolicy
from kleash.config.schema import RunConfig
from kleash.control.schedule import Loosening
from kleash.control.target import Target
from kleash.monitor import actions
from kleash.monitor.actions import Action
from kleash.runs.reader import RunReader
from kleash.runs.records import Event, Step
from kleash.training import state
from kleash.training.job import Job
from kleash.training.watching import Decision, Watch

SAVED = "watch"
"""Under this name the state is in a checkpoint."""


@dataclass(frozen=True)
class Outcome:
    """What came of a step: events and notes to record with it, and why the run must end after it, if it must.

    `failure` is what an action has raised: the step is recorded all the same, then the run fails with it.
    """

    events: Sequence[Event] = ()
    notes: Mapping[str, str] = field(default_factory=dict)
    stop: str | None = None
    failure: Exception | None = None


class Acting:
    """Watches a job's steps and acts on it."""

    def __init__(self, job: Job, fingerprint: str, checkpoints: Path | None) -> None:
        """Act on `job`, whose frozen weights have `fingerprint`; `checkpoints` is None where nothing is written."""
        self._job, self._fingerprint = job, fingerprint
        self._watch = None if checkpoints is None else Watch(job.config, checkpoints)
        self._settings = job.config.monitor
        self._loosening = make_loosening(job.config)
        self._tightened = 0

    @property
    def events(self) -> Sequence[Event]:
        """The run's alarms so far; none in processes that do not write."""
        return [] if self._watch is None else self._watch.events

    def take_up(self, saved: Mapping[str, Any], run_dir: Path | None) -> None:
        """Go on from a saved state, with what `run_dir` has recorded until then (None: this process does not write)."""
        mine = _of(saved)
        self._tightened = mine["tightened"]
        self._restore_loosening(mine)
        if self._watch is not None and run_dir is not None:
            with RunReader(run_dir) as reader:
                self._watch.take_up(reader.steps(), reader.events(), mine["ladder"])

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint has to hold, in the process that writes it."""
        assert self._watch is not None, "the process that writes has it"
        loosening = None if self._loosening is None else self._loosening.state_dict()
        return {"ladder": self._watch.state_dict(), "tightened": self._tightened, "loosening": loosening}

    def watch(self, row: Step) -> list[Event]:
        """Show a step to the rules, and do nothing about it."""
        return [] if self._watch is None else self._watch.observe(row)

    def after(self, row: Step) -> Outcome:
        """Show a trained step to the rules, and do what the settings ask for."""
        events = self.watch(row)
        if not self._settings.ladder and self._loosening is None:
            return Outcome(events)
        decision = self._shared(None if self._watch is None else self._watch.decide(row.step))
        raised, notes = self._loosen(row, decision.calm)
        events += [*decision.events, *raised]
        if decision.action is None:
            return Outcome(events, notes)
        try:
            events += self._do(decision.action, decision, row.step)
        except Exception as error:
            return Outcome(events, notes, failure=error)
        stop = _stop_reason(decision.action) if decision.action.kind == "stop" else None
        return Outcome(events, notes, stop)

    def _shared(self, decision: Decision | None) -> Decision:
        """The decision of the process that writes."""
        if self._job.accelerator.num_processes > 1:
            (decision,) = broadcast_object_list([decision])
        assert decision is not None, "the process that writes decides"
        return decision

    def _do(self, action: Action, decision: Decision, step: int) -> list[Event]:
        if action.kind == "tighten":
            return [self._tighten(action, step)]
        if action.kind == "stop":
            return [actions.stopped(step, action)]
        assert decision.checkpoint is not None, "a roll back without a checkpoint is skipped"
        number, folder = decision.checkpoint
        self._roll_back(folder)
        ended = [] if self._watch is None else self._watch.rolled_back(step, number)
        return [actions.rolled_back(step, action, number), *ended]

    def _tighten(self, action: Action, step: int) -> Event:
        controller = self._job.controller
        assert controller is not None, "the checks of the settings see to it"
        moved = controller.tighten(self._settings.tighten_by)
        self._tightened += 1
        return actions.tightened(step, action, str(moved), moved.before, moved.after)

    def _roll_back(self, folder: Path) -> None:
        """Put weights, optimiser, reference and controller back, and shorten the leash as often as since then."""
        saved = state.read(folder)
        self._job.restore(saved, self._fingerprint)
        mine = _of(saved)
        self._restore_loosening(mine)
        for _ in range(self._tightened - mine["tightened"]):
            assert self._job.controller is not None, "it was tightened before"
            self._job.controller.tighten(self._settings.tighten_by)

    def _loosen(self, row: Step, calm: bool) -> tuple[list[Event], dict[str, str]]:
        """At an evaluation far from any alarm, raise the target if the held-out reward says so; event and note."""
        rule, controller = self._loosening, self._job.controller
        reward = row.metrics.get("eval/reward/proxy")
        if rule is None or reward is None or not isinstance(controller, Target):
            return [], {}
        before = controller.final_target
        if not calm:
            alarm = f"an alarm is open, or was within {self._settings.patience} steps"
            return [], {"target": f"target stays at {before:.4g}: {alarm}."}
        kl = row.metrics[_kl_key(self._job.config)]
        assert kl is not None, "every step of an algorithm with a target measures it"
        after = rule.update(target=before, kl=kl, reward=reward, beta_at_floor=controller.at_floor)
        if after == before:
            return [], {"target": rule.reason}
        controller.retarget(after)
        return [actions.loosened(row.step, rule.reason, before, after)], {"target": rule.reason}

    def _restore_loosening(self, mine: Mapping[str, Any]) -> None:
        if self._loosening is not None and mine["loosening"] is not None:
            self._loosening.load_state_dict(mine["loosening"])


def make_loosening(config: RunConfig) -> Loosening | None:
    """The rule that may raise the target, where the settings ask for one."""
    settings = config.monitor.loosen
    return None if settings is None else Loosening(**settings.model_dump())


def _of(saved: Mapping[str, Any]) -> Mapping[str, Any]:
    """The state within a checkpoint; one from before runs were watched knows of loosening alone."""
    if SAVED in saved:
        return dict(saved[SAVED])
    return {"ladder": None, "tightened": 0, "loosening": saved.get("loosening")}


def _stop_reason(action: Action) -> str:
    """Why the run ends, with what the alarm says and advises."""
    return f"monitor.ladder stops the run: {action.reason}. {action.alarm.message} {action.alarm.advice}".rstrip()


def _kl_key(config: RunConfig) -> str:
    """The KL that the target is about."""
    assert isinstance(config.algorithm, OnPolicy), "nothing else has a target"
    per_token = config.algorithm.kl.target_nats_per_token is not None
    return "kl/exact_per_token" if per_token else "kl/exact_per_sequence"
