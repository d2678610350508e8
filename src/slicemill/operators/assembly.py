"""Assembly of output rows from input rows and results of aggregate calls.

An aggregate call returns its result for a row at once, or at the end of a slot (a slide of the window). With
ACTIVE EXPIRATION, it returns another result when a row leaves the window, which is an *expiry*. Output rows
are ordered by (time, arrivals before expiries, sequence number). A row therefore waits until all calls have
returned their results for all earlier rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.codec.registry import stored_as
from slicemill.columns.order import Numbering
from slicemill.columns.pieces import concat_with_nulls
from slicemill.functions.vectors import Vector, to_arrow
from slicemill.kernels.arrays import Bools
from slicemill.metrics.due_times import trigger_arrivals
from slicemill.time import BEFORE_ALL

_TS, _SEQ, _ARRIVAL = "_ts", "_seq", "_arr"
_SYSTEM = (_TS, _SEQ, _ARRIVAL)


class CallAnswerBatch(Protocol):
    """Results of one aggregate call in a micro-batch."""

    @property
    def numbers(self) -> NDArray[np.int64]: ...
    @property
    def ts(self) -> NDArray[np.int64]: ...
    @property
    def columns(self) -> list[Vector]: ...
    @property
    def expired(self) -> Bools: ...
    @property
    def answered(self) -> int: ...
    @property
    def needed_from(self) -> int: ...


@stored_as("assembly.returned", version=1, stored_names={"index": "place"})
@dataclass(slots=True)
class _PendingAnswers:
    """Results of one aggregate call that wait for results of other calls, in order.

    `index` numbers the results for one input row.
    """

    ts: NDArray[np.int64]
    expired: Bools
    numbers: NDArray[np.int64]
    index: NDArray[np.int64]
    columns: list[pa.ChunkedArray]

    def part(self, rows: Bools) -> _PendingAnswers:
        chosen = pa.array(rows)
        columns = [column.filter(chosen) for column in self.columns]
        return _PendingAnswers(
            self.ts[rows], self.expired[rows], self.numbers[rows], self.index[rows], columns
        )


@stored_as("assembly", version=1)
@dataclass(slots=True)
class AssemblyState:
    """Input rows with outstanding results of aggregate calls, and waiting results.

    `first` is the number of the first row in `rows`.
    """

    first: int = 0
    rows: pa.Table | None = None
    held_from: int | None = None  # timestamp of the oldest row for which a call has not returned a result
    waiting: list[_PendingAnswers | None] = field(default_factory=list)


class Assembly:
    """Assembler of output rows from input rows and results of aggregate calls.

    `names` are the output columns of each call. `slides` are the slot lengths of the calls, or None. Without
    `numbering`, output rows have the sequence numbers of their input rows.
    """

    def __init__(
        self,
        state: AssemblyState,
        names: Sequence[Sequence[str]],
        slides: Sequence[int | None] = (),
        numbering: Numbering | None = None,
    ) -> None:
        self.state = state
        self._names = names
        self._slides = slides or [None] * len(names)
        self._numbering = numbering or Numbering()
        if not state.waiting:
            state.waiting = [None] * len(names)

    def run(self, rows: pa.Table, answers: Sequence[CallAnswerBatch]) -> pa.Table:
        """Add new rows and results of calls; return the complete output rows."""
        out, leave = self._run(rows, answers)
        return self._numbering.apply(out, leave)

    def _run(self, rows: pa.Table, answers: Sequence[CallAnswerBatch]) -> tuple[pa.Table, Bools]:
        """Return complete output rows, and a mask of rows that an expiry has caused.

        The output rows have the sequence numbers of their input rows.
        """
        state = self.state
        if self._has_one_result_each(rows, answers):
            return self._append_results(rows, answers), np.zeros(rows.num_rows, np.bool_)
        held = rows if state.rows is None else concat_with_nulls([state.rows, rows])
        times = held.column(_TS).to_numpy()
        returned = [
            _append_answers(waiting, _arrange(answer))
            for waiting, answer in zip(state.waiting, answers, strict=True)
        ]
        first_open = min(answer.answered for answer in answers) - state.first
        leaving = returned
        if first_open < len(times):
            state.held_from = int(times[first_open])
            number = state.first + first_open
            before = [_before(part, state.held_from, number) for part in returned]
            leaving = [part.part(rows) for part, rows in zip(returned, before, strict=True)]
            state.waiting = [part.part(~rows) for part, rows in zip(returned, before, strict=True)]
        else:
            state.held_from = None
            state.waiting = [None] * len(returned)
        out = self._assemble(held, leaving)
        needed = min(answer.needed_from for answer in answers)
        parts = [part.numbers for part in state.waiting if part is not None and len(part.numbers)]
        needed = min([needed, state.first + first_open, *(int(numbers.min()) for numbers in parts)])
        state.rows, state.first = held.slice(needed - state.first), needed
        return out

    def _has_one_result_each(self, rows: pa.Table, answers: Sequence[CallAnswerBatch]) -> bool:
        """Return True if each call returned one result for each new row.

        Return False if older rows or results are waiting.
        """
        state, count = self.state, rows.num_rows
        if (state.rows is not None and state.rows.num_rows) or any(
            part is not None for part in state.waiting
        ):
            return False
        end = state.first + count
        if any(len(a.numbers) != count or min(a.answered, a.needed_from) < end for a in answers):
            return False
        wanted = np.arange(state.first, end)
        return all(not a.expired.any() and np.array_equal(a.numbers, wanted) for a in answers)

    def _append_results(self, rows: pa.Table, answers: Sequence[CallAnswerBatch]) -> pa.Table:
        """Append the results of calls as columns to the rows."""
        for names, answer in zip(self._names, answers, strict=True):
            for name, column in zip(names, answer.columns, strict=True):
                rows = rows.append_column(name, to_arrow(column, rows.num_rows))
        self.state.first += rows.num_rows
        self.state.held_from = None
        return rows

    def _assemble(self, held: pa.Table, parts: Sequence[_PendingAnswers]) -> tuple[pa.Table, Bools]:
        # Results of one call are in order, and results of several calls are sorted.
        # The results of all calls for one arrival or one expiry of an input row are in one output row.
        ts, expired, numbers, index = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("ts", "expired", "numbers", "index")
        )
        order = np.arange(len(ts)) if len(parts) == 1 else np.lexsort((index, numbers, expired, ts))
        same = np.zeros(len(order), np.bool_)
        if len(parts) > 1:
            before, after = order[:-1], order[1:]
            same[1:] = (index[before] == index[after]) & (numbers[before] == numbers[after])
            same[1:] &= (expired[before] == expired[after]) & (ts[before] == ts[after])
        row_of = np.empty(len(order), np.int64)
        row_of[order] = np.cumsum(~same) - 1
        chosen = order[~same]
        source = numbers[chosen] - self.state.first
        taken = held.take(pa.array(source))
        leave = expired[chosen]
        until = np.where(leave, ts[chosen], BEFORE_ALL)
        start = 0
        for slide, part in zip(self._slides, parts, strict=True):
            if slide is not None:
                answered = np.zeros(len(chosen), np.bool_)
                answered[row_of[start : start + len(part.ts)]] = True
                slots = (ts[chosen] // slide + 1) * slide
                until = np.where(answered & ~leave, np.maximum(until, slots), until)
            start += len(part.ts)
        arrivals = np.where(until > BEFORE_ALL, trigger_arrivals(until), taken.column(_ARRIVAL).to_numpy())
        columns = {
            _TS: pa.array(ts[chosen]),
            _SEQ: taken.column(_SEQ),
            _ARRIVAL: pa.array(arrivals),
            **{name: taken.column(name) for name in taken.column_names if name not in _SYSTEM},
        }
        start = 0
        for names, part in zip(self._names, parts, strict=True):
            rows = row_of[start : start + len(part.ts)]
            start += len(part.ts)
            for name, column in zip(names, part.columns, strict=True):
                columns[name] = column if len(parts) == 1 else _scatter_column(column, rows, len(chosen))
        return pa.table(columns), leave


def _arrange(answer: CallAnswerBatch) -> _PendingAnswers:
    numbers, expired = answer.numbers, answer.expired
    count = len(numbers)
    new = np.ones(count, np.bool_)
    new[1:] = (numbers[1:] != numbers[:-1]) | (expired[1:] != expired[:-1])
    starts = np.flatnonzero(new)
    index = np.arange(count) - (np.repeat(starts, np.diff(np.append(starts, count))) if count else 0)
    columns = [pa.chunked_array([to_arrow(column, count)]) for column in answer.columns]
    return _PendingAnswers(answer.ts, expired, numbers, index, columns)


def _append_answers(waiting: _PendingAnswers | None, new: _PendingAnswers) -> _PendingAnswers:
    if waiting is None:
        return new
    columns = [
        pa.chunked_array([*old.chunks, *added.chunks], old.type)
        for old, added in zip(waiting.columns, new.columns, strict=True)
    ]
    return _PendingAnswers(
        np.concatenate([waiting.ts, new.ts]),
        np.concatenate([waiting.expired, new.expired]),
        np.concatenate([waiting.numbers, new.numbers]),
        np.concatenate([waiting.index, new.index]),
        columns,
    )


def _before(part: _PendingAnswers, ts: int, number: int) -> Bools:
    """Return the mask of results that precede the input row `number` in the output.

    The input row arrived at time `ts`.
    """
    earlier: Bools = (part.ts < ts) | ((part.ts == ts) & ~part.expired & (part.numbers < number))
    return earlier


def _scatter_column(column: pa.ChunkedArray, rows: NDArray[np.int64], count: int) -> pa.ChunkedArray:
    """Return a column with these values at the positions `rows`, and NULL elsewhere."""
    indices = np.full(count, -1, np.int64)
    indices[rows] = np.arange(len(rows))
    return column.take(pa.array(indices, mask=indices < 0))
