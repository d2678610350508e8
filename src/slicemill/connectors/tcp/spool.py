"""A socket that can be read again: one thread receives lines and writes them to numbered files.

What comes over a socket comes once, but Spark may ask for the same offsets again after a crash. So lines go
to disk before anybody hears of them: complete lines are appended to `incoming`, which is sealed under the
next number when a reader asks what there is, or when it is full. A sealed file never changes, and is removed
when its rows are safe elsewhere. A killed process loses at most the unfinished line that no sender completes.

When the files that nobody has taken yet fill their allowance, the thread stops receiving, and TCP makes the
sender wait: memory and disk are bounded.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

from slicemill.errors import SlicemillError

MAX_LINE_BYTES = 1 << 20
MAX_FILE_BYTES = 4 << 20
FIRST_DELAY_S = 0.1
MAX_DELAY_S = 5.0

_SUFFIX = ".lines"
_INCOMING = "incoming"
_STATUS = "status.json"
_CHUNK_BYTES = 1 << 16
_POLL_S = 0.05
_LOCK_PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class TcpStatus:
    """How a socket fares; `problem` says why there is no connection."""

    connected: bool
    problem: str | None


def tcp_status(spool: Path) -> TcpStatus | None:
    """What the receiving process last said, or None where there never was one."""
    try:
        return TcpStatus(**json.loads((spool / _STATUS).read_text()))
    except FileNotFoundError:
        return None


def sealed_files(spool: Path) -> dict[int, Path]:
    """Sealed files by number, in order."""
    found = {int(path.stem): path for path in spool.glob(f"*{_SUFFIX}")}
    return dict(sorted(found.items()))


def file_bytes(path: Path) -> int:
    """The size of a file, which may be removed meanwhile."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def remove_through(spool: Path, number: int) -> None:
    """Forget the sealed files up to a number: their rows are safe elsewhere."""
    for sealed, path in sealed_files(spool).items():
        if sealed <= number:
            path.unlink(missing_ok=True)


class Spool:
    """The folder of one socket, open for writing in one process at a time."""

    def __init__(self, folder: Path, after: int) -> None:
        """Numbers go on after the last sealed file, and after `after`, which may be removed already."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._exclusive = _locked(folder)
        self._guard = threading.Lock()
        self.last = max(after, *sealed_files(folder), 0)
        self._incoming = self._opened()

    def _opened(self) -> BinaryIO:
        path = self.folder / _INCOMING
        torn = path.exists() and path.stat().st_size > 0 and not path.read_bytes().endswith(b"\n")
        file = path.open("ab", buffering=0)
        if torn:
            file.write(b"\n")
        return file

    def append(self, lines: bytes) -> None:
        """Add complete lines."""
        rest = memoryview(lines)
        try:
            with self._guard:
                while rest:
                    rest = rest[self._incoming.write(rest) :]
                full = self._incoming.tell() >= MAX_FILE_BYTES
            if full:
                self.seal()
        except OSError as problem:
            raise SlicemillError(f"cannot write what came by TCP to {self.folder}: {problem}") from problem

    def seal(self) -> int:
        """Make all that was appended readable; the number of the last sealed file."""
        with self._guard:
            if self._incoming.tell() > 0:
                os.fsync(self._incoming.fileno())
                self._incoming.close()
                target = self.folder / f"{self.last + 1:012d}{_SUFFIX}"
                (self.folder / _INCOMING).replace(target)
                self.last += 1
                self._incoming = self._opened()
            return self.last

    def bytes(self) -> int:
        with self._guard:
            incoming = self._incoming.tell()
        return incoming + sum(file_bytes(path) for path in sealed_files(self.folder).values())

    def close(self) -> None:
        with self._guard:
            self._incoming.close()
        self._exclusive.close()


def _locked(folder: Path) -> BinaryIO:
    """Hold the folder until the file is closed; the process of a query that just ended may need a moment."""
    file = (folder / "lock").open("ab")
    deadline = time.monotonic() + _LOCK_PATIENCE_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except OSError:
            if time.monotonic() > deadline:
                file.close()
                raise SlicemillError(
                    f"another process receives into {folder}; stop it, or use another home"
                ) from None
            time.sleep(_POLL_S)


class Pump:
    """The thread that receives. It connects again for ever, ever more slowly while nobody answers."""

    def __init__(self, host: str, port: int, spool: Spool, max_bytes: int) -> None:
        self._address = (host, port)
        self._spool = spool
        self._max_bytes = max_bytes
        self._stopped = threading.Event()
        self._changed = threading.Condition()
        self._connections = 0
        self._connected = False
        self._closed = 0
        self._problem: str | None = None
        self._failure: SlicemillError | None = None
        self._most_bytes = 0  # at most so many are in the spool now
        self._active_s = self._begun_s = time.monotonic()
        self._thread = threading.Thread(target=self._run, name=f"tcp {host}:{port}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        self._spool.close()

    def check_somebody_answered(self, patience_s: float) -> None:
        """Nobody there at the first try may be a sender that starts late; later it is a wrong address."""
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

    def wait_until_quiet(self, pause_s: float, patience_s: float) -> None:
        """Until the sender has closed its connection, or has sent nothing for a while."""
        while True:
            self.check_somebody_answered(patience_s)
            with self._changed:
                quiet_s = time.monotonic() - self._active_s
                if self._closed or (self._connected and quiet_s >= pause_s):
                    return
                self._changed.wait(_POLL_S)

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
                self._failure = failure
                return
            except OSError as problem:
                self._note(connected=False, problem=problem.strerror or str(problem))
            delay_s = FIRST_DELAY_S if received else min(2 * delay_s, MAX_DELAY_S)
            self._stopped.wait(delay_s)

    def _note(self, connected: bool, problem: str | None) -> None:
        with self._changed:
            self._closed += self._connected and not connected
            self._connections += connected
            self._connected, self._problem = connected, problem
            self._active_s = time.monotonic()
            self._changed.notify_all()
        temporary = self._spool.folder / f"{_STATUS}.new"
        temporary.write_text(json.dumps(asdict(TcpStatus(connected, problem))))
        temporary.replace(self._spool.folder / _STATUS)

    def _receive(self, connection: socket.socket) -> bool:
        """Read to the end of the connection; whether anything came."""
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
                # A line without an end would fill the memory; cut, it is a bad row.
                if len(begun) > MAX_LINE_BYTES:
                    lines, newline, begun = lines + newline + begun, b"\n", b""
                if newline:
                    self._spool.append(lines + newline)
                self._active_s = time.monotonic()
        finally:
            if begun:
                self._spool.append(begun + b"\n")
        return received

    def _wait_for_room(self) -> None:
        self._most_bytes += _CHUNK_BYTES
        while self._most_bytes > self._max_bytes and not self._stopped.is_set():
            self._most_bytes = self._spool.bytes()
            if self._most_bytes > self._max_bytes:
                self._stopped.wait(_POLL_S)
