"""Interface of file formats, which read a file in blocks and parse the blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class FilePiece:
    """Unparsed block of a file, with about `rows` rows."""

    position: int  # position in the file at which the next block begins
    ended: bool  # True if the block ends at the end of the file
    rows: int
    content: Any
    memory: Any


class FileFormat(Protocol):
    """Format of the files of one declared stream or table.

    Positions in a file are bytes or row numbers, depending on the format.
    """

    def take(self, path: Path, position: int, limit_rows: int, memory: Any) -> FilePiece:
        """Read a block of a file from a position on.

        `memory` is a JSON value that is passed from one file to the next.
        """
        ...

    def parse(self, blocks: Sequence[FilePiece]) -> list[tuple[pa.Table, pa.Table | None]]:
        """Parse blocks of files, in order; return rows and bad rows of each."""
        ...

    def close(self) -> None: ...
