"""Table versions as processes read them, by file name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import overload

import numpy as np
import pyarrow as pa

from slicemill.columns.rows import plain_rows
from slicemill.esl.types.schema import Schema
from slicemill.rows import Row
from slicemill.storage.files import LOCAL
from slicemill.storage.table_files import MOST_FILES, Numbers, TableFile, read_table_file

# Cached versions of tables: a few current versions, and the versions that they build on.
_READ_AT_ONCE = 2 * MOST_FILES


@dataclass(frozen=True)
class NumberedRows:
    """Rows of a version by number; `next` is the next number."""

    rows: Mapping[int, Row]
    next: int

    @cached_property
    def in_order(self) -> list[Row]:
        return list(self.rows.values())

    def after(self, gone: Sequence[int], added: Sequence[Row]) -> NumberedRows:
        """Return the rows without those in `gone`, followed by `added`."""
        rows = dict(self.rows)
        for number in gone:
            del rows[number]
        rows.update(enumerate(added, self.next))
        return NumberedRows(rows, self.next + len(added))


class StoredTable(Sequence[Row]):
    """One version of a table's rows, loaded on first use."""

    __slots__ = ("file", "schema")

    def __init__(self, file: Path, schema: Schema) -> None:
        self.file = file
        self.schema = schema

    @property
    def numbered(self) -> NumberedRows:
        return _rows_in(self.file, self.schema)

    @property
    def columns(self) -> pa.Table:
        """Return the rows as columns."""
        return columns_in(self.file)[1]

    @overload
    def __getitem__(self, place: int) -> Row: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Row]: ...
    def __getitem__(self, place: int | slice) -> Row | Sequence[Row]:
        return self.numbered.in_order[place]

    def __iter__(self) -> Iterator[Row]:
        return iter(self.numbered.in_order)

    def __len__(self) -> int:
        return len(self.numbered.rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StoredTable) and (self.file, self.schema) == (other.file, other.schema)

    def __hash__(self) -> int:
        return hash(self.file)


@lru_cache(maxsize=_READ_AT_ONCE)
def file_in(file: Path) -> TableFile:
    """Return the decoded file of a table version."""
    return read_table_file(LOCAL, file)


@lru_cache(maxsize=_READ_AT_ONCE)
def _rows_in(file: Path, schema: Schema) -> NumberedRows:
    said = file_in(file)
    added = plain_rows(said.rows, schema)
    if said.parent is None:
        return NumberedRows(dict(enumerate(added)), len(added))
    return _rows_in(file.parent / said.parent, schema).after(said.gone.tolist(), added)


@lru_cache(maxsize=16)
def columns_in(file: Path) -> tuple[Numbers, pa.Table]:
    """Return the row numbers of a version, and its rows."""
    said = file_in(file)
    own = np.arange(said.first, said.next)
    if said.parent is None:
        return own, said.rows
    numbers, rows = columns_in(file.parent / said.parent)
    if len(said.gone):
        stays = np.isin(numbers, said.gone, invert=True)
        numbers, rows = numbers[stays], rows.filter(pa.array(stays))
    added = said.rows.replace_schema_metadata(None)
    return np.concatenate([numbers, own]), pa.concat_tables([rows, added])
