"""Interface of file formats: reads a file in pieces, and parses the pieces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class FilePiece:
    """Unparsed piece of a file, with about `rows` rows."""

    position: int  # position of the next piece
    ended: bool  # the end of the file is reached
    rows: int
    content: Any
    memory: Any


class FileFormat(Protocol):
    """Files of one declaration.

    Positions are bytes or row numbers, depending on the format.
    """

    def take(self, path: Path, position: int, limit_rows: int, memory: Any) -> FilePiece:
        """Read a piece of a file, from a position on.

        `memory` is a JSON value that is passed from one file to the next.
        """
        ...

    def parse(self, taken: Sequence[FilePiece]) -> list[tuple[pa.Table, pa.Table | None]]:
        """Parse pieces into good rows and bad rows, in order."""
        ...

    def close(self) -> None: ...
