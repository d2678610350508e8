"""Window frames: the tuples that a result covers (M32, M34, M37).

A tuple's *position* is its arrival number in the partition for ROWS, and its timestamp for RANGE. SLIDE s
divides the positions into slots [k*s, (k+1)*s). The last tuple of a slot, its yield tuple, emits the
result of the slot:

    RANGE 6 SLIDE 4        0 . . . 4 . . . 8 . . . 12
    slot that ends at 8            [       )
    its result covers          [           )

The result of a time slot covers [end - range, end), independent of the position of its yield tuple. ROWS
n PRECEDING covers n + 1 rows. Without SLIDE, RANGE d PRECEDING is SQL's inclusive frame: timestamps from
now - d.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from slicemill.catalog.queries import AggregateCall, Window, WindowCall
from slicemill.errors import SlicemillError
from slicemill.types import Row

Unit = Literal["ROWS", "RANGE"]


def one_partition(row: Row) -> Hashable:  # noqa: ARG001
    """Return the partition key of a frame without PARTITION BY."""
    return ()


@dataclass(frozen=True, slots=True)
class WindowFrame:
    """`[PARTITION BY …] (ROWS | RANGE) preceding PRECEDING [SLIDE slide | ACTIVE EXPIRATION]`.

    `preceding` is None for UNBOUNDED. Lengths are rows for ROWS and microseconds for RANGE.
    """

    unit: Unit
    preceding: int | None
    slide: int | None = None
    active: bool = False
    partition: Callable[[Row], Hashable] = one_partition  # returns keys that compare as in PARTITION BY

    def __post_init__(self) -> None:
        if self.preceding is not None and self.preceding < 0:
            raise SlicemillError(f"{self.unit} {self.preceding} PRECEDING: the extent cannot be negative")
        if self.slide is not None and self.slide <= 0:
            raise SlicemillError(f"SLIDE {self.slide}: a slide is longer than 0")
        if self.slide is not None and self.unit == "RANGE" and self.preceding == 0:
            raise SlicemillError(
                "RANGE 0 PRECEDING SLIDE: the window of a slot would be empty; give it a length"
            )
        if self.active and (self.unit == "ROWS" or self.preceding is None or self.slide is not None):
            raise SlicemillError(
                "ACTIVE EXPIRATION needs RANGE with a finite extent and replaces SLIDE: "
                "other windows lose a tuple only when one arrives, or never"
            )

    @property
    def waits_for_time(self) -> bool:
        """Return True if results can be emitted without a new tuple."""
        return self.active or (self.slide is not None and self.unit == "RANGE")

    @property
    def length(self) -> int | None:
        """Return the length, in the unit of the slide; None if unbounded."""
        if self.preceding is None:
            return None
        return self.preceding + 1 if self.unit == "ROWS" else self.preceding

    def slot_end(self, position: int) -> int:
        """Return the exclusive end of a position's slot."""
        assert self.slide is not None
        return (position // self.slide + 1) * self.slide

    def lower(self, position: int) -> int:
        """Return the first position in the window of a tuple at `position`."""
        assert self.preceding is not None
        if self.unit == "RANGE" and self.slide is not None:
            return self.slot_end(position) - self.preceding
        return position - self.preceding

    def in_panes(self, pane: int) -> WindowFrame:
        """Return the frame over panes.

        Its tuples are panes, and its positions are pane numbers (X7).
        """
        assert self.length is not None and self.slide is not None
        panes = self.length // pane
        return replace(self, preceding=panes - 1 if self.unit == "ROWS" else panes, slide=self.slide // pane)


def frame_of(call: AggregateCall | WindowCall) -> WindowFrame | None:
    """Return the frame within a partition; None without OVER."""
    return None if isinstance(call, AggregateCall) else frame_over(call.window)


def frame_over(window: Window) -> WindowFrame:
    return WindowFrame(window.frame.value, window.extent, window.slide, window.active)


# Window content of one partition, readable by window aggregates (M32, M33).
#
# Each tuple has the position that decides its expiry: its arrival number in the partition for ROWS, its
# timestamp for RANGE. Expiry depends on positions, not on the number of tuples. If an aggregate such as max
# deletes tuples from its window, the other tuples therefore expire as before.


Args = tuple[object, ...]


class Inwindow:
    """Argument tuples of a window, oldest first; positions never decrease.

    An aggregate may iterate, read `oldest()` and `delete`. Only the engine inserts tuples and removes expired
    ones.
    """

    __slots__ = ("_tuples",)

    def __init__(self) -> None:
        self._tuples: deque[tuple[int, Args]] = deque()

    def __iter__(self) -> Iterator[Args]:
        return (args for _, args in self._tuples)

    def __len__(self) -> int:
        return len(self._tuples)

    def oldest(self) -> Args | None:
        """Return the arguments of the oldest tuple.

        Return None if the window is empty.
        """
        return self._tuples[0][1] if self._tuples else None

    def oldest_position(self) -> int | None:
        return self._tuples[0][0] if self._tuples else None

    def delete(self, where: Callable[[Args], bool]) -> None:
        """Delete tuples for the aggregate; EXPIRE will not be called for them."""
        self._tuples = deque(entry for entry in self._tuples if not where(entry[1]))

    def insert(self, position: int, args: Args) -> None:
        self._tuples.append((position, args))

    def state(self) -> list[tuple[int, Args]]:
        """Return positions and arguments, oldest first."""
        return list(self._tuples)

    def restore(self, state: Iterable[tuple[int, Args]]) -> None:
        self._tuples = deque(state)

    def remove_oldest(self, position: int) -> None:
        """Remove the oldest tuple if it has this position.

        EXPIRE itself may have deleted the tuple.
        """
        if self.oldest_position() == position:
            self._tuples.popleft()
