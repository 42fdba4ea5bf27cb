"""The charts of one run, all on the same horizontal axis; what the run did not record is not drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kleash.report.axes import SMALL, WIDE, Size
from kleash.report.catalogue import HELD_OUT, title, unit
from kleash.report.charts import Point, Series, Stroke, Target, Tone, line_chart
from kleash.report.markup import Html, join
from kleash.report.page import Section, columns, prose
from kleash.report.run_events import shades
from kleash.report.run_summary import TOLERANCE, controlled_key
from kleash.runs.reader import RunReader


class Board:
    """Draws what a run recorded; a chart without a single number is empty `Html`."""

    def __init__(self, reader: RunReader) -> None:
        self.reader = reader
        self._recorded = reader.steps()
        self._shades = shades(reader)
        self._steps = (self._recorded[0].step, self._recorded[-1].step) if self._recorded else None

    def points(self, key: str) -> list[Point]:
        """Return (step, value, standard error or None) of each step that has the metric."""
        return self.reader.series(key)

    def line(self, key: str, label: str, tone: Tone = "reward", stroke: Stroke = "solid") -> Series:
        """Return a metric as a line of a chart."""
        return Series(label, self.points(key), tone, stroke)

    def chart(
        self,
        name: str,
        key: str,
        lines: Sequence[Series],
        *,
        include: Sequence[float] = (),
        target: Target | None = None,
        note: str = "",
        size: Size = WIDE,
    ) -> Html:
        """Return a chart in the unit of `key`, over all the steps of the run."""
        if not any(line.points for line in lines):
            return Html()
        return line_chart(
            name,
            lines,
            unit=unit(key),
            target=target,
            steps=self._steps,
            include=include,
            note=note,
            size=size,
            shaded=self._shades,
        )

    def both(
        self, name: str, key: str, *, include: Sequence[float] = (), tone: Tone = "reward", note: str = ""
    ) -> Html:
        """Return a chart of a metric in training and held out."""
        return self.chart(name, key, self._both(key, tone), include=include, note=note)

    def kl(self, name: str, key: str, more: Sequence[Series] = ()) -> Html:
        """Return a KL chart, with the target where the target is about this KL."""
        held = key == controlled_key(self.reader.config)
        points = [(step, value) for step, value, _ in self.points("control/target") if math.isfinite(value)]
        target = Target("target", points, TOLERANCE) if held else None
        return self.chart(name, key, [*self._both(key, "drift"), *more], include=(0,), target=target)

    def small(self, key: str, tone: Tone, include: Sequence[float] = (0.0,)) -> Html:
        """Return a small chart of one metric under its own name."""
        return self.chart(title(key), key, [self.line(key, title(key), tone)], include=include, size=SMALL)

    def multiples(self, keys: Sequence[str], tone: Tone) -> list[Html]:
        """Return small charts with one vertical axis, so that their heights compare."""
        values = [value for key in keys for _, value, _ in self.points(key) if math.isfinite(value)]
        reach = (0.0, max(values, default=1.0) * 1.05)
        return [self.small(key, tone, reach) for key in keys]

    def last_note(self, name: str) -> str:
        """Return the newest note of that name, with its step; empty where there is none."""
        found = ((step.step, step.notes[name]) for step in reversed(self._recorded) if step.notes.get(name))
        return next((f"Step {step}: {text}" for step, text in found), "")

    def _both(self, key: str, tone: Tone) -> list[Series]:
        """Return training and held out as two lines; held out alone has the colour for itself."""
        training = self.line(key, "training", tone)
        return [training, self.line(HELD_OUT + key, "held out", "quiet" if training.points else tone, "dots")]


def section(name: str, text: str, charts: Sequence[Html], count: int = 2) -> list[Section]:
    """Return charts under a text as a section; none where no chart was drawn."""
    if not any(charts):
        return []
    return [Section(name, join([prose(text) if text else Html(), columns(charts, count)]))]
