"""Pool of processes that execute ad hoc queries, with limits per user and in total.

Processes are started in advance, and a query takes an idle one. If a query takes too long or its client
disconnects, the process is killed and replaced. Each user may run a limited number of queries at once and
queue some more. Further queries are rejected.
"""

from __future__ import annotations

import atexit
import functools
import json
import math
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any, NoReturn

import pyarrow as pa

from slicemill.adhoc.errors import (
    AdhocQueryCancelled,
    AdhocQueryRejected,
    OutOfMemory,
    UnknownName,
    no_such_relation,
)
from slicemill.adhoc.query import InMemoryRelation, LogRelation, ProcessLimits, QueryableRelation
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
    RowsReference,
    SystemCatalogQuery,
)
from slicemill.sql.errors import Diagnostic, EslError, SourceText, TextSpan
from slicemill.storage.log import Log

_START_S = 60.0
_LOOK_S, _RETRY_S = 0.05, 0.5
_CANCELLED = "the ad hoc query was cancelled: its client has cancelled it or has disconnected"


@dataclass(frozen=True, slots=True)
class AdhocLimits:
    """Limits of ad hoc queries: time, memory, and number per user and in total.

    `seconds` limits the time in which the server waits for the process. The time in which the client reads
    is not counted. A client that fetches no rows for `idle_s` loses its answer when another query needs the
    process.
    """

    seconds: float = 300.0
    memory_bytes: int = 1 << 30
    at_once: int = max(4, os.cpu_count() or 1)
    per_user: int = max(3, (os.cpu_count() or 1) * 3 // 4)
    waiting_per_user: int = 32
    wait_s: float = 30.0
    idle_s: float = 60.0
    ready: int = 2  # number of idle processes in the pool

    def with_counts(self, at_once: int | None, per_user: int | None) -> AdhocLimits:
        """Return limits with other numbers of concurrent queries, in total and per user.

        The count per user never exceeds the total.
        """
        at_once = at_once or max(self.at_once, per_user or 0)
        return replace(self, at_once=at_once, per_user=min(per_user or self.per_user, at_once))

    @property
    def process(self) -> ProcessLimits:
        return ProcessLimits(self.memory_bytes, max(1, (os.cpu_count() or 1) // 2))


class QueryProcess:
    """Process that executes ad hoc queries, with the server's end of its socket."""

    def __init__(self, limits: ProcessLimits) -> None:
        ours, theirs = socket.socketpair()
        paths = [str(Path(__file__).parents[3]), *sys.path]
        with theirs:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "slicemill.server.adhoc.process"),
                    *map(str, (theirs.fileno(), limits.memory_bytes, limits.threads)),
                ],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)},
                start_new_session=True,  # ctrl-c on the terminal ends only the server
            )
        self._socket = ours
        self.connection: Connection[Any, Any] = Connection(os.dup(ours.fileno()))
        self._killed = threading.Lock()

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_ready(self) -> None:
        """Wait until the process accepts queries."""
        if not self.connection.poll(_START_S) or self.connection.recv_bytes() != READY:
            raise EOFError("the process did not start")

    def send_file(self, file: IO[bytes]) -> None:
        """Pass a file descriptor to the process, after a message with the size of the file."""
        socket.send_fds(self._socket, [b"f"], [file.fileno()])

    def kill(self) -> None:
        """Kill the process. Thread-safe and idempotent."""
        with self._killed:
            self._process.kill()
            self._process.wait()
            self._socket.close()

    @property
    def lives(self) -> bool:
        return self._process.poll() is None


class AnswerRows:
    """Rows of an answer, read from a table or from the process that computes them."""

    def __init__(self, schema: pa.Schema, rows: Iterator[pa.RecordBatch], end: Callable[[], None]) -> None:
        self.schema = schema
        self.taken = 0
        self._rows = rows
        self._end = end
        self._left: pa.RecordBatch | None = None

    @staticmethod
    def of(table: pa.Table) -> AnswerRows:
        """Return the rows of a table as an answer."""
        return AnswerRows(table.schema, iter(table.to_batches()), lambda: None)

    def take(self, most: float = math.inf) -> pa.RecordBatch | None:
        """Return the next batch of at most `most` rows, or None at the end."""
        batch = self._left
        while batch is None or not batch.num_rows:
            batch = next(self._rows, None)
            if batch is None:
                return None
        self._left = None
        if batch.num_rows > most:
            batch, self._left = batch.slice(0, int(most)), batch.slice(int(most))
        self.taken += batch.num_rows
        return batch

    def mapped(self, schema: pa.Schema, function: Callable[[pa.RecordBatch], pa.RecordBatch]) -> AnswerRows:
        """Return these rows with each batch converted by a function."""
        return AnswerRows(schema, map(function, iter(self.take, None)), self.close)

    @property
    def has_more(self) -> bool:
        """Return True if there is another row. May wait for the process."""
        if self._left is None:
            taken = self.taken
            self._left, self.taken = self.take(), taken
        return self._left is not None

    def whole(self, most_bytes: float = math.inf) -> pa.Table:
        """Return all remaining rows. Raises an error if they take more than `most_bytes`."""
        found, size = [], 0
        while (batch := self.take()) is not None:
            found.append(batch)
            size += batch.nbytes
            if size > most_bytes:
                self.close()
                raise SlicemillError(
                    f"the rows of an ad hoc query take more than {int(most_bytes) >> 20} MB, and more "
                    "statements follow it; send the ad hoc query by itself"
                )
        return pa.Table.from_batches(found, self.schema)

    def close(self) -> None:
        """Discard the remaining rows. Thread-safe."""
        self._end()

    def __del__(self) -> None:
        self._end()


class QueryProcessPool:
    """Pool of processes for ad hoc queries. Thread-safe."""

    def __init__(self, limits: AdhocLimits = AdhocLimits()) -> None:  # noqa: B008
        self.limits = limits
        self._changed = threading.Condition()
        self._idle: list[QueryProcess] = []
        self._asked: set[_RunningQuery] = set()  # queries that occupy a process
        self._waiting: Counter[str] = Counter()
        self._starting = 0
        self.closed = False
        self._problem: str | None = None  # reason why processes fail to start
        self._handed = _TableFiles()

    # -- Calls of clients -----------------------------------------------------------------------------

    def start(self) -> None:
        """Start the missing idle processes in the background."""
        with self._changed:
            missing = self.limits.ready - len(self._idle) - len(self._asked) - self._starting
        for _ in range(missing):
            self._start_one()

    def ask(
        self,
        sql: str,
        relation_of: Callable[[str], QueryableRelation],
        user: str = "",
        parameters: Sequence[object] = (),
        interrupted: threading.Event | None = None,
    ) -> AnswerRows:
        """Execute an ad hoc query. Return when its first rows are available.

        `relation_of` returns a relation by name, or raises UnknownName. Further rows are computed on demand.
        The query ends when `interrupted` is set.
        """
        asked = self._begin(user, interrupted)
        try:
            asked.send(AdhocQuery(sql, tuple(parameters)))
            return asked.answer(sql, relation_of, self._handed)
        except BaseException:
            asked.end()
            raise

    def ask_system(
        self, adhoc_query: SystemCatalogQuery, user: str = "", interrupted: threading.Event | None = None
    ) -> pa.Table | None:
        """Execute a query on PostgreSQL's system catalog. Return None if it is not supported."""
        asked = self._begin(user, interrupted)
        try:
            asked.send(adhoc_query)
            kind, content = asked.receive()
            assert kind == SYSTEM, kind
            table = _table(content) if len(content) else None
            asked.done()
            return table
        finally:
            asked.end()

    def close(self) -> None:
        """End all processes. Running queries fail with an error."""
        with self._changed:
            self.closed = True
            ended = [*self._idle, *(asked.process for asked in self._asked)]
            self._idle.clear()
            self._changed.notify_all()
        for process in ended:
            process.kill()
        self._handed.close()

    # -- Processes -------------------------------------------------------------------------------------

    def _begin(self, user: str, interrupted: threading.Event | None) -> _RunningQuery:
        """Acquire a process for a user. Wait a limited time for an idle process."""
        limits, until = self.limits, time.monotonic() + self.limits.wait_s
        with self._changed:
            if self._waiting[user] >= limits.waiting_per_user:
                raise AdhocQueryRejected(
                    f"{limits.waiting_per_user} ad hoc queries of this user wait already; "
                    "try again when some have been answered"
                )
            self._waiting[user] += 1
            try:
                while True:
                    if self.closed:
                        raise AdhocQueryCancelled("the server is shutting down")
                    if interrupted is not None and interrupted.is_set():
                        raise AdhocQueryCancelled(_CANCELLED)
                    if self._may_begin(user):
                        while self._idle:
                            process = self._idle.pop()
                            if process.lives:
                                return self._given(process, user, interrupted)
                            process.kill()
                        if self._starting < sum(self._waiting.values()):
                            self._start_one()
                        if time.monotonic() >= until + _START_S:
                            raise AdhocQueryRejected(
                                self._problem or "no process for ad hoc queries has started"
                            )
                    elif time.monotonic() >= until:
                        raise AdhocQueryRejected(self._why_full(user))
                    self._changed.wait(_LOOK_S)
            finally:
                self._waiting[user] -= 1

    def _may_begin(self, user: str) -> bool:
        running = [asked for asked in self._asked if asked.user == user]
        if len(running) < self.limits.per_user and len(self._asked) < self.limits.at_once:
            return True
        own = running if len(running) >= self.limits.per_user else self._asked
        oldest = min(own, key=lambda asked: asked.touched_s)
        if not oldest.busy and time.monotonic() - oldest.touched_s > self.limits.idle_s:
            oldest.abort(
                f"no rows were fetched for {self.limits.idle_s:.0f} s, and another ad hoc query waited"
            )
            self._asked.discard(oldest)
            return True
        return False

    def _why_full(self, user: str) -> str:
        running = sum(asked.user == user for asked in self._asked)
        if running >= self.limits.per_user:
            return (
                f"this user has {running} ad hoc queries that run, and may have {self.limits.per_user}; "
                "wait for them, cancel one, or start the server with a larger --adhoc-queries-per-user"
            )
        return (
            f"{len(self._asked)} ad hoc queries run, and {self.limits.at_once} may; try again later, or "
            "start the server with a larger --adhoc-queries"
        )

    def _given(self, process: QueryProcess, user: str, interrupted: threading.Event | None) -> _RunningQuery:
        asked = _RunningQuery(self, process, user, interrupted)
        self._asked.add(asked)
        return asked

    def release_process(self, asked: _RunningQuery, *, reusable: bool) -> None:
        """Return the process of an ended query to the pool, or kill the process."""
        with self._changed:
            self._asked.discard(asked)
            keep = reusable and not self.closed and len(self._idle) < self.limits.at_once
            if keep:
                self._idle.append(asked.process)
            self._changed.notify_all()
        if not keep:
            asked.process.kill()
            if not self.closed:
                self.start()

    def _start_one(self) -> None:
        """Start a process in a background thread."""
        with self._changed:
            if self.closed:
                return
            self._starting += 1
        threading.Thread(target=self._run_start, name="adhoc-queries", daemon=True).start()

    def _run_start(self) -> None:
        process = None
        try:
            process = QueryProcess(self.limits.process)
            process.wait_ready()
            self._problem = None
        except (OSError, EOFError) as problem:
            self._problem = f"no process for ad hoc queries starts: {problem}"
            time.sleep(_RETRY_S)
            if process is not None:
                process.kill()
            process = None
        with self._changed:
            self._starting -= 1
            kept = process is not None and not self.closed
            if process is not None and kept:
                self._idle.append(process)
            self._changed.notify_all()
        if process is not None and not kept:
            process.kill()


class _RunningQuery:
    """Running ad hoc query with its process."""

    def __init__(
        self, pool: QueryProcessPool, process: QueryProcess, user: str, interrupted: threading.Event | None
    ) -> None:
        self.process = process
        self.user = user
        self.touched_s = time.monotonic()
        self.busy = True  # True while the server waits for the process
        self._pool = pool
        self._interrupted = interrupted
        self._spent_s = 0.0
        self._why = _CANCELLED
        self._ended = threading.Lock()

    def answer(
        self, sql: str, relation_of: Callable[[str], QueryableRelation], handed: _TableFiles
    ) -> AnswerRows:
        """Serve the requests of the process until its answer begins."""
        relations: dict[str, QueryableRelation] = {}
        while True:
            kind, content = self.receive()
            if kind == WHOLE:
                table = _table(content)
                self.done()
                return AnswerRows.of(table)
            if kind == FIRST:
                self.busy = False
                schema = pa.ipc.read_schema(pa.py_buffer(content))
                return AnswerRows(schema, self._batches(schema), self.end)
            if kind == FAILED:
                self.done()
                raise self._problem(sql, json.loads(bytes(content)))
            words = json.loads(bytes(content))
            name = words["name"]
            if kind == NAMED:
                try:
                    relations[name] = relation_of(name)
                except SlicemillError as problem:
                    self.send(None)
                    self.done()
                    if isinstance(problem, UnknownName):
                        raise no_such_relation(sql, name, problem) from None
                    raise
            self._give(kind, relations[name], words, handed)

    def _give(
        self, kind: bytes, relation: QueryableRelation, words: dict[str, Any], handed: _TableFiles
    ) -> None:
        if kind == ROWS:
            assert isinstance(relation, InMemoryRelation), "the rows of a log are in its segments"
            file, size = handed.file(relation.rows())
            with file:
                self.send(size)
                self.process.send_file(file)
        elif isinstance(relation, LogRelation):
            log = relation.log
            assert isinstance(log, Log), "the server has the index"
            if kind == NAMED:
                self.send(LogReference(log.outline, relation.after))
            elif kind == SPANS:
                self.send(log.spans())
            elif kind == EPOCHS:
                self.send(log.epochs(after=words["after"], upto=words["upto"]))
        else:
            self.send(RowsReference(relation.shape().schema))

    def _batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        while True:
            self.busy = True
            kind, content = self.receive()
            self.busy, self.touched_s = False, time.monotonic()
            if kind == BATCH:
                yield pa.ipc.read_record_batch(pa.py_buffer(content), schema)
            elif kind == END:
                self.done()
                return
            else:
                self.done()
                raise self._problem("", json.loads(bytes(content)))

    def send(self, message: object) -> None:
        """Send a message to the process."""
        try:
            self.process.connection.send(message)
        except OSError:
            self._raise_ended()

    def receive(self) -> tuple[bytes, memoryview]:
        """Return the next message of the process. Raises an error on interruption or timeout."""
        connection, limit_s = self.process.connection, self._pool.limits.seconds
        began = time.monotonic()
        try:
            while True:
                if self._interrupted is not None and self._interrupted.is_set():
                    raise AdhocQueryCancelled(_CANCELLED)
                if connection.poll(_LOOK_S):
                    break
                if self._spent_s + time.monotonic() - began > limit_s:
                    raise AdhocQueryCancelled(
                        f"the ad hoc query took more than {limit_s:g} s; read fewer rows, or start the "
                        "server with a larger --adhoc-seconds"
                    )
            frame = memoryview(connection.recv_bytes())
        except (EOFError, OSError):
            self._raise_ended()
        except SlicemillError:
            self.end()
            raise
        self._spent_s += time.monotonic() - began
        return bytes(frame[:1]), frame[1:]

    def _raise_ended(self) -> NoReturn:
        """Raise an error with the reason why the process has ended."""
        was_ended = self._ended.locked()
        self.end()
        if was_ended or self._pool.closed:
            raise AdhocQueryCancelled(self._why) from None
        raise OutOfMemory(self._pool.limits.memory_bytes) from None

    def _problem(self, sql: str, words: dict[str, Any]) -> SlicemillError:
        if "mistakes" in words:
            source = SourceText(sql)
            mistakes = [
                Diagnostic(said, TextSpan(start, end), hint) for said, start, end, hint in words["mistakes"]
            ]
            return EslError(source, mistakes)
        if words["memory"]:
            return OutOfMemory(self._pool.limits.memory_bytes)
        return SlicemillError(words["message"])

    def done(self) -> None:
        """Return the process to the pool for the next query."""
        if self._ended.acquire(blocking=False):
            self._pool.release_process(self, reusable=True)

    def end(self) -> None:
        """Kill the process, unless its answer is complete."""
        if self._ended.acquire(blocking=False):
            self.process.kill()
            self._pool.release_process(self, reusable=False)

    def abort(self, why: str) -> None:
        """Kill the process and record the reason.

        The caller has already removed the query from the pool.
        """
        self._why = why
        if self._ended.acquire(blocking=False):
            self.process.kill()


class _TableFiles:
    """Memory files with rows of tables, cached until the Arrow table is freed."""

    def __init__(self) -> None:
        self._files: dict[int, tuple[weakref.ref[pa.Table], IO[bytes], int]] = {}

    def file(self, table: pa.Table) -> tuple[IO[bytes], int]:
        """Return a memory file with the rows of a table, and its size. The caller closes the file."""
        known = self._files.get(id(table))
        if known is None or known[0]() is not table:
            file = _memory_file()
            with pa.ipc.new_stream(file, table.schema) as writer:
                writer.write_table(table)
            file.flush()
            known = (weakref.ref(table, partial(self._forget, id(table))), file, file.tell())
            self._files[id(table)] = known
        return os.fdopen(os.dup(known[1].fileno()), "rb"), known[2]

    def _forget(self, key: int, gone: weakref.ref[pa.Table]) -> None:
        known = self._files.get(key)
        if known is not None and known[0] is gone:
            del self._files[key]
            known[1].close()

    def close(self) -> None:
        """Close all memory files."""
        while self._files:
            self._files.popitem()[1][1].close()


def _memory_file() -> IO[bytes]:
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("slicemill-rows"), "w+b")
    return tempfile.TemporaryFile()


def _table(content: memoryview) -> pa.Table:
    return pa.ipc.open_stream(pa.py_buffer(content)).read_all()


@functools.cache
def shared_pool() -> QueryProcessPool:
    """Return the pool that all services without their own pool share in this process."""
    pool = QueryProcessPool()
    atexit.register(pool.close)
    return pool
