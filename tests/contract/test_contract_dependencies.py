"""constraints.txt pins everything that pyproject.toml asks for, within the ranges it gives."""

import tomllib
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = PROJECT["project"]["optional-dependencies"]
ASKED = [
    *PROJECT["build-system"]["requires"],
    *PROJECT["project"]["dependencies"],
    *(requirement for extra in EXTRAS.values() for requirement in extra),
]


def pins():
    """Return the release of each pinned package; the file has nothing but pins and comments."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pairs}


@pytest.mark.parametrize("requirement", sorted(set(ASKED)))
def test_what_the_project_asks_for_is_pinned_within_its_range(requirement):
    wanted = Requirement(requirement)
    assert wanted.specifier.contains(pins()[canonicalize_name(wanted.name)])


def test_no_pin_is_of_one_build_only():
    assert [version for version in pins().values() if "+" in version] == []


def test_what_is_installed_is_what_is_pinned():
    """Compares the packages that are in both; a +cpu or +cu130 behind the release is the same release."""
    pinned = pins()
    installed = {canonicalize_name(d.name): d.version.partition("+")[0] for d in distributions()}
    both = pinned.keys() & installed.keys()
    assert "torch" in both
    assert {name: installed[name] for name in both} == {name: pinned[name] for name in both}
