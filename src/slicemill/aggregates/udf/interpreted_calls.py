"""Aggregate calls that the interpreter runs row by row, because they cannot be compiled.

The interface is that of compiled calls. An aggregate has a variant for unbounded streams (CREATE AGGREGATE),
a variant for windows (CREATE WINDOW AGGREGATE), or both. A slot is one interval of SLIDE, a pane an interval
between two window borders. Checkpoints store only the data of accumulators. After a restart, the call creates
the accumulators again and loads the data.
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass, field, replace
from itertools import islice
from math import gcd
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from slicemill.aggregates.calls import CallAnswers, ExecutionForm, Results, Tuples
from slicemill.aggregates.definition import (
    BaseAccumulator,
    BaseRun,
    Panes,
    Returned,
    RowAggregate,
    Stepper,
    Strategy,
    WindowFactory,
    base_of,
    strategy_of,
    window_version,
)
from slicemill.aggregates.frames import Args, Inwindow, WindowFrame, frame_of
from slicemill.aggregates.udf.interpreter import Source
from slicemill.aggregates.udf.lookup import aggregate_lookup
from slicemill.catalog.catalog import Catalog
from slicemill.catalog.queries import AggregateCall, WindowCall
from slicemill.codec.registry import StorageError, register
from slicemill.codec.state import decode, encode
from slicemill.columns.keys import RowsByNumber
from slicemill.functions.vectors import Vector, from_values, to_values
from slicemill.types import Row, Type


class ResultRow(NamedTuple):
    """Output row of an aggregate call, with the number of its tuple, its time and an expiry flag."""

    number: int
    ts: int
    row: Row
    expired: bool = False


# States of groups or partitions are encoded as JSON between checkpoints, so that a checkpoint has to encode
# only about _FRESH states that have changed recently.
# Other states are encoded in batches of _TOGETHER or more.
_FRESH, _TOGETHER = 1_024, 256
_STATE = "state"


@dataclass(slots=True)
class RunningCall:
    """State of an aggregate call with its accumulators.

    A call without a window has `groups`. A call with a window has `partitions`, each with its number of
    arrived tuples. `slot_end` is the end of the current slide interval in time. `opened` has, for each
    partition with a tuple in this interval, the number and timestamp of its last tuple. Under ACTIVE
    EXPIRATION, `negatives` has the expiry time, number and partition of each tuple.

    `fresh` has the numbers of the groups or partitions that have changed since they were encoded. The last
    number changed most recently. `encoded` has the states of all other groups or partitions as JSON, so that
    a checkpoint writes them only once. After a restart, a state is decoded when its next tuple arrives.
    """

    groups: dict[int, tuple[BaseAccumulator, Stepper]] = field(default_factory=dict)
    partitions: dict[int, tuple[PartitionWindow, int]] = field(default_factory=dict)
    slot_end: int = 0
    opened: dict[int, tuple[int, int]] = field(default_factory=dict)
    negatives: deque[tuple[int, int, int]] = field(default_factory=deque)
    arrivals: int = 0
    encoded: RowsByNumber = field(default_factory=RowsByNumber)
    fresh: dict[int, None] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """Return the state of the call in its checkpoint format, without accumulators."""
        of_groups = {number: self.state_of(number) for number in self.fresh if number in self.groups}
        of_partitions = {number: self.state_of(number) for number in self.fresh if number in self.partitions}
        return {
            "groups": of_groups,
            "partitions": of_partitions,
            "slot_end": self.slot_end,
            "opened": self.opened,
            "negatives": self.negatives,
            "arrivals": self.arrivals,
            "encoded": self.encoded,
        }

    def state_of(self, number: int) -> Any:
        """Return the state of one group or partition in its checkpoint format."""
        if number in self.groups:
            return self.groups[number][1].state()
        partition, arrived = self.partitions[number]
        return partition.state(), arrived

    def changed(self, number: int) -> None:
        self.fresh.pop(number, None)
        self.fresh[number] = None

    def encode_some(self) -> None:
        """Encode the states of groups or partitions that have been unchanged for longest, in batches."""
        if len(self.fresh) < _FRESH + _TOGETHER:
            return
        numbers, texts = [], []
        for number in list(islice(self.fresh, len(self.fresh) - _FRESH)):
            made = encode(self.state_of(number))
            if not made.payloads:  # states with long values remain as they are
                numbers.append(number)
                texts.append(json.dumps(made.tree, separators=(",", ":"), allow_nan=False).encode())
                del self.fresh[number]
        if numbers:
            self.encoded.reach(max(numbers) + 1)
            self.encoded.replace(np.array(numbers), pa.table({_STATE: pa.array(texts, pa.large_binary())}))

    def decode_state(self, number: int) -> Any:
        """Return the decoded state of a group or partition, or None."""
        if number >= len(self.encoded.indices) or self.encoded.indices[number] < 0:
            return None
        row = self.encoded.added.at(self.encoded.indices[number : number + 1])
        return decode(json.loads(row.column(_STATE)[0].as_py()), [])


@dataclass(slots=True)
class InterpretedState:
    """State of an interpreted aggregate call, as operators and checkpoints store it.

    After a restart, `running` is None until the call is used. Until then, `stored` has the checkpoint format.
    """

    running: RunningCall | None
    stored: dict[str, Any] | None = None

    def plain(self) -> Any:
        return self.stored if self.running is None else self.running.plain()


def _with_partitions(old: dict[str, Any]) -> dict[str, Any]:
    """Upgrade a stored state of version 1, in which windows have another format.

    Only states without windows can be upgraded.
    """
    if old["running"] is not None:
        raise StorageError(
            "the checkpoint has windows in a format that is no longer supported: "
            "drop the query and create it again"
        )
    windows = {"partitions": {}, "slot_end": 0, "opened": {}, "negatives": deque()}
    return {"groups": old["groups"], **windows, "arrivals": old["arrivals"]}


register(
    "uda.interpreted",
    3,
    InterpretedState,
    InterpretedState.plain,
    lambda plain: InterpretedState(None, plain),
    upgrade={1: _with_partitions, 2: lambda plain: {**plain, "encoded": RowsByNumber()}},
)


class InterpretedCall:
    """Aggregate call that the interpreter runs row by row."""

    def __init__(
        self,
        call: AggregateCall | WindowCall,
        catalog: Catalog,
        tables: Source,
        how: ExecutionForm | None = None,
    ) -> None:
        self.returns: tuple[Type, ...] = tuple(column.type for column in call.columns)
        self.how = how or ExecutionForm("interpreter", "", "")
        self._frame = frame_of(call)
        definition = aggregate_lookup(catalog, tables)(call.name, call.distinct)
        if definition.panes is not None:  # panes are an optimisation that the interpreter does not need
            definition = replace(definition, algebraic=False, panes=None)
        if self._active and definition.forgets:
            # Deleted tuples would return no values at their expiry, so the whole window is evaluated instead.
            definition = replace(definition, window=None)
        self._definition = definition

    def start(self) -> InterpretedState:
        return InterpretedState(RunningCall())

    def run(self, state: InterpretedState, tuples: Tuples, complete: int | None = None) -> CallAnswers:
        running = self._running(state)
        out: list[ResultRow] = []
        columns = [to_values(vector, len(tuples.ts)) for vector in tuples.arguments]
        keys, times = tuples.partitions.tolist(), tuples.ts.tolist()
        rows = zip(*columns, strict=True) if columns else (() for _ in keys)
        for ts, key, args in zip(times, keys, rows, strict=True):
            if self._frame is None:
                out += self._results(running.arrivals, ts, self._grouped(running, key, args))
            else:
                self._pass_time(running, ts, out)
                self._arrive(running, ts, key, args, out)
            running.arrivals += 1
        if complete is not None and self._frame is not None:
            self._pass_time(running, complete, out)
        running.encode_some()
        answered = min((number for number, _ in running.opened.values()), default=running.arrivals)
        return CallAnswers(
            np.array([result.number for result in out], np.int64),
            np.array([result.ts for result in out], np.int64),
            self._vectors([result.row for result in out]),
            np.array([result.expired for result in out], np.bool_),
            answered,
            running.negatives[0][1] if running.negatives else answered,
        )

    def finish(self, state: InterpretedState) -> Results:
        running = self._running(state)
        for number in np.flatnonzero(running.encoded.indices >= 0).tolist():
            self._group(running, number)
        if not running.groups:
            running.groups[0] = self._fresh_group()
        # Groups are sorted by number, which is the order of their first tuples.
        returned = [
            (group, self._definition.row_of(value))
            for group, (accumulator, _) in sorted(running.groups.items())
            for value in accumulator.terminate()
        ]
        groups = np.array([group for group, _ in returned], np.int64)
        return Results(groups, self._vectors([row for _, row in returned]))

    def due(self, state: InterpretedState) -> int | None:
        running = self._running(state)
        if running.negatives:
            # Arrivals at the time of an expiry precede the expiry, so it is due 1 µs later.
            return running.negatives[0][0] + 1
        return running.slot_end if running.opened else None

    @property
    def _active(self) -> bool:
        return self._frame is not None and self._frame.active

    def _running(self, state: InterpretedState) -> RunningCall:
        """Return the state of the call with its accumulators, which are created after a restart."""
        if state.running is None:
            stored = state.stored
            assert stored is not None, "a state is running or stored"
            fields = ("slot_end", "opened", "negatives", "arrivals", "encoded")
            running = RunningCall(**{name: stored[name] for name in fields})
            for number, group in stored["groups"].items():
                self._restore(running, number, group)
                running.changed(number)
            for number, partition in stored["partitions"].items():
                self._restore(running, number, partition)
                running.changed(number)
            state.running, state.stored = running, None
        return state.running

    def _fresh_group(self) -> tuple[BaseAccumulator, Stepper]:
        made = base_of(self._definition)()
        return made, Stepper(made)

    def _restore(self, running: RunningCall, number: int, stored: Any) -> None:
        """Create the accumulator of a group or partition, and load its stored state."""
        if self._frame is None:
            running.groups[number] = self._fresh_group()
            running.groups[number][1].restore(stored)
        else:
            partition, arrived = stored
            running.partitions[number] = fresh_partition(self._definition, self._frame), arrived
            running.partitions[number][0].restore(partition)

    def _group(self, running: RunningCall, number: int) -> Stepper:
        if number not in running.groups:
            stored = running.decode_state(number)
            if stored is None:
                running.groups[number] = self._fresh_group()
            else:
                self._restore(running, number, stored)
        return running.groups[number][1]

    def _partition(self, running: RunningCall, number: int) -> tuple[PartitionWindow, int]:
        if number not in running.partitions:
            stored = running.decode_state(number)
            if stored is None:
                assert self._frame is not None, "only calls with a window have partitions"
                running.partitions[number] = fresh_partition(self._definition, self._frame), 0
            else:
                self._restore(running, number, stored)
        return running.partitions[number]

    def _grouped(self, running: RunningCall, key: int, args: Args) -> Returned:
        running.changed(key)
        return self._group(running, key).step(args)

    def _arrive(self, running: RunningCall, ts: int, key: int, args: Args, out: list[ResultRow]) -> None:
        assert self._frame is not None
        frame, number = self._frame, running.arrivals
        partition, arrived = self._partition(running, key)
        running.changed(key)
        running.partitions[key] = partition, arrived + 1
        if self._definition.numbered:
            args = (*args, arrived)
        # Under ACTIVE EXPIRATION, the position is the arrival number, which identifies the tuple.
        partition.arrive(number if frame.active else arrived if frame.unit == "ROWS" else ts, args)
        if frame.active:
            assert frame.preceding is not None
            running.negatives.append((ts + frame.preceding, number, key))
        if frame.slide is not None and frame.unit == "RANGE":
            running.opened[key] = number, ts
            running.slot_end = frame.slot_end(ts)
        elif frame.slide is None or (arrived + 1) % frame.slide == 0:
            out += self._results(number, ts, partition.answer())

    def _pass_time(self, running: RunningCall, ts: int, out: list[ResultRow]) -> None:
        """Process expiries before the time `ts`, and emit results of slide intervals that end by then.

        Result rows are appended to `out`. Expiries are processed only under ACTIVE EXPIRATION.
        """
        while running.negatives and running.negatives[0][0] < ts:
            expiry, number, key = running.negatives.popleft()
            partition, _ = self._partition(running, key)
            running.changed(key)
            assert isinstance(partition, SlidingWindow), "ACTIVE EXPIRATION uses sliding windows"
            out += self._results(number, expiry, partition.expire(number) or [], expired=True)
        if running.opened and ts >= running.slot_end:
            for key, (number, at) in sorted(running.opened.items(), key=lambda each: each[1][0]):
                running.changed(key)
                out += self._results(number, at, self._partition(running, key)[0].answer())
            running.opened.clear()

    def _results(self, number: int, ts: int, returned: Returned, expired: bool = False) -> list[ResultRow]:
        return [ResultRow(number, ts, self._definition.row_of(value), expired) for value in returned]

    def _vectors(self, rows: list[Row]) -> list[Vector]:
        return [from_values([row[i] for row in rows], type_) for i, type_ in enumerate(self.returns)]


# Row-by-row evaluation of a window in one partition, with one class per evaluation strategy (M31-M37)


class PartitionWindow(Protocol):
    """Window evaluation of an aggregate call in one partition.

    `arrive` processes the next tuple of the partition. `answer` returns the result at the latest tuple. It is
    called at each tuple, at each n-th tuple, or at the end of a slide interval. Positions are arrival numbers
    or timestamps (see `WindowFrame`).
    """

    def arrive(self, position: int, args: Args) -> None: ...

    def answer(self) -> Returned: ...

    def state(self) -> object: ...

    def restore(self, state: Any) -> None: ...


class UnboundedWindow:
    """Evaluation of an aggregate over all tuples so far (UNBOUNDED PRECEDING)."""

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
    """Evaluation of an aggregate over tumbling windows: it starts again in each slide interval.

    The result covers the tuples of the slide interval that are in the window.
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
    """Evaluation of an aggregate over a sliding window, whose tuples are stored.

    `arrive` expires the oldest tuples, inserts the new tuple, and then calls the aggregate (M32). Under
    ACTIVE EXPIRATION, `InterpretedCall` calls `expire` as time passes (M36).
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
        """Call EXPIRE for the oldest tuple and remove it, if it has this position.

        Return None if the aggregate has already deleted the tuple with this position.
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
    """Evaluation of an aggregate by panes: one value per pane, and a combination of the panes in the window.

    A pane is an interval between two window borders, with the length gcd(length, slide).
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
        """End the current pane, and return the result over the panes in the window.

        Each value of the pane is passed to the combining aggregate. The result at the last value covers the
        complete pane.
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
    """Create the window evaluation of a new partition, by the evaluation strategy of the call."""
    match strategy_of(definition, frame):
        case Strategy.UNBOUNDED:
            return UnboundedWindow(definition)
        case Strategy.TUMBLE:
            return TumblingWindow(definition, frame)
        case Strategy.PANES:
            return PanedWindow(definition, frame)
        case _:
            return SlidingWindow(window_version(definition), frame)
