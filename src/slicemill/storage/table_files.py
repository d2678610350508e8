"""Table files: a whole version, or the difference to another version.

    tables/item-5f0a….arrow     100 000 rows
    tables/item-77c1….arrow     parent item-5f0a….arrow; deletes its rows 3 and 17; adds one row

The rows of a whole file are numbered from 0; rows that later files add continue the numbers. So one
INSERT into a large table writes a small file. Each file is an Arrow file with the other fields in its
metadata. A version that would consist of too many files or changes is written whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from slicemill.errors import SlicemillError
from slicemill.kernels.arrays import Int64s
from slicemill.storage.filesystem import FileSystem

_DIGEST_BYTES = 12
_PARENT, _GONE = b"slicemill.parent", b"slicemill.gone"
_FIRST, _DEPTH, _CHANGES = b"slicemill.first", b"slicemill.depth", b"slicemill.changes"

MOST_FILES = 64
# A version is written whole if this share of its rows has changed since the last whole version.
_MOST_CHANGED = 0.5


class TableDamaged(SlicemillError):
    """Table file whose bytes have changed since they were written."""


@dataclass(frozen=True, slots=True)
class TableFile:
    """Decoded table file: new rows, and deleted rows of its parent.

    Rows are numbered from `first`. `depth` is the number of files before it. `changes` is the number of rows
    added and deleted since the last whole file.
    """

    rows: pa.Table
    parent: str | None = None
    gone: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    first: int = 0
    depth: int = 0
    changes: int = 0

    @property
    def next(self) -> int:
        """Return the number of the next row."""
        return self.first + int(self.rows.num_rows)

    def child_file(self, name: str, gone: Int64s, rows: pa.Table, next_: int) -> TableFile:
        """Return the next version's file, a child of this file `name`."""
        changes = self.changes + len(gone) + rows.num_rows
        return TableFile(rows, name, gone, next_, self.depth + 1, changes)

    def is_long(self, rows: int) -> bool:
        """Return True if a version should be written whole."""
        return self.depth >= MOST_FILES or self.changes > _MOST_CHANGED * rows

    def encoded(self) -> pa.Buffer:
        schema = self.rows.schema.remove_metadata()
        if self.parent is not None:
            said = {_PARENT: self.parent.encode(), _GONE: self.gone.tobytes()}
            for key, value in ((_FIRST, self.first), (_DEPTH, self.depth), (_CHANGES, self.changes)):
                said[key] = str(value).encode()
            schema = schema.with_metadata(said)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, schema) as writer:
            writer.write_table(self.rows.combine_chunks().cast(schema))
        return sink.getvalue()


def content_digest(content: bytes | pa.Buffer) -> str:
    """Return the digest that is part of a table file's name."""
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).hexdigest()


def is_whole(files: FileSystem, path: Path) -> bool:
    """Return True if a table file exists and is undamaged."""
    try:
        return content_digest(files.read(path)) == path.stem.rpartition("-")[2]
    except FileNotFoundError:
        return False


def read_table_file(files: FileSystem, path: Path) -> TableFile:
    """Decode a table file, or raise TableDamaged."""
    content = files.read(path)
    if content_digest(content) != path.stem.rpartition("-")[2]:
        raise TableDamaged(
            f"the table file {path} is damaged: its content does not have the digest of its name; restore it "
            "from a copy, or run 'slicemill home repair' to continue without its rows"
        )
    with pa.ipc.open_file(pa.py_buffer(content)) as reader:
        rows = reader.read_all()
    said = rows.schema.metadata or {}
    if _PARENT not in said:
        return TableFile(rows)
    first, depth, changes = (int(said[key]) for key in (_FIRST, _DEPTH, _CHANGES))
    gone = np.frombuffer(said[_GONE], np.int64)
    return TableFile(rows, said[_PARENT].decode(), gone, first, depth, changes)


def files_of_versions(files: FileSystem, folder: Path, versions: Iterable[str]) -> set[str]:
    """Return the files that versions consist of.

    A missing file has no parent. Raise TableDamaged if a damaged file hides its parent.
    """
    found: set[str] = set()
    disk: Any = files  # a FileSystem is hashable, as the cache requires
    for version in versions:
        name: str | None = version
        while name is not None and name not in found:
            found.add(name)
            try:
                name = _parent(disk, folder / name)
            except FileNotFoundError:
                name = None
    return found


@lru_cache(maxsize=4 * MOST_FILES)
def _parent(files: Any, path: Path) -> str | None:
    """Return the parent of a table file.

    The parent can be cached, because files are named by their content.
    """
    return read_table_file(files, path).parent
