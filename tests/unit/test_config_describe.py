import tomllib
from pathlib import Path
from typing import Literal

import pytest
from pydantic import Field

from kleash.config.algorithms import Kl, Rloo
from kleash.config.describe import Choice, Entry, describe, place, run_settings, table_docs, toml
from kleash.config.loader import load
from kleash.config.page import INTRODUCTION, markdown
from kleash.config.settings import Settings

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


class Slow(Settings):
    """Moves slowly."""

    type: Literal["slow"] = "slow"
    pace: float = Field(0.5, gt=0, lt=1)
    """Share
    a step."""
    name: str | None = None
    """Its name."""


class Fast(Settings):
    """Moves fast."""

    type: Literal["fast"] = "fast"
    name: str | None = None
    """Its name."""


class Walk(Settings):
    """A walk."""

    steps: int
    """How many."""
    gait: Slow | Fast = Field(Slow(), discriminator="type")


def test_entries_of_a_schema():
    assert describe(Walk) == [
        Entry("steps", "a whole number", None, "How many."),
        Entry("gait.type", "'slow' or 'fast'", '"slow"', "`slow`: Moves slowly. `fast`: Moves fast."),
        Entry(
            "gait.pace",
            "a number between 0 and 1, ends excluded",
            "0.5",
            "Share a step.",
            Choice("gait.type", ("slow",)),
        ),
        Entry("gait.name", "a string", "unset", "Its name."),
    ]


def test_a_setting_of_some_choices_is_one_entry_that_names_them():
    (clip,) = [entry for entry in run_settings() if entry.key == "algorithm.kl.target_nats_per_sequence"]
    assert clip.when == Choice("algorithm.type", ("rloo", "grpo", "ppo", "online_dpo"))
    assert str(clip.when) == "algorithm.type = 'rloo', 'grpo', 'ppo' or 'online_dpo'"
    (ramp,) = [entry for entry in run_settings() if entry.key == "algorithm.kl.controller.ramp_steps"]
    assert str(ramp.when) == "algorithm.kl.controller.type = 'target'"
    assert [entry.when for entry in run_settings() if entry.key == "training.steps"] == [None]


def test_tables_have_their_docstrings():
    docs = table_docs()
    assert docs["model.lora"].startswith("Low-rank adapter")
    assert docs["algorithm.kl"].startswith("The leash")
    assert "algorithm" not in docs


def test_every_setting_says_what_it_means():
    assert [entry.key for entry in run_settings() if not entry.doc] == []


def test_a_pydantic_location_loses_the_names_of_unions():
    kl = place(("algorithm", "rloo", "kl", "controller", "target", "x"))
    assert (kl.key, kl.rest) == ("algorithm.kl.controller", ("x",))
    assert place(("model", "lora", "Lora", "r")).key == "model.lora.r"
    assert place(("algorithm", "rloo", "oops")).table is Rloo
    assert place(("algorithm", "grpo", "kl", "oops")).table is Kl
    assert place(("reward", "functions", 0)).rest == (0,)


@pytest.mark.parametrize(
    "value", ['a "b" \\ \n\t\x7f é', 1, 1.5, 1e-9, True, ["a", 1], {"a": 1, "b": ["c"]}, "", 10**20 / 3]
)
def test_toml_reads_back(value):
    assert tomllib.loads(f"value = {toml(value)}")["value"] == value


def test_toml_of_a_table_leaves_out_what_is_none():
    assert toml({"a": None, "b": 1}) == "{b = 1}"


def test_the_page_is_up_to_date():
    assert PAGE.read_text(encoding="utf-8") == markdown(), "run: python -m kleash.config.page > docs/configuration.md"


def test_the_page_has_every_setting_and_its_example_loads(tmp_path):
    page = markdown()
    for entry in run_settings():
        assert f"| `{entry.key.rpartition('.')[2]}`" in page
    path = tmp_path / "run.toml"
    path.write_text(INTRODUCTION.partition("```toml\n")[2].partition("```")[0])
    assert load(path).config.algorithm.kl.target_nats_per_sequence == 6
