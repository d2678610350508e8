"""Growth of a ring from N to N + M nodes (S41).

Amounts are in units of new slices, each 1 / (N + M) of the window.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor


@dataclass(frozen=True, slots=True)
class Relocation:
    """Amounts that old nodes pass on, and predecessors of new nodes, counted from 1."""

    handed_on: tuple[Fraction, ...]
    new_behind: tuple[int, ...]


def growth(nodes: int, more: int) -> Relocation:
    """Return how a ring of equal slices grows by `more` nodes.

    A node passes on the part of its old slice beyond its new slice, except for the part that new nodes
    directly after it store.
    """
    ratio = Fraction(more, nodes)
    beyond = [ratio * i for i in range(1, nodes + 1)]
    return Relocation(
        tuple(amount - floor(amount) for amount in beyond),
        tuple(ceil(Fraction(j * nodes, more)) for j in range(1, more + 1)),
    )


def after(nodes: int, relocation: Relocation) -> list[tuple[Fraction, Fraction]]:
    """Return each node's window after the relocation, head first, by simulation."""
    size = Fraction(nodes + len(relocation.new_behind), nodes)
    received = Fraction(0)
    begin = Fraction(0)
    held = []
    for number in range(1, nodes + 1):
        new = relocation.new_behind.count(number)
        passed = relocation.handed_on[number - 1] + new
        kept = received + size - passed
        for amount in (kept, *[Fraction(1)] * new):
            held.append((begin, begin + amount))
            begin += amount
        received = relocation.handed_on[number - 1]
    return held
