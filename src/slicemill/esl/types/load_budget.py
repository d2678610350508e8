"""What a query may give up under load: how far it may fall behind or grow, and which tuples go first.

Without NumPy: the binder checks budgets, and checking a script should not wait for arrays to be imported.
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
    """Results within `lag_us`, state of at most `memory` bytes; the share `least` of tuples stays anyway."""

    lag_us: int | None = None
    memory: int | None = None
    method: str = RANDOM
    least: float = 0.0
