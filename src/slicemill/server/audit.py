"""The audit log: who asked for what, from where, and whether it was done.

One line of JSON each, in the home's `access/audit.jsonl`; a file that has grown large is put aside.
"""

from __future__ import annotations

import json
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


class AuditLog:
    """Appends to a file, and to the server's log; without a home, the log is all."""

    def __init__(self, home: Path | None = None, clock: Callable[[], int] = wall_clock_us) -> None:
        self._file = None if home is None else home / "access" / "audit.jsonl"
        self._clock = clock
        self._lock = threading.Lock()

    def note(self, who: str | None, way: str, what: str, outcome: str) -> None:
        """`way` says how it came in (http, postgres), `outcome` what became of it."""
        what = redacted(what)
        note_event("statement", f"{what[:_SHOWN]!r}: {outcome}", by=who, way=way, outcome=outcome)
        if self._file is None:
            return
        entry = {"at": self._clock(), "by": who, "way": way, "what": what[:_LONGEST], "outcome": outcome}
        with self._lock:
            self._file.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
            if self._file.exists() and self._file.stat().st_size > _LARGE:
                self._file.replace(self._file.with_suffix(".1.jsonl"))
            self._file.touch(mode=0o600)
            with self._file.open("a", encoding="utf-8") as out:
                out.write(json.dumps(entry, ensure_ascii=False) + "\n")
