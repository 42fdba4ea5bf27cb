"""`kleash init`: write a commented run.toml that runs as it stands."""

from __future__ import annotations

import textwrap
from pathlib import Path

from kleash.config.describe import Entry, run_settings, toml
from kleash.errors import ConfigError, RunDirError

HEADER = """\
# A run of Kleash. `kleash check {name}` tests it and `kleash train {name}` starts it.
# Any setting can be changed for one run: kleash train {name} training.steps=200
# All settings with their defaults: docs/configuration.md.
"""

CHOSEN: dict[str, object] = {
    "model.name": "demo",
    "prompts.path": "demo",
    "reward.functions": ["kleash.demo.sentiment:positive"],
    "algorithm.kl.target_nats_per_sequence": 6.0,
}
"""Values of the settings that have no default, or that make the example a run on a leash."""

WRITTEN = (
    "model.name",
    "prompts.path",
    "prompts.held_out",
    "reward.functions",
    "algorithm.type",
    "algorithm.num_generations",
    "algorithm.kl.target_nats_per_sequence",
    "rollout.max_completion_length",
    "rollout.temperature",
    "training.steps",
    "training.prompts_per_step",
    "training.learning_rate",
    "training.seed",
)


def run(path: Path, *, force: bool = False) -> None:
    """Write the template to `path`; `force` replaces a file that is there.

    Raises:
        ConfigError: the file exists and `force` is not given.
        RunDirError: it cannot be written.
    """
    if path.exists() and not force:
        raise ConfigError(f"{path} exists and is left as it is. Give another name, or --force to replace it.")
    try:
        path.write_text(template(path.name), encoding="utf-8")
    except OSError as error:
        raise RunDirError(
            f"{path} cannot be written: {error.strerror}. Give a path in a folder that exists and is yours."
        ) from None
    print(f"{path} is written. Edit it, then: kleash check {path}")


def template(name: str) -> str:
    """Return the text of a run.toml called `name`: each setting under its meaning, in the order of use."""
    entries: dict[str, Entry] = {}
    for entry in run_settings():
        entries.setdefault(entry.key, entry)
    text, open_table = HEADER.format(name=name), ""
    for key in WRITTEN:
        table, _, setting = key.rpartition(".")
        if table != open_table:
            text += f"\n[{table}]\n"
            open_table = table
        value = toml(CHOSEN[key]) if key in CHOSEN else entries[key].default
        comment = "\n".join(
            textwrap.wrap(entries[key].doc, 100, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)
        )
        text += f"{comment}\n{setting} = {value}\n"
    return text
