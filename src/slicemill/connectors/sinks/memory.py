"""`memory:`: results in the memory of this process, for notebooks and tests.

For a changelog, the sink stores the current rows, or all changes with `memory:?changelog=true`. With
`memory:?rows=1000`, the sink stores the newest 1000 rows.

The rows are lost when the process ends. So after a restart, the sink receives all results that are still in
the log.
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
        """Do nothing, because the rows remain available."""

    def to_arrow(self) -> pa.Table:
        """Return the stored rows, with `_ts` (UTC) as first column."""
        with self._lock:
            table = pa.concat_tables(self._tables) if self._tables else self._empty
        extra = 0 if self._keep_rows is None else max(0, table.num_rows - self._keep_rows)
        return table.slice(extra)


class MemoryTable:
    """Sink with the current rows of a changelog, in memory."""

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
        """Do nothing, because the rows remain available."""

    def to_arrow(self) -> pa.Table:
        """Return the current rows, in which `_ts` (UTC) is the time of the last change."""
        with self._lock:
            return self._changes.drop_columns([OP])


# Python function as a sink: `receive(epoch, table)`, called at least once for each epoch, in order
#
# The function is called for each epoch (commit) with rows. The number of the epoch is a permanent id of its
# rows. So a function that stores the last number can skip epochs that are repeated after a crash.


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
        """Do nothing, because no resource is open between deliveries."""


# Upsert sink: a Python function that maintains a table, called once for each epoch
#
#     def merge(upserts: Upserts) -> None:
#         with database:                                    one transaction
#             for row in upserts.rows.to_pylist(): …        `_op` is upsert or delete
#             database.execute("UPDATE place SET epoch = ?", [upserts.epoch])
#
#     mill.sinks.add("popular", UpsertSink(merge, mill.queries["popular"].schema, position=epoch_in_database))
#
# This corresponds to foreachBatch of Spark, with an epoch as batch. Without `position`, the function may
# receive the last epoch again after a crash, with the same number and rows. If the function stores the number
# together with the rows, and `position` returns the number, the function receives each epoch exactly once.


UPSERT, DELETE = "upsert", "delete"


@dataclass(frozen=True, slots=True)
class Upserts:
    """Changes of an epoch (commit), with one row for each key.

    The columns are `_ts`, `_op` and the columns of the query. If `whole` is set, the rows are the complete
    table, and all other rows must be deleted. This happens if earlier changes have been freed.
    """

    epoch: int
    key: tuple[str, ...]
    rows: pa.Table
    whole: bool = False


def net_upserts(table: pa.Table, schema: Schema) -> pa.Table:
    """Reduce the changes of an epoch to one upsert or delete for each key."""
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
    """Sink that calls a Python function with the upserts of each epoch.

    If the function stores the numbers of epochs, `position` returns the last stored number, or None.
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
        """Do nothing, because no resource is open between deliveries."""
