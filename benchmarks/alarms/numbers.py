"""A whole run as arrays, so that noise and faults are vector operations; turned into steps for the rules."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kleash.runs.records import Step

Array = NDArray[np.float64]


@dataclass
class Numbers:
    """A run by key: one value a step, NaN where a step did not measure it, and standard errors beside."""

    values: dict[str, Array]
    stderrs: dict[str, Array] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return the number of steps."""
        return len(next(iter(self.values.values())))

    def steps(self, first: int = 0, end: int | None = None) -> list[Step]:
        """Return the steps from `first` up to, not including, `end`, as a run records them."""
        values = {key: array[first:end].tolist() for key, array in self.values.items()}
        stderrs = {key: array[first:end].tolist() for key, array in self.stderrs.items()}
        number = len(range(len(self))[first:end])
        return [Step(first + row, _measured(values, row), _measured(stderrs, row)) for row in range(number)]

    def until(self, end: int) -> Numbers:
        """Return the first `end` steps."""
        return Numbers(
            {key: array[:end] for key, array in self.values.items()},
            {key: array[:end] for key, array in self.stderrs.items()},
        )

    def copy(self) -> Numbers:
        """Return a copy whose series can be replaced without touching this one's; change none in place."""
        return Numbers(dict(self.values), dict(self.stderrs))


def _measured(columns: dict[str, list[float]], row: int) -> dict[str, float]:
    """Return one row, without the NaN that mark what was not measured."""
    return {key: column[row] for key, column in columns.items() if column[row] == column[row]}
