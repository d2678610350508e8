"""Top-n with several rows per partition and distinct ranks: `ROW_NUMBER() <= n`.

A new row within the limit takes its place, and the rows after it move by one. The row beyond the limit is
dropped:

    places      1    2    3                   changes for the row 7, if places are shown
    before      9    5    3                   update of place 2: 5 becomes 7
    7 arrives   9    7    5                   update of place 3: 3 becomes 5
                                              if not: 3 is deleted, 7 is inserted
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.columns.changes import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE, with_ops, without_unchanged
from slicemill.columns.intervals import by_partition, last_of_each
from slicemill.columns.keys import Keys
from slicemill.columns.numbered import GrowingRows, grown, mostly_gone, touched
from slicemill.columns.order import Numbering
from slicemill.columns.ranking import order_codes, ordered_by
from slicemill.machine_code.kernel import kernel
from slicemill.operators.context import StepContext
from slicemill.operators.partitioned import Columns, Partitioned
from slicemill.operators.topn.spec import TopN
from slicemill.storage.arrow_schema import ARRIVAL, SEQ, TS, to_arrow, with_system_columns
from slicemill.storage.codec import stored_as

_SYSTEM = (TS, SEQ, ARRIVAL)

Numbers = NDArray[np.int32]
Places = NDArray[np.int64]
Mask = NDArray[np.bool_]


def _no_places() -> Places:
    return np.zeros(0, np.int64)


@kernel
def places_taken(partitions: Numbers, ranks: Places, limit: int) -> tuple[Places, Places]:
    """Return the place of each row on arrival, and the rows placed before.

    Places start at 0; -1 for rows beyond the limit. Rows are ordered by partition, then by arrival.
    """
    lowest = np.empty(limit, np.int64)
    taken, counts = np.full(len(ranks), -1, np.int64), np.zeros(len(ranks), np.int64)
    count = 0
    for row in range(len(ranks)):
        if row == 0 or partitions[row] != partitions[row - 1]:
            count = 0
        rank = ranks[row]
        counts[row] = count
        if count < limit:
            count += 1
        elif rank > lowest[limit - 1]:
            continue
        at = count - 1
        while at > 0 and lowest[at - 1] > rank:
            lowest[at] = lowest[at - 1]
            at -= 1
        lowest[at] = rank
        taken[row] = at
    return taken, counts


@kernel
def tell_changes(
    partitions: Numbers, taken: Places, told: Places, limit: int, shown: bool
) -> tuple[Places, Places, Places, Places, Places]:
    """Return the changes: causing row, row before, row after, and place.

    Rows before and after are -1 if there is none. `told` is the number of changes of each row. The last
    result are the rows that stay within the limit.
    """
    total = told.sum()
    cause, place = np.empty(total, np.int64), np.zeros(total, np.int64)
    before, after = np.full(total, -1, np.int64), np.full(total, -1, np.int64)
    stay = np.empty(len(taken), np.int64)
    first = np.empty(limit, np.int64)
    count, made, stays = 0, 0, 0
    for row in range(len(taken)):
        if row == 0 or partitions[row] != partitions[row - 1]:
            stay[stays : stays + count] = first[:count]
            stays += count
            count = 0
        at = taken[row]
        if at < 0:
            continue
        full = count == limit
        if not full:
            first[count] = -1
            count += 1
        if told[row]:
            cause[made : made + told[row]] = row
            if shown:
                for moved in range(at, count):
                    before[made] = first[moved]
                    after[made] = row if moved == at else first[moved - 1]
                    place[made] = moved
                    made += 1
            else:
                if full:
                    before[made] = first[limit - 1]
                    made += 1
                after[made] = row
                made += 1
        for moved in range(count - 1, at, -1):
            first[moved] = first[moved - 1]
        first[at] = row
    stay[stays : stays + count] = first[:count]
    return cause, before, after, place, stay[: stays + count]


@kernel
def chained(heads: Places, following: Places) -> tuple[Places, Numbers]:
    """Return the positions of linked chains, and the chain of each position.

    Each chain starts at its head; -1 ends a chain.
    """
    count = 0
    for head in heads:
        at = head
        while at >= 0:
            count += 1
            at = following[at]
    places, chains = np.empty(count, np.int64), np.empty(count, np.int32)
    count = 0
    for chain in range(len(heads)):
        at = heads[chain]
        while at >= 0:
            places[count], chains[count] = at, chain
            count += 1
            at = following[at]
    return places, chains


@stored_as("top.several", version=2, upgrade={1: lambda plain: _chained_by_partition(**plain)})
@dataclass(slots=True)
class SeveralRowsState:
    """Top rows by partition, as linked lists in rank order.

    `heads` has the first row of each partition, `following` the next row of each row; -1 for none.

    added   a1 b1 a2 a3       heads   a  b       following   a1 b1 a2 a3       a: a3, a1
                                      3  1                   -1 -1 -1  0       b: b1
    """

    keys: Keys = field(default_factory=Keys)
    added: GrowingRows = field(default_factory=GrowingRows)
    heads: Places = field(default_factory=_no_places)
    following: Places = field(default_factory=_no_places)
    used: int = 0

    def chains(self, numbers: Places) -> tuple[Places, Numbers]:
        """Return the top rows of some partitions, and the index of their partition."""
        self.heads = grown(self.heads, len(self.keys) or 1, -1)
        return chained(self.heads[numbers], self.following)

    def keep(self, numbers: Places, places: Places, chains: Numbers) -> None:
        """Replace the top rows of some partitions; each partition has some."""
        self.following = grown(self.following, self.added.rows, -1)
        last = last_of_each(chains)
        self.following[places] = np.where(last, -1, np.roll(places, -1))
        self.heads[numbers] = places[np.roll(last, 1)]

    def tidy(self) -> None:
        """Delete rows that are no longer within the limit."""
        if not mostly_gone(self.added.rows, self.used):
            return
        stay = np.sort(chained(self.heads, self.following)[0])
        self.added = self.added.only(stay)
        self.following = _moved(self.following[stay], stay)
        self.heads = _moved(self.heads, stay)


def _moved(places: Places, stay: Places) -> Places:
    """Return the new positions of rows after only `stay` is kept."""
    return np.where(places < 0, -1, np.searchsorted(stay, places))


def _chained_by_partition(keys: Keys, rows: pa.Table | None, of: Numbers) -> dict[str, object]:
    """Upgrade version 1, which had all rows in one table, sorted by partition."""
    found = SeveralRowsState(keys)
    if rows is not None and rows.num_rows:
        order = np.argsort(of, kind="stable")
        found.added.add(rows)
        found.heads = grown(found.heads, len(keys) or 1, -1)
        found.keep(np.unique(of).astype(np.int64), order, of[order])
        found.used = len(order)
    return {name: getattr(found, name) for name in SeveralRowsState.__slots__}


class SeveralRowsStep:
    """Execution step for insert-only input."""

    def __init__(self, operator: TopN, context: StepContext) -> None:
        (schema,) = context.schemas
        self.state = context.state if isinstance(context.state, SeveralRowsState) else SeveralRowsState()
        self._groups = Partitioned(operator.by.partition_by, schema)
        self._order = Columns([[expr for expr, _ in operator.by.order_by]], schema)
        self._falls = [falls for _, falls in operator.by.order_by]
        self._latest_first = operator.by.latest_first
        self._limit, self._shown = operator.limit, operator.shown
        self._names = list(schema.names)
        self._schema = with_system_columns(to_arrow(context.node.schema))
        self._numbering = Numbering(context.seq_bits, fans=True)

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        new, state = tables[0], self.state
        if not new.num_rows:
            return self._schema.empty_table(), complete[0]
        numbered = self._groups.numbers(new, state.keys)
        # Drop field metadata such as nullability, which may differ in later tables.
        fresh = pa.table([new.column(name) for name in self._names], names=self._names)
        distinct, local = touched(numbered)
        places, chains = state.chains(distinct)
        rows, old = state.added.behind(places, fresh).combine_chunks(), len(places)
        of = np.concatenate([chains, local])
        order, partitions, _ = by_partition(of, len(distinct))
        ranks = self._ranks(rows, old)[order]
        taken, counts = places_taken(partitions, ranks, self._limit)
        full = counts == self._limit
        told = np.where(full, counts - taken, counts + 1 - taken) if self._shown is not None else 1 + full
        told = np.where((taken >= 0) & (order >= old), told, 0).astype(np.int64)
        cause, before, after, place, stay = tell_changes(
            partitions, taken, told, self._limit, self._shown is not None
        )
        stays = order[stay]
        comes = stays[stays >= old]
        lies = np.empty(rows.num_rows, np.int64)
        lies[:old], lies[comes] = places, state.added.rows + np.arange(len(comes))
        state.added.add(rows.take(pa.array(comes)))
        state.keep(distinct, lies[stays], of[stays])
        state.used += len(stays) - old
        state.tidy()
        arranged = np.argsort(order[cause], kind="stable")
        cause, place = order[cause][arranged] - old, place[arranged]
        return self._told(new, rows, order, cause, before[arranged], after[arranged], place), complete[0]

    def _ranks(self, rows: pa.Table, old: int) -> Places:
        """Return the rank of each row; stored rows precede equal new rows."""
        columns = self._order.of(rows)[0]
        codes = [order_codes(column, falls) for column, falls in zip(columns, self._falls, strict=True)]
        arrival = np.arange(rows.num_rows)
        if self._latest_first:
            arrival = np.concatenate([arrival[:old], old - arrival[old:] - 1])
        ranks = np.empty(rows.num_rows, np.int64)
        ranks[ordered_by(codes, arrival)] = np.arange(rows.num_rows)
        return ranks

    def _told(
        self,
        new: pa.Table,
        rows: pa.Table,
        order: Places,
        cause: Places,
        before: Places,
        after: Places,
        place: Places,
    ) -> pa.Table:
        """Return the changes as rows, with both halves of updates."""
        was, is_ = before >= 0, after >= 0
        chosen = np.stack([was, is_], axis=1).reshape(-1)
        ops = np.stack([np.where(is_, UPDATE_BEFORE, DELETE), np.where(was, UPDATE_AFTER, INSERT)], axis=1)
        told = order[np.stack([before, after], axis=1).reshape(-1)[chosen]]
        causes = np.repeat(cause, 2)[chosen]
        system = new.select(list(_SYSTEM)).take(pa.array(causes))
        columns = [*system.columns, *rows.take(pa.array(told)).columns]
        made = pa.table(columns, names=[*_SYSTEM, *self._names])
        made = with_ops(made, ops.reshape(-1)[chosen].astype(np.int8))
        if self._shown is not None:
            made = made.append_column(self._shown, pa.array(np.repeat(place, 2)[chosen] + 1))
            made = without_unchanged(made, self._names)
        return self._numbering.applied(made.cast(self._schema))

    def due(self) -> int | None:
        return None
