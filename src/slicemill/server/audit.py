"""The audit log: who asked for what, from where, and whether it was done.

One line of JSON each, in the home's `access/audit.jsonl`; a file that has grown large is put aside.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

from slicemill.secrets import redacted
from slicemill.server.logs import note_event
from slicemill.storage.files import PRIVATE_FOLDER
from slicemill.time import wall_clock_us

_LARGE = 64 << 20
_LONGEST = 2_000
_SHOWN = 200
_MOST_WAITING = 10_000


class AuditLog:
    """Appends to a file, and to the server's log; without a home, the log is all.

    An entry that cannot be written, because the disk is full for instance, does not fail its statement, which
    may be done already. It is kept, and written in front of the next ones that can be.
    """

    def __init__(self, home: Path | None = None, clock: Callable[[], int] = wall_clock_us) -> None:
        self._file = None if home is None else home / "access" / "audit.jsonl"
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: list[bytes] = []
        self.problem: str | None = None  # why entries wait, as long as they do

    def note(self, who: str | None, way: str, what: str, outcome: str) -> str | None:
        """Write an entry: `way` says how it came in (http, postgres), `outcome` what became of it.

        Returns a warning if it could not be written so far.
        """
        what = redacted(what)
        note_event("statement", f"{what[:_SHOWN]!r}: {outcome}", by=who, way=way, outcome=outcome)
        if self._file is None:
            return None
        entry = {"at": self._clock(), "by": who, "way": way, "what": what[:_LONGEST], "outcome": outcome}
        with self._lock:
            self._waiting.append((json.dumps(entry, ensure_ascii=False) + "\n").encode())
            return self._write(self._file)

    def write_waiting(self) -> None:
        """Write the entries that wait, if that is possible by now."""
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
                f"entries that wait for it: {len(self._waiting)}"
            )
            return self.problem
        self._waiting.clear()
        self.problem = None
        return None


def _append(file: Path, data: bytes) -> None:
    """Append all of the data, or nothing."""
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
