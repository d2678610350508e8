"""Files of tables (CREATE TABLE): all rows of a version, or the difference to an earlier version.

    tables/item-5f0a….arrow     100 000 rows
    tables/item-77c1….arrow     parent item-5f0a….arrow; deletes its rows 3 and 17; adds one row

The *parent* of a file is the file of the previous version, to which it adds and deletes rows. The rows of a
whole file are numbered from 0, and rows that later files add continue the numbers. So one INSERT into a large
table writes a small file. Each file is an Arrow file with parent and deletes in its metadata. A version that
would consist of too many files or changes is written as a whole file.
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
_PARENT, _DELETED = b"slicemill.parent", b"slicemill.gone"
_FIRST, _DEPTH, _CHANGES = b"slicemill.first", b"slicemill.depth", b"slicemill.changes"

MOST_FILES = 64
# Share of rows changed since the last whole file above which a version is written as a whole file again.
_MOST_CHANGED = 0.5


class TableDamaged(SlicemillError):
    """Error: the bytes of a table file have changed since they were written."""


@dataclass(frozen=True, slots=True)
class TableFile:
    """Decoded table file: added rows, and the row numbers of deleted rows of the previous version.

    Added rows are numbered from `first`. `depth` is the number of files between this file and the last whole
    file. `changes` is the number of rows added and deleted since the last whole file.
    """

    rows: pa.Table
    parent: str | None = None
    deleted: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    first: int = 0
    depth: int = 0
    changes: int = 0

    @property
    def next(self) -> int:
        """Return the row number that the next added row gets."""
        return self.first + int(self.rows.num_rows)

    def next_version(self, name: str, deleted: Int64s, rows: pa.Table, first: int) -> TableFile:
        """Return the file of the table's next version, which stores the difference to this file.

        `name` is the name of this file, and `first` is the number of the first added row.
        """
        changes = self.changes + len(deleted) + rows.num_rows
        return TableFile(rows, name, deleted, first, self.depth + 1, changes)

    def is_long(self, rows: int) -> bool:
        """Return True if the version, which has `rows` rows, should be written as a whole file."""
        return self.depth >= MOST_FILES or self.changes > _MOST_CHANGED * rows

    def encoded(self) -> pa.Buffer:
        schema = self.rows.schema.remove_metadata()
        if self.parent is not None:
            metadata = {_PARENT: self.parent.encode(), _DELETED: self.deleted.tobytes()}
            for key, value in ((_FIRST, self.first), (_DEPTH, self.depth), (_CHANGES, self.changes)):
                metadata[key] = str(value).encode()
            schema = schema.with_metadata(metadata)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, schema) as writer:
            writer.write_table(self.rows.combine_chunks().cast(schema))
        return sink.getvalue()


def content_digest(content: bytes | pa.Buffer) -> str:
    """Return the digest of a table file's content. The name of the file contains this digest."""
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
    metadata = rows.schema.metadata or {}
    if _PARENT not in metadata:
        return TableFile(rows)
    first, depth, changes = (int(metadata[key]) for key in (_FIRST, _DEPTH, _CHANGES))
    deleted = np.frombuffer(metadata[_DELETED], np.int64)
    return TableFile(rows, metadata[_PARENT].decode(), deleted, first, depth, changes)


def files_of_versions(files: FileSystem, folder: Path, versions: Iterable[str]) -> set[str]:
    """Return the names of all files that table versions need, including earlier files they build on.

    The search ends at a missing file. Raise TableDamaged if a file is damaged.
    """
    found: set[str] = set()
    disk: Any = files  # typed as Any, because the cache of `_parent` requires a hashable type
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
    """Return the name of the file of the previous version, or None for a whole file.

    The name can be cached, because a table file is named by its content and never changes.
    """
    return read_table_file(files, path).parent
