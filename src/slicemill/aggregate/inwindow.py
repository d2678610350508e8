"""The content of one partition's window, as a window aggregate sees it (M32, M33).

Every tuple carries the position that decides its expiry: its arrival number in the partition for ROWS, its
timestamp for RANGE. Expiry looks at positions, never at how many tuples are left, because an aggregate may
delete tuples from its window (max does) and must not thereby keep older ones longer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

Args = tuple[object, ...]


class Inwindow:
    """Tuples of aggregate arguments, oldest first; positions never decrease.

    An aggregate reads it by iterating, asks for `oldest()` and may `delete`; inserting, and removing what has
    expired, is the system's part.
    """

    __slots__ = ("_tuples",)

    def __init__(self) -> None:
        self._tuples: deque[tuple[int, Args]] = deque()

    def __iter__(self) -> Iterator[Args]:
        return (args for _, args in self._tuples)

    def __len__(self) -> int:
        return len(self._tuples)

    def oldest(self) -> Args | None:
        """The arguments of the oldest tuple; None when the window is empty."""
        return self._tuples[0][1] if self._tuples else None

    def oldest_position(self) -> int | None:
        return self._tuples[0][0] if self._tuples else None

    def delete(self, where: Callable[[Args], bool]) -> None:
        """The aggregate's own DELETE: those tuples will not be expired any more."""
        self._tuples = deque(entry for entry in self._tuples if not where(entry[1]))

    def insert(self, position: int, args: Args) -> None:
        self._tuples.append((position, args))

    def state(self) -> list[tuple[int, Args]]:
        """Positions and arguments, oldest first."""
        return list(self._tuples)

    def restore(self, state: Iterable[tuple[int, Args]]) -> None:
        self._tuples = deque(state)

    def remove_oldest(self, position: int) -> None:
        """Remove the oldest tuple if it has this position: EXPIRE itself may have deleted it."""
        if self.oldest_position() == position:
            self._tuples.popleft()
