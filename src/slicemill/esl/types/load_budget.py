"""Load-shedding budget of a query: limits on lag and memory.

This module does not import NumPy, because the binder checks budgets and must start fast.
"""

from __future__ import annotations

from dataclasses import dataclass

RANDOM = "random"
UTILITY = "utility"
WINDOWS = "windows"
AGE = "age"
METHODS = {
    RANDOM: "tuples at random",
    UTILITY: "the tuples of least utility",
    WINDOWS: "whole windows, so that the others are exact",
    AGE: "pairs of a join, the oldest first",
}


@dataclass(frozen=True, slots=True)
class LoadBudget:
    """Bounds on lag and memory; at least the share `least` is kept."""

    lag_us: int | None = None
    memory: int | None = None
    method: str = RANDOM
    least: float = 0.0
