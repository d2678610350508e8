"""Check of parsed rows against the declaration of a stream, which separates bad rows.

A row is bad if a value does not fit the type of its column, or if its timestamp is missing although the
source supplies timestamps. Each bad row has a *reason*, which is an error message. The reason names the first
column with an error in declared order. Columns that no query needs are checked too, so that queries do not
change which rows are bad.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slicemill.catalog.catalog import Stream, TimestampKind
from slicemill.columns.arrow_schema import to_arrow
from slicemill.errors import SlicemillError
from slicemill.ingest.formats.values import TypedValues, never_fails
from slicemill.kernels.arrays import Int64s
from slicemill.types import Column, Schema

ERRORS = pa.schema([pa.field("raw", pa.string()), pa.field("reason", pa.string())])


@dataclass(frozen=True, slots=True)
class WantedColumns:
    """Declared schema of a stream, and the columns that queries request.

    Values of the column `time` must not be NULL. `read` are the columns to parse: requested columns, and all
    columns whose values may be bad.
    """

    schema: Schema
    time: str | None
    columns: tuple[str, ...]
    arrow: pa.Schema
    read: tuple[Column, ...]

    @staticmethod
    def of(stream: Stream, columns: Sequence[str]) -> WantedColumns:
        """Return the requested columns of a stream that its source supplies."""
        time = stream.time_column if stream.kind is TimestampKind.EXTERNAL else None
        sent = [name for name in columns if name != stream.stamp_column]
        return WantedColumns.of_schema(stream.encoded_schema, sent, time)

    @staticmethod
    def of_schema(schema: Schema, columns: Sequence[str], time: str | None = None) -> WantedColumns:
        unknown = [name for name in columns if name not in schema.names]
        if unknown:
            raise SlicemillError(f"there is no column {unknown[0]}; there are {', '.join(schema.names)}")
        declared = to_arrow(schema)
        read = [
            column
            for column in schema
            if column.name in columns or column.name == time or not never_fails(column.type)
        ]
        arrow = pa.schema([declared.field(name) for name in columns])
        return WantedColumns(schema, time, tuple(columns), arrow, tuple(read))


@dataclass(slots=True)
class Parsed:
    """Rows that fit their declaration, with line or record numbers, and bad rows."""

    table: pa.Table
    numbers: Int64s
    errors: pa.Table | None


@dataclass(slots=True)
class ParsedColumns:
    """Parsed columns of some lines or records, by column name."""

    numbers: Int64s
    columns: Mapping[str, TypedValues]


def check_rows(
    parts: Sequence[ParsedColumns],
    broken: Mapping[int, str],
    wanted: WantedColumns,
    raw: Callable[[int], str],
) -> Parsed:
    """Merge parsed rows, sorted by line number, and separate bad rows.

    `broken` has the error messages of lines that could not be parsed. `raw` returns the text of a line.
    """
    bad = dict(broken)
    tables: list[pa.Table] = []
    numbers: list[Int64s] = []
    for part in parts:
        reasons = _reasons(part, wanted)
        table = pa.table([part.columns[name].array for name in wanted.columns], schema=wanted.arrow)
        kept = part.numbers
        if reasons:
            bad.update((int(part.numbers[position]), reason) for position, reason in reasons.items())
            fine = np.ones(len(kept), np.bool_)
            fine[list(reasons)] = False
            table, kept = table.filter(pa.array(fine)), kept[fine]
        if len(kept):
            tables.append(table)
            numbers.append(kept)
    errors = _errors(bad, raw) if bad else None
    if not tables:
        return Parsed(wanted.arrow.empty_table(), np.empty(0, np.int64), errors)
    if len(tables) == 1:
        return Parsed(tables[0], numbers[0], errors)
    together = np.concatenate(numbers)
    order = np.argsort(together, kind="stable")
    return Parsed(pa.concat_tables(tables).take(pa.array(order)), together[order], errors)


def _reasons(part: ParsedColumns, wanted: WantedColumns) -> dict[int, str]:
    """Return the error messages of rows that do not fit their declaration, by position."""
    reasons: dict[int, str] = {}
    for column in wanted.schema:
        if column.name in part.columns:
            for position, problem in part.columns[column.name].bad.items():
                reasons.setdefault(position, f"column {column.name}: {problem}")
    if wanted.time is not None:
        times = part.columns[wanted.time].array
        if times.null_count:
            for position in np.flatnonzero(pc.is_null(times).to_numpy(zero_copy_only=False)).tolist():
                reasons.setdefault(position, f"the timestamp {wanted.time} is NULL")
    return reasons


def _errors(bad: Mapping[int, str], raw: Callable[[int], str]) -> pa.Table:
    ordered = sorted(bad)
    return pa.table([[raw(number) for number in ordered], [bad[number] for number in ordered]], schema=ERRORS)


def concat_nonempty(tables: Sequence[pa.Table]) -> pa.Table | None:
    """Concatenate tables; return None if there are no rows."""
    filled = [table for table in tables if table.num_rows]
    if len(filled) < 2:
        return filled[0] if filled else None
    return pa.concat_tables(filled)


# Unreadable files: damaged, of another format, or inaccessible


# Start of the error message of a bad row that represents an unreadable file.
# The text of this row is the file name.
FILE_LOST = "this file cannot be read"


class UnreadableFile(SlicemillError):
    """Error: the content of a file is unreadable.

    Retries are useless until the file is rewritten.
    """

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"cannot read {path}: {why}")
        self.why = why


def unreadable(path: Path, problem: Exception) -> SlicemillError:
    """Convert the exception of a file reader to an error with advice.

    The content of the file is unreadable, or the operating system reported an error that may be temporary.
    """
    text = str(problem).strip().splitlines()[0] if str(problem).strip() else type(problem).__name__
    if getattr(problem, "errno", None) is None:
        return UnreadableFile(path, text)
    return SlicemillError(
        f"cannot read {path}: {text}; reading continues when the file is readable or removed"
    )
