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


@dataclass(frozen=True, slots=True)
class Budget:
    """`threshold`: the least duration that the query asks for, in microseconds, where the method uses it."""

    capacity: int
    slot: Slot = Slot.TUPLES
    method: str = DEFAULT
    threshold: int | None = None

    def __str__(self) -> str:
        how = "the shortest run goes first" if self.slot is Slot.RUNS else f"shedding {self.method}"
        return f"{self.capacity} {self.slot}, {how}"
