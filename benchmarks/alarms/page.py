"""Writes docs/alarms.md from what was measured: the prose is here, every measured number comes from the results."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from benchmarks.alarms import traces
from benchmarks.alarms.measure import KLEASH, Detections, FalseAlarms, Rate
from benchmarks.alarms.nulls import KINDS, LOG_KL_SD, MEAN_BLOCK, SCRIPTED, STEADY_FROM, lag_1, trained
from benchmarks.alarms.published import CRITICAL, PUBLISHED, WARNING
from benchmarks.alarms.results import CHOOSING_SEEDS, Results
from benchmarks.alarms.scenarios import EARLY_ONSET, FASTEST, FIRST_ONSET, LAST_ONSET, SCENARIOS, Scenario
from kleash.monitor.baseline import BASELINE_STEPS

KIND_TITLES = {"independent": "independent noise", "ar": "AR(0.9) noise", "real": "a real run, resampled"}
COLLAPSES = ("entropy_collapse", "length_blow_up", "loop")
SLOW_RAMPS = ("ramp_100", "ramp_200", "ramp_400")
CRITICALS_PER_20_000, WARNINGS_PER_5_000 = 1, 1


def markdown(results: Results) -> str:
    """Return the page."""
    return "\n".join(
        [
            _introduction(results),
            "## What is promised, and what was measured\n",
            promises(results),
            "![False alarms and detection of each set of rules](images/alarms.svg)\n",
            _healthy_text(results),
            false_alarm_table(results),
            _speakers_text(results),
            speakers_table(results),
            "Real runs as they were, each once: the one that is resampled (`long`), the demo in three seeds, and runs\n"
            "of the recipes, most of them shorter than a baseline takes:\n",
            real_table(results),
            _faults_text(results),
            ramps_table(results),
            faults_table(results),
            "## The published rules beside\n",
            _published_text(),
            *(f"On {KIND_TITLES[kind]}:\n\n{beside_table(results, kind)}" for kind in SCRIPTED),
            LIMITS.format(fastest=FASTEST, fastest_share=_fastest_before_double(results), baseline=BASELINE_STEPS),
        ]
    )


def tables(results: Results) -> str:
    """Return the tables alone."""
    makers = (promises, false_alarm_table, speakers_table, real_table, ramps_table, faults_table)
    return "\n".join([*(maker(results) for maker in makers), *(beside_table(results, kind) for kind in SCRIPTED)])


def _introduction(results: Results) -> str:
    amounts = results.amounts
    return f"""\
# How honest the alarms are

<!-- Written by `python -m benchmarks.alarms`. Change its prose in benchmarks/alarms/page.py. -->

An alarm that cries wolf is switched off within a day, and then it is silent when it matters. This page says how
often Kleash's rules speak of a run in which nothing is wrong, how many steps they take to notice a fault, and how
rules that others publish do on the same runs. `make alarms` measures it all again and rewrites this page:
minutes on one core.

All rules watch at once, as in a real run, and the rates are those of the whole family: someone who is woken does not
care which rule did it. Thresholds were chosen on runs of the seeds {_seeds(CHOOSING_SEEDS)}.
(`python -m benchmarks.alarms --choosing` prints the tables for some of those.) What is written here was measured on
other runs, the seeds {_seeds(amounts.healthy_seeds)} (healthy) and {_seeds(amounts.faulty_seeds)} (faulty).
"""


def _seeds(seeds: range) -> str:
    return f"{seeds.start:,} to {seeds.stop - 1:,}"


def promises(results: Results) -> str:
    """Return the table of promises: the limit and what was measured on each kind of run."""
    rows = [
        _rate_promise(results, "critical", 20_000, CRITICALS_PER_20_000),
        _rate_promise(results, "warning", 5_000, WARNINGS_PER_5_000),
        _ramp_promise(results),
        _share_promise(results, f"a KL that doubles in {FASTEST} steps is spoken of before it is 3x", ["ramp_25"], 0.9),
        _share_promise(results, "a KL spike of 4x or more is spoken of within 3 steps", ["spike_4", "spike_6"], 0.9),
        _collapse_promise(results),
    ]
    return table(["promise", *(KIND_TITLES[kind] for kind in KINDS)], rows)


def _rate_promise(results: Results, severity: str, steps: int, limit: int) -> list[str]:
    cells = []
    for kind in KINDS:
        rate = results.false_alarms[kind][KLEASH].rate(severity)
        count, (low, high) = rate.per_thousand * steps / 1000, (bound * steps / 1000 for bound in rate.interval)
        cells.append(f"{_kept(count <= limit)} {_short(count)} ({_short(low)} to {_short(high)})")
    name = {"critical": "critical alarm", "warning": "warning"}[severity]
    return [f"at most {limit} false {name} in {steps:,} steps", *cells]


def _ramp_promise(results: Results) -> list[str]:
    return _share_promise(
        results, "a KL that doubles in 100 steps or more is spoken of before it has doubled", SLOW_RAMPS, 0.9
    )


def _share_promise(results: Results, title: str, names: Sequence[str], least: float) -> list[str]:
    cells = []
    for kind in SCRIPTED:
        shares = [_in_time(results, kind, name, KLEASH) for name in names]
        cells.append(f"{_kept(min(shares) >= least)} {', '.join(_percent(share) for share in shares)}")
    return [f"{title}, in {_percent(least)}", *cells, ""]


def _collapse_promise(results: Results) -> list[str]:
    cells = []
    for kind in SCRIPTED:
        medians = [results.detections[kind][name][KLEASH].delay(0.5) for name in COLLAPSES]
        cells.append(f"{_kept(max(medians) <= 10)} {', '.join(_steps(median) for median in medians)} steps")
    return ["entropy, length or text that collapses is spoken of after 10 steps in the median", *cells, ""]


def _kept(kept: bool) -> str:
    return "kept:" if kept else "**not kept:**"


def _in_time(results: Results, kind: str, name: str, rules: str) -> float:
    return results.detections[kind][name][rules].caught_before(SCENARIOS[name].deadline)


def _healthy_text(results: Results) -> str:
    amounts = results.amounts
    total = amounts.runs * amounts.run_steps
    real = trained(traces.read("long"))
    real_kl = np.log(real.values["kl/exact_per_sequence"][STEADY_FROM:])
    return f"""\
## Healthy runs

{amounts.runs} runs of {amounts.run_steps:,} steps of each kind, {total:,} steps; each run estimates its baselines
from its own beginning, as in use.

- **Independent noise**: a controlled run. The KL is ramped to 6 nats per sequence within 12 steps and held there,
  its logarithm with noise of sd {LOG_KL_SD}; reward, entropy, length, stop rate, diversity, repetition, gradient norm,
  sampler mismatch and the rest settle within the first hundred steps and have the noise of real runs of the demo
  (32 replies a step). Every step's noise is new. A gold reward and held-out measurements every 10 steps are
  among it, so that the rules that look at them are on trial too.
- **AR(0.9) noise**: the same sizes, but what is high stays high: noise has a correlation of 0.9 from step to step in
  every series.
- **A real run, resampled**: the sentiment recipe on the demo model with a target of 4 nats per sequence and 16 replies
  a step, {len(real):,} steps that went well, kept in `benchmarks/alarms/traces/long.csv.gz`. Its log KL has a sd of
  {real_kl.std():.2f} and a correlation of {lag_1(real_kl):.2f} from step to step. Taken are its first {STEADY_FROM}
  steps as they were, then blocks of its later ones in random order (stationary bootstrap, {MEAN_BLOCK} steps on
  average). It is one run: {total:,} resampled steps say less than as many new ones would, and the intervals do not know
  that. Where two blocks meet, numbers may jump.

Alarms that begin are counted, or that grow from a warning to critical; one that speaks again within 20
steps has not begun anew. In brackets an exact 95 % interval of a Poisson rate. False alarms in 1,000 steps:
"""


def false_alarm_table(results: Results) -> str:
    """Return false alarms per 1,000 steps of each set of rules."""
    header = ["rules"]
    for kind in KINDS:
        header += [f"{KIND_TITLES[kind]}: warnings", "critical", "runs without any"]
    rows = []
    for rules in (KLEASH, *PUBLISHED):
        row = [f"**{rules}**" if rules == KLEASH else rules]
        for kind in KINDS:
            row += _rate_cells(rules, results.false_alarms[kind][rules])
        rows.append(row)
    return table(header, rows)


def _rate_cells(rules: str, found: FalseAlarms) -> list[str]:
    has = (WARNING, CRITICAL) if rules == KLEASH else PUBLISHED[rules].has
    rates = [
        _rate(found.rate(severity)) if level in has else "-"
        for severity, level in (("warning", WARNING), ("critical", CRITICAL))
    ]
    return [*rates, f"{found.silent_runs} of {found.runs}"]


def _rate(rate: Rate) -> str:
    low, high = rate.interval
    return f"{_short(rate.per_thousand)} ({_short(low)} to {_short(high)})"


def _speakers_text(results: Results) -> str:
    found = [results.false_alarms[kind][KLEASH] for kind in KINDS]
    early, total = sum(one.early for one in found), sum(one.said.total() for one in found)
    return f"""\
Which of Kleash's rules they were; {early} of all {total} came within the first {BASELINE_STEPS} steps, from fixed
rules:
"""


def speakers_table(results: Results) -> str:
    """Return the count of false alarms by rule of Kleash's and severity."""
    said = {key for kind in KINDS for key in results.false_alarms[kind][KLEASH].said}
    rows = [
        [f"`{rule}`", severity, *(str(results.false_alarms[kind][KLEASH].said[rule, severity]) for kind in KINDS)]
        for rule, severity in sorted(said)
    ]
    return table(["rule", "severity", *(KIND_TITLES[kind] for kind in KINDS)], rows or [["none", "", "0", "0", "0"]])


def real_table(results: Results) -> str:
    """Return what Kleash and the published rules say of each real run."""
    shown = (KLEASH, "rlwatch KL, rolling", "rlwatch KL, frozen", "CUSUM", "KL in 0..10")
    rows = []
    for run in results.real:
        counts = []
        for rules in shown:
            severities = [onset.severity for onset in run.onsets[rules]]
            counts.append(f"{severities.count('warning')} / {severities.count('critical')}")
        words = sorted({f"`{onset.rule}`" for onset in run.onsets[KLEASH]})
        rows.append([run.name, str(run.steps), *counts, ", ".join(words)])
    return table(["run", "steps", *(f"{rules}: warnings / critical" for rules in shown), "Kleash's rules"], rows)


def _faults_text(results: Results) -> str:
    return f"""\
## Faults

Each fault is scripted onto {results.amounts.repeats} healthy runs of both kinds of noise, from a step between
{FIRST_ONSET} and {LAST_ONSET} on that is drawn for each (the early ones from step {EARLY_ONSET} on). Nothing else
changes: beta stays where it was, though a real controller would push against a growing KL. A delay is the number of
steps from the onset to the first warning or critical alarm; 0 is the step of the onset itself. An alarm before the
onset is a false one and detects nothing. A share of {results.amounts.repeats} repeats has a standard
error of at most {_percent(0.5 / math.sqrt(results.amounts.repeats))}. Under "first word" is the rule that spoke first,
its severity, and how often it was the first.

A KL that grows exponentially and goes on:
"""


def ramps_table(results: Results) -> str:
    """Return how Kleash takes ramps of the KL."""
    rows = []
    for name, scenario in SCENARIOS.items():
        if scenario.doubling is None:
            continue
        for kind in SCRIPTED:
            found = results.detections[kind][name][KLEASH]
            shares = [found.caught_before(scenario.doubling * math.log2(factor)) for factor in (2, 3)]
            rows.append([scenario.title, KIND_TITLES[kind], *map(_percent, shares), *_delay_cells(found)])
    return table(["fault", "noise", "before 2x", "before 3x", *DELAYS], rows)


def faults_table(results: Results) -> str:
    """Return how Kleash takes all other faults."""
    rows = []
    for name, scenario in SCENARIOS.items():
        if scenario.doubling is not None:
            continue
        for kind in SCRIPTED:
            found = results.detections[kind][name][KLEASH]
            in_time = f"{_percent(_in_time(results, kind, name, KLEASH))} in {scenario.deadline:.0f}"
            rows.append([scenario.title, KIND_TITLES[kind], in_time, *_delay_cells(found)])
    return f"All others:\n\n{table(['fault', 'noise', 'spoken of, in so many steps', *DELAYS], rows)}"


DELAYS = ["median delay", "90 % within", "critical, median", "first word"]


def _delay_cells(found: Detections) -> list[str]:
    total = len(found.each)
    words = [f"`{rule}` {severity} {_percent(count / total)}" for (rule, severity), count in _common(found)]
    return [_steps(found.delay(0.5)), _steps(found.delay(0.9)), _steps(found.critical_delay(0.5)), ", ".join(words)]


def _common(found: Detections) -> Iterable[tuple[tuple[str, str], int]]:
    """Return the two that spoke first most often."""
    return found.speakers().most_common(2)


def _published_text() -> str:
    rows = [[name, rule.title, rule.source] for name, rule in PUBLISHED.items()]
    return f"""\
Written down from their sources, with their own settings; alarms are counted as Kleash's are.

{table(["rule", "what it does", "source"], rows)}
A cell gives the share spoken of in time (a ramp before it doubles, that of {FASTEST} steps before 3x; a spike within 3
steps; all others as long as they were looked at), and the median delay. In brackets the share in which the same rule
begins a false alarm in those very steps when there is no fault: a detection is worth what lies above that. A rule that
is in the middle of a false alarm when the fault begins has nothing new to say and detects nothing. A dash: the fault
leaves alone what the rule reads.
"""


def beside_table(results: Results, kind: str) -> str:
    """Return what share of each fault every set of rules speaks of in time, and its median delay."""
    sets = (KLEASH, *PUBLISHED)
    rows = []
    for name, scenario in SCENARIOS.items():
        cells = []
        for rules in sets:
            cells.append(_beside_cell(results.detections[kind][name][rules], scenario, rules))
        rows.append([scenario.title, *cells])
    return table(["fault", *sets], rows)


def _beside_cell(found: Detections, scenario: Scenario, rules: str) -> str:
    if found.blind:
        return "-"
    anyway = "" if rules == KLEASH else f" ({_percent(found.anyway / len(found.each))})"
    return f"{_percent(found.caught_before(scenario.deadline))}{anyway}, {_steps(found.delay(0.5))}"


def _fastest_before_double(results: Results) -> str:
    shares = [results.detections[kind]["ramp_25"][KLEASH].caught_before(FASTEST) for kind in SCRIPTED]
    return " and ".join(_percent(share) for share in shares)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _steps(delay: float) -> str:
    return "never" if math.isinf(delay) else f"{delay:.0f}"


def _short(value: float) -> str:
    """Two decimals, fewer where there are enough digits before the point."""
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


LIMITS = """\
## What can not be caught

- **A KL that doubles within {fastest} steps, before it has doubled.** With an autocorrelation of 0.9, a limit on the
  value that speaks falsely once in 20,000 steps lies 3.8 sd above the level even when mean and sd are known: 2.1 times
  the level at a log-KL sd of 0.2, and higher when they are estimated. Here {fastest_share} are spoken of before 2x
  (independent and AR noise); what is promised is 3x.
- **A small fault before there is a baseline.** What is usual is learned from {baseline} steps. Until then there is no
  measure of the run's own noise, and fixed limits stand in and say so: they hold the KL against its target and the
  other numbers against the first step's, and need a larger fault. The two early faults above are theirs alone.
- **A fault that was there from the start.** A baseline that was taken under it calls it usual.
- **A hack that moves no number.** Rules read numbers only. A reply can be empty praise at the usual length, entropy
  and KL: read samples, and measure a gold reward ([limits of the leash](limits.md)).
- **Other runs** than the three kinds above were not measured: a KL that grows without a target through the whole run,
  logs of every tenth step, sampled estimates alone. Where such a run's own noise is slower than a correlation of 0.9
  from one measurement to the next, expect more false alarms.
"""
