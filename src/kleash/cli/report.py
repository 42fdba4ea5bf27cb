"""`kleash report`: write a run's report anew."""

from __future__ import annotations

from pathlib import Path

from kleash.report.run_page import write_report


def run(run_dir: Path) -> None:
    """Write `report.html` of whatever the run has recorded so far, and print where it is.

    Raises:
        RunDirError: no run there, or a folder that cannot be written.
    """
    print(write_report(run_dir))
