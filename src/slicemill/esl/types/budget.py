"""How much memory a temporal query may have, and what goes when that is not enough."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

# Of the methods that `shedding/methods.py` has.
DEFAULT = "lookahead"


class Slot(StrEnum):
    """What memory is counted in."""

    TUPLES = "tuples"
    RUNS = "runs"


# Over windows of time these are compiled.
COMPILED = ("cals", "lookahead", "value", "threshold", "interval", "random")
# What a tuple or run takes beside its values: in columns, with its share of what accuracy needs; as objects.
_IN_COLUMNS = 36 + 6
_AS_OBJECTS = {"random": 500}  # over windows that count tuples
_AS_OBJECT = 1000
_AS_RUN = 1300


@dataclass(frozen=True, slots=True)
class Budget:
    """`threshold`: the least duration that the query asks for, in microseconds, where the method uses it.

    `by_rows`: the window counts tuples. `weights` are those of a result too many and of lost time (L17);
    None: the method's own.
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
        """Is the cheapest tuple an end of its run? It is where a split costs as much as all of its time."""
        return self.weights is None or self.weights[0] >= self.weights[1]

    def __str__(self) -> str:
        how = "the shortest run goes first" if self.slot is Slot.RUNS else f"shedding {self.method}"
        how += f"({self.weights[0]:g}, {self.weights[1]:g})" if self.weights is not None else ""
        return f"{self.capacity} {self.slot}, {how}"


def budget_bytes(budget: Budget) -> int:
    """The bytes that each tuple or run of a memory takes, beside its values where those are columns."""
    if budget.compiled:
        return _IN_COLUMNS
    return _AS_RUN if budget.slot is Slot.RUNS else _AS_OBJECTS.get(budget.method, _AS_OBJECT)
