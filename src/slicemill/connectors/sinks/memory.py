"""`memory:`: results in this process, for notebooks and tests.

For a changelog it holds the current rows, or with `memory:?changelog=true` all changes. `memory:?rows=1000`
keeps the newest 1000 rows.

The rows are lost with the process, so after a restart the sink gets all results that the log still has.
"""

from __future__ import annotations

import threading
from collections import deque

import pyarrow as pa

from slicemill.columns.changes import inserts_of
from slicemill.esl.types.schema import OP, Schema
from slicemill.storage.arrow_schema import as_results, to_arrow, with_system_columns


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
