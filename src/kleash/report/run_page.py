"""The report of a run: one page in the run's folder that opens offline and can be sent to anyone."""

from __future__ import annotations

import os
from pathlib import Path

from kleash.errors import RunDirError
from kleash.monitor.notify import masked_settings
from kleash.report.catalogue import meaning, title, unit
from kleash.report.markup import Html, escape, join
from kleash.report.page import Section, folded, page
from kleash.report.run_charts import chart_sections, time_section
from kleash.report.run_events import events_section
from kleash.report.run_samples import samples_section
from kleash.report.run_summary import summary
from kleash.report.tables import settings_table, table
from kleash.report.wording import number, with_error
from kleash.runs.reader import RunReader
from kleash.runs.schema import REPORT

DRAWN_FACTS = ("reward_health",)
"""Facts about a run that have a section of their own."""


def write_report(run_dir: Path | str) -> Path:
    """Write `report.html` into a run's folder, whatever the run has recorded so far.

    Args:
        run_dir: the run's folder.

    Returns:
        Where the page is.

    Raises:
        RunDirError: no run there, or a folder that cannot be written.
    """
    with RunReader(run_dir) as reader:
        html = render_report(reader)
    path = Path(run_dir) / REPORT
    fresh = path.with_name(REPORT + ".new")
    try:
        fresh.write_text(html, encoding="utf-8")
        os.replace(fresh, path)
    except OSError as error:
        raise RunDirError(
            f"The report {path} cannot be written: {error.strerror or error}. Change the folder's "
            "permissions, or copy the run to a place that can be written."
        ) from error
    return path


def render_report(reader: RunReader) -> str:
    """Return the report of a run as a page."""
    sections = [
        *chart_sections(reader),
        *samples_section(reader),
        events_section(reader),
        *time_section(reader),
        Section("Numbers and settings", join([_numbers(reader), _settings(reader)])),
    ]
    return page(f"{_name(reader)} · Kleash", join([_header(reader), summary(reader)]), sections)


def _name(reader: RunReader) -> str:
    return reader.path.absolute().name


def _header(reader: RunReader) -> Html:
    model = reader.config.get("model")
    facts = [str(model)] if isinstance(model, str) else []
    facts.append("started " + reader.created_at[:16].replace("T", " ") + " UTC")
    facts += [reader.status_reason] if reader.status_reason else []
    said = join(Html(f'<span class="fact">{escape(fact)}</span>') for fact in facts)
    chip = f'<span class="chip {reader.status}">{reader.status}</span>'
    return Html(f'<div class="run"><h1>{escape(_name(reader))}</h1>{chip}{said}</div>')


def _numbers(reader: RunReader) -> Html:
    """Every metric of the run, with its first and last value and what it means."""
    rows = []
    for key in sorted({key for step in reader.steps() for key in step.metrics}):
        points = reader.series(key)
        first, last = (with_error(*points[at][1:]) if points else number(None) for at in (0, -1))
        name = Html(f"{escape(title(key))}<br><code>{escape(key)}</code>") if title(key) != key else key
        rows.append((name, first, last, unit(key), meaning(key)))
    headers = ["metric", "first", "last", "unit", "what it says"]
    caption = "First and last value of every metric, ± one standard error where it is a mean."
    return folded("All numbers", table(headers, rows, caption=caption, numeric={"first", "last"}))


def _settings(reader: RunReader) -> Html:
    settings = settings_table(masked_settings(reader.config), caption="The resolved settings, defaults included.")
    known = {name: fact for name, fact in reader.meta.items() if name not in DRAWN_FACTS}
    facts = settings_table(known, caption="Versions, fingerprints and other facts about the run.")
    return join([folded("Settings", settings), folded("About this run", facts)])
