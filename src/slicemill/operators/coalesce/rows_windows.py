"""Windows of row-wise temporal queries, sliding by time or by rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from slicemill.aggregate.definition import comparable, shown
from slicemill.rows import Row, Timed


@dataclass(frozen=True, slots=True)
class Temporal:
    """A temporal query as functions: attributes, leading columns, partition key, and window.

    With `by_rows`, `extent` and `slide` count tuples of a partition. The window has the last `extent`
    tuples, and every `slide`-th tuple triggers output. Only tuples for which `where` holds form runs. Each
    other tuple still ends the period of its predecessor. With `tells_open`, rows end with a flag for runs
    that continue (L3).
    """

    values: Callable[[Row], Row]
    head: Callable[[Row], Row]
    key: Callable[[Row], Row]
    extent: int | None
    slide: int
    by_rows: bool = False
    where: Callable[[Row], bool] = lambda _: True
    tells_open: bool = False
    changes: bool = False

    def tells(self, period: tuple[int, int], now: int) -> bool:
        """Return True if a run is emitted.

        With `changes` these are the runs that began or ended since the previous slide (L8).
        """
        begin, end = period
        before = now - self.slide
        return not self.changes or begin >= before or before <= end < now


class WindowPartition(Protocol):
    arrivals: int


P = TypeVar("P", bound=WindowPartition)


class SlidingPartitions(ABC, Generic[P]):
    """Sliding windows per partition. Subclasses define the state of a partition."""

    inputs = 1

    def __init__(self, temporal: Temporal) -> None:
        self._temporal = temporal
        self._partitions: dict[Hashable, P] = {}
        self._next_end: int | None = None

    @abstractmethod
    def _new_partition(self, head: Row) -> P: ...

    @abstractmethod
    def _arrive(self, key: Hashable, partition: P, tuple_: Timed) -> None:
        """Add a tuple to its partition, and count it."""

    @abstractmethod
    def _report(self, partitions: Mapping[Hashable, P], now: int) -> list[Timed]: ...

    @abstractmethod
    def _expire_before(self, end: int) -> None:
        """Evict tuples older than the window that ends at `end`.

        Empty partitions are dropped.
        """

    def _reported(self, end: int) -> None:
        """Clean up after all partitions were emitted for a time window."""

    @property
    def waits_for_time(self) -> bool:
        return not self._temporal.by_rows

    def process(self, port: int, tuple_: Timed) -> Sequence[Timed]:  # noqa: ARG002
        slide, by_rows = self._temporal.slide, self._temporal.by_rows
        out = [] if by_rows else self._close_until(tuple_.ts)
        if self._next_end is None:
            self._next_end = (tuple_.ts // slide + 1) * slide
        key = comparable(self._temporal.key(tuple_.row))
        partition = self._partitions.get(key)
        if partition is None:
            partition = self._partitions[key] = self._new_partition(shown(self._temporal.head(tuple_.row)))
        self._arrive(key, partition, tuple_)
        if by_rows and partition.arrivals % slide == 0:
            out = self._report({key: partition}, tuple_.ts)
        return out

    def advance(self, ts: int) -> Sequence[Timed]:
        return self._close_until(ts)

    def finish(self) -> Sequence[Timed]:
        return [] if self._temporal.by_rows else self._close_until(None)

    def due(self) -> int | None:
        return None if self._temporal.by_rows else self._next_end

    held_from = due

    @abstractmethod
    def state(self) -> Any:
        """Return the state as plain values."""

    @abstractmethod
    def restore(self, state: Any) -> None: ...

    def _close_until(self, ts: int | None) -> list[Timed]:
        out: list[Timed] = []
        while self._next_end is not None and (ts is None or self._next_end <= ts):
            end = self._next_end
            self._expire_before(end)
            out += self._report(self._partitions, end)
            goes_on = self._partitions and self._goes_on(ts)
            self._next_end = end + self._temporal.slide if goes_on else None
            self._reported(end)
        return out

    def _goes_on(self, ts: int | None) -> bool:
        """Return True if there is another slide.

        An unbounded window never becomes empty, but it does not change after the end of the input.
        """
        return self._temporal.extent is not None or ts is not None
