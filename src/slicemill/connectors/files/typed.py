"""Parquet files, read by row group."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from slicemill.connectors.files.file_format import FilePiece
from slicemill.ingest.formats.checked import WantedColumns
from slicemill.ingest.formats.columns import check_columns
from slicemill.ingest.formats.parquet import ParquetRows


def check_names(paths: Sequence[Path], wanted: WantedColumns) -> None:
    """Raise if a declared column is in none of the files.

    Unreadable files are ignored.
    """
    present: dict[str, None] = {}
    for path in paths:
        with contextlib.suppress(OSError, pa.ArrowException):
            present.update(dict.fromkeys(pq.read_schema(path).names))
    if present:
        check_columns(wanted.schema, list(present))


@dataclass(slots=True)
class ParquetFiles:
    """Parquet files of one declaration; positions are row numbers."""

    wanted: WantedColumns
    _file: ParquetRows | None = None

    def take(self, path: Path, position: int, limit_rows: int, memory: Any) -> FilePiece:
        if self._file is None or self._file.path != path:
            self.close()
            self._file = ParquetRows.open(path, self.wanted)
        file = self._file
        parts, end = file.read(position, limit_rows)
        return FilePiece(end, end >= file.rows, end - position, parts, memory)

    def parse(self, taken: Sequence[FilePiece]) -> list[tuple[pa.Table, pa.Table | None]]:
        return [(part.table, part.errors) for one in taken for part in one.content]

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
