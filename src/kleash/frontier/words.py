"""What a strand's fit and curve say, in sentences: the same on the terminal and on the page."""

from __future__ import annotations

import math

from kleash.frontier.analysis import Frontier, Strand
from kleash.frontier.fits import Fit, Range
from kleash.frontier.points import BEST_OF_N
from kleash.frontier.smooth import Smooth
from kleash.report.wording import number, with_interval

NEAR_NOTHING = 0.01
"""Nats below which a peak is at the start."""
BAD_FIT, REFUTED = 0.05, 1e-3
"""p values of chi squared: errors are inflated below the first, and no peak is read from a form below the second."""


def caveats(frontier: Frontier) -> list[str]:
    """Return what must be known before numbers are compared."""
    said = []
    methods = frontier.methods
    if len(methods) > 1:
        said.append(
            f"KL is not comparable across {', '.join(methods)}: methods spend it differently, best-of-n far less of it "
            "than reinforcement learning for the same optimisation. So each has a chart of its own; compare rewards."
        )
    if frontier.choice.max_kl is not None and len(methods) > 1:
        said.append("The limit of KL was applied to every method alike.")
    if not any(point.gold for point in frontier.points):
        said.append(
            "No gold reward was measured, and a proxy that rises does not show whether it is being exploited: "
            "set reward.gold."
        )
    if BEST_OF_N in methods:
        said.append(
            "The points of best-of-n are made of the same samples and move together: its intervals and χ², which take "
            "them as independent, are rough."
        )
    if any(strand.curve is not None and strand.curve.start.max() > 0 for strand in frontier.strands):
        said.append("Runs with other held-out prompts, or other samples of them, are moved onto a common start.")
    return [
        *said,
        "The best of several measurements leans up: measure the chosen checkpoint afresh before quoting its reward.",
    ]


def peak_sentences(frontier: Frontier) -> list[str]:
    """Say where the reward that was chosen by peaks, for the method of what was chosen."""
    choice = frontier.choice
    method = choice.chosen.source.method if choice.chosen else None
    return [
        f"{strand.by.capitalize()} of {strand.method} {_turning(strand.smooth)}."
        for strand in frontier.strands
        if strand.by == choice.by and strand.method == method and strand.smooth
    ]


def strand_title(strand: Strand) -> str:
    """Return the method and which reward."""
    return f"{strand.method}, {strand.by} reward"


def fit_sentences(fit: Fit, *, shared_samples: bool = False) -> list[str]:
    """Return the fitted form, how well it fits, and where it peaks.

    `shared_samples`: the points are made of the same samples, as those of best-of-n are, and χ² tells nothing.
    """
    alpha, beta = said(fit.alpha_range), said(fit.beta_range)
    goodness = "Its points share their samples, so χ² cannot test the form." if shared_samples else _goodness(fit)
    return [f"R = {fit.form.formula} with α = {alpha} and β = {beta}.", goodness, _peak(fit, shared_samples)]


def smooth_sentence(curve: Smooth) -> str:
    """Return where the curve without a form peaks, and whether it turns over."""
    return f"Without a form, it {_turning(curve)}."


def strand_sentences(strand: Strand) -> list[str]:
    """Return all that can be said of a strand."""
    shared = strand.method == BEST_OF_N
    found = fit_sentences(strand.fit, shared_samples=shared) if strand.fit else []
    found += [smooth_sentence(strand.smooth)] if strand.smooth else []
    return found + ([strand.missing] if strand.missing else [])


def said(one: Range) -> str:
    """Return a value with its interval; only the ends where the value is infinite."""
    if math.isinf(one.value):
        return f"[{number(one.low)}, {number(one.high)}]"
    if math.isinf(one.high):
        return f"{number(one.value)} [{number(one.low)}, {number(one.high)}]"
    return with_interval(one.value, one.low, one.high)


def nats(value: float) -> str:
    """Return a KL for a sentence: rounding at the start is 0."""
    return "0" if value < NEAR_NOTHING else number(value)


def _turning(curve: Smooth) -> str:
    low, high = curve.peak_kl
    if curve.turns_over:
        return f"turns over, with its peak between {nats(low)} and {nats(high)} nats"
    return f"is not seen to turn over: its peak is at {_least(low)}"


def _goodness(fit: Fit) -> str:
    per = f"χ² = {number(fit.chi_squared)} for {fit.freedom} degrees of freedom, p = {fit.p_value:.2g}"
    if fit.inflation == 1:
        return f"Fit: {per}."
    verdict = "a bad fit" if fit.p_value < BAD_FIT else "some scatter"
    return f"Fit: {per}: {verdict}, so errors are multiplied by {number(fit.inflation)} and t intervals taken."


def _peak(fit: Fit, shared_samples: bool) -> str:
    if fit.p_value < REFUTED and not shared_samples:
        return "The points refute the form: take no peak from it, but from the curve without a form."
    peak = fit.peak
    low, high = peak.kl.low, peak.kl.high
    data = f"the data end at {number(peak.reach)}"
    if peak.reached:
        where = f"{number(peak.kl.value)} nats, between {nats(low)} and {nats(high)}"
        return f"Its peak is at {where} (95 %), {said(peak.gain)} above the start."
    if low > peak.reach:
        return f"Its peak is not reached: at least {number(peak.reach)} nats, where the data end."
    if low < NEAR_NOTHING and math.isinf(high):
        return f"It does not say where it peaks: anywhere is possible, and {data} nats."
    end = "without an upper end" if math.isinf(high) else f"and at most {number(high)} by the form alone"
    return f"Its peak is not reached: at least {nats(low)} nats, {end}; {data}."


def _least(low: float) -> str:
    return f"{nats(low)} nats or more" if low >= NEAR_NOTHING else "any KL that was measured, or beyond"
