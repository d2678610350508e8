"""From N nodes to N + M: who hands how much on, and where new nodes stand (S41).

All amounts are in slices as they will be, 1 / (N + M) of the window each.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor


@dataclass(frozen=True, slots=True)
class Relocation:
    """What the i-th old node hands on, and behind which old node each new one stands, counted from 1."""

    handed_on: tuple[Fraction, ...]
    new_behind: tuple[int, ...]


def growth(nodes: int, more: int) -> Relocation:
    """How a ring of equal slices grows by `more` nodes.

    A node hands on what of its old slice lies beyond its new one, less what new nodes right behind it keep.
    """
    ratio = Fraction(more, nodes)
    beyond = [ratio * i for i in range(1, nodes + 1)]
    return Relocation(
        tuple(amount - floor(amount) for amount in beyond),
        tuple(ceil(Fraction(j * nodes, more)) for j in range(1, more + 1)),
    )


def after(nodes: int, relocation: Relocation) -> list[tuple[Fraction, Fraction]]:
    """The window each node has when all have handed on, head first, by carrying it out node by node."""
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
