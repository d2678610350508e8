"""Until when an ingest query has brought all that its sources had.

A stream is silent only as far as its source has been asked. What a source offers while a batch is under way
comes with the next one, however long the batch takes: if that time counted as silence, a busy machine would
promise times that tuples on their way are still below, and call them late.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

# Asking costs a call to the JVM; units ask far more often than the answer changes.
_ASK_AGAIN_S = 0.05


class Reading:
    """One ingest query; times are those of its mill's clock."""

    def __init__(self, clock: Callable[[], int], poll_us: int) -> None:
        self._clock = clock
        self._poll_us = poll_us
        self._query: StreamingQuery | None = None
        self._lock = threading.Lock()
        self._until: int | None = None
        self._asked_s = 0.0

    def begin(self, query: StreamingQuery) -> None:
        self._query = query

    def began(self, execution: Any) -> int:
        """When the sources were asked for the batch that is executed: it has all that they had by then."""
        waited_us = self._wall_us() - int(execution.offsetSeqMetadata().batchTimestampMs()) * 1_000
        return self._clock() - max(0, waited_us)

    def done(self, began: int) -> None:
        """A batch that began then is committed."""
        with self._lock:
            self._raise_to(began)

    def seen(self) -> int | None:
        """All that had arrived by this time is committed; None: nothing has been read yet."""
        with self._lock:
            now_s = time.monotonic()
            if now_s - self._asked_s >= _ASK_AGAIN_S:
                self._asked_s = now_s
                now = self._clock()
                if self._until is not None and self._is_idle():
                    self._raise_to(now - self._poll_us)
            return self._until

    def _raise_to(self, until: int) -> None:
        self._until = until if self._until is None else max(self._until, until)

    def _is_idle(self) -> bool:
        """Sources are asked every now and then, and nothing that they offered is under way."""
        if self._query is None or not self._query.isActive:
            return False
        return not self._query._jsq.status().isTriggerActive()

    @staticmethod
    def _wall_us() -> int:
        return time.time_ns() // 1_000
