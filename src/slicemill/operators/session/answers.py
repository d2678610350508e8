"""Computation of the aggregate values of ended sessions, for all queries at once.

The sessions of all queries are sorted by query, end and first tuple. Times, keys and bounds are computed once
for all queries. Each distinct aggregate call is evaluated once, over the sessions of all queries with this
call. The output of a query consists of slices of the computed columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.aggregates.columns import Windows
from slicemill.catalog.expressions import Expr
from slicemill.catalog.queries import AggregateCall
from slicemill.columns.arrow_schema import ARRIVAL, SEQ, TS, to_arrow, with_system_columns
from slicemill.columns.keys import normalize_zeros
from slicemill.columns.order import Numbering
from slicemill.columns.sequence_bits import fan_out_bits
from slicemill.errors import SlicemillError
from slicemill.functions.vectors import fixed_width, numbers
from slicemill.kernels.arrays import Int64s
from slicemill.kernels.kernel import kernel
from slicemill.operators.call_values import (
    CallValues,
    Evaluate,
    WindowRows,
    align_results,
    column_arguments,
    evaluators,
    has_group_kernel,
)
from slicemill.operators.session.spec import SessionMember
from slicemill.operators.session.state import EndedSessions, StoredRows
from slicemill.operators.step import StepContext
from slicemill.types import Column, Schema

_INSTANT = pa.timestamp("us", tz="UTC")
_VALUE = "value"

Calls: TypeAlias = tuple[AggregateCall, ...]
Outcome: TypeAlias = pa.Table | SlicemillError


@dataclass(frozen=True)
class PassedSessions:
    """Sessions that one pass over the stored rows has found, for several queries.

    `indices` are the positions of the rows that the queries of the pass read, sorted by key. `members` has
    the names of these queries, by gap.
    """

    indices: Int64s
    ended: EndedSessions
    members: Sequence[Sequence[str]]


class _SessionsByQuery:
    """Ended sessions of all queries, sorted by query, then by end, then by first tuple."""

    def __init__(self, rows: StoredRows, found: PassedSessions) -> None:
        self.rows, self.indices, ended = rows, found.indices, found.ended
        heads: Int64s = self.indices[ended.starts]
        order = _in_order(ended, rows.integers(SEQ)[heads])
        borders = np.searchsorted(ended.gaps[order], np.arange(len(found.members) + 1)).tolist()
        self.starts, self.stops, self.until = ended.starts[order], ended.stops[order], ended.until[order]
        self.heads = heads[order]
        # Queries with the same gap have the same sessions.
        self.of_member = {
            name: (first, last)
            for (first, last), names in zip(pairwise(borders), found.members, strict=True)
            for name in names
            if last > first
        }


def _in_order(ended: EndedSessions, seqs: Int64s) -> Int64s:
    """Return the positions that sort the sessions by gap, then by end, then by first tuple.

    Ends are rarely equal, so that a single sort by gap and end is usually enough.
    """
    since = ended.until - ended.until.min()
    if int(since.max()) < 2**62 // (int(ended.gaps.max()) + 1):
        both = ended.gaps * (since.max() + 1) + since
        order = np.argsort(both)
        ordered = both[order]
        if (ordered[1:] != ordered[:-1]).all():
            return order
    return np.lexsort((seqs, ended.until, ended.gaps))


class _ConcatenatedSessions:
    """Copies of the rows of some queries' sessions; the rows of each session are neighbours."""

    def __init__(self, listed: _SessionsByQuery, names: Sequence[str]) -> None:
        parts = [slice(*listed.of_member[name]) for name in names]
        starts, stops = (
            np.concatenate([bounds[part] for part in parts]) for bounds in (listed.starts, listed.stops)
        )
        ends = np.cumsum(stops - starts)
        self._indices, owners = _expand_sessions(listed.indices, starts, stops, int(ends[-1]))
        self._rows, self._taken = listed.rows, dict[str, pa.Array]()
        self.counts = [part.stop - part.start for part in parts]
        self.windows = Windows(ends - (stops - starts), ends)
        self.tuples = WindowRows(owners, self._column)

    def _column(self, name: str) -> pa.Array:
        if name not in self._taken:
            self._taken[name] = _take_values(self._rows.column(name), self._indices)
        return self._taken[name]


@kernel
def _expand_sessions(
    indices: Int64s, starts: Int64s, stops: Int64s, rows: int
) -> tuple[Int64s, NDArray[np.int32]]:
    """Return the positions of the rows of all sessions, and the session number of each row."""
    out, owners = np.empty(rows, np.int64), np.empty(rows, np.int32)
    position = 0
    for i in range(len(starts)):
        for row in range(starts[i], stops[i]):
            out[position], owners[position] = indices[row], i
            position += 1
    return out, owners


class SessionAnswers:
    """Evaluator of the session aggregates of all queries.

    `columns` maps expressions to the names of stored columns. `keys` has the names of the key columns.
    """

    def __init__(
        self,
        members: Sequence[SessionMember],
        columns: Mapping[Expr, str],
        keys: Sequence[str],
        context: StepContext,
    ) -> None:
        self._keys = keys
        bits = context.seq_bits
        self._numbering = Numbering(bits, fans=True)
        self._fan_bits = fan_out_bits(bits) - bits
        numbers_of: dict[Calls, int] = {}
        self._evaluates: list[tuple[Evaluate, ...]] = []
        self._members: dict[str, _MemberOutput] = {}
        for member in members:
            own = _MemberOutput(member, context)
            for calls in own.calls:
                if calls not in numbers_of:
                    numbers_of[calls] = len(numbers_of)
                    stored = {a: columns[a] for c in calls for a in column_arguments(c, context.catalog)}
                    self._evaluates.append(evaluators(calls, stored, context))
                own.evaluations.append(numbers_of[calls])
            self._members[member.name] = own

    def of(self, rows: StoredRows, found: Sequence[PassedSessions]) -> dict[str, Outcome]:
        """Return the output rows of each query, or the error that stopped the query.

        The rows are sorted by session end, then by the first tuple of the session.
        """
        out: dict[str, Outcome] = {}
        for passed in found:
            out |= {name: self._members[name].nothing for names in passed.members for name in names}
            if len(passed.ended.until):
                out |= self._answered(rows, _SessionsByQuery(rows, passed))
        return out

    def _answered(self, rows: StoredRows, listed: _SessionsByQuery) -> dict[str, Outcome]:
        common = self._common(rows, listed)
        out: dict[str, Outcome] = {}
        values = self._values(listed)
        for name, (first, last) in listed.of_member.items():
            own = self._members[name]
            answers = [values[number][name] for number in own.evaluations]
            failed = [answer for answer in answers if isinstance(answer, SlicemillError)]
            if failed:
                out[name] = failed[0]
                continue
            given = [answer for answer in answers if isinstance(answer, CallValues)]
            shared = {column: array.slice(first, last - first) for column, array in common.items()}
            out[name] = own.table(shared, given, self._numbering, self._fan_bits)
        return out

    def _values(self, listed: _SessionsByQuery) -> list[dict[str, CallValues | SlicemillError]]:
        """Return the aggregate values of each query, as one dict for each distinct set of calls.

        The dicts map query names to values, or to the error that stopped the query.
        """
        users: list[list[str]] = [[] for _ in self._evaluates]
        for name in listed.of_member:
            for number in self._members[name].evaluations:
                users[number].append(name)
        unions: dict[tuple[str, ...], _ConcatenatedSessions] = {}
        found: list[dict[str, CallValues | SlicemillError]] = []
        for evaluates, names in zip(self._evaluates, map(tuple, users), strict=True):
            if names and names not in unions:
                unions[names] = _ConcatenatedSessions(listed, names)
            try:
                parts = _evaluate_queries(evaluates, unions[names]) if names else []
                found.append(dict(zip(names, parts, strict=True)))
            except SlicemillError:
                found.append({name: _alone(evaluates, listed, name) for name in names})
        return found

    def _common(self, rows: StoredRows, listed: _SessionsByQuery) -> dict[str, pa.Array]:
        heads = listed.heads
        return {
            TS: pa.array(listed.until),
            SEQ: pa.array(rows.integers(SEQ)[heads]),
            # Arrival time 0 marks rows that the watermark causes, not the arrival of a tuple.
            ARRIVAL: pa.array(np.zeros(len(heads), np.int64)),
            **{name: normalize_zeros(_take_values(rows.column(name), heads)) for name in self._keys},
            "window_start": fixed_width(rows.integers(TS)[heads], None, _INSTANT),
            "window_end": fixed_width(listed.until, None, _INSTANT),
        }


class _MemberOutput:
    """Builder of the output of one query, from columns and aggregate values that queries share."""

    def __init__(self, member: SessionMember, context: StepContext) -> None:
        operator = member.operator
        self._schema = with_system_columns(to_arrow(Schema(member.columns)))
        self.nothing = self._schema.empty_table()
        self._keys = {item.name: f"key {index}" for index, item in enumerate(operator.group_by)}
        # For each set of calls, the output column names of this query by the names of the shared columns.
        self._renamed: list[dict[str, str]] = []
        self.calls: list[Calls] = []
        self.evaluations: list[int] = []  # number of each set of calls among the sets of all queries
        apart = []
        for call in operator.calls:
            if has_group_kernel(call, context.catalog):
                self.calls.append((replace(call, columns=(Column(_VALUE, call.columns[0].type),)),))
                self._renamed.append({_VALUE: call.columns[0].name})
            else:
                apart.append(call)
        self._one_each = not apart
        if apart:
            self.calls.append(tuple(apart))
            self._renamed.append({column.name: column.name for call in apart for column in call.columns})

    def table(
        self,
        common: Mapping[str, pa.Array],
        answers: Sequence[CallValues],
        numbering: Numbering,
        fan_bits: int,
    ) -> pa.Table:
        columns = dict(common)
        columns |= {name: columns[stored] for name, stored in self._keys.items()}
        if self._one_each:
            for names, values in zip(self._renamed, answers, strict=True):
                columns |= {names[name]: array for name, array in values.columns.items()}
            # Each session has another first tuple, so the lowest bits of the sequence numbers can stay 0.
            columns[SEQ] = pa.array(numbers(columns[SEQ]) << fan_bits)
            return self._made(columns)
        named = [
            CallValues(values.windows, {names[name]: array for name, array in values.columns.items()})
            for names, values in zip(self._renamed, answers, strict=True)
        ]
        found = align_results(named, len(common[TS]))
        of_session = pa.array(found.windows)
        columns = {name: array.take(of_session) for name, array in columns.items()} | found.columns
        return numbering.apply(self._made(columns))

    def _made(self, columns: Mapping[str, pa.Array]) -> pa.Table:
        arrays = [_cast(columns[column.name], column.type) for column in self._schema]
        return pa.Table.from_arrays(arrays, schema=self._schema)


def _evaluate_queries(evaluates: Sequence[Evaluate], sessions: _ConcatenatedSessions) -> list[CallValues]:
    """Evaluate calls over the sessions of several queries, and return the values of each query.

    The sessions of each query are numbered from 0.
    """
    windows = sessions.windows
    made = [evaluate(sessions.tuples, windows) for evaluate in evaluates]
    values = made[0] if len(made) == 1 else align_results(made, len(windows))
    borders = np.cumsum([0, *sessions.counts])
    cuts = np.searchsorted(values.windows, borders).tolist()
    return [
        CallValues(
            values.windows[first:last] - begun,
            {name: array.slice(first, last - first) for name, array in values.columns.items()},
        )
        for begun, (first, last) in zip(borders[:-1], pairwise(cuts), strict=True)
    ]


def _alone(evaluates: Sequence[Evaluate], listed: _SessionsByQuery, name: str) -> CallValues | SlicemillError:
    """Evaluate calls for one query only, so that errors in other queries' sessions have no effect."""
    try:
        return _evaluate_queries(evaluates, _ConcatenatedSessions(listed, [name]))[0]
    except SlicemillError as problem:
        return problem


def _take_values(array: pa.Array, indices: Int64s) -> pa.Array:
    """Return the values of an array at the given positions.

    NumPy is twice as fast as Arrow for plain numbers.
    """
    if array.null_count or not (pa.types.is_int64(array.type) or pa.types.is_float64(array.type)):
        return array.take(pa.array(indices))
    return fixed_width(numbers(array)[indices], None, array.type)


def _cast(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    return array if array.type == wanted else array.cast(wanted)
