"""The memory that a budget asks for."""

from __future__ import annotations

from slicemill.esl.types.budget import Budget, Slot
from slicemill.shedding.blind import BlindMemory
from slicemill.shedding.chains import ChainMemory
from slicemill.shedding.fast import FastMemory
from slicemill.shedding.methods import method_of
from slicemill.shedding.runs import RunMemory


def memory_of(budget: Budget) -> ChainMemory:
    """An empty memory of a budget's size, which drops by its method."""
    method = method_of(budget.method, budget.threshold)
    if budget.slot is Slot.RUNS:
        return RunMemory(budget.capacity, method)
    return BlindMemory(budget.capacity, method) if method.blind else FastMemory(budget.capacity, method)
