"""Messages between the server and a process that answers questions.

    server                                  process
    Question(sql, …)           ───►
                               ◄───         relation bid?
    columns, or that it is gone  ───►
                               ◄───         spans, epochs or rows of bid?
    …                          ───►
                               ◄───         the first rows; batches; the end       (or an error)

The server pickles what it sends. What a process sends is JSON or Arrow, so that the server never runs code
that comes from a process in which SQL of others runs. The rows of a table or view travel as a file in memory
that the process maps; those of a log are read from its segments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from slicemill.storage.log import LogOutline

# Kinds of messages of a process, each one letter in front of its content.
READY, NAMED, SPANS, EPOCHS, ROWS = b"y", b"n", b"s", b"e", b"r"
FIRST, WHOLE, BATCH, END, FAILED, SYSTEM = b"f", b"w", b"b", b"z", b"x", b"c"


@dataclass(frozen=True, slots=True)
class Question:
    """A question for a process."""

    sql: str
    parameters: Sequence[object]


@dataclass(frozen=True, slots=True)
class SystemQuestion:
    """A question about PostgreSQL's own catalog, with what stands in it."""

    sql: str
    parameters: Sequence[object]
    shapes: dict[str, pa.Schema]
    views: frozenset[str]
    settings: dict[str, str]


@dataclass(frozen=True, slots=True)
class NamedLog:
    """A relation that is a log: how its epochs are read, and after which one."""

    outline: LogOutline
    after: int


@dataclass(frozen=True, slots=True)
class NamedRows:
    """A relation whose rows the server has: their columns."""

    columns: pa.Schema


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """What one process may take: memory for DuckDB, and threads."""

    memory_bytes: int = 1 << 30
    threads: int = 1
