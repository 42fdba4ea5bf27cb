"""Exact KL to the starting model inside any `transformers.Trainer`, TRL's trainers included.

The trainer learns what it would learn without: its loss, its reference and its beta play no part here. Direction:
KL(policy ‖ start), on replies that the policy writes to held-out prompts.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from kleash.data.prompts import load_prompts
from kleash.data.render import render
from kleash.errors import ConfigError, RunStopped
from kleash.integrations.measurement import Measurement, undisturbed
from kleash.integrations.starting import policy_of, resumed_start, starting_model
from kleash.report.run_page import write_report
from kleash.runs.reader import RunReader
from kleash.runs.records import Event, Sample, Status, Step
from kleash.runs.schema import DATABASE
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
        run_dir: where the Kleash run is written; before training begins None if it was not given.
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
                checkpoint; by default `kleash` in the trainer's output_dir,
                `kleash-2` where that is taken, and so on.
            seed: of the replies; every measurement uses the same random numbers.
            column: the column that holds the prompt.

        Raises:
            ConfigError: a number that cannot work.
            DataError: prompts that cannot be read.
        """
        _check_numbers(every=every, samples=samples, max_length=max_length)
        _check_positive(temperature=temperature, stop_above=stop_above)
        self.run_dir = None if run_dir is None else Path(run_dir)
        self._prompts = load_prompts(prompts, column=column)
        self._every, self._stop_above = every, stop_above
        self._sampling = {"samples": samples, "max_length": max_length, "temperature": temperature, "seed": seed}
        self._measure: Measurement | None = None
        self._writer: RunWriter | None = None
        self._unlogged: dict[str, float] = {}
        self._latest: list[Sample] = []
        self._stopped = ""

    def attach(self, trainer: Any) -> None:
        """Join `trainer` ahead of its other callbacks, so that its reporters see the numbers as well."""
        trainer.callback_handler.callbacks.insert(0, self)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Take the model as it is for the start, open the run, and measure step 0.

        Raises:
            ModelError: a model that cannot be measured, or a resumed training whose start is not in memory.
            DataError: a prompt that does not fit the model.
            RunDirError: the run directory cannot be read or written.
        """
        self._measure = self._prepare(kwargs["model"], kwargs["processing_class"], state.global_step)
        self._latest, self._stopped = [], ""
        if state.is_world_process_zero:
            self._writer = self._open(args, state, self._measure)
            start = f"KL is measured from {self._measure.reference.description}"
            self._writer.write_event(Event(state.global_step, "info", "starting_model", start))
            logger.warning("Kleash: %s. Run directory: %s", start, self.run_dir)
        if state.global_step == 0:
            state.log_history.append({**self._record(0), "epoch": 0.0, "step": 0})

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        """Measure if it is time, and at the last step; ask the trainer to log, and to stop above the limit."""
        step = state.global_step
        if step % self._every and step < state.max_steps and not control.should_training_stop:
            return control
        self._unlogged = self._record(step)
        control.should_log = True
        kl = self._unlogged[PER_SEQUENCE]
        if self._stop_above is not None and kl > self._stop_above:
            self._stopped = (
                f"step {step}: KL to the starting model is {kl:.3g} nats per sequence on {len(self._prompts)} held-out "
                f"prompts, above stop_above = {self._stop_above:g}, so training stops here. Lower the learning rate, "
                "raise beta, or raise stop_above"
            )
            logger.warning("Kleash: %s", self._stopped)
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
        """Add the numbers of this step to what the trainer logs and keeps."""
        if self._unlogged and logs is not None:
            logs.update(self._unlogged)
            state.log_history[-1].update(self._unlogged)
            self._unlogged = {}

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Keep the newest replies as those after training, write the report and close the run."""
        if self._writer is not None:
            self._writer.write_samples([replace(sample, split="after") for sample in self._latest])
            if self._stopped:
                self._writer.write_event(Event(state.global_step, "critical", "stop_above", self._stopped))
            self._close("stopped" if self._stopped else "finished", self._stopped)
        self._measure = None

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

    def _record(self, step: int) -> dict[str, float]:
        """Measure, write the step to the run, and return what the trainer logs.

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
            if self._writer is not None:
                self._close("stopped", reason)
            raise RunStopped(reason) from stopped
        if self._writer is not None:
            samples = self._latest if step else [replace(sample, split="before") for sample in self._latest]
            self._writer.write_step(Step(step, numbers.metrics, numbers.stderr, numbers.notes), samples)
        return _for_the_trainer(numbers)

    def _open(self, args: TrainingArguments, state: TrainerState, measurement: Measurement) -> RunWriter:
        if state.global_step:
            assert self.run_dir is not None, "resumed_start has read it"
            return RunWriter.resume(self.run_dir, _last_recorded(self.run_dir, state.global_step))
        self.run_dir = self.run_dir or _free_folder(Path(args.output_dir))
        settings = {
            "model": {"name": measurement.policy.name},
            "algorithm": {"type": type(args).__name__},
            "training": {"steps": state.max_steps},
            "callback": {"every": self._every, "stop_above": self._stop_above, **self._sampling},
            "trainer": _settings(args),
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

    def _close(self, status: Status, reason: str) -> None:
        assert self._writer is not None
        self._writer.set_status(status, reason)
        self._writer.close()
        write_report(self._writer.path)
        self._writer = None


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


def _settings(args: TrainingArguments) -> dict[str, bool | int | float | str | None]:
    """The trainer's arguments, tokens masked, ready for JSON."""
    plain = (bool, int, float, str, type(None))
    return {name: value if isinstance(value, plain) else str(value) for name, value in args.to_dict().items()}


def _last_recorded(run_dir: Path, step: int) -> int:
    """The newest measurement of a run at or before `step`."""
    with RunReader(run_dir) as run:
        return max(recorded.step for recorded in run.steps() if recorded.step <= step)


def _free_folder(output_dir: Path) -> Path:
    """`kleash` in the trainer's folder, or the first of `kleash-2`, `kleash-3`, ... that holds no run."""
    names = ("kleash" if i == 1 else f"kleash-{i}" for i in count(1))
    return next(output_dir / name for name in names if not (output_dir / name / DATABASE).exists())


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
