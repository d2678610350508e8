"""Process that executes ad hoc queries for the server, one after another.

    python -m slicemill.server.adhoc.process FD MEMORY_BYTES THREADS

DuckDB has a memory limit, and the process has a higher one. The server kills the process if a query takes
too long or its client disconnects, so no clean-up is necessary. The process ends with the server.
"""

from __future__ import annotations

import json
import mmap
import os
import resource
import select
import socket
import sys
import threading
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import sqlglot

from slicemill.adhoc.errors import OutOfMemory
from slicemill.adhoc.query import (
    InMemoryRelation,
    LogRelation,
    ProcessLimits,
    QueryableRelation,
    run_adhoc_query,
    split_batches,
)
from slicemill.errors import SlicemillError
from slicemill.server.adhoc.messages import (
    BATCH,
    END,
    EPOCHS,
    FAILED,
    FIRST,
    NAMED,
    READY,
    ROWS,
    SPANS,
    SYSTEM,
    WHOLE,
    AdhocQuery,
    LogReference,
    SystemCatalogQuery,
)
from slicemill.server.postgres.system_catalog import system_answer
from slicemill.sql.cursor import report_deep_nesting
from slicemill.sql.errors import EslError, SourceText
from slicemill.storage.log import Epoch, EpochSpans, Log

# memory in addition to DuckDB's: Arrow, batches to send, thread stacks
_BESIDE_BYTES = 512 << 20
_NICE = 5
# With this OOM score, the kernel ends this process before the server and Spark.
_KILLED_FIRST = 900


class QueryAbandoned(Exception):
    """Raised when the server has abandoned the query."""


class _ServerConnection:
    """Connection of the query process to the server."""

    def __init__(self, fd: int) -> None:
        self.connection: Connection[Any, Any] = Connection(fd)
        self._socket = socket.socket(fileno=os.dup(fd))
        threading.Thread(target=self._watch, name="server", daemon=True).start()

    def _watch(self) -> None:
        """End the process when the server has ended, even while DuckDB computes."""
        poll = select.poll()
        poll.register(self._socket, select.POLLHUP | select.POLLRDHUP)
        poll.poll()
        os._exit(1)

    def send(self, kind: bytes, content: bytes | pa.Buffer = b"") -> None:
        self.connection.send_bytes(kind + memoryview(content))

    def asked(self, kind: bytes, **words: object) -> Any:
        """Send a request to the server and return its response."""
        self.send(kind, json.dumps(words).encode())
        answer = self.connection.recv()
        if answer is None:
            raise QueryAbandoned
        return answer

    def rows(self, name: str) -> pa.Table:
        """Map the rows of a table or view, which the server passes as a memory file."""
        size = self.asked(ROWS, name=name)
        _, files, _, _ = socket.recv_fds(self._socket, 1, 1)
        try:
            content = pa.py_buffer(mmap.mmap(files[0], size, prot=mmap.PROT_READ))
        finally:
            os.close(files[0])
        return pa.ipc.open_stream(content).read_all()

    def relation(self, name: str) -> QueryableRelation:
        named = self.asked(NAMED, name=name)
        if isinstance(named, LogReference):
            return LogRelation(_RemoteLog(name, self, Log.from_outline(named.outline)), named.after)
        return InMemoryRelation(named.columns, lambda: self.rows(name))


@dataclass(frozen=True, slots=True)
class _RemoteLog:
    """Log whose index is in the server and whose segments this process reads."""

    name: str
    server: _ServerConnection
    log: Log

    @property
    def columns_shown(self) -> pa.Schema:
        return self.log.columns_shown

    def spans(self) -> EpochSpans:
        found: EpochSpans = self.server.asked(SPANS, name=self.name)
        return found

    def epochs(self, after: int, upto: int) -> list[Epoch]:
        found: list[Epoch] = self.server.asked(EPOCHS, name=self.name, after=after, upto=upto)
        return found

    def scan(self, epochs: Iterable[Epoch], columns: Collection[str]) -> pa.Table:
        return self.log.scan(epochs, columns)


def serve(fd: int, limits: ProcessLimits) -> None:
    """Execute queries until the server has ended."""
    server = _ServerConnection(fd)
    _limit(limits)
    server.send(READY)
    while True:
        try:
            adhoc_query = server.connection.recv()
        except EOFError:
            return
        with suppress(QueryAbandoned):
            if isinstance(adhoc_query, SystemCatalogQuery):
                _answer_system(server, adhoc_query)
            else:
                _answer(server, adhoc_query, limits)


def _answer(server: _ServerConnection, adhoc_query: AdhocQuery, limits: ProcessLimits) -> None:
    try:
        with (
            report_deep_nesting(SourceText(adhoc_query.sql)),
            run_adhoc_query(adhoc_query.sql, server.relation, adhoc_query.parameters, limits) as answer,
        ):
            batch = next(answer.rest, None)
            if batch is None:
                server.send(WHOLE, _stream(answer.first))
                return
            server.send(FIRST, answer.first.schema.serialize())
            for piece in split_batches(answer.first):
                server.send(BATCH, piece.serialize())
            while batch is not None:
                for piece in split_batches(pa.Table.from_batches([batch])):
                    server.send(BATCH, piece.serialize())
                batch = next(answer.rest, None)
            server.send(END)
    except QueryAbandoned:
        raise
    except Exception as problem:
        server.send(FAILED, json.dumps(_error_fields(problem, limits)).encode())


def _error_fields(problem: Exception, limits: ProcessLimits) -> dict[str, object]:
    if isinstance(problem, EslError):
        return {
            "mistakes": [(one.message, one.span.start, one.span.end, one.hint) for one in problem.diagnostics]
        }
    if isinstance(problem, MemoryError):  # this includes the MemoryError of Arrow
        problem = OutOfMemory(limits.memory_bytes)
    if not isinstance(problem, SlicemillError):
        problem = SlicemillError(f"the ad hoc query cannot be answered: {type(problem).__name__}: {problem}")
    return {"message": str(problem), "memory": isinstance(problem, OutOfMemory)}


def _answer_system(server: _ServerConnection, adhoc_query: SystemCatalogQuery) -> None:
    shapes = {name: schema.empty_table() for name, schema in adhoc_query.shapes.items()}
    try:
        found = system_answer(
            adhoc_query.sql, adhoc_query.parameters, shapes, adhoc_query.views, adhoc_query.settings
        )
    except (duckdb.Error, sqlglot.errors.SqlglotError):
        server.send(SYSTEM)
        return
    server.send(SYSTEM, _stream(found))


def _stream(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _limit(limits: ProcessLimits) -> None:
    """Limit the memory of this process, and lower its CPU priority below the engine's."""
    status = Path("/proc/self/status")
    if status.exists():
        # RLIMIT_DATA does not count files that are mapped read-only.
        (data_kb,) = (
            line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmData")
        )
        most = int(data_kb) * 1024 + limits.memory_bytes + _BESIDE_BYTES
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
        with suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text(str(_KILLED_FIRST))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(_NICE)


if __name__ == "__main__":
    serve(int(sys.argv[1]), ProcessLimits(int(sys.argv[2]), int(sys.argv[3])))
