"""Delivery to one sink: send new epochs, then advance its cursor.

A failure does not affect other sinks. The sink is resumed after a back-off that doubles, and then reports its
own position; until then its results stay in the log.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

import pyarrow as pa

from slicemill.connectors.sinks.cursor import SinkCursor
from slicemill.connectors.sinks.sink import Sink, SinkError, TableSink
from slicemill.secrets import redacted
from slicemill.storage.arrow_schema import as_results
from slicemill.storage.epochs import Epoch
from slicemill.storage.log import Log

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 30.0
# A backlog is delivered in ranges of about this many rows, to bound memory.
_ROWS_PER_DELIVERY = 500_000


@dataclass(frozen=True, slots=True)
class SinkStatus:
    """Status of a sink; `rows` counts from the start of the process."""

    name: str
    query: str
    epoch: int
    rows: int
    error: str | None
    failures: int


def ranges(epochs: Iterable[Epoch], enough: int) -> Iterator[list[Epoch]]:
    """Split epochs into ranges of at least `enough` rows (except the last)."""
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
    """Delivery of a log to one sink.

    `report` gets failures. `clock` is in seconds and monotonic.
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
        self._last: int | None = None  # the sink's position; None: it must be resumed
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
        """Return the time to the next retry; None without a failure."""
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
        if last < 0 <= self._log.begun_after:  # the sink never had the table of the earlier definition
            last = self._log.begun_after
            if self.cursor.epoch < last:
                self.cursor.advance(last)
        # Set again at the end, if all steps succeed.
        self._last = None
        enough = 1 if self.sink.per_epoch else _ROWS_PER_DELIVERY
        waiting = self._log.epochs(after=last)
        if isinstance(self.sink, TableSink) and self._log.missed(last) and self._log.base is not None:
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
        """Return epochs of earlier definitions, which a declared sink cannot store."""
        if self.name != self.cursor.log or not self._log.changes_of_columns:
            return []
        now = self._log.columns
        return [epoch for epoch in waiting if self._log.columns_at(epoch.number) is not now]

    def _resumed(self) -> int:
        last = self.sink.resume(self.cursor.id, self.cursor.epoch)
        # An empty log belongs to a recreated query, whose epochs will be later than all others.
        if last > self._log.head >= 0:
            raise SinkError(
                f"the sink has epoch {last}, but the results end with {self._log.head}; "
                "was the home replaced by an older copy? Give the sink another place"
            )
        if self.cursor.epoch < last:
            self.cursor.advance(last)
        if self._log.missed(last):
            gone = f"after {last}, up to {self._log.freed},"
            goes_on = "begins anew with the table" if self._log.base is not None else "goes on after them"
            self._report(f"sink {self.name}: epochs {gone} are freed; it {goes_on}")
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
        before, self._error = self._error, redacted(str(problem).strip()) or type(problem).__name__
        if self._error != before:  # repeated failures are reported once
            self._report(f"sink {self.name} of query {self.cursor.log} failed: {self._error}")
