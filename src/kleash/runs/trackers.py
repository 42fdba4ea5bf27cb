"""Mirrors: W&B, TensorBoard, MLflow and trackio show the numbers of a run that its run directory holds.

A mirror that cannot start ends the run before its first step; one that fails later is reported once, and the run goes
on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from kleash.errors import ConfigError
from kleash.runs.records import Step

PROJECT = "kleash"
"""The project, or experiment, that runs are filed under in the services that have one."""


class Service(Protocol):
    """One library behind a mirror: it takes named numbers of a step."""

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        """Log the numbers of one step."""
        ...

    def close(self) -> None:
        """Flush what is pending and say that the run is over."""
        ...


class Mirror:
    """Passes steps on to a service and keeps its failures from the run.

    Args:
        name: as in the setting `mirrors`.
        service: where the numbers go.
    """

    def __init__(self, name: str, service: Service) -> None:
        self.name = name
        self._service = service
        self._warned = False

    def log(self, step: Step) -> str | None:
        """Log a step; return what to tell the user if it failed for the first time, else None."""
        return self._guarded(lambda: self._service.log(numbers_of(step), step.step))

    def close(self) -> str | None:
        """Close the mirror; return what to tell the user if that was its first failure, else None."""
        return self._guarded(self._service.close)

    def _guarded(self, action: Callable[[], None]) -> str | None:
        try:
            action()
        except Exception as error:
            if self._warned:
                return None
            self._warned = True
            return (
                f"The mirror '{self.name}' failed ({type(error).__name__}: {error}) and may lack steps from here on. "
                "The run goes on, and its run directory has every number."
            )
        return None


def open_mirrors(names: Sequence[str], config: Mapping[str, Any], run_dir: Path) -> list[Mirror]:
    """Start the named mirrors.

    Args:
        names: `wandb`, `tensorboard`, `mlflow` or `trackio`.
        config: the run's settings, nested, as plain JSON types.
        run_dir: the run's folder; its name is the run's name in the services.

    Raises:
        ConfigError: a library that is not installed, or a service that does not start; those already started are
            closed.
    """
    mirrors: list[Mirror] = []
    try:
        for name in names:
            mirrors.append(Mirror(name, _start(name, config, run_dir)))
    except ConfigError:
        for mirror in mirrors:
            mirror.close()
        raise
    return mirrors


def numbers_of(step: Step) -> dict[str, float]:
    """Return what was measured under its key, and its standard error under `KEY.stderr`."""
    measured = {key: value for key, value in step.metrics.items() if value is not None}
    return measured | {f"{key}.stderr": value for key, value in step.stderr.items() if key in measured}


class Wandb:
    """Weights & Biases."""

    MODULE = "wandb"

    def __init__(self, library: Any, config: Mapping[str, Any], run_dir: Path) -> None:
        self._run = library.init(project=PROJECT, name=run_dir.name, dir=str(run_dir), config=dict(config))

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        """Log the numbers of one step."""
        self._run.log(dict(numbers), step=step)

    def close(self) -> None:
        """Finish the run."""
        self._run.finish()


class TensorBoard:
    """TensorBoard event files, in the run's folder under `tensorboard`."""

    MODULE = "torch.utils.tensorboard"

    def __init__(self, library: Any, config: Mapping[str, Any], run_dir: Path) -> None:
        self._writer = library.SummaryWriter(log_dir=str(run_dir / "tensorboard"))
        settings = "\n".join(f"    {key} = {value}" for key, value in _flat(config))
        self._writer.add_text("settings", settings)

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        """Write the numbers of one step, and flush: they are seen at once."""
        for key, value in numbers.items():
            self._writer.add_scalar(key, value, step)
        self._writer.flush()

    def close(self) -> None:
        """Close the event file."""
        self._writer.close()


class Mlflow:
    """MLflow; where its numbers go is MLflow's own setting (`MLFLOW_TRACKING_URI`)."""

    MODULE = "mlflow"

    def __init__(self, library: Any, config: Mapping[str, Any], run_dir: Path) -> None:
        self._library = library
        library.set_experiment(PROJECT)
        library.start_run(run_name=run_dir.name)
        library.log_params(dict(_flat(config)))

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        """Log the numbers of one step."""
        self._library.log_metrics(dict(numbers), step=step)

    def close(self) -> None:
        """End the run."""
        self._library.end_run()


class Trackio:
    """trackio, the local dashboard of Hugging Face."""

    MODULE = "trackio"

    def __init__(self, library: Any, config: Mapping[str, Any], run_dir: Path) -> None:
        self._library = library
        library.init(project=PROJECT, name=run_dir.name, config=dict(config))

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        """Log the numbers of one step."""
        self._library.log(dict(numbers), step=step)

    def close(self) -> None:
        """Finish the run."""
        self._library.finish()


SERVICES: dict[str, type[Wandb | TensorBoard | Mlflow | Trackio]] = {
    "wandb": Wandb,
    "tensorboard": TensorBoard,
    "mlflow": Mlflow,
    "trackio": Trackio,
}


def _start(name: str, config: Mapping[str, Any], run_dir: Path) -> Service:
    service = SERVICES[name]
    try:
        library = import_module(service.MODULE)
    except ImportError as error:
        raise ConfigError(
            f"mirrors names '{name}', whose package cannot be imported ({error}). Install it: pip install {name}; or "
            "take it out of mirrors: the run directory has every number anyway."
        ) from error
    try:
        return service(library, config, run_dir)
    except Exception as error:
        raise ConfigError(
            f"The mirror '{name}' did not start: {type(error).__name__}: {error}. Mend that, or take it out of "
            "mirrors: the run directory has every number anyway."
        ) from error


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every setting under its dotted key."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value
