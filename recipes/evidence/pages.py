"""Writes what was measured into a recipe's README.md, between two marks, and all recipes into docs/evidence.md."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kleash.errors import DataError
from recipes.evidence.numbers import table
from recipes.evidence.origin import Origin
from recipes.evidence.recipe import Measured, Recipe, Section

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
"""Around what is written from results.json."""
RESULTS, README, PICTURE = "results.json", "README.md", "evidence.svg"
LINK = re.compile(r"\]\((?![a-z]+:|#|/)([^)]+)\)")
"""A link to a file, from where the page is."""

INTRODUCTION = """\
# Evidence

<!-- Written from recipes/*/README.md and results.json by `python -m recipes.evidence --pages`. -->

What is said about the KL penalty should be something you can run. Each section is a recipe: a claim, what was expected,
and what came out, with what did *not* hold said as plainly as what did. `make evidence` makes all of it, and
`make evidence RECIPES=zero_kl` one; finished runs are kept, so that it can be interrupted.
"""


def write_results(folder: Path, origin: Origin, measured: Measured) -> None:
    """Keep what was measured beside the recipe."""
    text = json.dumps({"origin": asdict(origin), "measured": measured}, indent=1, ensure_ascii=False)
    (folder / RESULTS).write_text(text + "\n", encoding="utf-8")


def read_results(folder: Path) -> tuple[Origin, Measured]:
    """Return what was measured last.

    Raises:
        DataError: nothing was.
    """
    try:
        stored: dict[str, Any] = json.loads((folder / RESULTS).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(
            f"{folder / RESULTS} does not exist, so there is nothing to write pages from. Measure first: "
            f"python -m recipes.evidence {folder.name}"
        ) from None
    origin = stored["origin"]
    return Origin(**{key: _frozen(value) for key, value in origin.items()}), stored["measured"]


def pages(root: Path, recipes: Mapping[str, Recipe]) -> dict[Path, str]:
    """Return the text of every page and picture that is written from results; `root` holds recipes/ and docs/."""
    written: dict[Path, str] = {}
    sections = []
    for name, recipe in recipes.items():
        folder = root / "recipes" / name
        origin, measured = read_results(folder)
        section = recipe.section(measured)
        readme = put((folder / README).read_text(encoding="utf-8"), block(origin, section), folder / README)
        written |= {folder / README: readme, folder / PICTURE: section.picture}
        sections.append(excerpt(name, readme))
    written[root / "docs" / "evidence.md"] = "\n".join([INTRODUCTION, *sections])
    return written


def block(origin: Origin, section: Section) -> str:
    """Return what stands between the marks: where it is from, the picture, claims and tables."""
    claims = [(one.claim, one.expected, one.measured, "yes" if one.held else "**no**") for one in section.expectations]
    parts = [
        origin.sentence,
        f"![{section.caption}]({PICTURE})",
        table(("claim", "expected", "measured", "held"), claims),
        *section.parts,
    ]
    return "\n\n".join(parts)


def put(page: str, text: str, path: Path) -> str:
    """Return the page with another text between its marks.

    Raises:
        DataError: the marks are not there.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise DataError(
            f"{path} lacks the lines {BEGIN} and {END}, between which the measurements belong. Put them back."
        )
    return f"{before}{BEGIN}\n{text}\n{END}{after}"


def excerpt(name: str, readme: str) -> str:
    """Return a section of docs/evidence.md: a recipe's title, its first paragraph, and all between its marks."""
    title, _, rest = readme.partition("\n")
    claim = rest.strip().split("\n\n")[0]
    measured = readme.partition(BEGIN)[2].partition(END)[0].strip()
    folder = f"../recipes/{name}"
    heading = f"## [{title.removeprefix('# ')}]({folder}/{README})"
    return "\n\n".join([heading, relink(claim, folder), relink(measured, folder)]) + "\n"


def relink(text: str, folder: str) -> str:
    """Return Markdown that stood in a recipe's folder, with its links as they are from docs/."""
    return LINK.sub(lambda found: f"]({folder}/{found[1]})", text)


def _frozen(value: Any) -> Any:
    """Return a list as the tuple that it was."""
    return tuple(value) if isinstance(value, list) else value


def write(written: Mapping[Path, str]) -> Sequence[Path]:
    """Write the pages that are not as they should be, and return those."""
    changed = [path for path, text in written.items() if not path.exists() or path.read_text("utf-8") != text]
    for path in changed:
        path.write_text(written[path], encoding="utf-8")
    return changed
