"""Parquet files to rows of a declared schema.

Columns are matched by name, ignoring case; a missing column is NULL. Columns of the declared types need no
conversion. Values of other types are cast, or make the row bad (see `values`). Each file is matched
separately.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from slicemill.esl.types.schema import Column
from slicemill.ingest.formats.checked import Parsed, ParsedColumns, WantedColumns, checked
from slicemill.ingest.formats.columns import one_array
from slicemill.ingest.formats.old_calendar import Rebase, rebase_of
from slicemill.ingest.formats.record_text import record_text
from slicemill.ingest.formats.unreadable import UnreadableFile, unreadable
from slicemill.ingest.formats.values import TypedValues, from_column
from slicemill.storage.arrow_schema import arrow_type


@dataclass(slots=True)
class ParquetRows:
    """Parquet file that is open; rows are numbered from 0.

    The last parsed row group is cached.
    """

    path: Path
    wanted: WantedColumns
    file: pq.ParquetFile
    edges: list[int]  # row group g has rows edges[g] <= n < edges[g + 1]
    found: Mapping[str, str]  # declared column -> column of the file
    rebase: Rebase | None
    _group: tuple[int, Parsed] | None = field(default=None)

    @staticmethod
    def open(path: Path, wanted: WantedColumns) -> ParquetRows:
        try:
            file = pq.ParquetFile(path, memory_map=True, coerce_int96_timestamp_unit="us")
        except (OSError, pa.ArrowException) as problem:
            raise unreadable(path, problem) from None
        metadata = file.metadata
        edges = [0]
        for group in range(metadata.num_row_groups):
            edges.append(edges[-1] + metadata.row_group(group).num_rows)
        rebase = rebase_of(metadata.metadata or {}, path)
        return ParquetRows(path, wanted, file, edges, _found(file.schema_arrow, wanted, path), rebase)

    @property
    def rows(self) -> int:
        return self.edges[-1]

    def close(self) -> None:
        self.file.close()

    def read(self, first: int, limit: int) -> tuple[list[Parsed], int]:
        """Read up to `limit` rows; also return the number after the last."""
        parts: list[Parsed] = []
        last = min(first + limit, self.rows)
        if first == 0 and last == self.rows and len(self.edges) > 2:
            return [self._parsed(range(len(self.edges) - 1), last)], last
        while first < last:
            group = int(np.searchsorted(self.edges, first, side="right")) - 1
            begin, end = self.edges[group], self.edges[group + 1]
            until = min(last, end)
            parts.append(_between(self._of_group(group), first - begin, until - begin))
            first = until
        return parts, last

    def _of_group(self, group: int) -> Parsed:
        if self._group is None or self._group[0] != group:
            rows = self.edges[group + 1] - self.edges[group]
            self._group = (group, self._parsed(range(group, group + 1), rows))
        return self._group[1]

    def _parsed(self, groups: range, rows: int) -> Parsed:
        read = [column for column in self.wanted.schema if self._is_looked_at(column)]
        names = sorted({self.found[column.name] for column in read if column.name in self.found})
        table = self._table(groups, names)
        columns: dict[str, TypedValues] = {}
        for column in read:
            name = self.found.get(column.name)
            if name is None:
                columns[column.name] = TypedValues(pa.nulls(rows, arrow_type(column.type)))
            else:
                columns[column.name] = from_column(self._array(table, name), column.type)
        part = ParsedColumns(np.arange(rows), columns)
        everything: dict[str, pa.Table] = {}

        def raw(number: int) -> str:
            if not everything:
                everything["rows"] = self._table(groups, self.file.schema_arrow.names)
            return record_text(everything["rows"].slice(number, 1).to_pylist()[0])

        return checked([part], {}, self.wanted, raw)

    def _is_looked_at(self, column: Column) -> bool:
        if column.name in self.wanted.columns or column.name == self.wanted.time:
            return True
        name = self.found.get(column.name)
        if name is None:
            return False
        same = self.file.schema_arrow.field(name).type == arrow_type(column.type)
        return not same or column.type.length is not None

    def _table(self, groups: range, names: list[str]) -> pa.Table:
        try:
            if len(groups) == len(self.edges) - 1:
                return self.file.read(names, use_threads=False)
            return self.file.read_row_groups(list(groups), names, use_threads=False)
        except (OSError, pa.ArrowException) as problem:
            raise unreadable(self.path, problem) from None

    def _array(self, table: pa.Table, name: str) -> pa.Array:
        array = one_array(table.column(name))
        return array if self.rebase is None else self.rebase(array)


def _found(schema: pa.Schema, wanted: WantedColumns, path: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for column in wanted.schema:
        alike = [name for name in schema.names if name.lower() == column.name.lower()]
        exact = [name for name in alike if name == column.name]
        if len(alike) > 1 and len(exact) != 1:
            raise UnreadableFile(path, f"it has several columns {column.name}: {', '.join(alike)}")
        if alike:
            found[column.name] = (exact or alike)[0]
    return found


def _between(parsed: Parsed, first: int, last: int) -> Parsed:
    """Return rows first <= n < last; row 0 brings the errors."""
    low, high = (int(edge) for edge in np.searchsorted(parsed.numbers, [first, last]))
    errors = parsed.errors if first == 0 else None
    return Parsed(parsed.table.slice(low, high - low), parsed.numbers[low:high], errors)
