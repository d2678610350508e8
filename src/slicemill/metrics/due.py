"""The times at which results were due: response time counts from there.

A result that a tuple causes is due when that tuple arrives: `_arr`. A result that *time* releases (the end of
a window or slot, a tuple that leaves its window) is not due when its newest tuple arrives, but when time gets
there: when the first tuple at or behind the release time arrives, or the watermark reaches it. Such a row has
no arrival. Its `_arr` says until when, in the time of the stream, it had to wait:

    _arr > 0     the tuple that caused the row arrived then
    _arr = 0     time released it, at its own `_ts`
    _arr < 0     time released it, at `-_arr`: behind its `_ts`

    window ends at 60       tuples   57      59      64
    result at 60            arrive   57.2    59.1    64.3       due at 64.3, not at 59.1

What a union, a join or a SLACK holds back counts from its own arrival: holding it back is part of the
response. Before results are stored, they get the moments at which they were due as arrivals (`dated`), so
that what is made of them later counts from there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.storage.arrow_schema import ARRIVAL, TS

Integers = NDArray[np.int64]
# Timestamps, which never fall, and when the first tuple at or behind each of them arrived.
Moments: TypeAlias = tuple[Integers, Integers]
# When the rows of an output were due, and how many of them at each moment.
Arrivals: TypeAlias = tuple[tuple[int, int], ...]


def released_by_time(at: Integers) -> Integers:
    """`_arr` of rows that time releases at these moments of the stream."""
    # Before 1970 a moment would look like an arrival: the row's own timestamp must do.
    return np.where(at > 0, -at, 0)


def due_moments(
    ts: Integers,
    arr: Integers,
    input_ts: Integers,
    input_arr: Integers,
    watermark_us: int,
    by_clock: int | None = None,
) -> Integers:
    """When the results of a run were due, by the clock that arrivals are stamped with.

    `ts` and `arr` are those of the results. `input_ts`, which never falls, and `input_arr` are those of the
    tuples of the run, of all inputs together. `watermark_us` is when the watermark came to where it is:
    results that time released, with no tuple behind their release time, came out because of it. Where the
    clock moves the watermark, `by_clock` is the watermark: it was at an earlier moment that much earlier.
    """
    released = arr <= 0
    if not released.any():
        return arr
    at = np.where(arr < 0, -arr, ts)
    # Tuples may wait for each other: the first to arrive at or behind a moment ends the waiting for it.
    earliest = np.minimum.accumulate(input_arr[::-1])[::-1]
    arrived = np.append(earliest, watermark_us)[np.searchsorted(input_ts, at, side="left")]
    reached = watermark_us if by_clock is None else watermark_us - np.maximum(by_clock - at, 0)
    return np.where(released, np.minimum(arrived, reached), arr)


def arrivals_of(tables: Iterable[pa.Table]) -> Moments:
    """When tuples have arrived, as few moments as tell it: many tuples arrive at one."""
    none = np.empty(0, np.int64)
    given = list(tables)
    times, arrivals = (
        np.concatenate([none, *(part.column(name).to_numpy() for part in given)]) for name in (TS, ARRIVAL)
    )
    order = np.argsort(times, kind="stable")
    earliest = np.minimum.accumulate(arrivals[order][::-1])[::-1]
    last = np.flatnonzero(np.append(earliest[1:] != earliest[:-1], [True] * min(len(order), 1)))
    return times[order[last]], earliest[last]


def dated(
    table: pa.Table, inputs: Iterable[Moments], watermark_us: int, by_clock: int | None = None
) -> pa.Table:
    """The results of a run, with the moments at which they were due as arrivals.

    `inputs` says when the tuples of its inputs arrived; it is asked only if time has released something.
    """
    ts, arr = (table.column(name).to_numpy() for name in (TS, ARRIVAL))
    if not (arr <= 0).any():
        return table
    none = np.empty(0, np.int64)
    given = [(none, none), *inputs]
    times, arrivals = (np.concatenate(parts) for parts in zip(*given, strict=True))
    order = np.argsort(times, kind="stable")
    moments = due_moments(ts, arr, times[order], arrivals[order], watermark_us, by_clock)
    index = table.schema.get_field_index(ARRIVAL)
    return table.set_column(index, table.schema.field(index), pa.array(moments))
