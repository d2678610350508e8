"""Running aggregates of groups, whose state is one array with an accumulator for each group.

Counts, sums, means and deviations support retractions. Distinct counts, minima and maxima support only
inserts. Rows are sorted by group once for all aggregates:

    group   0   0   1   0      sorted   0   0   0   1       stored before   7   2
    value   1   5   2   1               1   5   1   2       sums            8  13  14   4

Other aggregates are computed from stored rows, or from compacted rows (`OverGroupState.past`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.aggregates import exact as limbs
from slicemill.aggregates.columns import (
    Rows,
    Windows,
    bigints,
    doubles,
    valid_mask,
    weights_of,
    whole_numbers,
)
from slicemill.aggregates.definition import result_converter
from slicemill.aggregates.moments import MANY, ColumnMoments, PreparedNumbers
from slicemill.catalog.expressions import Case, ColumnRef, Expr, Literal
from slicemill.catalog.queries import AggregateCall, WindowCall
from slicemill.codec.registry import stored_as
from slicemill.columns.keys import Keys, distinct_keys, distinct_numbers, extend_array, first_rows
from slicemill.columns.ranges import by_partition, last_of_each, running_totals
from slicemill.functions.vectors import arrow_type, fixed_width
from slicemill.kernels.arrays import Bools, Int32s, Int64s
from slicemill.kernels.kernel import kernel
from slicemill.operators.window.accumulators import Accumulator, Call, accumulator_of
from slicemill.types import NULL

# Rows of a micro-batch, sorted by group: the input of running aggregates.


@dataclass(frozen=True, slots=True)
class GroupedRows:
    """Rows of a micro-batch, with their group numbers in `numbered`.

    `count` is the number of all groups. `touched` are the groups with rows in this micro-batch. `order` sorts
    rows by group. `groups` has for each sorted row the index of its group in `touched`. `signs` are 1 for
    inserted and -1 for retracted rows. `emits` marks the rows after which a result is needed. If `signs` and
    `emits` are None, all rows are inserts that need a result.
    """

    numbered: Int32s
    count: int
    touched: Int64s
    order: Int64s
    groups: Int32s
    signs: Int64s | None = None
    emits: Bools | None = None

    @staticmethod
    def of(
        numbered: Int32s, count: int, signs: Int64s | None = None, emits: Bools | None = None
    ) -> GroupedRows:
        distinct, local = distinct_numbers(numbered)
        order, groups, _ = by_partition(local, len(distinct))
        return GroupedRows(numbered, count, distinct, order, groups, signs, emits)

    def in_rows(self, values: Int64s) -> Int64s:
        """Reorder values of rows from group order to input order."""
        found = np.empty_like(values)
        found[self.order] = values
        return found

    def counted(self, chosen: Bools, stored: Int64s) -> Int64s:
        """Return for each row the number of chosen rows in its group so far, including the row.

        `stored` has the counts of all groups from earlier micro-batches. The method updates these counts.
        """
        signs = chosen if self.signs is None else np.where(chosen, self.signs, 0)
        found = running_totals(self.groups, signs[self.order], stored[self.touched])
        self.keep_last(found, stored)
        return self.in_rows(found)

    def keep_last(self, values: Int64s, stored: Int64s) -> None:
        """Copy the last of the sorted `values` of each group to `stored`."""
        last = last_of_each(self.groups)
        stored[self.touched] = values[last]


def empty_counts() -> Int64s:
    return np.zeros(0, np.int64)


def all_known(rows: GroupedRows, arguments: Sequence[pa.Array]) -> Bools:
    chosen = np.ones(len(rows.numbered), np.bool_)
    for argument in arguments:
        chosen &= valid_mask(argument)
    return chosen


# Running sums, means, variances and deviations of groups.
# They are exact, because sums are integers of arbitrary precision.
# Such an integer is stored as limbs, which are 32-bit digits (`aggregates.exact`).


_LIMB_BITS = 32
_STEP = 64  # exponents of sums are multiples of 64, so that a small new value seldom needs a lower exponent


def _no_limbs() -> NDArray[np.uint32]:
    return np.zeros(0, np.uint32)


@stored_as("group.moments", version=1)
@dataclass(slots=True)
class RunningMoments:
    """Exact sums of numbers of each group, and sums of squares for variances.

    Sums are stored as limbs (32-bit digits). `sums` has `size` limbs for each group, and `squares` twice as
    many. The unit is 2**`exponent` for doubles and the last digit for decimals. `odd` counts NaNs and
    infinities, by name. All numbers are below 2**`high`, and no group has more than `most` numbers.
    """

    counts: Int64s = field(default_factory=empty_counts)
    sums: NDArray[np.uint32] = field(default_factory=_no_limbs)
    squares: NDArray[np.uint32] = field(default_factory=_no_limbs)
    odd: dict[str, Int64s] = field(default_factory=dict)
    size: int = limbs.WHOLE
    exponent: int = 0
    high: int = 0
    most: int = 1

    def run(
        self, rows: GroupedRows, arguments: Sequence[pa.Array], call: AggregateCall | WindowCall
    ) -> pa.Array:
        statistic = _statistic(call)
        order = pa.array(rows.order)
        prepared = statistic.prepare(Rows(rows.groups, [arguments[0].take(order)]))
        leaves = None if rows.signs is None else rows.signs[rows.order] < 0
        self.counts = extend_array(self.counts, rows.count)
        counts = _running_counts(rows, prepared.counts, leaves, self.counts)
        odd = self._odd(rows, prepared, leaves)
        self._fit(prepared, int(counts.max(initial=1)))
        prepared = replace(prepared, exponent=self.exponent)
        numbers = statistic.limbs_of(prepared, self.size)
        squares = statistic.squares_of(prepared, numbers) if statistic.degree == 2 else None
        self.sums, sums = _sum_moments(rows, numbers, leaves, self.sums)
        if squares is not None:
            self.squares, squares = _sum_moments(rows, squares, leaves, self.squares)
        emitting = np.arange(len(order)) if rows.emits is None else np.flatnonzero(rows.emits[rows.order])
        values = self._values(statistic, sums, squares, counts, odd, emitting)
        indices = np.full(len(order), -1)
        indices[rows.order[emitting]] = np.arange(len(emitting))
        return values.take(pa.array(indices, mask=indices < 0))

    def adopt(self, past: Rows, count: int, call: AggregateCall | WindowCall) -> None:
        """Initialise the sums from the compacted rows of an unbounded window.

        Earlier versions stored such rows, with the sums of powers (moments) of each partition.
        """
        statistic = _statistic(call)
        nothing = Rows(past.partitions, [past.arguments[0]], summaries=past.summaries)
        prepared = statistic.prepare(nothing)
        self._fit(prepared, int(prepared.counts.max(initial=1)))
        prepared = replace(prepared, exponent=self.exponent)
        numbers = statistic.limbs_of(prepared, self.size)
        self.counts = extend_array(self.counts, count)
        self.counts[past.partitions] = prepared.counts
        self.sums = extend_array(self.sums, count * self.size)
        self.sums.reshape(-1, self.size)[past.partitions] = numbers
        if statistic.degree == 2:
            self.squares = extend_array(self.squares, count * 2 * self.size)
            squares = statistic.squares_of(prepared, numbers)
            self.squares.reshape(-1, 2 * self.size)[past.partitions] = squares
        for name, copies in prepared.odd.items():
            self.odd[name] = extend_array(empty_counts(), count)
            self.odd[name][past.partitions] = copies

    def keep(self, alive: Bools) -> None:
        self.counts = self.counts[alive]
        self.odd = {name: counted[alive] for name, counted in self.odd.items()}
        self.sums = self.sums.reshape(-1, self.size)[alive].reshape(-1)
        if len(self.squares):
            self.squares = self.squares.reshape(-1, 2 * self.size)[alive].reshape(-1)

    def _values(
        self,
        statistic: ColumnMoments,
        sums: limbs.Limbs,
        squares: limbs.Limbs | None,
        counts: Int64s,
        odd: dict[str, Int64s],
        emitting: Int64s,
    ) -> pa.Array:
        """Return the aggregate values after those sorted rows that need a result (`emitting`).

        The sums after row i have index i + 1.
        """
        counts, ends = counts[emitting], emitting + 1
        odd = {name: counted[emitting] for name, counted in odd.items()}
        if statistic.in_limbs and (statistic.name == "sum" or counts.max(initial=0) < MANY):
            windows = Windows(np.zeros(len(ends), np.int64), ends)
            some = {name: counted > 0 for name, counted in odd.items()}
            return statistic.figures(sums, squares, windows, counts, self.exponent, some)
        powers = [sums] if squares is None else [sums, squares]
        totals = [limbs.ints_of(power[ends]) for power in powers]
        return statistic.by_moments(statistic.moments(counts, totals, odd, self.exponent))

    def _odd(self, rows: GroupedRows, prepared: PreparedNumbers, leaves: Bools | None) -> dict[str, Int64s]:
        """Return for each sorted row the running counts of NaNs and infinities in its group, by name."""
        none = np.zeros(len(rows.groups), np.int64)
        found = {}
        for name in {**self.odd, **prepared.odd}:
            self.odd[name] = extend_array(self.odd.get(name, empty_counts()), rows.count)
            found[name] = _running_counts(rows, prepared.odd.get(name, none), leaves, self.odd[name])
        return found

    def _fit(self, prepared: PreparedNumbers, most: int) -> None:
        """Convert the stored sums to more limbs (32-bit digits) if the new numbers need them."""
        self.most = max(self.most, most)
        self.high = max(self.high, prepared.exponent + prepared.bits)
        exponent = min(self.exponent, prepared.exponent // _STEP * _STEP)
        size = limbs.limbs_for(self.high - exponent, self.most)
        if (size, exponent) != (self.size, self.exponent):
            shift = (self.exponent - exponent) // _LIMB_BITS
            self.sums = _refit_limbs(self.sums, self.size, size, shift)
            self.squares = _refit_limbs(self.squares, 2 * self.size, 2 * size, 2 * shift)
            self.size, self.exponent = size, exponent


def _statistic(call: AggregateCall | WindowCall) -> ColumnMoments:
    return ColumnMoments(call.name.lower(), call.arguments[0].type, call.columns[0].type)


def _refit_limbs(flat: NDArray[np.uint32], before: int, size: int, shift: int) -> NDArray[np.uint32]:
    return limbs.widen(flat.reshape(-1, before), size, shift).reshape(-1)


def _running_counts(rows: GroupedRows, counted: Int64s, leaves: Bools | None, kept: Int64s) -> Int64s:
    """Return for each sorted row the running count of its group, and update the stored counts (`kept`)."""
    signed = counted if leaves is None else np.where(leaves, -counted, counted)
    found: Int64s = running_totals(rows.groups, signed, kept[rows.touched])
    rows.keep_last(found, kept)
    return found


def _sum_moments(
    rows: GroupedRows, numbers: limbs.Limbs, leaves: Bools | None, kept: NDArray[np.uint32]
) -> tuple[NDArray[np.uint32], limbs.Limbs]:
    """Add numbers to the stored sums of their groups (`kept`).

    Return the new sums of all groups, and the running sum after each sorted row. The running sums begin with
    a row of zeros.
    """
    size = numbers.shape[1]
    if leaves is not None:
        limbs.negate_where(numbers, leaves)
    kept = extend_array(kept, rows.count * size)
    by_group = kept.reshape(-1, size)
    found = limbs.running_sums(rows.groups, numbers, by_group[rows.touched])
    by_group[rows.touched] = found[1:][last_of_each(rows.groups)]
    return kept, found


_EXACT = 2**53  # doubles represent all integers up to this limit exactly
_LOW_BITS = 32


class RunningAggregate(Protocol):
    """Accumulators of all groups for one aggregate call.

    `counts` has the number of values of each group.
    """

    counts: Int64s

    def run(self, rows: GroupedRows, arguments: Sequence[pa.Array], call: Call) -> pa.Array:
        """Add rows to the accumulators, and return for each row the aggregate of its group after the row."""


class RetractableAggregate(RunningAggregate, Protocol):
    """Running aggregate that supports retracted rows."""

    def keep(self, alive: Bools) -> None:
        """Drop the accumulators of all groups that are not marked in `alive`."""


@stored_as("group.count", version=1)
@dataclass(slots=True)
class RunningCount:
    counts: Int64s = field(default_factory=empty_counts)

    def run(self, rows: GroupedRows, arguments: Sequence[pa.Array], call: Call) -> pa.Array:  # noqa: ARG002
        self.counts = extend_array(self.counts, rows.count)
        return bigints(rows.counted(all_known(rows, arguments), self.counts))

    def keep(self, alive: Bools) -> None:
        self.counts = self.counts[alive]


@stored_as("group.count_distinct", version=1)
@dataclass(slots=True)
class RunningDistinct:
    """Running count of the distinct values of each group.

    `met` has pairs (group number, value number) in sorted arrays. An array is at least twice as long as the
    next array, so that a pair is copied only when the number of pairs has doubled.
    """

    counts: Int64s = field(default_factory=empty_counts)
    values: Keys = field(default_factory=Keys)
    met: list[Int64s] = field(default_factory=list)

    def run(self, rows: GroupedRows, arguments: Sequence[pa.Array], call: Call) -> pa.Array:  # noqa: ARG002
        return self.run_over(rows, arguments, self.number(rows, arguments))

    def number(self, rows: GroupedRows, values: Sequence[pa.Array]) -> Int32s:
        """Return for each row the number that identifies its value among the distinct values.

        Rows that FILTER excludes are numbered too. Aggregate calls that differ only in FILTER get the same
        numbers, and can therefore share one call of this method.
        """
        return self.values.number(distinct_keys(values, len(rows.numbered)), values)

    def run_over(self, rows: GroupedRows, arguments: Sequence[pa.Array], numbered: Int32s) -> pa.Array:
        """Count the distinct values of rows, given the number of each row's value (`numbered`).

        A row is counted only if no argument is NULL.
        """
        chosen = np.flatnonzero(all_known(rows, arguments))
        pairs = (rows.numbered.astype(np.int64) << _LOW_BITS | numbered)[chosen]
        pairs, first = first_rows(pairs)
        new = np.ones(len(pairs), np.bool_)
        for run in self.met:
            indices = np.minimum(np.searchsorted(run, pairs), len(run) - 1)
            new &= run[indices] != pairs
        begins = np.zeros(len(rows.numbered), np.bool_)
        begins[chosen[first[new]]] = True
        self._meet(np.sort(pairs[new]))
        self.counts = extend_array(self.counts, rows.count)
        return bigints(rows.counted(begins, self.counts))

    def _meet(self, pairs: Int64s) -> None:
        if not len(pairs):
            return
        self.met.append(pairs)
        while len(self.met) > 1 and len(self.met[-2]) < 2 * len(self.met[-1]):
            last = self.met.pop()
            self.met[-1] = np.sort(np.concatenate([self.met[-1], last]))


@kernel
def running_sums(groups: Int32s, values: Int64s, before: Int64s) -> Int64s:
    """Return for each row the sum of its group so far, starting from the stored sum of the group in `before`.

    Rows are sorted by group.
    """
    out = np.empty(len(values), np.int64)
    total = 0
    for row in range(len(values)):
        if row == 0 or groups[row] != groups[row - 1]:
            total = before[groups[row]]
        total += values[row]
        out[row] = total
    return out


@stored_as("group.sum", version=1)
@dataclass(slots=True)
class RunningSum:
    """Running sums and means of integers, which are exact.

    A sum is stored as an upper half and a lower half. The lower half has 32 bits and is never negative.
    """

    counts: Int64s = field(default_factory=empty_counts)
    upper: Int64s = field(default_factory=empty_counts)
    lower: Int64s = field(default_factory=empty_counts)

    def run(self, rows: GroupedRows, arguments: Sequence[pa.Array], call: Call) -> pa.Array:
        chosen = all_known(rows, arguments)
        self.counts, self.upper, self.lower = (
            extend_array(kept, rows.count) for kept in (self.counts, self.upper, self.lower)
        )
        counts = rows.counted(chosen, self.counts)
        values = np.where(chosen, whole_numbers(arguments[0]), 0)
        signs = 1 if rows.signs is None else rows.signs
        upper = _running_sum(rows, signs * (values >> _LOW_BITS), self.upper)
        lower = _running_sum(rows, signs * (values & (2**_LOW_BITS - 1)), self.lower)
        upper, lower = upper + (lower >> _LOW_BITS), lower & (2**_LOW_BITS - 1)
        valid = counts > 0
        wide = (upper < -(2**31)) | (upper >= 2**31)
        sums = (upper << _LOW_BITS) | lower
        if call.name.lower() == "sum":
            convert = result_converter(call.columns[0].type)
            for index in np.flatnonzero(wide if rows.emits is None else wide & rows.emits):
                # The sum does not fit into its column, so raise the same error as row-by-row evaluation.
                assert convert is not None
                convert((int(upper[index]) << _LOW_BITS) + int(lower[index]))
            return bigints(sums, None if valid.all() else valid)
        divisors = np.maximum(counts, 1)
        means = sums / divisors
        # Floating-point division is correct only if a double represents the sum exactly.
        # For larger sums, Python integers are divided.
        for index in np.flatnonzero(wide | (sums > _EXACT) | (sums < -_EXACT)):
            means[index] = ((int(upper[index]) << _LOW_BITS) + int(lower[index])) / int(divisors[index])
        return doubles(means, valid)

    def adopt(self, past: Rows, count: int) -> None:
        """Initialise the sums from the compacted rows of an unbounded window.

        Earlier versions stored such rows, with the sums of powers (moments) of each partition.
        """
        self.counts, self.upper, self.lower = (
            extend_array(kept, count) for kept in (self.counts, self.upper, self.lower)
        )
        assert past.summaries is not None, "windows without a beginning keep moments"
        for partition, moments in zip(past.partitions.tolist(), past.summaries.tolist(), strict=True):
            total = int(moments.sums[0])
            self.counts[partition] = moments.count
            self.upper[partition], self.lower[partition] = total >> _LOW_BITS, total & (2**_LOW_BITS - 1)

    def keep(self, alive: Bools) -> None:
        self.counts, self.upper, self.lower = self.counts[alive], self.upper[alive], self.lower[alive]


def _running_sum(rows: GroupedRows, values: Int64s, kept: Int64s) -> Int64s:
    """Return for each row the sum of its group so far, and update the stored sums of groups (`kept`)."""
    sums = running_sums(rows.groups, values[rows.order], kept[rows.touched])
    rows.keep_last(sums, kept)
    return rows.in_rows(sums)


@kernel
def running_extremes(groups: Int32s, values: Int64s, before: Int64s, greatest: bool) -> Int64s:
    """Return for each row the minimum or maximum of its group so far, starting from `before`.

    Rows are sorted by group.
    """
    out = np.empty(len(values), np.int64)
    best = 0
    for row in range(len(values)):
        if row == 0 or groups[row] != groups[row - 1]:
            best = before[groups[row]]
        value = values[row]
        if (greatest and value > best) or (not greatest and value < best):
            best = value
        out[row] = best
    return out


@stored_as("group.extreme", version=1)
@dataclass(slots=True)
class RunningExtreme:
    """Running minimum or maximum of each group.

    The stored value of a group without values is the neutral element.
    """

    counts: Int64s = field(default_factory=empty_counts)
    best: Int64s = field(default_factory=empty_counts)

    def run(self, rows: GroupedRows, arguments: Sequence[pa.Array], call: Call) -> pa.Array:
        greatest = call.name.lower() == "max"
        beyond = -(2**63) if greatest else 2**63 - 1
        chosen = all_known(rows, arguments)
        self.counts, self.best = (
            extend_array(self.counts, rows.count),
            extend_array(self.best, rows.count, beyond),
        )
        counts = rows.counted(chosen, self.counts)
        values = np.where(chosen, whole_numbers(arguments[0]), beyond)
        found = running_extremes(rows.groups, values[rows.order], self.best[rows.touched], greatest)
        rows.keep_last(found, self.best)
        valid, kind = counts > 0, arrow_type(call.columns[0].type)
        width = np.int32 if kind.bit_width == 32 else np.int64
        return fixed_width(rows.in_rows(found).astype(width), None if valid.all() else valid, kind)


def values_counted(call: Call) -> tuple[Expr, ...]:
    """Return the expressions whose distinct values a `count(DISTINCT …)` call counts.

    If the call has FILTER, its argument is a CASE expression. The column inside the CASE is then returned.
    """
    if len(call.arguments) == 1 and isinstance(case := call.arguments[0], Case) and len(case.branches) == 1:
        value = case.branches[0][1]
        # Only a column may be read for all rows. Other expressions may fail for rows that FILTER excludes.
        if case.default == Literal(None, NULL) and isinstance(value, ColumnRef) and value.type == case.type:
            return (value,)
    return call.arguments


def running_aggregate(call: Call) -> RunningAggregate | None:
    """Return empty accumulators for an aggregate call; None if the call needs stored rows."""
    kind = accumulator_of(call)
    return None if kind is None else _ACCUMULATORS[kind]()


_ACCUMULATORS: Mapping[Accumulator, type[RunningAggregate]] = {
    Accumulator.COUNT: RunningCount,
    Accumulator.DISTINCT: RunningDistinct,
    Accumulator.SUM: RunningSum,
    Accumulator.MOMENTS: RunningMoments,
    Accumulator.EXTREME: RunningExtreme,
}


def retractable_aggregate(call: Call) -> RetractableAggregate | None:
    """Return empty accumulators for an aggregate call over a changelog; None if the call needs stored rows.

    Minimum and maximum need stored rows, because after a retraction of the maximum an earlier value becomes
    the maximum.
    """
    accumulator = running_aggregate(call)
    return accumulator if isinstance(accumulator, RunningCount | RunningSum | RunningMoments) else None


def adopt_past(accumulator: RunningAggregate, past: Rows, count: int, call: Call) -> None:
    """Initialise accumulators from the compacted rows that an earlier version stored for an unbounded window.

    The window has `count` partitions.
    """
    if isinstance(accumulator, RunningMoments):
        accumulator.adopt(past, count, call)
    elif isinstance(accumulator, RunningSum):
        accumulator.adopt(past, count)
    else:
        accumulator.run(GroupedRows.of(past.partitions, count), past.arguments, call)
    if isinstance(accumulator, RunningCount):
        # A compacted row replaces several input rows. Its weight is their number.
        chosen = np.flatnonzero(all_known(GroupedRows.of(past.partitions, count), past.arguments))
        accumulator.counts[:] = 0
        np.add.at(accumulator.counts, past.partitions[chosen], weights_of(past)[chosen])
