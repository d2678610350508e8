"""Running sums, means, variances and deviations of groups: exact, in limbs (`aggregate.exact.limbs`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.aggregate.columns import Rows, Windows
from slicemill.aggregate.exact import limbs
from slicemill.aggregate.moments import MANY, ColumnMoments, Prepared
from slicemill.columns.intervals import last_of_each, running
from slicemill.columns.numbered import grown
from slicemill.esl.types.query import WindowCall
from slicemill.esl.types.relation import AggregateCall
from slicemill.operators.over.grouped_rows import Figures, GroupedRows, Mask, no_figures
from slicemill.storage.codec import stored_as

_LIMB_BITS = 32
_STEP = 64  # Exponents are multiples of this, so that a new value seldom needs a lower exponent.


def _no_limbs() -> NDArray[np.uint32]:
    return np.zeros(0, np.uint32)


@stored_as("group.moments", version=1)
@dataclass(slots=True)
class RunningMoments:
    """Exact sums of numbers per group, and of squares for variances.

    `sums` has `size` limbs for each group, and `squares` twice as many. The unit is 2**`exponent` for
    doubles and the last digit for decimals. `odd` counts NaNs and infinities, by name. All numbers are
    below 2**`high`, and no group has more than `most` numbers.
    """

    counts: Figures = field(default_factory=no_figures)
    sums: NDArray[np.uint32] = field(default_factory=_no_limbs)
    squares: NDArray[np.uint32] = field(default_factory=_no_limbs)
    odd: dict[str, Figures] = field(default_factory=dict)
    size: int = limbs.WHOLE
    exponent: int = 0
    high: int = 0
    most: int = 1

    def run(
        self, rows: GroupedRows, arguments: Sequence[pa.Array], call: AggregateCall | WindowCall
    ) -> pa.Array:
        statistic = _statistic(call)
        order = pa.array(rows.order)
        prepared = statistic.prepared(Rows(rows.groups, [arguments[0].take(order)]))
        leaves = None if rows.signs is None else rows.signs[rows.order] < 0
        self.counts = grown(self.counts, rows.count)
        counts = _counted(rows, prepared.counts, leaves, self.counts)
        odd = self._odd(rows, prepared, leaves)
        self._fit(prepared, int(counts.max(initial=1)))
        prepared = replace(prepared, exponent=self.exponent)
        numbers = statistic.limbs_of(prepared, self.size)
        squares = statistic.squares_of(prepared, numbers) if statistic.degree == 2 else None
        self.sums, sums = _summed(rows, numbers, leaves, self.sums)
        if squares is not None:
            self.squares, squares = _summed(rows, squares, leaves, self.squares)
        told = np.arange(len(order)) if rows.tells is None else np.flatnonzero(rows.tells[rows.order])
        values = self._values(statistic, sums, squares, counts, odd, told)
        places = np.full(len(order), -1)
        places[rows.order[told]] = np.arange(len(told))
        return values.take(pa.array(places, mask=places < 0))

    def adopt(self, past: Rows, count: int, call: AggregateCall | WindowCall) -> None:
        """Take over the moments of partitions from the state of an unbounded window."""
        statistic = _statistic(call)
        nothing = Rows(past.partitions, [past.arguments[0]], summaries=past.summaries)
        prepared = statistic.prepared(nothing)
        self._fit(prepared, int(prepared.counts.max(initial=1)))
        prepared = replace(prepared, exponent=self.exponent)
        numbers = statistic.limbs_of(prepared, self.size)
        self.counts = grown(self.counts, count)
        self.counts[past.partitions] = prepared.counts
        self.sums = grown(self.sums, count * self.size)
        self.sums.reshape(-1, self.size)[past.partitions] = numbers
        if statistic.degree == 2:
            self.squares = grown(self.squares, count * 2 * self.size)
            squares = statistic.squares_of(prepared, numbers)
            self.squares.reshape(-1, 2 * self.size)[past.partitions] = squares
        for name, copies in prepared.odd.items():
            self.odd[name] = grown(no_figures(), count)
            self.odd[name][past.partitions] = copies

    def keep(self, alive: Mask) -> None:
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
        counts: Figures,
        odd: dict[str, Figures],
        told: Figures,
    ) -> pa.Array:
        """Return the aggregates after some of the sorted rows.

        The sums of row i have index i + 1.
        """
        counts, ends = counts[told], told + 1
        odd = {name: counted[told] for name, counted in odd.items()}
        if statistic.in_limbs and (statistic.name == "sum" or counts.max(initial=0) < MANY):
            windows = Windows(np.zeros(len(ends), np.int64), ends)
            some = {name: counted > 0 for name, counted in odd.items()}
            return statistic.figures(sums, squares, windows, counts, self.exponent, some)
        powers = [sums] if squares is None else [sums, squares]
        totals = [limbs.ints_of(power[ends]) for power in powers]
        return statistic.by_moments(statistic.moments(counts, totals, odd, self.exponent))

    def _odd(self, rows: GroupedRows, prepared: Prepared, leaves: Mask | None) -> dict[str, Figures]:
        """Return running counts of NaNs and infinities in each row's group."""
        none = np.zeros(len(rows.groups), np.int64)
        found = {}
        for name in {**self.odd, **prepared.odd}:
            self.odd[name] = grown(self.odd.get(name, no_figures()), rows.count)
            found[name] = _counted(rows, prepared.odd.get(name, none), leaves, self.odd[name])
        return found

    def _fit(self, prepared: Prepared, most: int) -> None:
        """Widen the sums as far as the new numbers require."""
        self.most = max(self.most, most)
        self.high = max(self.high, prepared.exponent + prepared.bits)
        exponent = min(self.exponent, prepared.exponent // _STEP * _STEP)
        size = limbs.limbs_for(self.high - exponent, self.most)
        if (size, exponent) != (self.size, self.exponent):
            shift = (self.exponent - exponent) // _LIMB_BITS
            self.sums = _refitted(self.sums, self.size, size, shift)
            self.squares = _refitted(self.squares, 2 * self.size, 2 * size, 2 * shift)
            self.size, self.exponent = size, exponent


def _statistic(call: AggregateCall | WindowCall) -> ColumnMoments:
    return ColumnMoments(call.name.lower(), call.arguments[0].type, call.columns[0].type)


def _refitted(flat: NDArray[np.uint32], before: int, size: int, shift: int) -> NDArray[np.uint32]:
    return limbs.widened(flat.reshape(-1, before), size, shift).reshape(-1)


def _counted(rows: GroupedRows, counted: Figures, leaves: Mask | None, kept: Figures) -> Figures:
    """Return the counts of groups up to each sorted row, and update `kept`."""
    signed = counted if leaves is None else np.where(leaves, -counted, counted)
    found: Figures = running(rows.groups, signed, kept[rows.touched])
    rows.keep_last(found, kept)
    return found


def _summed(
    rows: GroupedRows, numbers: limbs.Limbs, leaves: Mask | None, kept: NDArray[np.uint32]
) -> tuple[NDArray[np.uint32], limbs.Limbs]:
    """Return the sums to keep, and running sums after a zero row."""
    size = numbers.shape[1]
    if leaves is not None:
        limbs.negate_where(numbers, leaves)
    kept = grown(kept, rows.count * size)
    by_group = kept.reshape(-1, size)
    found = limbs.running_sums(rows.groups, numbers, by_group[rows.touched])
    by_group[rows.touched] = found[1:][last_of_each(rows.groups)]
    return kept, found
