"""Calls that only the reference engine can run: its own operators, tuple by tuple, behind the same interface.

Their state is a graph of its objects. What is code in it (routines, conversions) is left out when it is
pickled, and put back by the call that goes on with it.
"""

from __future__ import annotations

import io
import pickle
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from slicemill.esl.catalog import Catalog
from slicemill.esl.query import Window, WindowCall
from slicemill.esl.relation import AggregateCall
from slicemill.esl.types import Type
from slicemill.execution import aggregate
from slicemill.execution.aggregate import Returned, Stepper, base_of
from slicemill.execution.inwindow import Args, Inwindow
from slicemill.execution.operator import Row, Timed
from slicemill.execution.relation_query_compile import Source
from slicemill.execution.uda import EslInstance, aggregate_lookup
from slicemill.execution.uda_external import ExternalInstance
from slicemill.execution.window_dispatch import running_call
from slicemill.execution.window_frame import Frame
from slicemill.execution.window_slide import Answer, RunningCall
from slicemill.kernels.vectors import Vector, from_values, to_values
from slicemill.uda.call import Answers, How, Results, Tuples

_CODE = ("_contest", "_inwindow", "_to_arguments")


def partition_of(row: Row) -> object:
    return row[0]


def arguments_of(row: Row) -> Args:
    return row[1:]


def frame_of(call: AggregateCall | WindowCall) -> Frame | None:
    """The frame of a call over tuples that begin with the number of their partition; None without OVER."""
    return None if isinstance(call, AggregateCall) else frame_over(call.window)


def frame_over(window: Window) -> Frame:
    return Frame(window.frame.value, window.extent, window.slide, window.active, partition_of)


class Made:
    """A running aggregate whose pickle leaves its routines out."""

    __slots__ = ("_instance", "_inwindow", "_maker")

    def __init__(self, maker: Maker, inwindow: Inwindow | None = None) -> None:
        self._maker = maker
        self._inwindow = inwindow
        self._instance: Any = maker.make() if inwindow is None else maker.make(inwindow)

    def initialize(self, args: Args) -> Returned:
        returned: Returned = self._instance.initialize(args)
        return returned

    def iterate(self, args: Args) -> Returned:
        returned: Returned = self._instance.iterate(args)
        return returned

    def expire(self, args: Args) -> Returned:
        returned: Returned = self._instance.expire(args)
        return returned

    def terminate(self) -> Returned:
        returned: Returned = self._instance.terminate()
        return returned

    def __reduce__(self) -> tuple[object, ...]:
        return Made, (self._maker, self._inwindow), self._kept()

    def _kept(self) -> object:
        made = self._instance
        if isinstance(made, EslInstance):
            return made._body.tables, made._body.arguments
        if isinstance(made, ExternalInstance):
            return made._object, made._started
        # A built-in aggregate: how it compares is code, and the window is kept apart.
        return [(name, getattr(made, name)) for name in made.__slots__ if name not in _CODE]

    def __setstate__(self, kept: Any) -> None:
        made = self._instance
        if isinstance(made, EslInstance):
            made._body.tables, made._body.arguments = kept
        elif isinstance(made, ExternalInstance):
            made._object, made._started = kept
        else:
            for name, value in kept:
                setattr(made, name, value)


class Maker:
    """A factory of running aggregates that is known to pickles by its name only."""

    __slots__ = ("make", "name")

    def __init__(self, name: str, make: Callable[..., Any]) -> None:
        self.name = name
        self.make = make

    def __call__(self, inwindow: Inwindow | None = None) -> Made:
        return Made(self, inwindow)


@dataclass(slots=True)
class Held:
    """The state of a call while it runs."""

    groups: dict[int, tuple[Made, Stepper]] = field(default_factory=dict)
    running: RunningCall | None = None
    waiting: deque[tuple[int, int, Answer]] = field(default_factory=deque)
    leaving: deque[tuple[int, int]] = field(default_factory=deque)  # when, and which tuple
    arrivals: int = 0


@dataclass(slots=True)
class InterpretedState:
    """Running, or frozen until the call goes on."""

    held: Held | bytes
    fixed: dict[int, str] = field(default_factory=dict)

    def __getstate__(self) -> bytes:
        if isinstance(self.held, bytes):
            return self.held
        buffer = io.BytesIO()
        _Freezer(buffer, self.fixed).dump(self.held)
        return buffer.getvalue()

    def __setstate__(self, frozen: bytes) -> None:
        self.held, self.fixed = frozen, {}


class _Freezer(pickle.Pickler):
    def __init__(self, buffer: io.BytesIO, fixed: dict[int, str]) -> None:
        super().__init__(buffer, pickle.HIGHEST_PROTOCOL)
        self._fixed = fixed

    def persistent_id(self, obj: object) -> str | None:
        return self._fixed.get(id(obj))


class _Thawer(pickle.Unpickler):
    def __init__(self, frozen: bytes, fixed: dict[str, object]) -> None:
        super().__init__(io.BytesIO(frozen))
        self._fixed = fixed

    def persistent_load(self, pid: str) -> object:
        return self._fixed[pid]


class Interpreted:
    """A call on the reference engine."""

    def __init__(
        self, call: AggregateCall | WindowCall, catalog: Catalog, tables: Source, how: How | None = None
    ) -> None:
        self.returns: tuple[Type, ...] = tuple(column.type for column in call.columns)
        self.how = how or How("interpreter", "", "")
        self._frame = frame_of(call)
        found = aggregate_lookup(catalog, tables)(call.name, call.distinct)
        makers = {
            name: Maker(name, make)
            for name, make in (("base", found.base), ("window", found.window))
            if make is not None
        }
        self._definition = replace(found, base=makers.get("base"), window=makers.get("window"))
        if found.panes is not None:
            # Panes of built-in aggregates are code that cannot be pickled; results are exact without them.
            self._definition = replace(self._definition, algebraic=False, panes=None)
        self._call = aggregate.AggregateCall(self._definition, arguments_of)
        # What is the same in every state of this call, and so stays out of its pickles.
        self._fixed: dict[str, object] = {
            **makers,
            "definition": self._definition,
            "call": self._call,
            "frame": self._frame,
        }
        self._ids = {id(thing): name for name, thing in self._fixed.items() if thing is not None}

    def warm(self) -> None:
        """There is nothing to compile."""

    def start(self) -> InterpretedState:
        running = None if self._frame is None else running_call(self._call, self._frame)
        return InterpretedState(Held(running=running), self._ids)

    def run(self, state: InterpretedState, tuples: Tuples, complete: int | None = None) -> Answers:
        held = self._thawed(state)
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
        held = self._thawed(state)
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
        held = self._thawed(state)
        return None if held.running is None else held.running.due()

    @property
    def _active(self) -> bool:
        return self._frame is not None and self._frame.active

    def _thawed(self, state: InterpretedState) -> Held:
        if isinstance(state.held, bytes):
            state.held, state.fixed = _Thawer(state.held, self._fixed).load(), self._ids
        assert isinstance(state.held, Held)
        return state.held

    def _fresh(self) -> tuple[Made, Stepper]:
        made = base_of(self._definition)()
        assert isinstance(made, Made)
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
