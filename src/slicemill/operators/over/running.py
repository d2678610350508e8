"""Running aggregates of groups, kept as arrays with an accumulator per group.

Counts, sums and means of integers support retractions. Distinct counts, minima and maxima support only
groups that grow. Rows are sorted by group once for all aggregates:

    group   0   0   1   0      sorted   0   0   0   1       kept before   7   2
    value   1   5   2   1               1   5   1   2       sums          8  13  14   4

Other aggregates keep rows, or compacted rows (`over.past`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa

from slicemill.aggregate.columns import Rows, bigints, doubles, weights_of, whole_numbers
from slicemill.aggregate.definition import declared
from slicemill.columns.keys import Keys, distinct_keys, first_rows
from slicemill.columns.numbered import grown
from slicemill.esl.types.expression import Case, ColumnRef, Expr, Literal
from slicemill.esl.types.schema import NULL
from slicemill.machine_code.kernel import kernel
from slicemill.operators.over.accumulators import Accumulator, Call, accumulator_of
from slicemill.operators.over.grouped_rows import Figures, GroupedRows, Mask, Numbers, all_known, no_figures
from slicemill.operators.over.running_moments import RunningMoments
from slicemill.scalar.vectors import arrow_type, fixed_width
from slicemill.storage.codec import stored_as

_EXACT = 2**53  # doubles represent all integers up to here
_LOW_BITS = 32


class RunningFigure(Protocol):
    """Accumulators of all groups for one call; `counts` has the values of each group so far."""

    counts: Figures

    def run(self, rows: GroupedRows, arguments: Sequence[pa.Array], call: Call) -> pa.Array:
        """Process rows, and return the aggregate of each row's group after the row."""


class RetractableFigure(RunningFigure, Protocol):
    """Running aggregate with support for retracted rows."""

    def keep(self, alive: Mask) -> None:
        """Drop all groups but these."""


@stored_as("group.count", version=1)
@dataclass(slots=True)
class RunningCount:
    counts: Figures = field(default_factory=no_figures)

    def run(self, rows: GroupedRows, arguments: Sequence[pa.Array], call: Call) -> pa.Array:  # noqa: ARG002
        self.counts = grown(self.counts, rows.count)
        return bigints(rows.counted(all_known(rows, arguments), self.counts))

    def keep(self, alive: Mask) -> None:
        self.counts = self.counts[alive]


@stored_as("group.count_distinct", version=1)
@dataclass(slots=True)
class RunningDistinct:
    """Count of distinct values.

    `met` has pairs (group number, value number), in sorted runs. A run is at least twice as long as the
    next, so a pair is copied only when the number of pairs has doubled.
    """

    counts: Figures = field(default_factory=no_figures)
    values: Keys = field(default_factory=Keys)
    met: list[Figures] = field(default_factory=list)

    def run(self, rows: GroupedRows, arguments: Sequence[pa.Array], call: Call) -> pa.Array:  # noqa: ARG002
        return self.run_over(rows, arguments, self.number(rows, arguments))

    def number(self, rows: GroupedRows, values: Sequence[pa.Array]) -> Numbers:
        """Return the number of each row's value, whether the row counts or not.

        Calls that differ only in FILTER get the same numbers, so they can share one call of this method.
        """
        return self.values.number(distinct_keys(values, len(rows.numbered)), values)

    def run_over(self, rows: GroupedRows, arguments: Sequence[pa.Array], numbered: Numbers) -> pa.Array:
        """Like `run` for numbered values.

        A value counts if all arguments are not NULL.
        """
        chosen = np.flatnonzero(all_known(rows, arguments))
        pairs = (rows.numbered.astype(np.int64) << _LOW_BITS | numbered)[chosen]
        pairs, first = first_rows(pairs)
        new = np.ones(len(pairs), np.bool_)
        for run in self.met:
            places = np.minimum(np.searchsorted(run, pairs), len(run) - 1)
            new &= run[places] != pairs
        begins = np.zeros(len(rows.numbered), np.bool_)
        begins[chosen[first[new]]] = True
        self._meet(np.sort(pairs[new]))
        self.counts = grown(self.counts, rows.count)
        return bigints(rows.counted(begins, self.counts))

    def _meet(self, pairs: Figures) -> None:
        if not len(pairs):
            return
        self.met.append(pairs)
        while len(self.met) > 1 and len(self.met[-2]) < 2 * len(self.met[-1]):
            last = self.met.pop()
            self.met[-1] = np.sort(np.concatenate([self.met[-1], last]))


@kernel
def running_sums(groups: Numbers, values: Figures, before: Figures) -> Figures:
    """Return running sums per group, continued from `before`.

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
    """Exact sums of integers.

    A sum is split into its upper half and a lower half of 32 bits that is never negative.
    """

    counts: Figures = field(default_factory=no_figures)
    upper: Figures = field(default_factory=no_figures)
    lower: Figures = field(default_factory=no_figures)

    def run(self, rows: GroupedRows, arguments: Sequence[pa.Array], call: Call) -> pa.Array:
        chosen = all_known(rows, arguments)
        self.counts, self.upper, self.lower = (
            grown(kept, rows.count) for kept in (self.counts, self.upper, self.lower)
        )
        counts = rows.counted(chosen, self.counts)
        values = np.where(chosen, whole_numbers(arguments[0]), 0)
        signs = 1 if rows.signs is None else rows.signs
        upper = _summed(rows, signs * (values >> _LOW_BITS), self.upper)
        lower = _summed(rows, signs * (values & (2**_LOW_BITS - 1)), self.lower)
        upper, lower = upper + (lower >> _LOW_BITS), lower & (2**_LOW_BITS - 1)
        valid = counts > 0
        wide = (upper < -(2**31)) | (upper >= 2**31)
        sums = (upper << _LOW_BITS) | lower
        if call.name.lower() == "sum":
            convert = declared(call.columns[0].type)
            for place in np.flatnonzero(wide if rows.tells is None else wide & rows.tells):
                # The sum does not fit into its column. Raise the same error as row-wise evaluation.
                assert convert is not None
                convert((int(upper[place]) << _LOW_BITS) + int(lower[place]))
            return bigints(sums, None if valid.all() else valid)
        divisors = np.maximum(counts, 1)
        means = sums / divisors
        # Division is exact up to rounding if doubles represent the sum. Otherwise use integers in Python.
        for place in np.flatnonzero(wide | (sums > _EXACT) | (sums < -_EXACT)):
            means[place] = ((int(upper[place]) << _LOW_BITS) + int(lower[place])) / int(divisors[place])
        return doubles(means, valid)

    def adopt(self, past: Rows, count: int) -> None:
        """Take over the moments of partitions."""
        self.counts, self.upper, self.lower = (
            grown(kept, count) for kept in (self.counts, self.upper, self.lower)
        )
        assert past.summaries is not None, "windows without a beginning keep moments"
        for partition, moments in zip(past.partitions.tolist(), past.summaries.tolist(), strict=True):
            total = int(moments.sums[0])
            self.counts[partition] = moments.count
            self.upper[partition], self.lower[partition] = total >> _LOW_BITS, total & (2**_LOW_BITS - 1)

    def keep(self, alive: Mask) -> None:
        self.counts, self.upper, self.lower = self.counts[alive], self.upper[alive], self.lower[alive]


def _summed(rows: GroupedRows, values: Figures, kept: Figures) -> Figures:
    """Return the running sums of rows including earlier runs, and update `kept`."""
    sums = running_sums(rows.groups, values[rows.order], kept[rows.touched])
    rows.keep_last(sums, kept)
    return rows.in_rows(sums)


@kernel
def running_extremes(groups: Numbers, values: Figures, before: Figures, greatest: bool) -> Figures:
    """Return the running minimum or maximum of each group.

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
    """Minimum or maximum of each group.

    Groups without values have the neutral element.
    """

    counts: Figures = field(default_factory=no_figures)
    best: Figures = field(default_factory=no_figures)

    def run(self, rows: GroupedRows, arguments: Sequence[pa.Array], call: Call) -> pa.Array:
        greatest = call.name.lower() == "max"
        beyond = -(2**63) if greatest else 2**63 - 1
        chosen = all_known(rows, arguments)
        self.counts, self.best = grown(self.counts, rows.count), grown(self.best, rows.count, beyond)
        counts = rows.counted(chosen, self.counts)
        values = np.where(chosen, whole_numbers(arguments[0]), beyond)
        found = running_extremes(rows.groups, values[rows.order], self.best[rows.touched], greatest)
        rows.keep_last(found, self.best)
        valid, kind = counts > 0, arrow_type(call.columns[0].type)
        width = np.int32 if kind.bit_width == 32 else np.int64
        return fixed_width(rows.in_rows(found).astype(width), None if valid.all() else valid, kind)


def values_counted(call: Call) -> tuple[Expr, ...]:
    """Return the columns whose values `count(DISTINCT …)` counts.

    With FILTER the argument is a CASE, and its value is counted.
    """
    if len(call.arguments) == 1 and isinstance(case := call.arguments[0], Case) and len(case.branches) == 1:
        value = case.branches[0][1]
        # Other expressions may fail where the condition is false.
        if case.default == Literal(None, NULL) and isinstance(value, ColumnRef) and value.type == case.type:
            return (value,)
    return call.arguments


def running_figure(call: Call) -> RunningFigure | None:
    """Return the running aggregate for a call, or None if there is none."""
    kind = accumulator_of(call)
    return None if kind is None else _FIGURES[kind]()


_FIGURES: Mapping[Accumulator, type[RunningFigure]] = {
    Accumulator.COUNT: RunningCount,
    Accumulator.DISTINCT: RunningDistinct,
    Accumulator.SUM: RunningSum,
    Accumulator.MOMENTS: RunningMoments,
    Accumulator.EXTREME: RunningExtreme,
}


def retractable_figure(call: Call) -> RetractableFigure | None:
    """Return the running aggregate for a call over a changelog, or None.

    Extremes are excluded: after a retraction of the maximum, a smaller value becomes the maximum.
    """
    figure = running_figure(call)
    return figure if isinstance(figure, RunningCount | RunningSum | RunningMoments) else None


def adopt_past(figure: RunningFigure, past: Rows, count: int, call: Call) -> None:
    """Initialise an accumulator from the state of an unbounded window with `count` partitions."""
    if isinstance(figure, RunningMoments):
        figure.adopt(past, count, call)
    elif isinstance(figure, RunningSum):
        figure.adopt(past, count)
    else:
        figure.run(GroupedRows.of(past.partitions, count), past.arguments, call)
    if isinstance(figure, RunningCount):
        # A kept row may stand for several rows.
        chosen = np.flatnonzero(all_known(GroupedRows.of(past.partitions, count), past.arguments))
        figure.counts[:] = 0
        np.add.at(figure.counts, past.partitions[chosen], weights_of(past)[chosen])
