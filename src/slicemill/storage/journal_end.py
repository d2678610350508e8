"""The end of the journal: a file that has the epoch of the last commit.

    journal/end      lines as of records: <crc32> {"e":17,"boot":"5f0a…"}; the last whole line counts

A journal that was cut off between two records looks as it did before the last commits. With this file the
difference is found when the home is opened. The line is written after the record, so it may be missing after
a crash, and never names a commit that was not made.

With durability "process" a loss of power may take records whose line stays. So the line names the boot of the
machine: after another boot, missing records are reported and the home opens. With durability "machine" the
record is on disk before the line is written, so the line holds after any boot.
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
    """The last commit that is known; `boot` is empty if its record was synced before."""

    epoch: int
    boot: str

    @property
    def is_binding(self) -> bool:
        """Return True if the journal cannot have lost the record by a loss of power."""
        return not self.boot or self.boot == this_boot()


def this_boot() -> str:
    """Return the identifier of the machine's boot; "unknown" where the system has none."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return "unknown"


def read_end(journal: Path, files: FileSystem) -> JournalEnd | None:
    """Return the last commit that the file names; None if it is missing or has no whole line."""
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
    """Notes each commit. An error is ignored: an older line is still true."""

    __slots__ = ("_boot", "_bytes", "_file")

    def __init__(self, journal: Path, files: FileSystem, durable: bool) -> None:
        self._boot = b"" if durable else this_boot().encode()
        self._file: AppendFile = files.append(journal / END_FILE)
        self._bytes = _MOST_BYTES  # of the file before: unknown

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
