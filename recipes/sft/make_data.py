"""Write demonstrations.jsonl: the chosen side of each comparison of ../preferences that is no tie."""

from __future__ import annotations

import json
from pathlib import Path

from kleash.data.comparisons import load_comparisons

COMPARISONS = Path(__file__).parent.parent / "preferences" / "comparisons.jsonl"
DEMONSTRATIONS = Path(__file__).parent / "demonstrations.jsonl"


def main() -> None:
    """Read the comparisons, and write prompt and completion of each."""
    rows = [row for row in load_comparisons(COMPARISONS).rows if row.strength != 0]
    with DEMONSTRATIONS.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps({"prompt": row.prompt.text, "completion": row.chosen}) + "\n")
    print(f"{DEMONSTRATIONS.name}: {len(rows)} demonstrations")


if __name__ == "__main__":
    main()
