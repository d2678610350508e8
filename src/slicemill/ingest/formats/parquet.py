"""Reader of Parquet files, which returns rows of a declared schema.

Columns are matched by name, ignoring case, for each file. A missing column is NULL. Columns of the declared
type need no conversion. Values of another type are cast. If the cast of a value fails, the row is bad
(`values`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from slicemill.columns.arrow_schema import arrow_type
from slicemill.errors import SlicemillError
from slicemill.functions.calendar import DAY_US, days_of
from slicemill.ingest.formats.checked import (
    Parsed,
    ParsedColumns,
    UnreadableFile,
    WantedColumns,
    check_rows,
    unreadable,
)
from slicemill.ingest.formats.records import record_text
from slicemill.ingest.formats.values import TypedValues, from_column
from slicemill.types import Column, Schema


@dataclass(slots=True)
class ParquetRows:
    """Open Parquet file, whose rows are numbered from 0.

    The last parsed row group is cached.
    """

    path: Path
    wanted: WantedColumns
    file: pq.ParquetFile
    edges: list[int]  # borders of row groups: group g has rows edges[g] <= n < edges[g + 1]
    file_columns: Mapping[str, str]  # column of the file for each declared column
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
        return ParquetRows(path, wanted, file, edges, _find_columns(file.schema_arrow, wanted, path), rebase)

    @property
    def rows(self) -> int:
        return self.edges[-1]

    def close(self) -> None:
        self.file.close()

    def read(self, first: int, limit: int) -> tuple[list[Parsed], int]:
        """Read up to `limit` rows from row number `first` on.

        Also return the number after the last row.
        """
        parts: list[Parsed] = []
        last = min(first + limit, self.rows)
        if first == 0 and last == self.rows and len(self.edges) > 2:
            return [self._parse_groups(range(len(self.edges) - 1), last)], last
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
            self._group = (group, self._parse_groups(range(group, group + 1), rows))
        return self._group[1]

    def _parse_groups(self, groups: range, rows: int) -> Parsed:
        read = [column for column in self.wanted.schema if self._is_checked(column)]
        names = sorted(
            {self.file_columns[column.name] for column in read if column.name in self.file_columns}
        )
        table = self._table(groups, names)
        columns: dict[str, TypedValues] = {}
        for column in read:
            name = self.file_columns.get(column.name)
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

        return check_rows([part], {}, self.wanted, raw)

    def _is_checked(self, column: Column) -> bool:
        if column.name in self.wanted.columns or column.name == self.wanted.time:
            return True
        name = self.file_columns.get(column.name)
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


def _find_columns(schema: pa.Schema, wanted: WantedColumns, path: Path) -> dict[str, str]:
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
    """Return the parsed rows with numbers first <= n < last.

    Bad rows are returned with row 0.
    """
    low, high = (int(edge) for edge in np.searchsorted(parsed.numbers, [first, last]))
    errors = parsed.errors if first == 0 else None
    return Parsed(parsed.table.slice(low, high - low), parsed.numbers[low:high], errors)


# Julian dates in Parquet files of old writers (Spark before 3.0, Hive)
#
# Such files count days before 15 October 1582 by the Julian calendar. Spark 3 and other systems use the
# Gregorian calendar for all days. As in Spark, the written date is preserved, so its day number changes.
# Timestamps before 1900 also depend on the time zone of the writer, of which only UTC is supported.


Rebase: TypeAlias = Callable[[pa.Array], pa.Array]

_MARKS = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_WRITTEN_BY = b"org.apache.spark.version"
_ZONE = b"org.apache.spark.timeZone"
_UTC = (b"UTC", b"Etc/UTC", b"Z", b"GMT")
_GREGORIAN_FROM = -141_427  # day number of 1582-10-15, the first day of the Gregorian calendar
_ZONES_FROM_US = -2_208_988_800_000_000  # 1900-01-01, since when time zones have had regular offsets
_JULIAN_EPOCH = 2_440_588  # Julian day number of 1970-01-01


def rebase_of(metadata: Mapping[bytes, bytes], path: Path) -> Rebase | None:
    """Return a function that converts a file's Julian dates, or None if it has none."""
    old = metadata.get(_WRITTEN_BY, b"3") < b"3"
    if not old and not any(mark in metadata for mark in _MARKS):
        return None
    utc = metadata.get(_ZONE) in _UTC

    def rebase(column: pa.Array) -> pa.Array:
        if pa.types.is_date32(column.type):
            return _rebase_days(column, pa.int32(), 1)
        if pa.types.is_timestamp(column.type):
            micros = column.cast(pa.timestamp("us", tz=column.type.tz))
            values = micros.cast(pa.int64()).drop_null().to_numpy()
            if not utc and len(values) and values.min() < _ZONES_FROM_US:
                raise UnreadableFile(
                    path,
                    "it has instants before 1900 by the clock of an unknown time zone; write it again with "
                    "Spark 3 or later",
                )
            return _rebase_days(micros, pa.int64(), DAY_US)
        return column

    return rebase


def _rebase_days(column: pa.Array, whole: pa.DataType, per_day: int) -> pa.Array:
    values = column.cast(whole).fill_null(0).to_numpy(zero_copy_only=False)
    old = values < _GREGORIAN_FROM * per_day
    if not old.any():
        return column
    days, rest = np.divmod(values[old].astype(np.int64), per_day)
    changed = values.copy()
    changed[old] = np.array([_gregorian(int(day)) for day in days]) * per_day + rest
    return pa.array(changed, whole, mask=column.is_null().to_numpy(zero_copy_only=False)).cast(column.type)


def _gregorian(day: int) -> int:
    """Return the day number whose Gregorian date is the Julian date of `day`.

    >>> _gregorian(-141_428) == days_of(1582, 10, 4)
    True
    """
    # Algorithm of E. G. Richards for the Julian calendar.
    f = day + _JULIAN_EPOCH + 1401
    e = 4 * f + 3
    h = 5 * (e % 1461 // 4) + 2
    day_of_month = h % 153 // 5 + 1
    month = (h // 153 + 2) % 12 + 1
    year = e // 1461 - 4716 + (14 - month) // 12
    return days_of(year, month, day_of_month)


# Check of typed tables against the declaration of a stream


def check_columns(schema: Schema, present: Sequence[str]) -> None:
    """Raise if a declared column is missing; names are case-insensitive."""
    lowered = {name.lower() for name in present}
    missing = [column.name for column in schema if column.name.lower() not in lowered]
    if missing:
        raise SlicemillError(
            f"the source has no column {', '.join(missing)}; it has {', '.join(present) or 'none'}"
        )


def check_table(table: pa.Table, wanted: WantedColumns) -> Parsed:
    """Check the rows of a table that has all declared columns; separate bad rows."""
    names = {name.lower(): name for name in table.column_names}
    columns = {
        column.name: from_column(one_array(table.column(names[column.name.lower()])), column.type)
        for column in wanted.read
    }
    part = ParsedColumns(np.arange(table.num_rows), columns)
    return check_rows([part], {}, wanted, lambda number: record_text(table.slice(number, 1).to_pylist()[0]))


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as a single Arrow array, without a copy if possible."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
