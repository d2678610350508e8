"""End of the journal: a file with the last commit's epoch.

    journal/end      framed like records: <crc32> {"e":17,"boot":"5f0a…"}; the last whole line counts

A journal that was cut off between two records looks like one before its last commits. This file reveals the
difference when the home is opened. The line is written after the record. So it may be missing after a crash,
but it never names a commit that was not made.

With durability "process" a loss of power may destroy records whose line survives. So the line has the boot id
of the machine: after another boot, missing records are only reported and the home opens. With durability
"machine" the record is on disk before the line is written, so the line counts after any boot.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from slicemill.storage.files import AppendFile, FileSystem
from slicemill.storage.lines import frame, unframe

END_FILE = "end"
_MOST_BYTES = 1 << 16
_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class JournalEnd:
    """Last known commit; `boot` is empty if its record was synced first."""

    epoch: int
    boot: str

    @property
    def is_binding(self) -> bool:
        """Return True if a loss of power cannot explain a missing record."""
        return not self.boot or self.boot == this_boot()


def this_boot() -> str:
    """Return the machine's boot id, "unknown" if there is none."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return "unknown"


def read_end(journal: Path, files: FileSystem) -> JournalEnd | None:
    """Return the last commit in the file. None without a line."""
    try:
        data = files.read(journal / END_FILE)
    except FileNotFoundError:
        return None
    for line in reversed(data.split(b"\n")):
        content = unframe(line + b"\n")
        if content is not None:
            fields = json.loads(content)
            return JournalEnd(fields["e"], fields["boot"])
    return None


class JournalEndWriter:
    """Writer of the last commit.

    Errors are ignored, because an older line stays true.
    """

    __slots__ = ("_boot", "_bytes", "_file")

    def __init__(self, journal: Path, files: FileSystem, durable: bool) -> None:
        self._boot = b"" if durable else this_boot().encode()
        self._file: AppendFile = files.append(journal / END_FILE)
        self._bytes = _MOST_BYTES  # size of the existing file: unknown

    def note(self, epoch: int) -> None:
        line = frame(b'{"e":%d,"boot":"%b"}' % (epoch, self._boot))
        try:
            self._file.write(line)
            self._bytes += len(line)
            if self._bytes > _MOST_BYTES:
                self._file.cut(0)
                self._file.write(line)
                self._bytes = len(line)
        except OSError:
            return

    def close(self) -> None:
        self._file.close()
