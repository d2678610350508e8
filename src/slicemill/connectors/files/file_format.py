"""Interface of file formats, for the reader of files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class FilePiece:
    """Unparsed piece of a file, with at most `rows` rows."""

    position: int  # where to continue
    ended: bool  # the file has no more
    rows: int
    content: Any
    memory: Any


class FileFormat(Protocol):
    """Files of one declaration; positions are bytes or rows, by format."""

    def take(self, path: Path, position: int, limit_rows: int, memory: Any) -> FilePiece:
        """Take a piece of a file.

        `memory` is plain JSON that is passed from one file to the next.
        """
        ...

    def parse(self, taken: Sequence[FilePiece]) -> list[tuple[pa.Table, pa.Table | None]]:
        """Parse pieces into rows and bad rows, in order."""
        ...

    def close(self) -> None: ...
