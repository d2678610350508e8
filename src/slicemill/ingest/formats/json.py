"""Parser of JSON lines: with Arrow if possible, otherwise object by object.

Arrow requires the type of each column in advance: numbers or texts. The first lines of a block determine it.
Arrow also accepts two objects on one line, or one object on two lines. So Arrow gets only lines that begin
and end with a brace, and the number of parsed objects is compared with the number of lines. (In Arrow, a line
with only `null` would crash the process.) A block that Arrow cannot parse is split repeatedly, until only a
few lines around the irregular line are parsed one by one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as arrow_json

from slicemill.ingest.formats.checked import ParsedColumns, WantedColumns
from slicemill.ingest.formats.lines import TextLines
from slicemill.ingest.formats.parquet import one_array
from slicemill.ingest.formats.records import BadRow, json_record, value_of
from slicemill.ingest.formats.values import TypedValues, convert_each, from_column
from slicemill.kernels.arrays import Bools, Int64s
from slicemill.types import Column, Kind, Type

_FEW_LINES = 32
_LEAST_PIECE = 8
_PIECES = 8
_SAMPLED = 4
_MOST_BYTES = 1 << 30
# Maximum number of brackets in a line that Arrow parses. Deeply nested values would exhaust Arrow's stack.
_MOST_BRACKETS = 1000
# Words that only Arrow accepts as JSON, and halves of surrogate pairs, which Arrow does not replace.
_ODD_WORDS = re.compile(rb"NaN|Inf|\\u[dD][89a-fA-F]")
_ESCAPE = re.compile(rb"\\u")
_SAMPLE_TYPES: dict[Kind, dict[type, pa.DataType]] = {
    Kind.INT: {int: pa.int64(), str: pa.string()},
    Kind.BIGINT: {int: pa.int64(), str: pa.string()},
    Kind.INTERVAL: {int: pa.int64(), str: pa.string()},
    Kind.DOUBLE: {float: pa.float64(), int: pa.float64(), str: pa.string()},
    Kind.DECIMAL: {str: pa.string()},
    Kind.BOOLEAN: {bool: pa.bool_(), str: pa.string()},
    Kind.TIMESTAMP: {str: pa.string(), int: pa.int64()},
    Kind.DATE: {str: pa.string()},
    Kind.VARCHAR: {str: pa.string(), int: pa.int64()},
    Kind.BINARY: {str: pa.string()},
}


def json_parts(
    lines: TextLines, numbers: Int64s, wanted: WantedColumns, broken: dict[int, str]
) -> list[ParsedColumns]:
    """Parse JSON lines to columns.

    A line that is not exactly one object is added to `broken`.
    """
    if not len(numbers):
        return []
    chosen = lines.select(numbers)
    odd = _odd_lines(chosen) if len(numbers) > _FEW_LINES else np.arange(len(numbers))
    regular = np.setdiff1d(np.arange(len(numbers)), odd, assume_unique=True)
    parts: list[ParsedColumns] = []
    left = [odd]
    _parse_with_arrow(chosen, regular, wanted, parts, left)
    for part in parts:
        part.numbers = numbers[part.numbers]
    rest = np.sort(np.concatenate(left))
    if len(rest):
        parts.append(_parse_objects(lines, numbers[rest], wanted, broken))
    return parts


# -- parsing with Arrow -----------------------------------------------------------------------------------


def _odd_lines(lines: TextLines) -> Int64s:
    """Return the numbers of JSON lines that Arrow cannot parse or might parse differently."""
    data = np.frombuffer(lines.data, np.uint8)
    first, last = data[lines.edges[:-1]], data[np.maximum(lines.edges[1:] - 2, 0)]
    odd = [np.flatnonzero((first != b"{"[0]) | (last != b"}"[0])), lines.with_byte(b"\r")]
    if b"NaN" in lines.data or b"Inf" in lines.data or b"\\u" in lines.data:
        offsets = [match.start() for match in _ODD_WORDS.finditer(lines.data)]
        odd.append(lines.at(np.array(offsets, np.int64)))
    if lines.data.count(b"[") + lines.data.count(b"{") - len(lines) > _MOST_BRACKETS:
        brackets = np.flatnonzero((data == b"["[0]) | (data == b"{"[0]))
        counts = np.diff(np.searchsorted(brackets, lines.edges))
        odd.append(np.flatnonzero(counts > _MOST_BRACKETS))
    return np.unique(np.concatenate(odd))


def _parse_with_arrow(
    lines: TextLines, numbers: Int64s, wanted: WantedColumns, parts: list[ParsedColumns], left: list[Int64s]
) -> None:
    """Parse JSON lines with Arrow, recursively.

    The numbers of lines that Arrow cannot parse are added to `left`.
    """
    if len(numbers) <= _LEAST_PIECE:
        left.append(numbers)
        return
    chosen = lines.select(numbers)
    sampled = _sample_types(chosen, wanted.read) if len(chosen.data) < _MOST_BYTES else None
    part = None if sampled is None else _read(chosen, sampled, wanted)
    if part is None:
        step = max(-(-len(numbers) // _PIECES), _LEAST_PIECE)
        for first in range(0, len(numbers), step):
            _parse_with_arrow(lines, numbers[first : first + step], wanted, parts, left)
        return
    unsure = _lines_to_recheck(chosen, part, wanted.read)
    if len(unsure):
        fine = np.ones(len(numbers), np.bool_)
        fine[unsure] = False
        columns = {name: _where(values, fine) for name, values in part.columns.items()}
        left.append(numbers[unsure])
        parts.append(ParsedColumns(numbers[fine], columns))
    else:
        parts.append(ParsedColumns(numbers, part.columns))


def _where(values: TypedValues, fine: Bools) -> TypedValues:
    moved = np.cumsum(fine) - 1
    bad = {int(moved[position]): why for position, why in values.bad.items() if fine[position]}
    return TypedValues(values.array.filter(pa.array(fine)), bad)


def _sample_types(lines: TextLines, columns: Sequence[Column]) -> dict[str, pa.DataType] | None:
    """Return the Arrow type of each column, determined from the first lines.

    Return None if Arrow cannot read the spelling of a value.
    """
    records = [json_record(lines.text(number)) for number in range(min(_SAMPLED, len(lines)))]
    types: dict[str, pa.DataType] = {}
    for column in columns:
        values = [None if isinstance(record, BadRow) else record[1].get(column.name) for record in records]
        element = column.type.element
        if element is not None:
            if not all(value is None or isinstance(value, list) for value in values):
                return None
            values = [one for value in values if isinstance(value, list) for one in value]
        found = _type_of_spelling(values, element or column.type)
        if found is None:
            return None
        types[column.name] = found if element is None else pa.list_(found)
    return types


def _type_of_spelling(values: Sequence[object], type_: Type) -> pa.DataType | None:
    """Return the Arrow type with which Arrow reads the first value that is not NULL."""
    spellings = _SAMPLE_TYPES[type_.kind]
    value = next((value for value in values if value is not None), None)
    if value is None:
        return next(iter(spellings.values()))
    return spellings.get(float if isinstance(value, float) else type(value))


def _read(lines: TextLines, types: dict[str, pa.DataType], wanted: WantedColumns) -> ParsedColumns | None:
    try:
        table = arrow_json.read_json(
            pa.BufferReader(lines.data),
            arrow_json.ReadOptions(use_threads=False, block_size=len(lines.data) + 1),
            arrow_json.ParseOptions(
                explicit_schema=pa.schema(list(types.items())), unexpected_field_behavior="ignore"
            ),
        )
    except pa.ArrowInvalid:
        return None
    if table.num_rows != len(lines):
        return None
    columns = {}
    for column in wanted.read:
        columns[column.name] = from_column(one_array(table.column(column.name)), column.type)
    return ParsedColumns(np.arange(len(lines)), columns)


def _lines_to_recheck(lines: TextLines, part: ParsedColumns, columns: Sequence[Column]) -> Int64s:
    """Return the lines that Arrow may have parsed wrongly, to parse them one by one.

    They may have names in another case, escaped names, or infinity.
    """
    unsure = np.zeros(len(lines), np.bool_)
    lowered: bytes | None = None
    for column in columns:
        array = part.columns[column.name].array
        if pa.types.is_floating(array.type):
            unsure |= ~pc.fill_null(pc.is_finite(array), True).to_numpy(zero_copy_only=False)
        if pa.types.is_list(array.type) and pa.types.is_floating(array.type.value_type):
            infinite = pc.invert(pc.fill_null(pc.is_finite(pc.list_flatten(array)), True))
            unsure[pc.filter(pc.list_parent_indices(array), infinite).to_numpy()] = True
        if array.null_count:
            lowered = lines.data.lower() if lowered is None else lowered
            name = f'"{column.name}"'.encode()
            if lowered.count(name.lower()) > lines.data.count(name) or not column.name.isascii():
                unsure |= pc.is_null(array).to_numpy(zero_copy_only=False)
            if b"\\u" in lines.data:  # a field name may contain escaped letters
                offsets = [match.start() for match in _ESCAPE.finditer(lines.data)]
                unsure[lines.at(np.array(offsets, np.int64))] = True
    return np.flatnonzero(unsure)


# -- parsing object by object -----------------------------------------------------------------------------


def _parse_objects(
    lines: TextLines, numbers: Int64s, wanted: WantedColumns, broken: dict[int, str]
) -> ParsedColumns:
    kept: list[int] = []
    records = []
    for number in numbers.tolist():
        found = json_record(lines.text(number))
        if isinstance(found, BadRow):
            broken[number] = found.reason
        else:
            kept.append(number)
            records.append(found[1])
    columns = {}
    for column in wanted.read:
        columns[column.name] = convert_each(
            [value_of(record, column.name) for record in records], column.type
        )
    return ParsedColumns(np.array(kept, np.int64), columns)
