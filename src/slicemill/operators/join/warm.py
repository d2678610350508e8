"""All compiled loops of joins, made ready before tuples come."""

from __future__ import annotations

from slicemill.operators.join import hashing, placing, probe, retain
from slicemill.operators.join.loops import Loop


def loops() -> list[Loop]:
    """Every loop that a join may call."""
    modules = (hashing, placing, probe, retain)
    return [value for module in modules for value in vars(module).values() if isinstance(value, Loop)]


def warm() -> None:
    """Compile them, or read them from Numba's cache, so that no tuple waits for it."""
    for found in loops():
        found.compile()
