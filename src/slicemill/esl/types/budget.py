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


# Methods that drop ends of runs, and thus never split one: over windows of time they are compiled.
COMPILED = ("cals", "lookahead", "value", "threshold")
# What a tuple or run takes beside its values: in columns, with its share of what accuracy needs; as objects.
_IN_COLUMNS = 36 + 6
_AS_OBJECTS = {"random": 500}
_AS_OBJECT = 1000
_AS_RUN = 1300


@dataclass(frozen=True, slots=True)
class Budget:
    """`threshold`: the least duration that the query asks for, in microseconds, where the method uses it.

    `by_rows`: the window counts tuples.
    """

    capacity: int
    slot: Slot = Slot.TUPLES
    method: str = DEFAULT
    threshold: int | None = None
    by_rows: bool = False

    @property
    def compiled(self) -> bool:
        return self.slot is Slot.TUPLES and self.method in COMPILED and not self.by_rows

    def __str__(self) -> str:
        how = "the shortest run goes first" if self.slot is Slot.RUNS else f"shedding {self.method}"
        return f"{self.capacity} {self.slot}, {how}"


def budget_bytes(budget: Budget) -> int:
    """The bytes that each tuple or run of a memory takes, beside its values where those are columns."""
    if budget.compiled:
        return _IN_COLUMNS
    return _AS_RUN if budget.slot is Slot.RUNS else _AS_OBJECTS.get(budget.method, _AS_OBJECT)
