"""Audit log: user, client interface and outcome of each statement.

The log has one line of JSON per statement, in `access/audit.jsonl` of the home directory. A file larger than
64 MiB is renamed to `audit.1.jsonl`.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

from slicemill.secrets import redact
from slicemill.server.logs import note_event
from slicemill.storage.filesystem import PRIVATE_FOLDER
from slicemill.time import wall_clock_us

_LARGE = 64 << 20
_LONGEST = 2_000
_SHOWN = 200
_MOST_WAITING = 10_000


class AuditLog:
    """Writer of the audit file, which also writes each statement to the server's log.

    Without a home directory there is no audit file. If an entry cannot be written, for instance because the
    disk is full, its statement does not fail, because the statement may already be applied. The entry stays
    in memory and is written before the next entries.
    """

    def __init__(self, home: Path | None = None, clock: Callable[[], int] = wall_clock_us) -> None:
        self._file = None if home is None else home / "access" / "audit.jsonl"
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: list[bytes] = []
        self.problem: str | None = None  # reason why entries could not be written, or None if all are written

    def note(self, who: str | None, way: str, what: str, outcome: str) -> str | None:
        """Write an entry. Return a warning if the entry could not be written yet.

        `way` is the interface (http, postgres). `outcome` is the result of the statement.
        """
        what = redact(what)
        note_event("statement", f"{what[:_SHOWN]!r}: {outcome}", by=who, way=way, outcome=outcome)
        if self._file is None:
            return None
        entry = {"at": self._clock(), "by": who, "way": way, "what": what[:_LONGEST], "outcome": outcome}
        with self._lock:
            self._waiting.append((json.dumps(entry, ensure_ascii=False) + "\n").encode())
            return self._write(self._file)

    def write_waiting(self) -> None:
        """Retry the entries that could not be written before."""
        with self._lock:
            if self._file is not None and self._waiting:
                self._write(self._file)

    def _write(self, file: Path) -> str | None:
        try:
            file.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
            if file.exists() and file.stat().st_size > _LARGE:
                file.replace(file.with_suffix(".1.jsonl"))
            _append(file, b"".join(self._waiting))
        except OSError as problem:
            del self._waiting[:-_MOST_WAITING]
            self.problem = (
                f"the audit log {file} cannot be written: {problem.strerror or problem}; "
                f"{len(self._waiting)} entries will be written later"
            )
            return self.problem
        self._waiting.clear()
        self.problem = None
        return None


def _append(file: Path, data: bytes) -> None:
    """Append all of the data, or nothing if the disk is full."""
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        try:
            while data:
                data = data[os.write(descriptor, data) :]
        except OSError:
            os.ftruncate(descriptor, size)
            raise
    finally:
        os.close(descriptor)
