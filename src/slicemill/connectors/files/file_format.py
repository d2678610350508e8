"""The interface of a file format, for the reader of files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class FilePiece:
    """A piece of a file, not yet read as rows. `rows` is how many it may have."""

    position: int  # where to go on
    ended: bool  # the file has no more
    rows: int
    content: Any
    memory: Any


class FileFormat(Protocol):
    """Files of one declaration; positions are whatever the format counts: bytes or rows."""

    def take(self, path: Path, position: int, limit_rows: int, memory: Any) -> FilePiece:
        """A piece of a file; `memory` is plain JSON that one file leaves to the next."""
        ...

    def parse(self, taken: Sequence[FilePiece]) -> list[tuple[pa.Table, pa.Table | None]]:
        """Rows and bad rows of pieces, in order."""
        ...

    def close(self) -> None: ...
