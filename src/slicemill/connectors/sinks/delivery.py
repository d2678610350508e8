"""Delivery of query results to sinks: send new commits, then advance the cursor.

An *epoch* is what one commit appended to a log, and the *cursor* of a sink is its last received epoch. A
failure does not affect other sinks. After a back-off that doubles with each failure, the sink is resumed and
returns its position. Until then its results stay in the log.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from types import TracebackType

import pyarrow as pa

from slicemill.columns.arrow_schema import as_results
from slicemill.connectors.sinks.sink import (
    READERS,
    SINKS,
    Sink,
    SinkCursor,
    SinkError,
    TableSink,
    load_cursors,
    open_cursor,
)
from slicemill.secrets import redact
from slicemill.storage.filesystem import LOCAL, FileSystem
from slicemill.storage.home import Home
from slicemill.storage.log import Epoch, Log

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 30.0
# Approximate number of rows of one delivery, which limits memory.
_ROWS_PER_DELIVERY = 500_000


@dataclass(frozen=True, slots=True)
class SinkStatus:
    """Status of a sink; `rows` is the number of rows that this process has delivered."""

    name: str
    query: str
    epoch: int
    rows: int
    error: str | None
    failures: int


def ranges(epochs: Iterable[Epoch], enough: int) -> Iterator[list[Epoch]]:
    """Split epochs into successive groups.

    Each group except the last has at least `enough` rows.
    """
    part: list[Epoch] = []
    rows = 0
    for epoch in epochs:
        part.append(epoch)
        rows += epoch.rows
        if rows >= enough:
            yield part
            part, rows = [], 0
    if part:
        yield part


class SinkDelivery:
    """Delivery of a query's log to one sink.

    `report` is called with the text of a failure. `clock` returns monotonic seconds.
    """

    def __init__(
        self,
        name: str,
        log: Log,
        sink: Sink,
        cursor: SinkCursor,
        report: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        self.name = name
        self.cursor = cursor
        self.sink = sink
        self._log = log
        self._report = report
        self._clock = clock
        self._last: int | None = None  # last epoch in the sink, or None if the sink must be resumed first
        self._rows = 0
        self._error: str | None = None
        self._failures = 0
        self._retry_at = 0.0
        self._lock = threading.Lock()

    def deliver_new(self) -> None:
        """Deliver new epochs, unless the sink is in its back-off."""
        with self._lock:
            if self._error is not None and self._clock() < self._retry_at:
                return
            try:
                self._deliver_new()
            except Exception as problem:
                self._fail(problem)
            else:
                self._error, self._failures = None, 0

    def retry_in_s(self) -> float | None:
        """Return the time to the next retry.

        Return None if the sink has not failed.
        """
        return None if self._error is None else max(0.0, self._retry_at - self._clock())

    def status(self) -> SinkStatus:
        cursor = self.cursor
        return SinkStatus(self.name, cursor.log, cursor.epoch, self._rows, self._error, self._failures)

    def close(self) -> None:
        with self._lock:
            self._last = None
            self.sink.close()

    def _deliver_new(self) -> None:
        last = self._resumed() if self._last is None else self._last
        # A new sink skips the changes of earlier versions of the query, which cancel out.
        if last < 0 <= self._log.begun_after:
            last = self._log.begun_after
            if self.cursor.epoch < last:
                self.cursor.advance(last)
        # After a failure in a later step, the sink must be resumed.
        self._last = None
        enough = 1 if self.sink.per_epoch else _ROWS_PER_DELIVERY
        waiting = self._log.epochs(after=last)
        if (
            isinstance(self.sink, TableSink)
            and self._log.has_freed_after(last)
            and self._log.base is not None
        ):
            last = self._begin_anew(self.sink, waiting.pop(0))
        if other := self._of_other_columns(waiting):
            last = other[-1].number
            self.cursor.advance(last)
        for _, same in groupby(
            waiting[len(other) :], key=lambda epoch: id(self._log.columns_at(epoch.number))
        ):
            for epochs in ranges(same, enough):
                last = self._hand_over(epochs)
        self._last = last

    def _of_other_columns(self, waiting: list[Epoch]) -> list[Epoch]:
        """Return epochs with columns that a declared sink cannot store.

        These epochs are results of earlier versions of the query.
        """
        if self.name != self.cursor.log or not self._log.changes_of_columns:
            return []
        now = self._log.columns
        return [epoch for epoch in waiting if self._log.columns_at(epoch.number) is not now]

    def _resumed(self) -> int:
        last = self.sink.resume(self.cursor.id, self.cursor.epoch)
        # The log of a query that was created again is empty at first.
        # Its epochs will be greater than all earlier epochs.
        if last > self._log.head >= 0:
            raise SinkError(
                f"the sink has epoch {last}, but the results end with {self._log.head}; "
                "was the home directory replaced by an older copy? Give the sink another target"
            )
        if self.cursor.epoch < last:
            self.cursor.advance(last)
        if self._log.has_freed_after(last):
            freed = f"after {last}, up to {self._log.freed},"
            next_rows = (
                "continues with the current table"
                if self._log.base is not None
                else "continues after these epochs"
            )
            self._report(f"sink {self.name}: epochs {freed} are freed; the sink {next_rows}")
        return last

    def _hand_over(self, epochs: list[Epoch]) -> int:
        first, last = epochs[0].number, epochs[-1].number
        table = pa.concat_tables([self._log.read(epoch) for epoch in epochs])
        self.sink.deliver(first, last, as_results(table))
        self._rows += table.num_rows
        self.cursor.advance(last)
        return last

    def _begin_anew(self, sink: TableSink, base: Epoch) -> int:
        sink.replace(base.number, as_results(self._log.read(base)))
        self.cursor.advance(base.number)
        return base.number

    def _fail(self, problem: Exception) -> None:
        pause_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0**self._failures)
        self._failures += 1
        self._retry_at = self._clock() + pause_s
        before, self._error = self._error, redact(str(problem).strip()) or type(problem).__name__
        if self._error != before:  # a repeated failure is reported only once
            self._report(f"sink {self.name} of query {self.cursor.log} failed: {self._error}")


# Runner of all sinks of an engine, each with its own thread
#
# No sink waits for another sink. The engine calls `notify` after a commit and continues. A slow or failed
# sink only lags behind the log. Retention uses `cursors`: results are retained until all sinks have received
# them.


_LOGGER = logging.getLogger("slicemill.sinks")
# Time after which a hanging sink is abandoned with its daemon thread, as after a crash of the sink.
_LEAVE_AFTER_S = 10.0


class SinkRunner:
    """Runner of all sinks of an engine.

    A sink that the query declares has the name of the query.
    """

    def __init__(
        self,
        home: Home,
        *,
        report: Callable[[str], None] = _LOGGER.warning,
        clock: Callable[[], float] = time.monotonic,
        files: FileSystem = LOCAL,
    ) -> None:
        self._home = home
        self._report = report
        self._clock = clock
        self._files = files
        self._deliveries: dict[str, SinkDelivery] = {}
        self._threads: dict[str, threading.Thread] = {}
        self._changed = threading.Condition()
        self._news = 0
        self._running = False

    def add(self, query: str, sink: Sink, name: str | None = None) -> None:
        """Add a sink of a query, which receives the results after its cursor."""
        name = name or query
        if name in self._deliveries:
            raise SinkError(f"there is a sink {name} already; give this one another name")
        cursor = open_cursor(self._home.folder, SINKS, name, query, self._files, self._home.durable)
        delivery = SinkDelivery(name, self._home.logs[query], sink, cursor, self._report, self._clock)
        with self._changed:
            self._deliveries[name] = delivery
            if self._running:
                self._start(delivery)

    def remove(self, name: str) -> None:
        """Stop a sink.

        Its cursor is retained for a later sink with this name.
        """
        with self._changed:
            delivery = self._deliveries.pop(name, None)
            thread = self._threads.pop(name, None)
            self._changed.notify_all()
        if delivery is not None and _join_thread(thread):
            delivery.close()

    def forget(self, query: str) -> None:
        """Remove the sinks of a dropped query, and their cursors."""
        for name, delivery in list(self._deliveries.items()):
            if delivery.cursor.log == query:
                self.remove(name)
                delivery.cursor.forget()
        for cursor in load_cursors(self._home.folder, SINKS, self._files):
            if cursor.log == query:
                cursor.forget()  # the sink of this cursor ran in an earlier process

    def deliver_new(self) -> None:
        """Deliver new results to all sinks now; report and retry failures."""
        for delivery in list(self._deliveries.values()):
            delivery.deliver_new()

    def deliver_rest(self, name: str) -> int:
        """Deliver all results to a sink; return the number of rows that failed to be delivered."""
        delivery = self._deliveries[name]
        delivery.deliver_new()
        return self._home.logs[delivery.cursor.log].rows_after(delivery.cursor.epoch)

    def problem(self, name: str) -> str:
        """Return the reason why a sink has not received all results."""
        return self._deliveries[name].status().error or "the sink is still delivering"

    def notify(self) -> None:
        """Wake the threads of the sinks after a commit."""
        with self._changed:
            self._news += 1
            self._changed.notify_all()

    def start(self) -> None:
        """Start the threads of the sinks."""
        with self._changed:
            if not self._running:
                self._running = True
                for delivery in self._deliveries.values():
                    self._start(delivery)

    def stop(self) -> None:
        """End the threads of the sinks, then deliver the remaining results."""
        with self._changed:
            self._running = False
            threads, self._threads = self._threads, {}
            self._changed.notify_all()
        for name, delivery in list(self._deliveries.items()):
            if _join_thread(threads.get(name)):
                delivery.deliver_new()

    def close(self) -> None:
        self.stop()
        for name in list(self._deliveries):
            self.remove(name)

    def __enter__(self) -> SinkRunner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __contains__(self, name: str) -> bool:
        return name in self._deliveries

    def __getitem__(self, name: str) -> Sink:
        return self._deliveries[name].sink

    def names(self) -> list[str]:
        return list(self._deliveries)

    def tables_of(self, query: str) -> list[str]:
        """Return the names of sinks that store the current table of a query."""
        deliveries = self._deliveries.items()
        return [
            name for name, one in deliveries if one.cursor.log == query and isinstance(one.sink, TableSink)
        ]

    def status(self) -> list[SinkStatus]:
        return [delivery.status() for delivery in self._deliveries.values()]

    def cursors(self) -> list[Mapping[str, int]]:
        """Return the cursor of each sink and external reader, as {log: last epoch}."""
        sinks = [delivery.cursor for delivery in self._deliveries.values()]
        readers = load_cursors(self._home.folder, READERS, self._files)
        return [{cursor.log: cursor.epoch} for cursor in (*sinks, *readers)]

    def _start(self, delivery: SinkDelivery) -> None:
        thread = threading.Thread(
            target=self._loop, args=[delivery], name=f"slicemill-sink-{delivery.name}", daemon=True
        )
        self._threads[delivery.name] = thread
        thread.start()

    def _loop(self, delivery: SinkDelivery) -> None:
        seen: int | None = self._news
        while seen is not None:
            delivery.deliver_new()
            seen = self._next_news(delivery, seen)

    def _next_news(self, delivery: SinkDelivery, seen: int) -> int | None:
        """Wait for new results or for the next retry of a sink.

        Return None when the runner stops.
        """

        def ending() -> bool:
            return not self._running or self._deliveries.get(delivery.name) is not delivery

        with self._changed:
            self._changed.wait_for(lambda: ending() or self._news != seen, delivery.retry_in_s())
            return None if ending() else self._news


def _join_thread(thread: threading.Thread | None) -> bool:
    if thread is not None:
        thread.join(_LEAVE_AFTER_S)
    return thread is None or not thread.is_alive()
