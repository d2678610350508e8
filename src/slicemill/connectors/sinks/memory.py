"""`memory:`: results in this process, for notebooks and tests.

For a changelog it holds the current rows, or with `memory:?changelog=true` all changes.
`memory:?rows=1000` keeps the newest 1000 rows.

The rows are lost with the process, so after a restart the sink gets all results that the log still has.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from slicemill.columns.arrow_schema import as_results, to_arrow, with_system_columns
from slicemill.columns.changelog import inserts_of
from slicemill.columns.keys import Keys, distinct_keys
from slicemill.connectors.sinks.sink import SinkError
from slicemill.types import OP, OPS, Schema


class MemorySink:
    per_epoch = False

    def __init__(self, schema: Schema, keep_rows: int | None = None) -> None:
        self._empty = as_results(with_system_columns(to_arrow(schema)).empty_table())
        self._keep_rows = keep_rows
        self._tables: deque[pa.Table] = deque()
        self._rows = 0
        self._last = -1
        self._lock = threading.Lock()

    def resume(self, owner: str, stored: int) -> int:
        del owner, stored
        return self._last

    def deliver(self, first: int, last: int, table: pa.Table) -> None:
        del first
        with self._lock:
            self._tables.append(table)
            self._rows += table.num_rows
            self._last = last
            while self._keep_rows is not None and self._rows - self._tables[0].num_rows >= self._keep_rows:
                self._rows -= self._tables.popleft().num_rows

    def close(self) -> None:
        """The rows are kept for later access."""

    def to_arrow(self) -> pa.Table:
        """Return the kept rows, with `_ts` (UTC) first."""
        with self._lock:
            table = pa.concat_tables(self._tables) if self._tables else self._empty
        extra = 0 if self._keep_rows is None else max(0, table.num_rows - self._keep_rows)
        return table.slice(extra)


class MemoryTable:
    """Current rows of a changelog."""

    per_epoch = False

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._changes = as_results(with_system_columns(to_arrow(schema)).empty_table())
        self._last = -1
        self._lock = threading.Lock()

    def resume(self, owner: str, stored: int) -> int:
        del owner, stored
        return self._last

    def deliver(self, first: int, last: int, table: pa.Table) -> None:
        del first
        with self._lock:
            self._changes = inserts_of(pa.concat_tables([self._changes, table]), self._schema)
            self._last = last

    def replace(self, last: int, table: pa.Table) -> None:
        with self._lock:
            self._changes, self._last = table, last

    def close(self) -> None:
        """The rows are kept for later access."""

    def to_arrow(self) -> pa.Table:
        """Return the current rows, with `_ts` (UTC) of their last change first."""
        with self._lock:
            return self._changes.drop_columns([OP])


# Python function as a sink: `receive(epoch, table)`, at least once, in order.
#
# It is called for every epoch with rows. An epoch's number is a permanent id of its rows. So a function
# that remembers the last finished number can skip repeated epochs after a crash.


Receive = Callable[[int, pa.Table], object]


@dataclass(slots=True)
class CallableSink:
    receive: Receive
    per_epoch: bool = True

    def resume(self, owner: str, stored: int) -> int:
        del owner
        return stored

    def deliver(self, first: int, last: int, table: pa.Table) -> None:
        del first
        self.receive(last, table)

    def close(self) -> None:
        """Do nothing, as nothing is open between deliveries."""


# Upsert sink: a Python function that maintains a table, once per epoch.
#
#     def merge(upserts: Upserts) -> None:
#         with database:                                    one transaction
#             for row in upserts.rows.to_pylist(): …        `_op` is upsert or delete
#             database.execute("UPDATE place SET epoch = ?", [upserts.epoch])
#
#     mill.sinks.add("popular", UpsertSink(merge, mill.queries["popular"].schema,
#     position=epoch_in_database))
#
# It is like foreachBatch of Spark, with epochs as batches. A function without a `position` may get the last
# epoch again after a crash, with the same number and rows. A function that stores the number with the rows,
# and returns it as `position`, gets every epoch once.


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
