"""What a run was alarmed about, what was done, and which of its checkpoints to distrust."""

from __future__ import annotations

from collections.abc import Sequence

from kleash.monitor.suspects import Window, suspect_windows
from kleash.monitor.watched import measured_in, windows_over
from kleash.report.charts import Shade
from kleash.report.markup import Html, escape, join
from kleash.report.page import Section, prose
from kleash.report.tables import table
from kleash.report.wording import number
from kleash.runs.reader import RunReader
from kleash.runs.records import Event


def shades(reader: RunReader) -> list[Shade]:
    """Return the steps under a warning or a critical alarm, as charts shade them."""
    return [
        Shade(window.first, window.last, window.event.name, window.event.severity)
        for window in suspect_windows(reader.events())
    ]


def events_section(reader: RunReader) -> Section:
    """Return the alarms with their causes, the checkpoints under them, and whatever else was reported."""
    events = reader.events()
    if not events:
        return Section("Events", prose("Nothing was reported."))
    windows = suspect_windows(events)
    alarms = {window.event.name for window in windows}
    rest = [event for event in events if event.name not in alarms]
    pieces = [_alarms(windows), _checkpoints(reader, windows)] if windows else []
    return Section("Events", join([*pieces, _rest(rest) if rest else Html()]))


def _alarms(windows: Sequence[Window]) -> Html:
    rows = [
        (
            f"{window.first} to {'the end' if window.last is None else window.last}",
            _chip(window.event),
            _name(window.event),
            _said(window.event),
            _causes(window.event),
            window.event.advice,
        )
        for window in windows
    ]
    headers = ["steps", "severity", "alarm", "what happened", "likely causes, and what to check", "what to do"]
    return table(headers, rows, caption="Alarms, in the order they were told. The charts shade their steps.")


def _checkpoints(reader: RunReader, windows: Sequence[Window]) -> Html:
    """Name the checkpoints that lie under an alarm."""
    steps = [saved.step for saved in reader.checkpoints()]
    found = {step: windows_over(windows, measured_in(reader.config, step)) for step in steps}
    said = [f"{step} ({', '.join(window.event.name for window in over)})" for step, over in found.items() if over]
    trusted = [step for step, over in found.items() if not over]
    if not said:
        return Html()
    newest = f" The newest without an alarm is that of step {max(trusted)}." if trusted else ""
    sentence = f"Suspect checkpoints, by step: {', '.join(said)}.{newest}"
    return Html(f'<p class="prose after">{escape(sentence)}</p>')


def _rest(events: Sequence[Event]) -> Html:
    rows = [(number(event.step), _chip(event), _name(event), _said(event)) for event in events]
    headers = ["step", "severity", "event", "what happened"]
    return table(headers, rows, caption="What else was reported, in order.", numeric={"step"})


def _said(event: Event) -> Html:
    """The message, and under it the numbers."""
    numbers = ", ".join(f"{name} {number(value)}" for name, value in event.values.items())
    return Html(escape(event.message) + (f'<br><span class="numbers">{escape(numbers)}</span>' if numbers else ""))


def _causes(event: Event) -> Html:
    if not event.causes:
        return Html()
    items = join(Html(f"<li>{escape(cause.text)}: {escape(cause.check)}</li>") for cause in event.causes)
    return Html(f'<ol class="causes">{items}</ol>')


def _name(event: Event) -> Html:
    return Html(f'<span class="rule">{escape(event.name)}</span>')


def _chip(event: Event) -> Html:
    return Html(f'<span class="chip {event.severity}">{event.severity}</span>')
