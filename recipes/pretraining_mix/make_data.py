"""Write the texts: newspaper editorials to mix in, and text of three other kinds to measure on.

    python make_data.py

The snippets are those of ../reward_human, from the same checked archive; the ratings are not used here.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "reward_human"))

from make_data import fetch, read_archive  # noqa: E402  # the sibling recipe's

MIXED = "editorials"
MEASURED = 800
"""Snippets of each other kind."""


def main() -> None:
    """One file a kind, a snippet a paragraph."""
    folder = HERE / "data"
    folder.mkdir(exist_ok=True)
    for name, parsed in read_archive(fetch()).items():
        texts = [snippet.text for snippet in parsed.snippets]
        chosen = texts if name == MIXED else texts[:MEASURED]
        (folder / f"{name}.txt").write_text("\n\n".join(chosen) + "\n", encoding="utf-8")
        print(f"data/{name}.txt: {len(chosen)} snippets, {'mixed in' if name == MIXED else 'measured on'}")


if __name__ == "__main__":
    main()
