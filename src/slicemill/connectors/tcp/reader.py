"""TCP source (`tcp://host:port`) with exactly-once semantics.

Each line is a row of the declared columns. A line that begins with a brace is parsed as JSON, any other line
as CSV; the option `lines` overrides this. Received lines are first stored on disk in the
*spool*. Offsets are positions in the spool, `{"file": n, "at": byte}`. Like the journal, the spool survives a
crash of the process. The arrival time of a row is the time at which its bytes were received.
"""

from __future__ import annotations

import json
import logging
import math
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from slicemill.connectors.origin import SourceOrigin
from slicemill.connectors.tcp.spool import MAX_FILE_BYTES, Spool, SpoolPosition
from slicemill.errors import SlicemillError
from slicemill.ingest.formats.checked import WantedColumns
from slicemill.ingest.formats.csv import csv_format
from slicemill.ingest.formats.line_parser import EITHER, LineParser
from slicemill.ingest.formats.lines import split
from slicemill.ingest.reader import SourceBatch
from slicemill.storage.filesystem import LOCAL, write_atomically

_LEAST_BYTES = 1 << 14
_LINE_BYTES = 128
_NEWLINE = 10
# Interval of checks until a sender has accepted a connection.
_CHECK_AGAIN_US = 500_000


def open_tcp(
    origin: SourceOrigin,
    wanted: WantedColumns,
    spool: Path,
    notify: Callable[[], None],
    clock: Callable[[], int],
) -> TcpReader:
    """Return the reader of a socket, which connects in the first read."""
    options = tcp_options(origin.options)
    parser = LineParser(wanted, options.lines, csv_format(wanted.schema.names, origin.options))
    return TcpReader(options, parser, spool, notify, clock)


class TcpReader:
    """Reader of a socket, as one partition, in order of arrival."""

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
        # True if the last read returned all lines, so that new lines require a notification.
        self._waiting = False
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
            batch.again_us = _CHECK_AGAIN_US
        return batch

    def commit(self, offset: Any) -> None:
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
            # The size of a file is limited, so that several files fit into the spool and can be
            # freed one by one.
            spool = Spool(self._folder, after, min(MAX_FILE_BYTES, options.max_spool_bytes // 4))
            pump = Pump(
                options.host, options.port, spool, options.max_spool_bytes, self._clock, self._on_lines
            )
            pump.start()
            self._open = spool, pump
        return self._open

    def _on_lines(self) -> None:
        """Notify the driver of new lines, if a read awaits lines."""
        with self._guard:
            waiting, self._waiting = self._waiting, False
        if waiting:
            self._notify()

    def _check(self, spool: Spool, pump: Pump) -> None:
        """Raise if no sender has accepted a connection within the time of option `patience`.

        A sender that was connected before may reconnect later.
        """
        patience_s = self._options.patience_s if spool.is_new else math.inf
        try:
            pump.check_sender(patience_s)
        except SlicemillError:
            self.close()  # the next read connects again
            raise


# Pump: thread that receives lines from a socket and appends them to a spool
#
# The thread reconnects without limit, with a back-off that grows while connections fail. When the spool has
# reached its maximum size, the thread stops receiving, and TCP back-pressure makes the sender wait. So memory
# and disk use are limited.


MAX_LINE_BYTES = 1 << 20
FIRST_DELAY_S = 0.1
MAX_DELAY_S = 5.0

_LOGGER = logging.getLogger("slicemill")
_STATUS = "status.json"
_CHUNK_BYTES = 1 << 16
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class TcpStatus:
    """Status of a TCP source.

    `problem` is the reason why there is no connection.
    """

    connected: bool
    problem: str | None


def tcp_status(spool: Path) -> TcpStatus | None:
    """Return the last status that the receiving process has written.

    Return None if the status file cannot be read.
    """
    try:
        return TcpStatus(**json.loads((spool / _STATUS).read_text()))
    except (OSError, ValueError, TypeError):
        return None


class Pump:
    """Thread that receives lines from a socket.

    The thread calls `changed` after new lines and after failures.
    """

    def __init__(
        self,
        host: str,
        port: int,
        spool: Spool,
        max_bytes: int,
        clock: Callable[[], int],
        changed: Callable[[], None],
    ) -> None:
        self._address = (host, port)
        self._spool = spool
        self._max_bytes = max_bytes
        self._clock = clock
        self._tell = changed
        self._stopped = threading.Event()
        self._changed = threading.Condition()
        self._connections = 0
        self._problem: str | None = None
        self._failure: SlicemillError | None = None
        self._most_bytes = 0  # upper bound of the size of the spool
        self._begun_s = time.monotonic()
        self._thread = threading.Thread(target=self._run, name=f"tcp {host}:{port}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        self._spool.close()

    def check_sender(self, patience_s: float) -> None:
        """Raise if receiving failed, or if no sender accepted a connection in time.

        The sender may start a little later than the stream. After `patience_s`, the address is probably
        wrong.
        """
        with self._changed:
            if self._failure is not None:
                raise self._failure
            late = time.monotonic() - self._begun_s > patience_s
            if late and self._connections == 0:
                host, port = self._address
                raise SlicemillError(
                    f"nobody listens at tcp://{host}:{port} ({self._problem or 'no answer yet'}); start the "
                    "sender first, correct the address, or wait longer with the option patience"
                )

    @property
    def has_connected(self) -> bool:
        """Return True if a sender has ever accepted a connection."""
        with self._changed:
            return self._connections > 0

    def _run(self) -> None:
        delay_s = FIRST_DELAY_S
        while not self._stopped.is_set():
            received = False
            try:
                with socket.create_connection(self._address, timeout=MAX_DELAY_S) as connection:
                    self._note(connected=True, problem=None)
                    received = self._receive(connection)
                self._note(connected=False, problem="the sender closed the connection")
            except SlicemillError as failure:
                with self._changed:
                    self._failure = failure
                self._tell()
                return
            except OSError as problem:
                self._note(connected=False, problem=problem.strerror or str(problem))
            delay_s = FIRST_DELAY_S if received else min(2 * delay_s, MAX_DELAY_S)
            self._stopped.wait(delay_s)

    def _note(self, connected: bool, problem: str | None) -> None:
        with self._changed:
            self._connections += connected
            self._problem = problem
            self._changed.notify_all()
        content = json.dumps(asdict(TcpStatus(connected, problem))).encode()
        try:
            write_atomically(LOCAL, self._spool.folder / _STATUS, content)
        except OSError as failure:  # receiving continues, because the status is only informational
            _LOGGER.warning("the status of %s is not written: %s", self._thread.name, failure)

    def _receive(self, connection: socket.socket) -> bool:
        """Receive until the connection ends; return True if bytes have arrived."""
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.settimeout(_POLL_S)
        begun = b""
        received = False
        try:
            while not self._stopped.is_set():
                self._wait_for_room()
                try:
                    chunk = connection.recv(_CHUNK_BYTES)
                except TimeoutError:
                    continue
                if not chunk:
                    break
                received = True
                lines, newline, begun = (begun + chunk).rpartition(b"\n")
                # An extremely long line, which would fill the memory, is split. The parts become bad rows.
                if len(begun) > MAX_LINE_BYTES:
                    lines, newline, begun = lines + newline + begun, b"\n", b""
                if newline:
                    self._append(lines + newline)
        finally:
            if begun:
                self._append(begun + b"\n")
        return received

    def _append(self, lines: bytes) -> None:
        self._spool.append(lines, self._clock())
        self._tell()

    def _wait_for_room(self) -> None:
        self._most_bytes += _CHUNK_BYTES
        while self._most_bytes > self._max_bytes and not self._stopped.is_set():
            self._most_bytes = self._spool.size_bytes
            if self._most_bytes > self._max_bytes:
                self._stopped.wait(_POLL_S)


# Options of a TCP source, as in `tcp://host:port?patience=60`
#
# The options are `host`, `port`, `lines` (json, csv, or either, which decides for each line), `patience`
# (seconds without a sender before an error; 0 for no limit), `maxBytesPerTrigger`, `maxSpoolBytes` (maximum
# size of the spool, at which the sender must wait), and the options of CSV.


_CSV = frozenset({"sep", "delimiter", "quote", "escape", "comment", "nullvalue"})
_OWN = frozenset({"host", "port", "lines", "patience", "maxbytespertrigger", "maxspoolbytes"})


@dataclass(frozen=True, slots=True)
class TcpOptions:
    host: str
    port: int
    lines: str
    patience_s: float
    max_trigger_bytes: int
    max_spool_bytes: int


def tcp_options(given: Mapping[str, str]) -> TcpOptions:
    """Check the options of a TCP source, whose names are case-insensitive."""
    options = {key.lower(): str(value) for key, value in given.items()}
    missing = [name for name in ("host", "port") if not options.get(name)]
    if missing:
        raise SlicemillError(f"a TCP source needs the option {missing[0]}")
    unknown = options.keys() - _OWN - _CSV
    if unknown:
        raise SlicemillError(
            f"a TCP source has no option {', '.join(sorted(unknown))}; it has {', '.join(sorted(_OWN))}"
        )
    patience_s = _number(options, "patience", "30")
    return TcpOptions(
        host=options["host"],
        port=_port(options["port"]),
        lines=options.get("lines", EITHER),
        patience_s=patience_s if patience_s > 0 else math.inf,
        max_trigger_bytes=int(_number(options, "maxbytespertrigger", str(64 << 20))),
        max_spool_bytes=int(_number(options, "maxspoolbytes", str(256 << 20))),
    )


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65_536:
        raise SlicemillError(f"a TCP port is a number from 1 to 65535, not {text!r}")
    return int(text)


def _number(options: Mapping[str, str], name: str, default: str) -> float:
    text = options.get(name, default)
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < math.inf:
        raise SlicemillError(f"a TCP source's option {name} is a number of 0 or more, not {text!r}")
    return number
