"""How much memory a temporal query may have, and what goes when that is not enough."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from slicemill.shedding.methods import DEFAULT, method_of

if TYPE_CHECKING:
    from slicemill.shedding.chains import ChainMemory


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

    def memory(self) -> ChainMemory:
        """An empty memory of that size."""
        # The binder makes budgets, and needs no memories for that.
        from slicemill.shedding.blind import BlindMemory
        from slicemill.shedding.fast import FastMemory
        from slicemill.shedding.runs import RunMemory

        method = method_of(self.method, self.threshold)
        if self.slot is Slot.RUNS:
            return RunMemory(self.capacity, method)
        return BlindMemory(self.capacity, method) if method.blind else FastMemory(self.capacity, method)

    def __str__(self) -> str:
        how = "the shortest run goes first" if self.slot is Slot.RUNS else f"shedding {self.method}"
        return f"{self.capacity} {self.slot}, {how}"
