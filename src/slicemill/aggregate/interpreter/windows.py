"""Row-by-row window evaluation in one partition, a class per strategy (M31-M37).

`arrive` processes the next tuple of the partition, `answer` returns the result at the latest tuple. The call
decides when to call `answer`: at each tuple, at each n-th tuple, or at the end of a time slot.
"""

from __future__ import annotations

from math import gcd
from typing import Any, Protocol

from slicemill.aggregate.definition import (
    BaseRun,
    Panes,
    Returned,
    RowAggregate,
    Stepper,
    WindowFactory,
    base_of,
    window_version,
)
from slicemill.aggregate.frame import WindowFrame
from slicemill.aggregate.inwindow import Args, Inwindow
from slicemill.aggregate.windows import Strategy, strategy_of


class PartitionWindow(Protocol):
    """State of a call in one partition.

    Positions are arrival numbers or timestamps (see `WindowFrame`).
    """

    def arrive(self, position: int, args: Args) -> None: ...

    def answer(self) -> Returned: ...

    def state(self) -> object: ...

    def restore(self, state: Any) -> None: ...


class UnboundedWindow:
    """The base version over all tuples so far."""

    def __init__(self, definition: RowAggregate) -> None:
        self._run = BaseRun(base_of(definition))

    def arrive(self, position: int, args: Args) -> None:  # noqa: ARG002
        self._run.step(args)

    def answer(self) -> Returned:
        return self._run.value()

    def state(self) -> object:
        return self._run.state()

    def restore(self, state: Any) -> None:
        self._run.restore(state)


class TumblingWindow:
    """The base version, restarted in each slot.

    It covers the tuples of the slot that are in the window.
    """

    def __init__(self, definition: RowAggregate, frame: WindowFrame) -> None:
        assert frame.length is not None
        self._base, self._frame, self._length = base_of(definition), frame, frame.length
        self._run = BaseRun(self._base)
        self._end: int | None = None

    def arrive(self, position: int, args: Args) -> None:
        end = self._frame.slot_end(position)
        if end != self._end:
            self._run, self._end = BaseRun(self._base), end
        if end - position <= self._length:
            self._run.step(args)

    def answer(self) -> Returned:
        return self._run.value()

    def state(self) -> object:
        return self._end, self._run.state()

    def restore(self, state: Any) -> None:
        self._end, run = state
        self._run.restore(run)


class SlidingWindow:
    """The window version over a sliding window.

    `arrive` expires the oldest tuples, inserts the new one, then calls the aggregate (M32).

    Under ACTIVE EXPIRATION the call calls `expire` by time (M36).
    """

    def __init__(self, window: WindowFactory, frame: WindowFrame) -> None:
        self._frame = frame
        self._inwindow = Inwindow()
        self._accumulator = window(self._inwindow)
        self._stepper = Stepper(self._accumulator)
        self._returned: Returned = []

    def arrive(self, position: int, args: Args) -> None:
        if not self._frame.active:
            lower = self._frame.lower(position)
            while (oldest := self._inwindow.oldest_position()) is not None and oldest < lower:
                self.expire(oldest)
        self._inwindow.insert(position, args)
        self._returned = self._stepper.step(args)

    def expire(self, position: int) -> Returned | None:
        """Call EXPIRE for the oldest tuple, if it has this position.

        The aggregate may have deleted the tuple with this position.
        """
        args = self._inwindow.oldest()
        if args is None or self._inwindow.oldest_position() != position:
            return None
        returned = self._accumulator.expire(args)
        self._inwindow.remove_oldest(position)
        return returned

    def answer(self) -> Returned:
        return list(self._returned)

    def state(self) -> object:
        return self._inwindow.state(), self._stepper.state(), self._returned

    def restore(self, state: Any) -> None:
        window, steps, self._returned = state
        self._inwindow.restore(window)
        self._stepper.restore(steps)


class PanedWindow:
    """The base version per pane, then the window version over pane values.

    A pane has the length gcd(length, slide).
    """

    def __init__(self, definition: RowAggregate, frame: WindowFrame) -> None:
        assert frame.length is not None and frame.slide is not None
        panes = definition.panes or Panes(base_of(definition), definition)
        self._length = gcd(frame.length, frame.slide)
        self._base, self._combine = panes.pane, panes.combine
        self._combined = SlidingWindow(window_version(panes.combine), frame.in_panes(self._length))
        self._number = 0
        self._open: BaseRun | None = None

    def arrive(self, position: int, args: Args) -> None:
        if position // self._length != self._number:
            self.answer()
            self._number = position // self._length
        if self._open is None:
            self._open = BaseRun(self._base)
        self._open.step(args)

    def answer(self) -> Returned:
        """Close the pane and pass its values to the window version.

        The result is that of the last value, which covers the complete pane.
        """
        if self._open is None:
            return []
        values, self._open = self._open.value(), None
        for value in values:
            self._combined.arrive(self._number, self._combine.row_of(value))
        return self._combined.answer() if values else []

    def state(self) -> object:
        return self._number, None if self._open is None else self._open.state(), self._combined.state()

    def restore(self, state: Any) -> None:
        self._number, opened, combined = state
        self._combined.restore(combined)
        if opened is not None:
            self._open = BaseRun(self._base)
            self._open.restore(opened)


def fresh_partition(definition: RowAggregate, frame: WindowFrame) -> PartitionWindow:
    """Return a new partition for the call's strategy."""
    match strategy_of(definition, frame):
        case Strategy.UNBOUNDED:
            return UnboundedWindow(definition)
        case Strategy.TUMBLE:
            return TumblingWindow(definition, frame)
        case Strategy.PANES:
            return PanedWindow(definition, frame)
        case _:
            return SlidingWindow(window_version(definition), frame)
