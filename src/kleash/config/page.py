"""The page docs/configuration.md, written from the schema.

Run ``python -m kleash.config.page > docs/configuration.md`` after a change of the schema.
"""

from __future__ import annotations

from kleash.config.describe import UNSET, Entry, run_settings, table_docs

INTRODUCTION = """\
# Configuration

<!-- Written from src/kleash/config/schema.py by `python -m kleash.config.page > docs/configuration.md`. -->

A run is one TOML file. Three settings are required, and everything else starts from a vetted default:

```toml
model = "demo"
prompts = "demo"
reward = "kleash.demo.sentiment:positive"

[algorithm.kl]
target_nats_per_sequence = 6.0
```

`kleash init run.toml` writes a commented file to start from. Any setting can be given on the command line
too:

```sh
kleash train run.toml training.steps=200 algorithm.kl.target_nats_per_sequence=8
```

- **Sources**, lowest first: the defaults below, the file, the command line. No environment variable changes
  a number. Tables are merged key by key, lists are replaced.
- **Values** on the command line are TOML; what is not TOML is taken as a string, so `model=org/name` needs
  no quotes.
- **Short forms**: `model = "x"`, `prompts = "x"` and `reward = "x"` stand for `model.name`, `prompts.path`
  and `reward.functions = ["x"]`, and go together with further dotted settings (`model.dtype=float32`).
- **Choices on `type`**: `algorithm` without a type is `rloo`. A `controller` without one is `target` where
  a target is given, else `fixed`.
- **Relative paths** in the file (model folders, prompt files, `file.py:function` rewards) start at the
  file's folder where they exist there, else at the working directory. `output_dir` and paths on the command
  line always start at the working directory.
- **Mistakes** end the command before any weight is read, each in a line of its own: unknown names, values
  out of range, settings that contradict each other, and a setting that was given and has no effect.
"""


def markdown() -> str:
    """Return the page: the introduction, then a table of settings for each table of the TOML."""
    docs = table_docs()
    sections: dict[str, list[Entry]] = {}
    for entry in run_settings():
        sections.setdefault(entry.key.rpartition(".")[0], []).append(entry)
    parts = [INTRODUCTION]
    for table, entries in sections.items():
        parts.append(f"## `[{table}]`\n" if table else "## The run\n")
        if table in docs:
            parts.append(f"{docs[table]}\n")
        rows = "\n".join(_row(entry) for entry in entries)
        parts.append(f"| setting | allowed | default | meaning |\n|---|---|---|---|\n{rows}\n")
    return "\n".join(parts)


def _row(entry: Entry) -> str:
    name = f"`{entry.key.rpartition('.')[2]}`"
    if entry.when:
        name += f" ({', '.join(entry.when.kinds)})"
    if entry.default is None:
        default = "**required**"
    elif entry.default in (UNSET, "a table"):
        default = entry.default
    else:
        default = f"`{entry.default}`"
    return f"| {name} | {entry.type} | {default} | {entry.doc} |"


if __name__ == "__main__":
    print(markdown(), end="")
