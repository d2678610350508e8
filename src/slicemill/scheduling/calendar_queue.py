"""A calendar queue: priorities in buckets, so that a decision costs the same for any number of units (P35).

Priorities that do not depend on the clock (FAS) change only when a unit gets input or has run; only those are
put into another bucket. Buckets are logarithmic: the unit found is within one bucket's factor of the best.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)


class CalendarQueue(Generic[Item]):
    """Items with priorities in [least, greatest]; those outside go to the outermost buckets."""

    def __init__(self, least: float, greatest: float, buckets: int) -> None:
        if not 0 < least <= greatest or buckets < 1:
            raise ValueError("a calendar queue needs 0 < least <= greatest and at least one bucket")
        self._least = least
        self._step = math.log(greatest / least) / buckets or 1.0
        self._buckets: list[OrderedDict[Item, None]] = [OrderedDict() for _ in range(buckets)]
        self._place: dict[Item, int] = {}
        self._top = -1

    def __len__(self) -> int:
        return len(self._place)

    def put(self, item: Item, priority: float) -> None:
        """Add an item, or move it; in its bucket it comes after those that are there."""
        self.discard(item)
        place = self._bucket(priority)
        self._buckets[place][item] = None
        self._place[item] = place
        self._top = max(self._top, place)

    def discard(self, item: Item) -> None:
        place = self._place.pop(item, None)
        if place is not None:
            del self._buckets[place][item]

    def pop(self) -> Item:
        """An item of the highest bucket that has one: the one longest there."""
        while not self._buckets[self._top]:
            if self._top < 0:
                raise IndexError("the calendar queue is empty")
            self._top -= 1
        item, _ = self._buckets[self._top].popitem(last=False)
        del self._place[item]
        return item

    def _bucket(self, priority: float) -> int:
        if priority <= self._least:
            return 0
        return min(len(self._buckets) - 1, int(math.log(priority / self._least) / self._step))
