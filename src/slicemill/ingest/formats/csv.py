"""Parser of CSV lines: with Arrow if possible, otherwise field by field.

A field may be quoted. A quote inside a quoted field is doubled, or follows the `escape` character. An empty
field is NULL. A field with wrong quotes is parsed as in Spark: the value of `"a"b` is `"a"b`, with the
quotes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from slicemill.columns.arrow_schema import arrow_type
from slicemill.errors import SlicemillError
from slicemill.ingest.formats.checked import ParsedColumns, WantedColumns
from slicemill.ingest.formats.lines import TextLines
from slicemill.ingest.formats.parquet import one_array
from slicemill.ingest.formats.values import TypedValues, convert_each, from_texts
from slicemill.kernels.arrays import Int64s
from slicemill.types import Column, Schema

# Number of lines below which parsing field by field is faster than parsing with Arrow.
_FEW_LINES = 32
_MOST_BYTES = 1 << 30
_BOM = b"\xef\xbb\xbf"
_ESCAPED = {"\\t": "\t", "\\\\": "\\", "\\n": "\n", "\\r": "\r", "\\0": "\0", "\\|": "|"}


@dataclass(frozen=True, slots=True)
class CsvFormat:
    """Format of CSV lines, with the names of the fields in order.

    `quote` and `comment` may be empty.
    """

    names: Sequence[str]
    separator: str = ","
    quote: str = '"'
    escape: str = '"'
    null: str = ""
    comment: str = ""

    def with_names(self, names: Sequence[str]) -> CsvFormat:
        return replace(self, names=tuple(names))


def csv_format(names: Sequence[str], options: Mapping[str, str]) -> CsvFormat:
    """Return the CSV format for the options of a stream's declaration.

    Option names are case-insensitive.

    >>> csv_format(["a", "b"], {"SEP": "\\\\t"}).separator
    '\\t'
    """
    given = {name.lower(): value for name, value in options.items()}
    separator = given.get("sep", given.get("delimiter", ","))
    separator = _ESCAPED.get(separator, separator)
    if not separator or {"\n", "\r"} & set(separator):
        raise SlicemillError(f"fields cannot be separated by {separator!r}; give sep one character, like ';'")
    for name in ("quote", "escape", "comment"):
        if len(given.get(name, "")) > 1:
            raise SlicemillError(f"CSV's option {name} is one character, not {given[name]!r}")
    return CsvFormat(
        names=tuple(names),
        separator=separator,
        quote=given.get("quote", '"'),
        escape=given.get("escape", '"'),
        null=given.get("nullvalue", ""),
        comment=given.get("comment", ""),
    )


def csv_parts(
    lines: TextLines, numbers: Int64s, wanted: WantedColumns, form: CsvFormat, broken: dict[int, str]
) -> list[ParsedColumns]:
    """Parse CSV lines to columns.

    A line with a wrong number of fields is added to `broken`.
    """
    if not len(numbers):
        return []
    chosen = lines.select(numbers)
    odd = np.arange(len(numbers))
    parts: list[ParsedColumns] = []
    if len(numbers) > _FEW_LINES and _is_for_arrow(form) and len(chosen.data) < _MOST_BYTES:
        odd = _odd_lines(chosen, form)
        regular = np.setdiff1d(np.arange(len(numbers)), odd, assume_unique=True)
        if len(regular):
            part, unequal = _parse_with_arrow(chosen.select(regular), wanted, form)
            part.numbers = numbers[regular[part.numbers]]
            parts.append(part)
            odd = np.union1d(odd, regular[unequal])
    if len(odd):
        parts.append(_by_field(lines, numbers[odd], wanted, form, broken))
    return parts


@lru_cache(maxsize=100)
def _positions(names: tuple[str, ...], columns: tuple[Column, ...]) -> dict[str, int | None]:
    return {column.name: field_of(column.name, names) for column in columns}


def field_of(column: str, names: Sequence[str]) -> int | None:
    """Return the index of a column's field in the header, or None.

    A field with the exact name has precedence over a field whose name differs in case.

    >>> field_of("b", ["A", "B", "b"]), field_of("a", ["A", "B", "b"]), field_of("c", ["A", "B", "b"])
    (2, 0, None)
    """
    if column in names:
        return names.index(column)
    lowered = [name.lower() for name in names]
    return lowered.index(column.lower()) if column.lower() in lowered else None


def header_notice(file: str, names: Sequence[str], schema: Schema, known: bool) -> str | None:
    """Return a warning about the header of a file.

    Return None if the header fits. The warning lists missing columns. It also lists undeclared columns,
    unless the same header is `known`.

    >>> from slicemill.types import INT
    >>> schema = Schema((Column("a", INT), Column("b", INT)))
    >>> header_notice("1.csv", ["B", "c"], schema, known=False)
    '1.csv has no column a: it is NULL in its rows; c is not declared and left out'
    >>> header_notice("2.csv", ["b", "a"], schema, known=False)
    """
    missing = [column.name for column in schema if field_of(column.name, names) is None]
    read = {field_of(column.name, names) for column in schema}
    extra = [name for index, name in enumerate(names) if index not in read]
    told = [f"{file} has no column {', '.join(missing)}: it is NULL in its rows"] if missing else []
    if extra and not known:
        verb = "is" if len(extra) == 1 else "are"
        told.append(f"{', '.join(extra)} {verb} not declared and left out")
    return "; ".join(told) or None


# -- parsing with Arrow -----------------------------------------------------------------------------------


def _is_for_arrow(form: CsvFormat) -> bool:
    characters = form.separator + form.quote
    return len(form.separator) == 1 and characters.isascii() and form.separator != form.quote


def _odd_lines(lines: TextLines, form: CsvFormat) -> Int64s:
    """Return the numbers of CSV lines that Arrow might parse differently.

    These lines have irregular quotes or control characters.
    """
    odd = [lines.with_byte(b"\r"), lines.with_byte(b"\0")]
    marked = lines.with_byte(_BOM[:1])  # Arrow drops a byte order mark at the start of a block
    odd.append(np.array([n for n in marked.tolist() if lines.line(n).startswith(_BOM)], np.int64))
    if form.comment:
        odd.append(lines.with_byte(form.comment.encode()[:1]))
    if form.quote:
        quoted = lines.with_byte(form.quote.encode())
        if len(quoted) and form.escape == form.quote:
            texts = lines.select(quoted).array(pa.large_string())
            plain = pc.match_substring_regex(texts, _plain_quotes(form)).to_numpy(zero_copy_only=False)
            quoted = quoted[~plain]
        odd.append(quoted)
    return np.unique(np.concatenate(odd))


def _plain_quotes(form: CsvFormat) -> str:
    """Return a pattern for lines with regular quotes.

    Each field of such a line is quoted completely or not at all.
    """
    quote, separator = re.escape(form.quote), re.escape(form.separator)
    bare = f"[^{quote}{separator}\\n]*"
    field = f"(?:{quote}(?:[^{quote}]|{quote}{quote})*{quote}|{bare})"
    return f"^{field}(?:{separator}{field})*\\n$"


def _parse_with_arrow(
    lines: TextLines, wanted: WantedColumns, form: CsvFormat
) -> tuple[ParsedColumns, Int64s]:
    """Parse CSV lines with Arrow.

    Return the columns, and the numbers of lines with a wrong number of fields.
    """
    unequal: list[int] = []

    def skip(row: arrow_csv.InvalidRow) -> str:
        unequal.append(row.number - 1)
        return "skip"

    names = [str(number) for number in range(len(form.names))]
    positions = _positions(tuple(form.names), wanted.read)
    used = sorted({names[position] for position in positions.values() if position is not None}, key=int)
    used = used or names[:1]
    table = arrow_csv.read_csv(
        pa.BufferReader(lines.data),
        arrow_csv.ReadOptions(use_threads=False, column_names=names, block_size=len(lines.data) + 1),
        arrow_csv.ParseOptions(
            delimiter=form.separator,
            quote_char=form.quote or False,
            double_quote=True,
            newlines_in_values=False,
            ignore_empty_lines=False,
            invalid_row_handler=skip,
        ),
        arrow_csv.ConvertOptions(
            column_types=dict.fromkeys(used, pa.string()),
            include_columns=used,
            strings_can_be_null=True,
            quoted_strings_can_be_null=True,
            null_values=sorted({"", form.null}),
            check_utf8=False,
        ),
    )
    columns: dict[str, TypedValues] = {}
    for column in wanted.read:
        position = positions[column.name]
        if position is None:
            columns[column.name] = TypedValues(pa.nulls(table.num_rows, arrow_type(column.type)))
        else:
            columns[column.name] = from_texts(one_array(table.column(names[position])), column.type)
    skipped = np.array(unequal, np.int64)
    return ParsedColumns(np.setdiff1d(np.arange(len(lines)), skipped, assume_unique=True), columns), skipped


# -- parsing field by field -------------------------------------------------------------------------------


def _by_field(
    lines: TextLines, numbers: Int64s, wanted: WantedColumns, form: CsvFormat, broken: dict[int, str]
) -> ParsedColumns:
    kept: list[int] = []
    rows: list[list[str | None]] = []
    for number in numbers.tolist():
        line = lines.line(number).decode()
        if form.comment and line.startswith(form.comment):
            continue
        fields = csv_fields(line, form)
        if len(fields) == len(form.names):
            kept.append(number)
            rows.append(fields)
        else:
            broken[number] = f"this row does not have {len(form.names)} fields"
    columns = {}
    positions = _positions(tuple(form.names), wanted.read)
    for column in wanted.read:
        position = positions[column.name]
        raw: list[object] = [None if position is None else row[position] for row in rows]
        columns[column.name] = convert_each(raw, column.type)
    return ParsedColumns(np.array(kept, np.int64), columns)


def csv_fields(line: str, form: CsvFormat) -> list[str | None]:
    '''Return the fields of a CSV line, with None for NULL.

    >>> csv_fields('7,"a, ""b""",,"x"y', CsvFormat(["a", "b", "c", "d"]))
    ['7', 'a, "b"', None, '"x"y']
    '''
    return [None if field in ("", form.null) else field for field in split_fields(line, form)]


def split_fields(line: str, form: CsvFormat) -> list[str]:
    """Return the fields of a CSV line as strings."""
    if not form.quote or form.quote not in line:
        return line.split(form.separator)
    return _with_quotes(line, form)


def _with_quotes(line: str, form: CsvFormat) -> list[str]:
    fields: list[str] = []
    at = 0
    while True:
        if line.startswith(form.quote, at):
            field, at = _read_quoted_field(line, at, form)
        else:
            end = line.find(form.separator, at)
            field, at = (line[at:], len(line)) if end < 0 else (line[at:end], end)
        fields.append(field)
        if at >= len(line):
            return fields
        at += len(form.separator)


def _read_quoted_field(line: str, begin: int, form: CsvFormat) -> tuple[str, int]:
    """Return the text and the end of a field that begins with a quote."""
    quote, escape = form.quote, form.escape
    found: list[str] = []
    at = begin + 1
    if at == len(line):
        return quote, at
    while at < len(line):
        character = line[at]
        following = line[at + 1 : at + 2]
        if character == escape and following and (following == quote or (following == escape != quote)):
            found.append(following)
            at += 2
        elif character == quote and following == quote:
            found.append(quote)
            at += 1
        elif character == quote:
            at += 1
            end = at
            while end < len(line) and line[end] <= " " and not line.startswith(form.separator, end):
                end += 1
            if end == len(line) or line.startswith(form.separator, end):
                return "".join(found), end  # blanks after the closing quote are ignored
            # The quote does not close the field. The field ends at the next separator.
            end = line.find(form.separator, at)
            end = len(line) if end < 0 else end
            return quote + "".join(found) + quote + line[at:end], end
        else:
            found.append(character)
            at += 1
    return "".join(found), at
