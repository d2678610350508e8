"""Statistics: aggregates whose state can add arriving tuples and remove expired tuples."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, Protocol

from slicemill.aggregates.definition import Panes, Returned, RowAggregate
from slicemill.aggregates.frames import Args, Inwindow

Number = int | float | Decimal


class Statistic(Protocol):
    """State of an aggregate to which tuples can be added, and from which tuples can be removed."""

    def add(self, args: Args) -> None: ...

    def remove(self, args: Args) -> None: ...

    def value(self) -> object: ...

    def state(self) -> object: ...

    def restore(self, state: Any) -> None: ...


class StatisticBase:
    """Accumulator of a statistic without a window: it returns a value only in TERMINATE."""

    __slots__ = ("_statistic",)

    def __init__(self, statistic: Statistic) -> None:
        self._statistic = statistic

    def initialize(self, args: Args) -> Returned:
        self._statistic.add(args)
        return []

    iterate = initialize

    def terminate(self) -> Returned:
        return [self._statistic.value()]

    def state(self) -> object:
        return self._statistic.state()

    def restore(self, state: Any) -> None:
        self._statistic.restore(state)


class StatisticWindow:
    """Accumulator of a statistic over a window: it returns values at arrivals and expiries.

    An expiry that empties the window returns no value (X13).
    """

    __slots__ = ("_inwindow", "_statistic")

    def __init__(self, statistic: Statistic, inwindow: Inwindow) -> None:
        self._statistic = statistic
        self._inwindow = inwindow

    def initialize(self, args: Args) -> Returned:
        self._statistic.add(args)
        return [self._statistic.value()]

    iterate = initialize

    def expire(self, args: Args) -> Returned:
        self._statistic.remove(args)
        return [self._statistic.value()] if len(self._inwindow) > 1 else []

    def state(self) -> object:
        return self._statistic.state()

    def restore(self, state: Any) -> None:
        self._statistic.restore(state)


def from_statistic(
    name: str, make: Callable[[], Statistic], algebraic: bool = False, panes: Panes | None = None
) -> RowAggregate:
    return RowAggregate(
        name,
        base=lambda: StatisticBase(make()),
        window=lambda inwindow: StatisticWindow(make(), inwindow),
        algebraic=algebraic,
        panes=panes,
        statistic=make,
    )
