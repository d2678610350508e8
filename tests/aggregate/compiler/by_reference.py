"""Window call on the windows of the reference engine, with the interface of the product's calls."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from slicemill.aggregates import definition as aggregate
from slicemill.aggregates.calls import CallAnswers, ExecutionForm, Results, Tuples
from slicemill.aggregates.definition import BaseAccumulator, Stepper, base_of
from slicemill.aggregates.frames import frame_of
from slicemill.aggregates.udf.lookup import aggregate_lookup
from slicemill.catalog.catalog import Catalog
from slicemill.catalog.queries import AggregateCall, WindowCall
from slicemill.functions.vectors import Vector, from_values, to_values
from slicemill.types import Row, Timed, Type
from slicemill_oracle.operators.window_dispatch import running_call
from slicemill_oracle.operators.window_slide import Answer, RunningCall

Out = list[tuple[int, int, Row, bool]]


@dataclass(slots=True)
class State:
    """State of the reference engine's objects, which tests do not store."""

    groups: dict[int, tuple[BaseAccumulator, Stepper]] = field(default_factory=dict)
    running: RunningCall | None = None
    waiting: deque[tuple[int, int, Answer]] = field(default_factory=deque)
    leaving: deque[tuple[int, int]] = field(default_factory=deque)
    arrivals: int = 0


class ByReference:
    """Pass each tuple to the windows of the reference engine, or to its steps of a group."""

    def __init__(self, call: AggregateCall | WindowCall, catalog: Catalog) -> None:
        self.returns: tuple[Type, ...] = tuple(column.type for column in call.columns)
        self.how = ExecutionForm("reference", "", "")
        frame = frame_of(call)
        self._frame = None if frame is None else replace(frame, partition=lambda row: row[0])
        found = aggregate_lookup(catalog)(call.name, call.distinct)
        self._definition = replace(found, algebraic=False, panes=None) if found.panes is not None else found
        self._call = aggregate.RowCall(self._definition, lambda row: row[1:])

    def start(self) -> State:
        return State(running=None if self._frame is None else running_call(self._call, self._frame))

    def run(self, state: State, tuples: Tuples, complete: int | None = None) -> CallAnswers:
        out: Out = []
        columns = [to_values(vector, len(tuples.ts)) for vector in tuples.arguments]
        rows = zip(tuples.partitions.tolist(), *columns, strict=True)
        for ts, row in zip(tuples.ts.tolist(), rows, strict=True):
            if state.running is None:
                out += [(state.arrivals, ts, v, False) for v in self._grouped(state, row)]
            else:
                self._pass_time(state, ts, out)
                answer = state.running.arrive(state.arrivals, Timed(ts, row))
                state.waiting.append((state.arrivals, ts, answer))
                if self._frame is not None and self._frame.active:
                    assert self._frame.preceding is not None
                    state.leaving.append((ts + self._frame.preceding, state.arrivals))
                self._release(state, out)
            state.arrivals += 1
        if complete is not None and state.running is not None:
            self._pass_time(state, complete, out)
        answered = state.waiting[0][0] if state.waiting else state.arrivals
        return CallAnswers(
            np.array([number for number, *_ in out], np.int64),
            np.array([ts for _, ts, *_ in out], np.int64),
            self._vectors([row for *_, row, _ in out]),
            np.array([expired for *_, expired in out], np.bool_),
            answered,
            state.leaving[0][1] if state.leaving else answered,
        )

    def finish(self, state: State) -> Results:
        if not state.groups:
            state.groups[0] = self._fresh()
        returned = [
            (group, self._definition.row_of(value))
            for group, (accumulator, _) in state.groups.items()
            for value in accumulator.terminate()
        ]
        groups = np.array([group for group, _ in returned], np.int64)
        return Results(groups, self._vectors([row for _, row in returned]))

    def due(self, state: State) -> int | None:
        return None if state.running is None else state.running.due()

    def _fresh(self) -> tuple[BaseAccumulator, Stepper]:
        made = base_of(self._definition)()
        return made, Stepper(made)

    def _grouped(self, state: State, row: tuple[Any, ...]) -> list[Row]:
        if row[0] not in state.groups:
            state.groups[row[0]] = self._fresh()
        return [self._definition.row_of(value) for value in state.groups[row[0]][1].step(row[1:])]

    def _pass_time(self, state: State, ts: int, out: Out) -> None:
        assert state.running is not None
        for expiry in state.running.pass_time(ts):
            rows = [self._definition.row_of(value) for value in expiry.returned]
            out += [(expiry.number, expiry.ts, row, True) for row in rows]
        while state.leaving and state.leaving[0][0] < ts:
            state.leaving.popleft()
        self._release(state, out)

    def _release(self, state: State, out: Out) -> None:
        while state.waiting and state.waiting[0][2].returned is not None:
            number, ts, answer = state.waiting.popleft()
            out += [(number, ts, self._definition.row_of(v), False) for v in answer.returned or []]

    def _vectors(self, rows: list[Row]) -> list[Vector]:
        return [from_values([row[i] for row in rows], type_) for i, type_ in enumerate(self.returns)]
