"""Thread that receives lines from a socket into a spool.

It reconnects for ever, with a growing back-off while connections fail. When unread lines fill the spool's
limit, it stops receiving, and TCP back-pressure makes the sender wait. So memory and disk are bounded.
"""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from slicemill.connectors.tcp.spool import Spool
from slicemill.errors import SlicemillError
from slicemill.storage.files import LOCAL, write_whole

MAX_LINE_BYTES = 1 << 20
FIRST_DELAY_S = 0.1
MAX_DELAY_S = 5.0

_LOGGER = logging.getLogger("slicemill")
_STATUS = "status.json"
_CHUNK_BYTES = 1 << 16
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class TcpStatus:
    """Status of a socket; `problem` says why there is no connection."""

    connected: bool
    problem: str | None


def tcp_status(spool: Path) -> TcpStatus | None:
    """Return the last status of the receiving process, None if unreadable."""
    try:
        return TcpStatus(**json.loads((spool / _STATUS).read_text()))
    except (OSError, ValueError, TypeError):
        return None


class Pump:
    """Receiving thread; it calls `changed` for new lines and failures."""

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
        self._most_bytes = 0  # upper bound of the spool's size
        self._begun_s = time.monotonic()
        self._thread = threading.Thread(target=self._run, name=f"tcp {host}:{port}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        self._spool.close()

    def check_somebody_answered(self, patience_s: float) -> None:
        """Raise if no sender answered in time, or if receiving failed.

        A failed first attempt may be a sender that starts late; later it is a wrong address.
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
        """Return True if a sender has ever answered."""
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
            write_whole(LOCAL, self._spool.folder / _STATUS, content)
        except OSError as failure:  # the status is informational, so receiving continues
            _LOGGER.warning("the status of %s is not written: %s", self._thread.name, failure)

    def _receive(self, connection: socket.socket) -> bool:
        """Receive until the connection ends; return True if bytes arrived."""
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
                # A line without an end would fill the memory; a cut line is a bad row.
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
