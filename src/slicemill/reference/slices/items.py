"""Tuples inside a sliced join, and the two references that travel for each (S1, S11)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from slicemill.rows import Row, Timed


@dataclass(slots=True, eq=False)
class Item:
    """A tuple that arrived: its stream, its place in the total order of arrivals, and the queries that want
    it.

    Two items are the same only if they are one object: it is stored once, whoever refers to it.
    """

    side: int
    number: int
    ts: int
    row: Row
    mask: int


class Reference(NamedTuple):
    """An item on its way through a chain: to `probe` the other stream's states, or to be stored for later."""

    item: Item
    probes: bool


class SliceDelivery(NamedTuple):
    """A result for one query."""

    query: str
    result: Timed


def joined(one: Item, other: Item) -> Timed:
    """The result of two tuples, left one first, at the time of the later (S1)."""
    left, right = (one, other) if one.side == 0 else (other, one)
    return Timed(max(one.ts, other.ts), left.row + right.row)
