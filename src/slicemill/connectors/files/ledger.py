"""The ledger: names of the files that were read, stored beside the offset, which must stay small.

An offset names the files since its place in the ledger. When they are many and the offset is safe in the
journal, their names are written at that place, and later offsets have the place behind them. What stands
there follows from the journal alone: whoever writes it again, after a crash or beside a worker that was
thought dead, writes the same bytes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from slicemill.errors import SlicemillError
from slicemill.storage.files import LOCAL, ensure_folder

_FILE = "read-files"


@dataclass(frozen=True, slots=True)
class Ledger:
    folder: Path

    @property
    def path(self) -> Path:
        return self.folder / _FILE

    def names(self, upto: int) -> list[str]:
        """The names that are written before a place."""
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
        return [str(json.loads(line)) for line in data.splitlines()]

    def write(self, at: int, names: Sequence[str]) -> int:
        """Write names at a place; the place behind them."""
        data = "".join(f"{json.dumps(name)}\n" for name in names).encode()
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
