"""Window content of one partition, readable by window aggregates (M32, M33).

Each tuple has the position that decides its expiry: its arrival number in the partition for ROWS, its
timestamp for RANGE. Expiry depends on positions, not on the number of tuples. An aggregate such as max may
delete tuples from its window, and must not thereby retain older tuples longer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

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
