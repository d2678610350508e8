"""Calls that only the reference engine can run: its own operators, tuple by tuple, behind the same interface.

Their state is a graph of its objects. What is code in it (routines, conversions) is left out of checkpoints,
and made anew by the call that goes on with it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from slicemill.aggregate import definition as aggregate
from slicemill.aggregate.compiler.call import Answers, How, Results, Tuples
from slicemill.aggregate.definition import BaseInstance, Stepper, base_of
from slicemill.aggregate.frame import Frame
from slicemill.aggregate.interpreter.lookup import aggregate_lookup
from slicemill.aggregate.interpreter.relations import Source
from slicemill.aggregate.inwindow import Args
from slicemill.esl.catalog import Catalog
from slicemill.esl.types.query import Window, WindowCall
from slicemill.esl.types.relation import AggregateCall
from slicemill.esl.types.schema import Type
from slicemill.reference.window_dispatch import running_call
from slicemill.reference.window_slide import Answer, RunningCall
from slicemill.rows import Row, Timed
from slicemill.scalar.vectors import Vector, from_values, to_values
from slicemill.storage.codec import register


def partition_of(row: Row) -> object:
    return row[0]


def arguments_of(row: Row) -> Args:
    return row[1:]


def frame_of(call: AggregateCall | WindowCall) -> Frame | None:
    """The frame of a call over tuples that begin with the number of their partition; None without OVER."""
    return None if isinstance(call, AggregateCall) else frame_over(call.window)


def frame_over(window: Window) -> Frame:
    return Frame(window.frame.value, window.extent, window.slide, window.active, partition_of)


@dataclass(slots=True)
class Held:
    """The state of a call while it runs."""

    groups: dict[int, tuple[BaseInstance, Stepper]] = field(default_factory=dict)
    running: RunningCall | None = None
    waiting: deque[tuple[int, int, Answer]] = field(default_factory=deque)
    leaving: deque[tuple[int, int]] = field(default_factory=deque)  # when, and which tuple
    arrivals: int = 0

    def plain(self) -> dict[str, Any]:
        """What is stored of it: no code."""
        return {
            "groups": {number: stepper.state() for number, (_, stepper) in self.groups.items()},
            "running": None if self.running is None else self.running.state(),
            "waiting": self.waiting,
            "leaving": self.leaving,
            "arrivals": self.arrivals,
        }


@dataclass(slots=True)
class InterpretedState:
    """Running, or as it was stored until the call goes on with it."""

    held: Held | None
    stored: dict[str, Any] | None = None

    def plain(self) -> Any:
        return self.stored if self.held is None else self.held.plain()


register(
    "uda.interpreted",
    1,
    InterpretedState,
    InterpretedState.plain,
    lambda plain: InterpretedState(None, plain),
)


class Interpreted:
    """A call on the reference engine."""

    def __init__(
        self, call: AggregateCall | WindowCall, catalog: Catalog, tables: Source, how: How | None = None
    ) -> None:
        self.returns: tuple[Type, ...] = tuple(column.type for column in call.columns)
        self.how = how or How("interpreter", "", "")
        self._frame = frame_of(call)
        found = aggregate_lookup(catalog, tables)(call.name, call.distinct)
        # Results are exact without panes.
        self._definition = replace(found, algebraic=False, panes=None) if found.panes is not None else found
        self._call = aggregate.AggregateCall(self._definition, arguments_of)

    def warm(self) -> None:
        """There is nothing to compile."""

    def start(self) -> InterpretedState:
        running = None if self._frame is None else running_call(self._call, self._frame)
        return InterpretedState(Held(running=running))

    def run(self, state: InterpretedState, tuples: Tuples, complete: int | None = None) -> Answers:
        held = self._going(state)
        out: list[tuple[int, int, Row, bool]] = []
        columns = [to_values(vector, len(tuples.ts)) for vector in tuples.arguments]
        keys, times = tuples.partitions.tolist(), tuples.ts.tolist()
        rows = zip(keys, *columns, strict=True) if columns else ((key,) for key in keys)
        for ts, row in zip(times, rows, strict=True):
            if held.running is None:
                out += [(held.arrivals, ts, v, False) for v in self._grouped(held, row)]
            else:
                self._pass_time(held, ts, out)
                held.waiting.append((held.arrivals, ts, held.running.arrive(held.arrivals, Timed(ts, row))))
                if self._active:
                    assert self._frame is not None and self._frame.preceding is not None
                    held.leaving.append((ts + self._frame.preceding, held.arrivals))
                self._release(held, out)
            held.arrivals += 1
        if complete is not None and held.running is not None:
            self._pass_time(held, complete, out)
        return self._answers(held, out)

    def finish(self, state: InterpretedState) -> Results:
        held = self._going(state)
        if not held.groups:
            held.groups[0] = self._fresh()
        returned = [
            (group, self._definition.row_of(value))
            for group, (instance, _) in held.groups.items()
            for value in instance.terminate()
        ]
        groups = np.array([group for group, _ in returned], np.int64)
        return Results(groups, self._vectors([row for _, row in returned]))

    def due(self, state: InterpretedState) -> int | None:
        held = self._going(state)
        return None if held.running is None else held.running.due()

    @property
    def _active(self) -> bool:
        return self._frame is not None and self._frame.active

    def _going(self, state: InterpretedState) -> Held:
        """The state, made to run where it comes from a checkpoint."""
        if state.held is None:
            stored = state.stored
            assert stored is not None, "it is one or the other"
            held = Held(waiting=stored["waiting"], leaving=stored["leaving"], arrivals=stored["arrivals"])
            for number, kept in stored["groups"].items():
                held.groups[number] = self._fresh()
                held.groups[number][1].restore(kept)
            if self._frame is not None:
                held.running = running_call(self._call, self._frame)
                held.running.restore(stored["running"])
            state.held, state.stored = held, None
        return state.held

    def _fresh(self) -> tuple[BaseInstance, Stepper]:
        made = base_of(self._definition)()
        return made, Stepper(made)

    def _grouped(self, held: Held, row: Row) -> list[Row]:
        key = row[0]
        assert isinstance(key, int)
        if key not in held.groups:
            held.groups[key] = self._fresh()
        return [self._definition.row_of(value) for value in held.groups[key][1].step(row[1:])]

    def _pass_time(self, held: Held, ts: int, out: list[tuple[int, int, Row, bool]]) -> None:
        assert held.running is not None
        for expiry in held.running.pass_time(ts):
            rows = [self._definition.row_of(value) for value in expiry.returned]
            out += [(expiry.number, expiry.ts, row, True) for row in rows]
        while held.leaving and held.leaving[0][0] < ts:
            held.leaving.popleft()
        self._release(held, out)

    def _release(self, held: Held, out: list[tuple[int, int, Row, bool]]) -> None:
        while held.waiting and held.waiting[0][2].returned is not None:
            number, ts, answer = held.waiting.popleft()
            out += [(number, ts, self._definition.row_of(v), False) for v in answer.returned or []]

    def _answers(self, held: Held, out: list[tuple[int, int, Row, bool]]) -> Answers:
        answered = held.waiting[0][0] if held.waiting else held.arrivals
        return Answers(
            np.array([number for number, *_ in out], np.int64),
            np.array([ts for _, ts, *_ in out], np.int64),
            self._vectors([row for *_, row, _ in out]),
            np.array([expired for *_, expired in out], np.bool_),
            answered,
            held.leaving[0][1] if held.leaving else answered,
        )

    def _vectors(self, rows: list[Row]) -> list[Vector]:
        return [from_values([row[i] for row in rows], type_) for i, type_ in enumerate(self.returns)]
