import math
import sys
from types import ModuleType

import pytest

from kleash.errors import ConfigError
from kleash.runs.records import Step
from kleash.runs.trackers import Mirror, numbers_of, open_mirrors

STEP = Step(
    7,
    {"reward/proxy": 0.5, "reward/gold": None, "kl/token_max": math.inf},
    {"reward/proxy": 0.25},
    {"beta": "words are no numbers"},
)
NUMBERS = {"reward/proxy": 0.5, "kl/token_max": math.inf, "reward/proxy.stderr": 0.25}
CONFIG = {"name": "first", "algorithm": {"type": "rloo", "kl": {"beta": 0.5}}}


class Library:
    """Remembers every call on it, as (name, positional, named), and answers with itself."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        def call(*positional, **named):
            self.calls.append((name, positional, named))
            return self

        return call


@pytest.fixture
def library(monkeypatch):
    def install(name):
        found = Library()
        module = ModuleType(name)
        module.__getattr__ = lambda attribute: getattr(found, attribute)
        monkeypatch.setitem(sys.modules, name, module)
        return found

    return install


def test_what_was_measured_goes_out_with_its_error():
    assert numbers_of(STEP) == NUMBERS


def test_wandb(library, tmp_path):
    wandb = library("wandb")
    (mirror,) = open_mirrors(["wandb"], CONFIG, tmp_path / "first")
    assert mirror.log(STEP) is None
    assert mirror.close() is None
    assert wandb.calls == [
        ("init", (), {"project": "kleash", "name": "first", "dir": str(tmp_path / "first"), "config": CONFIG}),
        ("log", (NUMBERS,), {"step": 7}),
        ("finish", (), {}),
    ]


def test_trackio(library, tmp_path):
    trackio = library("trackio")
    (mirror,) = open_mirrors(["trackio"], CONFIG, tmp_path / "first")
    mirror.log(STEP)
    mirror.close()
    assert trackio.calls == [
        ("init", (), {"project": "kleash", "name": "first", "config": CONFIG}),
        ("log", (NUMBERS,), {"step": 7}),
        ("finish", (), {}),
    ]


def test_mlflow_gets_settings_under_dotted_keys(library, tmp_path):
    mlflow = library("mlflow")
    (mirror,) = open_mirrors(["mlflow"], CONFIG, tmp_path / "first")
    mirror.log(STEP)
    mirror.close()
    assert mlflow.calls == [
        ("set_experiment", ("kleash",), {}),
        ("start_run", (), {"run_name": "first"}),
        ("log_params", ({"name": "first", "algorithm.type": "rloo", "algorithm.kl.beta": 0.5},), {}),
        ("log_metrics", (NUMBERS,), {"step": 7}),
        ("end_run", (), {}),
    ]


def test_tensorboard_writes_into_the_run(library, tmp_path):
    tensorboard = library("torch.utils.tensorboard")
    (mirror,) = open_mirrors(["tensorboard"], CONFIG, tmp_path / "first")
    mirror.log(STEP)
    mirror.close()
    settings = "    name = first\n    algorithm.type = rloo\n    algorithm.kl.beta = 0.5"
    assert tensorboard.calls == [
        ("SummaryWriter", (), {"log_dir": str(tmp_path / "first" / "tensorboard")}),
        ("add_text", ("settings", settings), {}),
        *[("add_scalar", (key, value, 7), {}) for key, value in NUMBERS.items()],
        ("flush", (), {}),
        ("close", (), {}),
    ]


def test_no_mirror_is_none(tmp_path):
    assert open_mirrors([], CONFIG, tmp_path) == []


@pytest.mark.parametrize(
    ("name", "module"),
    [("wandb", "wandb"), ("mlflow", "mlflow"), ("trackio", "trackio"), ("tensorboard", "torch.utils.tensorboard")],
)
def test_a_missing_package_is_named_with_its_install(monkeypatch, tmp_path, name, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError) as caught:
        open_mirrors([name], CONFIG, tmp_path)
    assert str(caught.value) == (
        f"mirrors names '{name}', whose package cannot be imported (import of {module} halted; None in sys.modules). "
        f"Install it: pip install {name}; or take it out of mirrors: the run directory has every number anyway."
    )


def test_a_mirror_that_does_not_start_ends_the_run_and_closes_the_others(library, monkeypatch, tmp_path):
    trackio = library("trackio")
    wandb = ModuleType("wandb")

    def init(**options):
        raise PermissionError("no API key")

    wandb.init = init
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    with pytest.raises(ConfigError) as caught:
        open_mirrors(["trackio", "wandb"], CONFIG, tmp_path)
    assert str(caught.value) == (
        "The mirror 'wandb' did not start: PermissionError: no API key. Mend that, or take it out of mirrors: the run "
        "directory has every number anyway."
    )
    assert trackio.calls[-1][0] == "finish"


class Flaky:
    """Fails at every second step, and at the end."""

    def __init__(self):
        self.logged = []

    def log(self, numbers, step):
        if step % 2:
            raise ConnectionError("offline")
        self.logged.append(step)

    def close(self):
        raise ConnectionError("offline")


def test_a_mirror_that_fails_later_says_so_once_and_goes_on():
    service = Flaky()
    mirror = Mirror("wandb", service)
    said = [mirror.log(Step(number, {})) for number in range(5)]
    assert said == [
        None,
        "The mirror 'wandb' failed (ConnectionError: offline) and may lack steps from here on. The run goes on, and "
        "its run directory has every number.",
        None,
        None,
        None,
    ]
    assert mirror.close() is None
    assert service.logged == [0, 2, 4]
