"""Protocol between the server and a process that executes ad hoc queries.

    server                                  process
    AdhocQuery(sql, …)           ───►
                               ◄───         relation bid?
    columns, or not found      ───►
                               ◄───         spans, epochs or rows of bid?
    …                          ───►
                               ◄───         the first rows; batches; the end       (or an error)

The server pickles its messages. A process sends JSON or Arrow, so the server never unpickles data of a
process that runs SQL of clients. The rows of a table or view are passed as a memory file that the process
maps. The process reads the rows of a log from its segments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from slicemill.storage.log import LogOutline

# Kinds of messages from a process: one byte before the content
READY, NAMED, SPANS, EPOCHS, ROWS = b"y", b"n", b"s", b"e", b"r"
FIRST, WHOLE, BATCH, END, FAILED, SYSTEM = b"f", b"w", b"b", b"z", b"x", b"c"


@dataclass(frozen=True, slots=True)
class AdhocQuery:
    """Request to a process to execute an ad hoc query."""

    sql: str
    parameters: Sequence[object]


@dataclass(frozen=True, slots=True)
class SystemCatalogQuery:
    """Query on PostgreSQL's system catalog, with the relations and settings that the catalog shows."""

    sql: str
    parameters: Sequence[object]
    shapes: dict[str, pa.Schema]
    views: frozenset[str]
    settings: dict[str, str]


@dataclass(frozen=True, slots=True)
class LogReference:
    """Log that a query reads, from epoch `after` + 1 on. `outline` locates its segments."""

    outline: LogOutline
    after: int


@dataclass(frozen=True, slots=True)
class RowsReference:
    """Columns of a relation whose rows are in the server's memory."""

    columns: pa.Schema
