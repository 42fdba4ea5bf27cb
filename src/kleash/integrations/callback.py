"""Exact KL to the starting model inside any `transformers.Trainer`, TRL's trainers included.

Direction: KL(policy ‖ start), on replies that the policy writes to held-out prompts. The monitor watches these numbers
and the trainer's own. Unless a ladder says what to do about alarms, the trainer learns what it would learn without.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from accelerate.utils import broadcast_object_list
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from kleash.data.prompts import load_prompts
from kleash.data.render import render
from kleash.errors import ConfigError, RunStopped
from kleash.integrations import acting
from kleash.integrations.measurement import Measurement, undisturbed
from kleash.integrations.recording import Recorder, check_free, free_folder, plain_settings, resumed_writer
from kleash.integrations.starting import policy_of, resumed_start, starting_model
from kleash.integrations.watching import trainer_name, translated
from kleash.metrics import HELD_OUT
from kleash.monitor.actions import Action
from kleash.monitor.ladder import Ladder
from kleash.monitor.logs.mappings import GRPO, RLOO
from kleash.monitor.logs.raw import to_number
from kleash.runs.reader import RunReader
from kleash.runs.records import Event, Sample, Step
from kleash.runs.writer import RunWriter
from kleash.training.run import VERSIONED
from kleash.training.statistics import Numbers

logger = logging.getLogger(__name__)

PER_SEQUENCE = "kleash/kl_to_start_nats_per_sequence"
PER_TOKEN = "kleash/kl_to_start_nats_per_token"
LENGTH = "kleash/reply_length_tokens"
LOGGED = {
    PER_SEQUENCE: "eval/kl/exact_per_sequence",
    PER_TOKEN: "eval/kl/exact_per_token",
    LENGTH: "eval/length/mean",
}
"""Name in the trainer's logs, and key in the run directory."""


class KleashCallback(TrainerCallback):  # type: ignore[misc]
    """Measures the drift from the starting model before the first update, every so many steps and after the last.

    `Trainer(..., callbacks=[KleashCallback(prompts)])` puts the numbers into `trainer.state.log_history` and on the
    console. `KleashCallback(prompts).attach(trainer)` hands them to the trainer's reporters (W&B, TensorBoard) too.

    Attributes:
        run_dir: where the Kleash run of the newest training is written; before the first one None if it was not given.
    """

    def __init__(
        self,
        prompts: str | Path | Iterable[Any],
        *,
        every: int = 50,
        samples: int = 1,
        max_length: int = 64,
        temperature: float = 1.0,
        stop_above: float | None = None,
        run_dir: str | Path | None = None,
        seed: int = 0,
        column: str = "prompt",
        ladder: Sequence[acting.Rung] = (),
        act_on: Literal["warning", "critical"] = "critical",
        patience: int = 50,
        tighten_by: float = 0.7,
        webhook: str | None = None,
        command: str | None = None,
    ) -> None:
        """Read the prompts; the model comes from the trainer.

        Args:
            prompts: held-out prompts: a file, a hub data set, or an iterable of strings or dicts. Strings are
                continued as they stand, lists of messages go through the chat template.
            every: steps between measurements.
            samples: replies to each prompt.
            max_length: longest reply, in tokens.
            temperature: of sampling; both models are divided by it.
            stop_above: end the training when the mean KL is above this, in nats per sequence; None: never.
            run_dir: folder of the Kleash run, new or empty, or the run to go on with where the trainer resumes from a
                checkpoint; by default `kleash` in the trainer's output_dir, `kleash-2` where that is taken, and so on.
            seed: of the replies; every measurement uses the same random numbers.
            column: the column that holds the prompt.
            ladder: what to do about alarms, a rung at a time: "tighten" divides the trainer's beta (`attach` the
                callback to it), "stop" ends the training. Empty: only tell.
            act_on: the lowest severity that leads to a rung.
            patience: steps between two rungs, and steps without an alarm until the ladder starts over.
            tighten_by: what "tighten" divides beta by; larger: a smaller step.
            webhook: an http or https address that each warning and critical event is posted to, as JSON.
            command: a command that is run for each of them, with the event as JSON on its standard input.

        Raises:
            ConfigError: a number or an action that cannot work.
            DataError: prompts that cannot be read.
        """
        _check_numbers(every=every, samples=samples, max_length=max_length)
        _check_positive(temperature=temperature, stop_above=stop_above)
        acting.check_ladder(ladder, act_on, patience, tighten_by)
        acting.check_ways_to_tell(webhook, command)
        self._asked_run_dir = None if run_dir is None else Path(run_dir)
        self.run_dir = self._asked_run_dir
        self._prompts = load_prompts(prompts, column=column)
        self._every, self._stop_above = every, stop_above
        self._sampling = {"samples": samples, "max_length": max_length, "temperature": temperature, "seed": seed}
        self._ladder, self._tighten_by = tuple(ladder), tighten_by
        self._climbing: dict[str, Any] = {"act_on": act_on, "patience": patience}
        self._ways_to_tell = {"webhook": webhook, "command": command}
        self._trainer: Any = None
        self._forget()

    def _forget(self) -> None:
        """Be as before the start of a training."""
        self._measure: Measurement | None = None
        self._run: Recorder | None = None
        self._unlogged: Numbers | None = None
        self._latest: list[Sample] = []
        self._recorded = -1
        self._stopped = ""

    def attach(self, trainer: Any) -> None:
        """Join `trainer` ahead of its other callbacks, so that its reporters see the numbers as well.

        Raises:
            ConfigError: the ladder has "tighten", and this trainer has no beta that moves.
        """
        if "tighten" in self._ladder:
            acting.check_leash(trainer)
        self._trainer = trainer
        trainer.callback_handler.callbacks.insert(0, self)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Take the model as it is for the start, open the run, and measure step 0.

        Raises:
            ConfigError: the ladder has "tighten", and the callback is not attached to the trainer.
            ModelError: a model that cannot be measured, or a resumed training whose start is not in memory.
            DataError: a prompt that does not fit the model.
            RunDirError: the run directory cannot be read or written.
        """
        self._forget()
        if "tighten" in self._ladder:
            acting.check_leash(self._trainer)
        self._measure = self._prepare(kwargs["model"], kwargs["processing_class"], state.global_step)
        if state.global_step:
            self._take_up(state.global_step)
        if state.is_world_process_zero:
            writer = self._open(args, state, self._measure)
            ladder = Ladder(self._ladder, **self._climbing)
            self._run = Recorder(writer, ladder, self._ways_to_tell)
            start = f"KL is measured from {self._measure.reference.description}"
            self._run.event(Event(state.global_step, "info", "starting_model", start))
            logger.warning("Kleash: %s. Run directory: %s", start, self.run_dir)
        if state.global_step == 0:
            numbers = self._measured(0)
            state.log_history.append({**_for_the_trainer(numbers), "epoch": 0.0, "step": 0})
            self._take(Step(0, numbers.metrics, numbers.stderr, numbers.notes), control)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        """Measure if it is time, and at the last step; ask the trainer to log, and to stop above the limit."""
        step = state.global_step
        if step % self._every and step < state.max_steps and not control.should_training_stop:
            return control
        self._unlogged = self._measured(step)
        control.should_log = True
        kl = self._unlogged.metrics[LOGGED[PER_SEQUENCE]]
        assert kl is not None, "it is measured on every reply"
        if self._stop_above is not None and kl > self._stop_above:
            why = (
                f"KL to the starting model is {kl:.3g} nats per sequence on {len(self._prompts)} held-out "
                f"prompts, above stop_above = {self._stop_above:g}, so training stops here. Lower the learning rate, "
                "raise beta, or raise stop_above"
            )
            self._stop(Event(step, "critical", "stop_above", why))
            control.should_training_stop = True
        return control

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        """Add the measurement of this step to what the trainer logs, record both, and act on what they show."""
        if logs is None:
            return
        theirs = self._trainers_numbers(args, logs)
        mine, self._unlogged = self._unlogged or Numbers(), None
        if mine.metrics:
            logs.update(_for_the_trainer(mine))
            state.log_history[-1].update(_for_the_trainer(mine))
        if state.global_step > self._recorded and (theirs or mine.metrics):
            self._take(Step(state.global_step, theirs | mine.metrics, mine.stderr, mine.notes), control)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Record the trainer's checkpoint, so that alarms can say whether it is to be trusted."""
        folder = Path(args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"
        if self._run is not None and folder.is_dir():
            self._run.checkpoint(state.global_step, folder)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Keep the newest replies as those after training, write the report and close the run."""
        if self._run is not None:
            self._run.close("stopped" if self._stopped else "finished", self._stopped, self._latest)
        self._measure = self._run = None

    def _prepare(self, model: Any, processing_class: Any, step: int) -> Measurement:
        policy = policy_of(model, processing_class)
        max_length = int(self._sampling["max_length"])
        prompts = render(self._prompts, policy.tokenizer, max_completion_length=max_length)
        with undisturbed(policy):
            reference = (
                resumed_start(policy, self.run_dir, step)
                if step
                else starting_model(policy, [prompt.token_ids for prompt in prompts])
            )
        return Measurement(policy, reference, prompts, **self._sampling)  # type: ignore[arg-type]

    def _measured(self, step: int) -> Numbers:
        """Measure, and keep the replies.

        Raises:
            RunStopped: a number is not finite; the run is closed first.
        """
        assert self._measure is not None, "on_train_begin comes first"
        try:
            numbers, self._latest = self._measure(step)
        except RunStopped as stopped:
            where, _, _ = str(stopped).partition(". ")
            reason = (
                f"{where}. The trainer made this update: lower its learning rate and go back to an older checkpoint"
            )
            if self._run is not None:
                self._run.event(Event(step, "critical", "run/non_finite", reason, began=step))
                self._run.close("stopped", reason, [])
                self._run = None
            raise RunStopped(reason) from stopped
        return numbers

    def _trainers_numbers(self, args: TrainingArguments, logs: dict[str, float]) -> dict[str, float]:
        """What the trainer logs of this step, under the keys of the catalogue, and its beta where that is a price."""
        name = trainer_name(args)
        beta = to_number(getattr(args if self._trainer is None else self._trainer, "beta", None))
        theirs = translated(logs, name, beta)
        if theirs and name in (GRPO, RLOO) and beta is not None:
            theirs["control/beta"] = beta
        return theirs

    def _take(self, step: Step, control: TrainerControl) -> None:
        """Record and watch a step, and act alike in all processes on what it shows."""
        self._recorded = step.step
        action = None
        if self._run is not None:
            replies = self._latest if any(key.startswith(HELD_OUT) for key in step.metrics) else []
            action = self._run.step(step, replies if step.step else [replace(r, split="before") for r in replies])
        if self._ladder:
            (action,) = broadcast_object_list([action])
        if action is not None:
            self._act(action, step.step, control)

    def _act(self, action: Action, step: int, control: TrainerControl) -> None:
        if action.kind == "tighten":
            event = acting.tighten(self._trainer, self._tighten_by, action, step)
            if self._run is not None:
                self._run.event(event)
        else:
            control.should_training_stop = True
            if self._run is not None:
                self._stop(acting.stop(action, step, self._run.path))

    def _stop(self, event: Event) -> None:
        """Keep the first reason there is for the end of the training, and record it."""
        if not self._stopped:
            self._stopped = f"step {event.step}: {event.message}"
            if self._run is not None:
                self._run.event(event)

    def _take_up(self, step: int) -> None:
        """Go on after `step` of a run: with the beta that its alarms have left."""
        assert self.run_dir is not None, "resumed_start has read it"
        with RunReader(self.run_dir) as run:
            beta = acting.tightened_beta(event for event in run.events() if event.step <= step)
        if "tighten" in self._ladder and beta is not None:
            self._trainer.beta = beta
            logger.warning("Kleash: beta is %.4g, as the run up to step %d left it", beta, step)

    def _open(self, args: TrainingArguments, state: TrainerState, measurement: Measurement) -> RunWriter:
        if state.global_step:
            assert self.run_dir is not None, "resumed_start has read it"
            return resumed_writer(self.run_dir, state.global_step)
        if self._asked_run_dir is not None:
            check_free(self._asked_run_dir)
        self.run_dir = self._asked_run_dir or free_folder(Path(args.output_dir))
        settings = {
            "model": {"name": measurement.policy.name},
            "algorithm": {"type": type(args).__name__},
            "training": {"steps": state.max_steps},
            "callback": {
                **{"every": self._every, "stop_above": self._stop_above, **self._sampling},
                **{"ladder": list(self._ladder), "tighten_by": self._tighten_by, **self._climbing},
            },
            "trainer": plain_settings(args),
        }
        facts = {
            "versions": {name: version(name) for name in VERSIONED},
            "prompts": {"held_out": len(self._prompts)},
            "device": str(measurement.policy.device),
            "dtype": str(measurement.policy.dtype),
            "reference": measurement.reference.description,
            "reference_fingerprint": measurement.reference.fingerprint(),
        }
        return RunWriter.create(self.run_dir, settings, facts)


def _for_the_trainer(numbers: Numbers) -> dict[str, float]:
    """The numbers under the names of `LOGGED`, the KLs with their standard errors where there is more than a prompt."""
    logs: dict[str, float] = {}
    for name, key in LOGGED.items():
        value = numbers.metrics[key]
        assert value is not None, f"{key} is measured on every reply"
        logs[name] = value
        if name != LENGTH and key in numbers.stderr:
            logs[f"{name}_stderr"] = numbers.stderr[key]
    return logs


def _check_numbers(**numbers: int) -> None:
    for name, value in numbers.items():
        if value < 1:
            raise ConfigError(f"{name} = {value} leaves nothing to measure. Give 1 or more")


def _check_positive(**numbers: float | None) -> None:
    for name, value in numbers.items():
        if value is not None and not value > 0:
            why = {
                "temperature": "greedy sampling has no log-probabilities, and a negative one is no distribution",
                "stop_above": "KL starts at 0 and is never below, so that training would end at once",
            }[name]
            raise ConfigError(f"{name} = {value}: {why}. Give a number above 0")
