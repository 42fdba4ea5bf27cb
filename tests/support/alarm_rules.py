"""Rules for tests of what follows from an alarm: they find something in steps that the test chooses."""

from kleash.monitor.rule import Finding
from kleash.runs.records import Cause


class Alarm:
    """Finds something in every step that `found` says yes to, and remembers what it was shown."""

    name, title, looks_at = "test/alarm", "A test's alarm", ("kl/exact_per_sequence",)
    causes = (Cause("the test wants it", "read the test"),)
    advice = "Do nothing."

    def __init__(self, found, severity="critical"):
        self.found, self.severity, self.seen = found, severity, {}

    def __call__(self, history, facts):
        self.seen[history.now] = dict(history.fresh)
        if not self.found(history.now):
            return None
        return Finding(self.severity, f"found at {history.now}.", {"step": float(history.now)}, history.now)


def only(monkeypatch, *rules):
    """Let the monitor have these rules and no others."""
    monkeypatch.setattr("kleash.monitor.monitor.make_rules", lambda: list(rules))
