"""For tests of the monitor's rules: steps from rows of metrics, and what a rule finds in each."""

import numpy as np

from kleash.monitor.history import History
from kleash.monitor.rule import Facts
from kleash.runs.records import Step


def findings(rule, rows, facts=None, stderr=None):
    """Show a rule the rows, one a step, and return its answer to each.

    Args:
        rule: a fresh one.
        rows: metrics by key.
        facts: of the run.
        stderr: standard error by key, the same in every step that measures the key.
    """
    history, facts, found = History(), facts or Facts(), []
    for number, metrics in enumerate(rows):
        errors = {key: value for key, value in (stderr or {}).items() if key in metrics}
        history.push(Step(number, metrics, errors))
        found.append(rule(history, facts))
    return found


def rows(**columns):
    """Return rows from columns of one length; `__` in a name stands for the key's slash."""
    keys = [name.replace("__", "/") for name in columns]
    return [dict(zip(keys, map(float, values), strict=True)) for values in zip(*columns.values(), strict=True)]


def wobbling(level, steps, share=0.01):
    """Return values that lie above and below a level in turn."""
    return level * (1.0 + share * np.where(np.arange(steps) % 2, -1.0, 1.0))


def loudest(found):
    """Return the highest severity among findings, or None."""
    severities = [one.severity for one in found if one is not None]
    return max(severities, key=("info", "warning", "critical").index, default=None)
