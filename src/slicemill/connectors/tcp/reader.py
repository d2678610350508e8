"""TCP source with exactly-once semantics: `tcp://host:port`.

Each line is a row of the declared columns, as JSON if it begins with a brace, else as CSV (or as the option
`lines` says). Offsets are positions in the spool, `{"file": n, "at": byte}`. The spool survives the process,
like the journal. A row's arrival is the time at which its bytes were received.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from slicemill.connectors.origin import SourceOrigin
from slicemill.connectors.tcp.options import TcpOptions, tcp_options
from slicemill.connectors.tcp.pump import Pump
from slicemill.connectors.tcp.spool import MAX_FILE_BYTES, Spool, SpoolPosition
from slicemill.errors import SlicemillError
from slicemill.ingest.formats.checked import WantedColumns
from slicemill.ingest.formats.csv import csv_format
from slicemill.ingest.formats.line_parser import LineParser
from slicemill.ingest.formats.lines import split
from slicemill.ingest.reader import SourceBatch

_LEAST_BYTES = 1 << 14
_LINE_BYTES = 128
_NEWLINE = 10
# Interval of checks for a sender that never answered.
_LOOK_AGAIN_US = 500_000


def open_tcp(
    origin: SourceOrigin,
    wanted: WantedColumns,
    spool: Path,
    notify: Callable[[], None],
    clock: Callable[[], int],
) -> TcpReader:
    """Return the reader of a socket; the first read connects."""
    options = tcp_options(origin.options)
    parser = LineParser(wanted, options.lines, csv_format(wanted.schema.names, origin.options))
    return TcpReader(options, parser, spool, notify, clock)


class TcpReader:
    """Reader of a socket as one partition, in order of arrival."""

    def __init__(
        self,
        options: TcpOptions,
        parser: LineParser,
        folder: Path,
        notify: Callable[[], None],
        clock: Callable[[], int],
    ) -> None:
        self._options = options
        self._parser = parser
        self._folder = folder
        self._notify = notify
        self._clock = clock
        self._open: tuple[Spool, Pump] | None = None
        self._guard = threading.Lock()
        self._waiting = False  # the last read found no more lines, so new lines must be notified
        self._line_bytes = float(_LINE_BYTES)

    def read(self, offset: Any | None, limit_rows: int) -> SourceBatch:
        spool, pump = self._opened(offset)
        position = spool.begin if offset is None else SpoolPosition(offset["file"], offset["at"])
        with self._guard:
            self._waiting = False
        size = int(max(limit_rows * self._line_bytes, _LEAST_BYTES))
        received = spool.read(position, min(size, self._options.max_trigger_bytes))
        if not received.data:
            self._check(spool, pump)
        ends = np.flatnonzero(np.frombuffer(received.data, np.uint8) == _NEWLINE) + 1
        if len(ends) > limit_rows:
            ends = ends[:limit_rows]
            received = received.cut(int(ends[-1]))
        batch = SourceBatch(None, None, received.next._asdict(), self._clock(), False, None)
        if len(ends):
            self._line_bytes = (self._line_bytes + len(received.data) / len(ends)) / 2
            parsed = self._parser.parse(split(received.data, universal=False))
            batch.table = parsed.table if parsed.table.num_rows else None
            batch.errors = parsed.errors
            batch.arrival_us = received.arrivals(ends)[parsed.numbers]
        with self._guard:
            batch.more = spool.has_after(received.next)
            self._waiting = not batch.more
        if batch.more:
            batch.again_us = 0
        elif not pump.has_connected:
            batch.again_us = _LOOK_AGAIN_US
        return batch

    def committed(self, offset: Any) -> None:
        if self._open is not None:
            self._open[0].free(SpoolPosition(offset["file"], offset["at"]))

    def close(self) -> None:
        if self._open is not None:
            self._open[1].stop()
            self._open = None

    def _opened(self, offset: Any | None) -> tuple[Spool, Pump]:
        if self._open is None:
            options = self._options
            after = None if offset is None else SpoolPosition(offset["file"], offset["at"])
            # Files are small enough that some can be freed while others are full.
            spool = Spool(self._folder, after, min(MAX_FILE_BYTES, options.max_spool_bytes // 4))
            pump = Pump(
                options.host, options.port, spool, options.max_spool_bytes, self._clock, self._on_lines
            )
            pump.start()
            self._open = spool, pump
        return self._open

    def _on_lines(self) -> None:
        """Notify the driver of lines, if the last read found no more."""
        with self._guard:
            waiting, self._waiting = self._waiting, False
        if waiting:
            self._notify()

    def _check(self, spool: Spool, pump: Pump) -> None:
        """Raise if a sender that never answered is overdue.

        A sender that was connected before may reconnect later.
        """
        patience_s = self._options.patience_s if spool.is_new else math.inf
        try:
            pump.check_somebody_answered(patience_s)
        except SlicemillError:
            self.close()  # a later read tries again
            raise
