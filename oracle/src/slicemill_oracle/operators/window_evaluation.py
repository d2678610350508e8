"""Evaluation of a window call in one partition, by strategy (M31-M35).

An evaluation takes the tuples of a partition in order and returns a question for each: a function that
computes the tuple's results. The function is valid until the partition's next tuple and is called only
for yield tuples.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import gcd
from typing import Any, Protocol

from slicemill.aggregates.definition import (
    BaseFactory,
    BaseRun,
    Panes,
    Returned,
    Stepper,
    WindowFactory,
    window_version,
)
from slicemill.aggregates.frames import Args, Inwindow, WindowFrame

Question = Callable[[], Returned]


class Evaluation(Protocol):
    """Running state of a window call in one partition."""

    def arrive(self, position: int, args: Args) -> Question: ...

    def question(self) -> Question:
        """Return the question of the latest tuple, used after a restore."""
        ...

    def state(self) -> object: ...

    def restore(self, state: Any) -> None: ...


class UnboundedEvaluation:
    """UNBOUNDED: the base aggregate, with TERMINATE after each tuple (M31)."""

    __slots__ = ("_run",)

    def __init__(self, base: BaseFactory) -> None:
        self._run = BaseRun(base)

    def arrive(self, position: int, args: Args) -> Question:  # noqa: ARG002
        self._run.step(args)
        return self._run.value

    def question(self) -> Question:
        return self._run.value

    def state(self) -> object:
        return self._run.state()

    def restore(self, state: Any) -> None:
        self._run.restore(state)


class WindowedEvaluation:
    """FINITE and SLIDING: expire, then insert, then ITERATE (M32)."""

    __slots__ = ("_frame", "_instance", "_inwindow", "_returned", "_stepper")

    def __init__(self, frame: WindowFrame, window: WindowFactory) -> None:
        self._frame = frame
        self._inwindow = Inwindow()
        self._instance = window(self._inwindow)
        self._stepper = Stepper(self._instance)
        self._returned: Returned = []

    def arrive(self, position: int, args: Args) -> Question:
        self._expire_before(self._frame.lower(position))
        self._inwindow.insert(position, args)
        self._returned = self._stepper.step(args)
        return self.question()

    def question(self) -> Question:
        return partial(list, self._returned)

    def state(self) -> object:
        return {"window": self._inwindow.state(), "steps": self._stepper.state(), "latest": self._returned}

    def restore(self, state: Any) -> None:
        self._inwindow.restore(state["window"])
        self._stepper.restore(state["steps"])
        self._returned = state["latest"]

    def _expire_before(self, lower: int) -> None:
        while (oldest := self._inwindow.oldest()) is not None:
            position = self._inwindow.oldest_position()
            if position is None or position >= lower:
                return
            self._instance.expire(oldest)
            self._inwindow.remove_oldest(position)


class TumblingEvaluation:
    """TUMBLE: restarts the base aggregate in every slot (M34).

    The aggregate covers the last `length` positions of a slot.
    """

    __slots__ = ("_base", "_end", "_frame", "_run")

    def __init__(self, frame: WindowFrame, base: BaseFactory) -> None:
        self._frame = frame
        self._base = base
        self._run = BaseRun(base)
        self._end: int | None = None

    def arrive(self, position: int, args: Args) -> Question:
        end = self._frame.slot_end(position)
        if end != self._end:
            self._end = end
            self._run = BaseRun(self._base)
        assert self._frame.length is not None
        if position >= end - self._frame.length:
            self._run.step(args)
        return self._run.value

    def question(self) -> Question:
        return self._run.value

    def state(self) -> object:
        return {"end": self._end, "run": self._run.state()}

    def restore(self, state: Any) -> None:
        self._end = state["end"]
        self._run.restore(state["run"])


class PaneEvaluation:
    """PANES: pane aggregates of gcd(window, slide), combined by the window version (M35)."""

    __slots__ = ("_arguments_of", "_combine", "_number", "_pane", "_pane_base", "_pane_length")

    def __init__(self, frame: WindowFrame, panes: Panes) -> None:
        assert frame.length is not None and frame.slide is not None
        self._pane_length = gcd(frame.length, frame.slide)
        self._pane_base = panes.pane
        self._arguments_of = panes.combine.row_of
        self._combine = WindowedEvaluation(frame.in_panes(self._pane_length), window_version(panes.combine))
        self._pane: BaseRun | None = None
        self._number = 0

    def arrive(self, position: int, args: Args) -> Question:
        number = position // self._pane_length
        if number != self._number:
            self._close_pane()
            self._number = number
        if self._pane is None:
            self._pane = BaseRun(self._pane_base)
        self._pane.step(args)
        return self._close_pane

    def question(self) -> Question:
        return self._close_pane

    def state(self) -> object:
        pane = None if self._pane is None else self._pane.state()
        return {"number": self._number, "pane": pane, "combined": self._combine.state()}

    def restore(self, state: Any) -> None:
        self._number = state["number"]
        self._combine.restore(state["combined"])
        if state["pane"] is not None:
            self._pane = BaseRun(self._pane_base)
            self._pane.restore(state["pane"])

    def _close_pane(self) -> Returned:
        """Close the pane and emit its values. The last emission covers the complete pane."""
        if self._pane is None:
            return []
        values, self._pane = self._pane.value(), None
        returned: Returned = []
        for value in values:
            returned = self._combine.arrive(self._number, self._arguments_of(value))()
        return returned
