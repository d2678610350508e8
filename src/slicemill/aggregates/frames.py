"""Window frames: the tuples that a result covers (M32, M34, M37).

The position of a tuple is its arrival number in the partition for ROWS, and its timestamp for RANGE. SLIDE s
divides the positions into slots, the intervals [k*s, (k+1)*s). One result is emitted per slot, at the last
tuple of the slot (the yield tuple):

    RANGE 6 SLIDE 4        0 . . . 4 . . . 8 . . . 12
    slot that ends at 8            [       )
    its result covers          [           )

The result of a RANGE slot covers [end - range, end), independent of the time of its last tuple. ROWS n
PRECEDING covers n + 1 rows. Without SLIDE, RANGE d PRECEDING is SQL's inclusive frame: timestamps from now -
d.
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
    """Return the only partition key of a window without PARTITION BY."""
    return ()


@dataclass(frozen=True, slots=True)
class WindowFrame:
    """Window of a call: `[PARTITION BY …] (ROWS | RANGE) … PRECEDING [SLIDE … | ACTIVE EXPIRATION]`.

    `preceding` is None for UNBOUNDED. Lengths are rows for ROWS and microseconds for RANGE.
    """

    unit: Unit
    preceding: int | None
    slide: int | None = None
    active: bool = False
    partition: Callable[[Row], Hashable] = one_partition  # function from a row to its partition key

    def __post_init__(self) -> None:
        if self.preceding is not None and self.preceding < 0:
            raise SlicemillError(f"{self.unit} {self.preceding} PRECEDING: the extent cannot be negative")
        if self.slide is not None and self.slide <= 0:
            raise SlicemillError(f"SLIDE {self.slide}: a slide must be longer than 0")
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
        """Return True if time alone, without a new tuple, can trigger results of this window."""
        return self.active or (self.slide is not None and self.unit == "RANGE")

    @property
    def length(self) -> int | None:
        """Return the length of the window in rows or microseconds, None if unbounded."""
        if self.preceding is None:
            return None
        return self.preceding + 1 if self.unit == "ROWS" else self.preceding

    def slot_end(self, position: int) -> int:
        """Return the exclusive end of the slide interval that contains a position."""
        assert self.slide is not None
        return (position // self.slide + 1) * self.slide

    def lower(self, position: int) -> int:
        """Return the first position that the window of a tuple at `position` covers."""
        assert self.preceding is not None
        if self.unit == "RANGE" and self.slide is not None:
            return self.slot_end(position) - self.preceding
        return position - self.preceding

    def in_panes(self, pane: int) -> WindowFrame:
        """Return this window as a window over panes of length `pane`, whose positions are pane numbers (X7).

        A pane is an interval between two window borders.
        """
        assert self.length is not None and self.slide is not None
        panes = self.length // pane
        return replace(self, preceding=panes - 1 if self.unit == "ROWS" else panes, slide=self.slide // pane)


def frame_of(call: AggregateCall | WindowCall) -> WindowFrame | None:
    """Return the window frame of a call, without its partition key, or None without OVER."""
    return None if isinstance(call, AggregateCall) else frame_over(call.window)


def frame_over(window: Window) -> WindowFrame:
    return WindowFrame(window.frame.value, window.extent, window.slide, window.active)


# Window content of one partition, which aggregates over windows can read (M32, M33)
#
# Each tuple has the position that decides its expiry: its arrival number in the partition for ROWS, its
# timestamp for RANGE. Expiry depends on positions, not on the number of tuples. If an aggregate such as max
# deletes tuples from its window, the other tuples therefore expire as before.


Args = tuple[object, ...]


class Inwindow:
    """Content of a window in one partition: argument tuples with their positions, oldest first.

    Positions never decrease. An aggregate may iterate, read `oldest()` and call `delete`. Only the engine
    inserts tuples and removes expired tuples.
    """

    __slots__ = ("_tuples",)

    def __init__(self) -> None:
        self._tuples: deque[tuple[int, Args]] = deque()

    def __iter__(self) -> Iterator[Args]:
        return (args for _, args in self._tuples)

    def __len__(self) -> int:
        return len(self._tuples)

    def oldest(self) -> Args | None:
        """Return the arguments of the oldest tuple in the window, or None if the window is empty."""
        return self._tuples[0][1] if self._tuples else None

    def oldest_position(self) -> int | None:
        return self._tuples[0][0] if self._tuples else None

    def delete(self, where: Callable[[Args], bool]) -> None:
        """Delete tuples that satisfy a condition from the window. EXPIRE is not called for deleted tuples."""
        self._tuples = deque(entry for entry in self._tuples if not where(entry[1]))

    def insert(self, position: int, args: Args) -> None:
        self._tuples.append((position, args))

    def state(self) -> list[tuple[int, Args]]:
        """Return the positions and arguments of all tuples in the window, oldest first."""
        return list(self._tuples)

    def restore(self, state: Iterable[tuple[int, Args]]) -> None:
        self._tuples = deque(state)

    def remove_oldest(self, position: int) -> None:
        """Remove the oldest tuple of the window if it has this position.

        An aggregate's EXPIRE routine may already have deleted the tuple.
        """
        if self.oldest_position() == position:
            self._tuples.popleft()
