"""SinkRunner: the sinks of a mill, each in its own thread.

So no sink waits for another. The mill calls `notify` after a commit and continues; a slow or failed sink only
falls behind in the log. Retention uses `cursors`: results are kept until every sink has them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType

from slicemill.connectors.sinks.cursor import READERS, SINKS, open_cursor, stored_cursors
from slicemill.connectors.sinks.delivery import SinkDelivery, SinkStatus
from slicemill.connectors.sinks.sink import Sink, SinkError, TableSink
from slicemill.storage.files import LOCAL, FileSystem
from slicemill.storage.home import Home

_LOGGER = logging.getLogger("slicemill.sinks")
# A hanging sink is abandoned with its daemon thread, which is like a crash of the sink.
_LEAVE_AFTER_S = 10.0


class SinkRunner:
    """Sinks by name; a declared sink has the query's name."""

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
        """Add a sink, which gets the log's results after its cursor."""
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
        """Stop a sink; its cursor stays for a later sink."""
        with self._changed:
            delivery = self._deliveries.pop(name, None)
            thread = self._threads.pop(name, None)
            self._changed.notify_all()
        if delivery is not None and _ended(thread):
            delivery.close()

    def forget(self, query: str) -> None:
        """Remove the sinks and cursors of a dropped query."""
        for name, delivery in list(self._deliveries.items()):
            if delivery.cursor.log == query:
                self.remove(name)
                delivery.cursor.forget()
        for cursor in stored_cursors(self._home.folder, SINKS, self._files):
            if cursor.log == query:
                cursor.forget()  # of an earlier process

    def deliver_new(self) -> None:
        """Deliver new results to every sink now; failures are reported and retried."""
        for delivery in list(self._deliveries.values()):
            delivery.deliver_new()

    def deliver_rest(self, name: str) -> int:
        """Deliver all results to a sink; return the rows left."""
        delivery = self._deliveries[name]
        delivery.deliver_new()
        return self._home.logs[delivery.cursor.log].rows_after(delivery.cursor.epoch)

    def problem(self, name: str) -> str:
        """Return why a sink accepts no results."""
        return self._deliveries[name].status().error or "it is still at work"

    def notify(self) -> None:
        """Wake the sinks: result logs have new epochs."""
        with self._changed:
            self._news += 1
            self._changed.notify_all()

    def start(self) -> None:
        """Start the background threads."""
        with self._changed:
            if not self._running:
                self._running = True
                for delivery in self._deliveries.values():
                    self._start(delivery)

    def stop(self) -> None:
        """End the threads, and deliver the remaining results."""
        with self._changed:
            self._running = False
            threads, self._threads = self._threads, {}
            self._changed.notify_all()
        for name, delivery in list(self._deliveries.items()):
            if _ended(threads.get(name)):
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
        """Return the names of the sinks that hold the query's table."""
        deliveries = self._deliveries.items()
        return [
            name for name, one in deliveries if one.cursor.log == query and isinstance(one.sink, TableSink)
        ]

    def status(self) -> list[SinkStatus]:
        return [delivery.status() for delivery in self._deliveries.values()]

    def cursors(self) -> list[Mapping[str, int]]:
        """Return the positions of sinks and external readers, by log."""
        sinks = [delivery.cursor for delivery in self._deliveries.values()]
        readers = stored_cursors(self._home.folder, READERS, self._files)
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
        """Wait for news or the next retry. None when stopping."""

        def ending() -> bool:
            return not self._running or self._deliveries.get(delivery.name) is not delivery

        with self._changed:
            self._changed.wait_for(lambda: ending() or self._news != seen, delivery.retry_in_s())
            return None if ending() else self._news


def _ended(thread: threading.Thread | None) -> bool:
    if thread is not None:
        thread.join(_LEAVE_AFTER_S)
    return thread is None or not thread.is_alive()
