"""Ledger: file with the names of source files that were read, so that offsets stay small.

An offset contains a position in the ledger, and the names of source files that were read later. When an
offset with many names is committed, its names are written to the ledger at that position. Later offsets have
the position after these names. The content of the ledger depends only on committed offsets. So if a write is
repeated, after a crash or by a worker that was considered dead, it writes the same bytes.

Each line has a checksum and a name (`storage.changes`). Older versions wrote only the name.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from slicemill.errors import SlicemillError
from slicemill.storage.changes import frame, unframe
from slicemill.storage.filesystem import LOCAL, ensure_folder

_FILE = "read-files"


@dataclass(frozen=True, slots=True)
class Ledger:
    folder: Path

    @property
    def path(self) -> Path:
        return self.folder / _FILE

    def names(self, upto: int) -> list[str]:
        """Return the file names before a position of the ledger."""
        if not upto:
            return []
        try:
            with self.path.open("rb") as file:
                data = file.read(upto)
        except FileNotFoundError:
            data = b""
        if len(data) < upto:
            raise SlicemillError(
                f"{self.path} has lost names of files that were read; restore the home's folder as a whole"
            )
        return [self._name(line) for line in data.splitlines(keepends=True)]

    def _name(self, line: bytes) -> str:
        try:
            # A line of an older version has no checksum and begins with the name.
            content = line if line.startswith(b'"') else unframe(line)
            if content is not None:
                return str(json.loads(content))
        except ValueError:
            pass
        raise SlicemillError(
            f"{self.path} is damaged: a line with the name of a file that was read cannot be read; restore "
            "it from a copy of the home"
        )

    def write(self, at: int, names: Sequence[str]) -> int:
        """Write file names at a position of the ledger; return the position after them."""
        data = b"".join(frame(json.dumps(name).encode()) for name in names)
        ensure_folder(LOCAL, self.folder)
        file = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            written = 0
            while written < len(data):
                written += os.pwrite(file, data[written:], at + written)
            os.fdatasync(file)
        finally:
            os.close(file)
        return at + len(data)
