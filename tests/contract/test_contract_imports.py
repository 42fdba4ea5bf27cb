"""What a room may load: a finished run is read without torch, and the command line answers at once.

Which room may import which is stated in .importlinter. Here a fresh interpreter is asked what is loaded in fact,
through other packages too.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
WITHOUT_TORCH = (
    "errors", "choices", "metrics", "config", "runs", "data", "labels", "report", "control", "monitor", "web", "demo",
    "frontier", "sweep",
)  # fmt: skip
HELP_SECONDS = 1.0


def python(*arguments):
    result = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, timeout=60, env=os.environ
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def modules_of(room):
    paths = sorted((SOURCE / "kleash" / room).rglob("*.py")) or [SOURCE / "kleash" / f"{room}.py"]
    return [".".join(path.relative_to(SOURCE).with_suffix("").parts) for path in paths]


def loaded_by(modules):
    """Return the top-level packages that a fresh interpreter has loaded after it imported `modules`."""
    code = f"import sys, {', '.join(modules)}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    return set(python("-c", code).split())


@pytest.mark.parametrize("room", WITHOUT_TORCH)
def test_a_room_loads_neither_torch_nor_transformers(room):
    loaded = loaded_by(modules_of(room))
    assert "kleash" in loaded
    assert loaded.isdisjoint({"torch", "transformers"})


def test_the_check_sees_torch_where_it_is_loaded():
    assert {"torch", "kleash"} <= loaded_by(modules_of("ops"))


def test_the_rooms_without_torch_are_those_of_the_import_contract():
    contracts = (SOURCE.parent / ".importlinter").read_text(encoding="utf-8")
    _, _, contract = contracts.partition("[importlinter:contract:no-torch]")
    sources, _, _ = contract.partition("forbidden_modules")
    assert set(sources.partition("source_modules =")[2].split()) == {f"kleash.{room}" for room in WITHOUT_TORCH}


def test_help_answers_within_a_second():
    """The best of three: other work on the machine is not its fault."""
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        assert "train" in python("-c", "from kleash.cli.main import main; main(['--help'])")
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < HELP_SECONDS
