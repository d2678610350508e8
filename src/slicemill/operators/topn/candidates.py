"""Pre-filter of top-n: new rows that can be within the limit on arrival."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.columns.intervals import by_partition
from slicemill.columns.keys import distinct_keys
from slicemill.columns.ranking import order_codes, ordered_by
from slicemill.columns.rows import timed_rows, to_table
from slicemill.esl.types.schema import Schema
from slicemill.machine_code.kernel import kernel
from slicemill.operators.in_turn import Due
from slicemill.operators.partitioned import Columns
from slicemill.operators.row_step import RowState, RowStep
from slicemill.operators.topn.rows import TopRows
from slicemill.operators.topn.spec import TopN
from slicemill.rows import Timed

Places = NDArray[np.int64]


@kernel
def among_first(partitions: NDArray[np.int32], places: Places, limit: int, differ: bool) -> NDArray[np.bool_]:
    """Mark rows whose position is among the `limit` lowest so far.

    Rows are ordered by partition and arrival. With `differ`, equal positions count once.
    """
    lowest = np.empty(limit, np.int64)
    out = np.zeros(len(places), np.bool_)
    count = 0
    for row in range(len(places)):
        if row == 0 or partitions[row] != partitions[row - 1]:
            count = 0
        place = places[row]
        if count == limit and place > lowest[limit - 1]:
            continue
        out[row] = True
        at = count
        while at > 0 and lowest[at - 1] > place:
            at -= 1
        if differ and at > 0 and lowest[at - 1] == place:
            continue
        if count < limit:
            count += 1
        for moved in range(count - 1, at, -1):
            lowest[moved] = lowest[moved - 1]
        if at < limit:
            lowest[at] = place
    return out


class CandidatesStep:
    """Runs the row operator of top-n on candidate rows only."""

    def __init__(self, operator: TopN, rows: TopRows, step: RowStep, schema: Schema) -> None:
        self._operator = operator
        self._rows = rows
        self._step = step
        self._schema = schema
        self._columns = Columns(
            [operator.by.partition_by, [expr for expr, _ in operator.by.order_by]], schema
        )

    @property
    def state(self) -> RowState:
        return self._step.state

    def bytes_kept(self) -> int:
        return self._step.bytes_kept()

    def due(self) -> Due | None:
        return self._step.due()

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        return self._step.run([self._candidates(tables[0])], complete)

    def _candidates(self, table: pa.Table) -> pa.Table:
        if not table.num_rows:
            return table
        by = self._operator.by
        new = table.select(self._schema.names)
        firsts = distinct_keys(self._columns.of(new)[0], new.num_rows).rows
        kept = [
            Timed(0, row) for row in self._rows.kept(timed_rows(table.take(pa.array(firsts)), self._schema))
        ]
        known = to_table(kept, self._schema, [0] * len(kept)).select(self._schema.names)
        rows = pa.concat_tables([known, new.cast(known.schema)]).combine_chunks()
        keys, columns = self._columns.of(rows)
        codes = [order_codes(column, falls) for column, (_, falls) in zip(columns, by.order_by, strict=True)]
        arrival = np.arange(len(rows))
        order = ordered_by(codes, -arrival if by.latest_first else arrival)
        places = np.empty(len(rows), np.int64)
        places[order] = arrival
        if by.function != "row_number":
            # Rows that are equal in the order have the position of the first one.
            other = np.zeros(len(rows), np.bool_)
            for code in codes:
                other[1:] |= code[order][1:] != code[order][:-1]
            places[order] = np.cumsum(other)
        found = distinct_keys(keys, len(rows))
        sorted_rows, partitions, _ = by_partition(found.codes.astype(np.int32), max(len(found.values), 1))
        chosen = np.zeros(len(rows), np.bool_)
        chosen[sorted_rows] = among_first(
            partitions, places[sorted_rows], self._operator.limit, by.function == "dense_rank"
        )
        return table.filter(pa.array(chosen[len(kept) :]))
