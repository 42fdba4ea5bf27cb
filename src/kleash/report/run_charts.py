"""The charts of a run: which metrics stand together, and what to look for in them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kleash.report.axes import SMALL
from kleash.report.catalogue import HELD_OUT, title, unit
from kleash.report.charts import Series, Stroke, Target, Tone, histogram, line_chart
from kleash.report.markup import Html, join
from kleash.report.page import Section, columns, prose
from kleash.report.run_summary import TOLERANCE, controlled_key
from kleash.runs.reader import RunReader

CLASSES = ("stop", "special", "whitespace", "digit", "punctuation", "word")
PHASES = ("rollout", "reward", "score", "update")


class RunCharts:
    """The chart sections of one run, all on the same horizontal axis."""

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader
        self._recorded = reader.steps()
        self._steps = (self._recorded[0].step, self._recorded[-1].step) if self._recorded else None

    def sections(self) -> list[Section]:
        """Return every section, in reading order."""
        return [
            Section("Reward and drift", self._reward_and_drift()),
            Section("Length", self._length()),
            Section("Language", self._language()),
            Section("Where the drift is", self._drift_by_class()),
        ]

    def time(self) -> Section:
        """Return where the seconds of a step went."""
        keys = [f"time/{phase}" for phase in PHASES]
        others = [self._small(key, "quiet", (0.0,)) for key in ("time/total", "throughput/tokens_per_second")]
        return Section("Time", columns([*self._multiples(keys, "quiet"), *others], 3))

    def _reward_and_drift(self) -> Html:
        reward = [
            self._line("reward/proxy", "proxy"),
            self._line("reward/shaped", "shaped", "reward", "dashed"),
            self._line("reward/gold", "gold", "quiet", "dashed"),
        ]
        held_out = [
            self._line("eval/reward/proxy", "proxy", "reward", "dots"),
            self._line("eval/reward/gold", "gold", "quiet", "dots"),
        ]
        gold = "Gold is measured, never optimised." if self._reader.series("reward/gold") else ""
        original = self._line("kl/original_per_sequence", "to the original model", "quiet", "dashed")
        return columns(
            [
                self._chart("Reward on training prompts", "reward/proxy", reward, note=gold),
                self._kl_chart("KL to the reference, per sequence", "kl/exact_per_sequence", [original]),
                self._chart("Reward on held-out prompts", "reward/proxy", held_out),
                self._chart(
                    "Beta, the price of a nat",
                    "control/beta",
                    [self._line("control/beta", "beta", "quiet")],
                    include=(0,),
                    note=self._last_note("beta"),
                ),
            ]
        )

    def _length(self) -> Html:
        text = prose(
            "A policy can meet a target per sequence by writing less: KL adds up over the tokens, so a",
            "shorter reply is nearer without being more alike.",
            "If KL per token climbs while replies shorten, that is what happened.",
        )
        return join(
            [
                text,
                columns(
                    [
                        self._kl_chart("KL to the reference, per token", "kl/exact_per_token"),
                        self._both("Reply length", "length/mean", include=(0,)),
                        self._both("Replies that end by themselves", "length/stop_rate", include=(0, 1)),
                        self._both("Entropy of the next token", "entropy/per_token", include=(0,)),
                    ]
                ),
            ]
        )

    def _language(self) -> Html:
        text = prose(
            "Distinct pairs fall and repeated runs rise when the policy has found a phrase that pays.",
            "Held against their values at the first step, they show whether the samples still vary.",
        )
        return join(
            [
                text,
                columns(
                    [
                        self._both("Distinct word pairs", "text/distinct_2", include=(0, 1)),
                        self._both("Repeated runs of four", "text/repeated_4gram", include=(0,)),
                    ]
                ),
            ]
        )

    def _drift_by_class(self) -> Html:
        samples = self._reader.samples("after")
        last = max((sample.step for sample in samples), default=None)
        values = [sample.kl for sample in samples if sample.step == last]
        spread = histogram("KL of each reply after training", values, unit="nats per sequence")
        worst = self._last_note("worst_tokens")
        text = [
            prose("KL by the class of the token that was written; the six charts share one vertical axis."),
            prose(f"Tokens that drift most. {worst}") if worst else Html(),
        ]
        return join(
            [
                *text,
                columns(self._multiples([f"kl/class_{name}" for name in CLASSES], "drift"), 3),
                columns([spread, self._tail()]),
            ]
        )

    def _tail(self) -> Html:
        tail = [
            self._line("kl/token_max", "largest", "drift", "dashed"),
            self._line("kl/token_p99", "99 %", "drift"),
            self._line("kl/token_p95", "95 %", "quiet"),
        ]
        return self._chart("The tokens that drift most", "kl/token_max", tail, include=(0,))

    def _multiples(self, keys: Sequence[str], tone: Tone) -> list[Html]:
        """Return small charts with one vertical axis, so that their heights compare."""
        values = [value for key in keys for _, value, _ in self._reader.series(key) if math.isfinite(value)]
        reach = (0.0, max(values, default=1.0) * 1.05)
        return [self._small(key, tone, reach) for key in keys]

    def _small(self, key: str, tone: Tone, include: Sequence[float]) -> Html:
        """Return a small chart of one metric under its own name."""
        return line_chart(
            title(key),
            [self._line(key, "training", tone)],
            unit=unit(key),
            steps=self._steps,
            include=include,
            size=SMALL,
        )

    def _kl_chart(self, name: str, key: str, more: Sequence[Series] = ()) -> Html:
        """Return a KL chart, with the target where the target is about this KL."""
        lines = [
            self._line(key, "training", "drift"),
            self._line(HELD_OUT + key, "held out", "quiet", "dots"),
            *more,
        ]
        held = key == controlled_key(self._reader.config)
        points = [(step, value) for step, value, _ in self._reader.series("control/target") if math.isfinite(value)]
        target = Target("target", points, TOLERANCE) if held else None
        return self._chart(name, key, lines, include=(0,), target=target)

    def _both(self, name: str, key: str, include: Sequence[float]) -> Html:
        """Return a chart of a metric on training prompts and on held-out ones."""
        lines = [
            self._line(key, "training", "reward"),
            self._line(HELD_OUT + key, "held out", "quiet", "dots"),
        ]
        return self._chart(name, key, lines, include=include)

    def _chart(
        self,
        name: str,
        key: str,
        lines: Sequence[Series],
        *,
        include: Sequence[float] = (),
        target: Target | None = None,
        note: str = "",
    ) -> Html:
        """Return a chart in the unit of `key`, over all the steps of the run."""
        return line_chart(name, lines, unit=unit(key), target=target, steps=self._steps, include=include, note=note)

    def _line(self, key: str, label: str, tone: Tone = "reward", stroke: Stroke = "solid") -> Series:
        return Series(label, self._reader.series(key), tone, stroke)

    def _last_note(self, name: str) -> str:
        """Return the newest note of that name, with its step; empty where there is none."""
        found = ((step.step, step.notes[name]) for step in reversed(self._recorded) if step.notes.get(name))
        return next((f"Step {step}: {text}" for step, text in found), "")
