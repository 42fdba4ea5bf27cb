"""The list of runs and how each stands: read again only where something was written."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from kleash.errors import KleashError
from kleash.web.watch_library import Entry, Library
from kleash.web.watch_views import Json, summary, unreadable


@dataclass(frozen=True)
class _Seen:
    """A run when it was last read: the state of its files, its line in the list, its mark in the stream."""

    state: object
    summary: Json
    mark: Json


class RunList:
    """What the list says of every run. Used by many threads: at worst a run is read twice."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._seen: dict[str, _Seen] = {}

    def summaries(self) -> list[Json]:
        """Return a line of each run; one that cannot be read says why."""
        return [self._look(entry).summary for entry in self._library.entries()]

    def marks(self) -> list[Json]:
        """Return of each run its id and what changes when it goes on."""
        return [{"id": entry.id, **self.mark(entry)} for entry in self._library.entries()]

    def mark(self, entry: Entry) -> Json:
        """Return what changes when a run goes on: its last step, status, and how much of each kind it has recorded."""
        return self._look(entry).mark

    def _look(self, entry: Entry) -> _Seen:
        state = (entry.path.exists(), self._library.state(entry))
        seen = self._seen.get(entry.id)
        if seen is None or seen.state != state:
            seen = self._seen[entry.id] = self._read(entry, state)
        return seen

    def _read(self, entry: Entry, state: object) -> _Seen:
        try:
            with self._library.open(entry) as reader:
                line = summary(entry, reader)
                return _Seen(state, line, asdict(reader.counts()) | {"status": line["status"]})
        except KleashError as error:
            problem = str(error)
            return _Seen(state, unreadable(entry, problem), {"status": "unreadable", "problem": problem})
