"""Memory budget of a temporal query, and its shedding method."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

# One of the methods in `shedding/methods.py`.
DEFAULT = "lookahead"


class Slot(StrEnum):
    """Unit of a memory budget."""

    TUPLES = "tuples"
    RUNS = "runs"


# Methods with a compiled implementation for time windows.
COMPILED = ("cals", "lookahead", "value", "threshold", "interval", "random")
# Bytes per tuple or run without its values: in columns (with statistics for accuracy), or as objects.
_IN_COLUMNS = 36 + 6
_AS_OBJECTS = {"random": 500}  # for windows that count tuples
_AS_OBJECT = 1000
_AS_RUN = 1300


@dataclass(frozen=True, slots=True)
class Budget:
    """Capacity of a temporal query's state, and its shedding method.

    `threshold` is the least duration that the query requires, in microseconds, if the method uses it.
    `by_rows` is set if the window counts tuples. `weights` are the costs of a false result and of lost time
    (L17); None means the method's defaults.
    """

    capacity: int
    slot: Slot = Slot.TUPLES
    method: str = DEFAULT
    threshold: int | None = None
    by_rows: bool = False
    weights: tuple[float, float] | None = None

    @property
    def compiled(self) -> bool:
        return self.slot is Slot.TUPLES and self.method in COMPILED and self._keeps_ends and not self.by_rows

    @property
    def _keeps_ends(self) -> bool:
        """Return True if ends of runs are dropped before inner tuples."""
        return self.weights is None or self.weights[0] >= self.weights[1]

    def __str__(self) -> str:
        how = "the shortest run goes first" if self.slot is Slot.RUNS else f"shedding {self.method}"
        how += f"({self.weights[0]:g}, {self.weights[1]:g})" if self.weights is not None else ""
        return f"{self.capacity} {self.slot}, {how}"


def budget_bytes(budget: Budget) -> int:
    """Return the bytes of each tuple or run.

    In columnar state this does not include the values.
    """
    if budget.compiled:
        return _IN_COLUMNS
    return _AS_RUN if budget.slot is Slot.RUNS else _AS_OBJECTS.get(budget.method, _AS_OBJECT)
