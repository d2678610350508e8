"""Tuples in a sliced join, and their two references (S1, S11)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from slicemill.types import Row, Timed


@dataclass(slots=True, eq=False)
class Item:
    """A tuple with its stream, arrival number and mask of queries.

    Items are compared by identity: an item is stored once and shared by all references.
    """

    side: int
    number: int
    ts: int
    row: Row
    mask: int


class Reference(NamedTuple):
    """A reference to an item, either to probe or to store."""

    item: Item
    probes: bool


class SliceDelivery(NamedTuple):
    """A result for one query."""

    query: str
    result: Timed


def join_items(one: Item, other: Item) -> Timed:
    """Join two tuples, the left one first, at the later timestamp (S1)."""
    left, right = (one, other) if one.side == 0 else (other, one)
    return Timed(max(one.ts, other.ts), left.row + right.row)
