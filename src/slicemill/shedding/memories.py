"""Choice of the memory implementation for a budget."""

from __future__ import annotations

from slicemill.esl.types.budget import Budget, Slot
from slicemill.shedding.blind import BlindMemory
from slicemill.shedding.chains import ChainMemory
from slicemill.shedding.fast import FastMemory
from slicemill.shedding.methods import method_of
from slicemill.shedding.runs import RunMemory
from slicemill.shedding.scan import OriginalRunMemory, ScanMemory


def memory_of(budget: Budget, extent: int | None = None, slide: int = 1) -> ChainMemory:
    """Return an empty memory with the capacity and method of a budget.

    `extent` and `slide` are those of the query's window.
    """
    method = method_of(budget.method, budget.threshold, weights=budget.weights)
    if budget.slot is Slot.RUNS:
        return RunMemory(budget.capacity, method, extent or 0, slide)
    if method.blind:
        return BlindMemory(budget.capacity, method)
    if method.original:
        return OriginalRunMemory(budget.capacity, method)
    # If a split costs less than lost time, an inner tuple may be the cheapest.
    any_tuple = 0 < method.split < method.lost or (method.split == 0 and method.threshold is not None)
    return ScanMemory(budget.capacity, method) if any_tuple else FastMemory(budget.capacity, method)
