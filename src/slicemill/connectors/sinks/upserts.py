"""Upsert sink: a Python function that maintains a table, once per epoch.

    def merge(upserts: Upserts) -> None:
        with database:                                    one transaction
            for row in upserts.rows.to_pylist(): …        `_op` is upsert or delete
            database.execute("UPDATE place SET epoch = ?", [upserts.epoch])

    mill.sinks.add("popular", UpsertSink(merge, mill.queries["popular"].schema, position=epoch_in_database))

It is like foreachBatch of Spark, with epochs as batches. A function without a `position` may get the last
epoch again after a crash, with the same number and rows. A function that stores the number with the rows, and
returns it as `position`, gets every epoch once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from slicemill.columns.keys import Keys, distinct_keys
from slicemill.connectors.sinks.sink import SinkError
from slicemill.esl.types.schema import OP, OPS, Schema

UPSERT, DELETE = "upsert", "delete"


@dataclass(frozen=True, slots=True)
class Upserts:
    """Changes of an epoch, one row per key.

    The columns are `_ts`, `_op` and the query's columns. With `whole`, the rows are the complete table: all
    other rows must be deleted, because earlier changes were freed.
    """

    epoch: int
    key: tuple[str, ...]
    rows: pa.Table
    whole: bool = False


def net_upserts(table: pa.Table, schema: Schema) -> pa.Table:
    """Reduce changes to one upsert or delete per key."""
    assert schema.key is not None, "rows are found by their key"
    columns = [table.column(name) for name in schema.key]
    numbered = Keys().number(distinct_keys(columns, table.num_rows), columns)
    last = np.full(int(numbered.max(initial=-1)) + 1, -1, np.int64)
    last[numbered] = np.arange(len(numbered))
    rows = table.take(pa.array(np.sort(last)))
    adds = (OPS[0], OPS[2])
    words = [UPSERT if op in adds else DELETE for op in rows.column(OP).to_pylist()]
    place = rows.schema.get_field_index(OP)
    return rows.set_column(place, pa.field(OP, pa.string()), pa.array(words, pa.string()))


class UpsertSink:
    """Sink for a function that applies upserts.

    `position` returns the last epoch in the table, if the function stores it there; None without any.
    """

    per_epoch = True

    def __init__(
        self,
        receive: Callable[[Upserts], object],
        schema: Schema,
        position: Callable[[], int | None] | None = None,
    ) -> None:
        if not schema.changelog or schema.key is None:
            raise SinkError(
                "upserts are of results that change, found by a key: select the groups, or the rank; "
                "of other results a function gets the rows, see docs/sinks.md"
            )
        self._receive = receive
        self._schema = schema
        self._key = schema.key
        self._position = position

    def resume(self, owner: str, stored: int) -> int:
        del owner
        if self._position is None:
            return stored
        found = self._position()
        return -1 if found is None else found

    def deliver(self, first: int, last: int, table: pa.Table) -> None:
        del first
        self._receive(Upserts(last, self._key, net_upserts(table, self._schema)))

    def replace(self, last: int, table: pa.Table) -> None:
        self._receive(Upserts(last, self._key, net_upserts(table, self._schema), whole=True))

    def close(self) -> None:
        """Do nothing, as nothing is open between deliveries."""
