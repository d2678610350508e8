"""String functions.

Positions count characters from 1, or from the end if negative.

The kernels use Arrow. Where an Arrow function counts bytes or supports fewer letters than Python, the row
form evaluates columns that are not ASCII.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from slicemill import types as t
from slicemill.catalog.expressions import Call
from slicemill.functions.function import SAME, ScalarFunction, Types, plain
from slicemill.functions.kernel import Fallback, KernelCall, KernelMaker, KernelResult, Strict, kernel
from slicemill.functions.values import LONGEST_TEXT, MOST_TEXT, ExpressionError, check_length
from slicemill.functions.vectors import Numbers, numbers, on_arrow
from slicemill.types import Kind, Type

_END = 0x7FFF_FFFF
_LONG = 10_000
# Length of a search string above which Arrow's time grows with the product of both lengths.
_LONG_SEARCH = 32
_AT_LEAST_0 = "CASE WHEN {1} < 0 THEN 0 ELSE {1} END"  # SQL text in which NULL stays NULL


def _positions(types: Types, _result: Type) -> Types:
    """Convert BIGINT counts and positions to INT."""
    return tuple(t.INT if type_.kind is Kind.BIGINT else type_ for type_ in types)


def only_ascii(text: pa.Array) -> pa.Array:
    if pc.all(pc.string_is_ascii(text)).as_py() is False:
        raise Fallback
    return text


# -- functions of single letters --------------------------------------------------------------------------


def _chr(code: int) -> str:
    return "" if code < 0 else chr(code & 0xFF)


def _initcap(text: str) -> str:
    return " ".join(word[:1].title() + word[1:] for word in text.lower().split(" "))


def _translate(text: str, matching: str, replacement: str) -> str:
    table: dict[int, str | None] = {}
    for index, letter in enumerate(matching):
        table.setdefault(ord(letter), replacement[index] if index < len(replacement) else None)
    return text.translate(table)


def _length_column(text: pa.Array) -> Numbers:
    return numbers(pc.utf8_length(text))


# -- concatenation, repetition and padding ----------------------------------------------------------------


def _concat_row(*parts: str) -> str:
    check_length("concat", sum(map(len, parts)))
    return "".join(parts)


def _concat_column(*parts: pa.Array | pa.Scalar) -> pa.Array:
    if sum(_most_bytes(part) for part in parts) > LONGEST_TEXT:
        raise Fallback
    return pc.binary_join_element_wise(*parts, "")


def _most_bytes(text: pa.Array | pa.Scalar) -> int:
    """Return the length of a column's longest text in bytes."""
    return int(pc.max(pc.binary_length(text)).as_py() or 0)


def _concat_in_duckdb(call: Call) -> str:
    return f"({' || '.join(f'{{{index}}}' for index in range(len(call.arguments)))})"


def _concat_ws(separator: str | None, *parts: str | None) -> str | None:
    return None if separator is None else join_texts("concat_ws", separator, parts)


def join_texts(name: str, separator: str, parts: Sequence[str | None]) -> str:
    """Join the strings that are not NULL with a separator."""
    known = [part for part in parts if part is not None]
    check_length(name, sum(map(len, known)) + len(separator) * max(len(known) - 1, 0))
    return separator.join(known)


def _repeat_row(text: str, count: int) -> str:
    check_length("repeat", len(text) * count)
    return text * max(count, 0)


def _repeat_column(text: pa.Array | pa.Scalar, count: NDArray[np.int32]) -> KernelResult:
    bounded = np.clip(count, 0, _LONG)
    longest = _most_bytes(text)
    if longest * int(np.max(bounded, initial=0)) > LONGEST_TEXT or longest * int(np.sum(bounded)) > MOST_TEXT:
        raise Fallback
    times = pa.scalar(int(bounded)) if np.ndim(count) == 0 else pa.array(bounded)
    if isinstance(text, pa.Scalar) and not isinstance(times, pa.Scalar):
        text = pa.repeat(text, len(times))
    return KernelResult(pc.binary_repeat(text, times), fallback=np.asarray(count > _LONG))


def _padding(text: str, width: int, pad: str) -> str:
    check_length("padding", width if pad else 0)
    missing = width - len(text)
    return (pad * (missing // len(pad) + 1))[:missing] if pad and missing > 0 else ""


def _lpad(text: str, width: int, pad: str = " ") -> str:
    return _padding(text, width, pad) + text[: max(width, 0)]


def _rpad(text: str, width: int, pad: str = " ") -> str:
    return text[: max(width, 0)] + _padding(text, width, pad)


def _pad_in_duckdb(name: str) -> tuple[str, str]:
    return (
        f"{name}({{0}}, {{1}}, ' ')",
        f"CASE WHEN {{2}} = '' THEN left({{0}}, {_AT_LEAST_0}) ELSE {name}({{0}}, {{1}}, {{2}}) END",
    )


# -- search for substrings --------------------------------------------------------------------------------


def _part_column(function: Callable[..., Any]) -> KernelMaker:
    """Return a maker of kernels that search columns of strings for a constant."""

    def make(call: KernelCall) -> Strict | None:
        part = call.constant(1)
        if not isinstance(part, str):
            return None
        return lambda text, _part: on_arrow(lambda column: function(column, part), text)

    return make


def _instr_row(text: str, part: str) -> int:
    return text.find(part) + 1


def _instr_column(call: KernelCall) -> Strict | None:
    part = call.constant(1)
    if not isinstance(part, str):
        return None
    return lambda text, _part: numbers(pc.find_substring(only_ascii(text), part)) + np.int32(1)


def _locate(part: str | None, text: str | None, start: int | None = 1) -> int | None:
    if start is None:
        return 0
    if part is None or text is None:
        return None
    if start < 1:
        return 0
    return text.find(part, start - 1) + 1 if part else 1


def _levenshtein(a: str, b: str) -> int:
    row = list(range(len(b) + 1))
    for i, left in enumerate(a, 1):
        diagonal, row[0] = row[0], i
        for j, right in enumerate(b, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (left != right))
    return row[-1]


# -- substrings -------------------------------------------------------------------------------------------


def _slice_column(start: int, stop: int | None = None) -> Strict:
    return lambda text, *_positions: pc.utf8_slice_codeunits(text, start, stop)


def _left_row(text: str, count: int) -> str:
    return text[:count] if count > 0 else ""


def _left_column(call: KernelCall) -> Strict | None:
    count = call.constant(1)
    return _slice_column(0, max(count, 0)) if isinstance(count, int) else None


def _right_row(text: str, count: int) -> str:
    return text[-count:] if count > 0 else ""


def _right_column(call: KernelCall) -> Strict | None:
    count = call.constant(1)
    if not isinstance(count, int):
        return None
    return _slice_column(-count) if count > 0 else _slice_column(0, 0)


def _substring_row(text: str, position: int, count: int = _END) -> str:
    start = position - 1 if position > 0 else len(text) + position if position < 0 else 0
    return text[max(start, 0) : max(start + count, 0)]


def _substring_column(call: KernelCall) -> Strict | None:
    position, count = call.constant(1), call.constant(2, default=_END)
    if not isinstance(position, int) or not isinstance(count, int):
        return None
    if position < 0:
        # A start before the first character shortens the result, which a slice cannot express.
        return _slice_column(position) if count == _END else None
    start = max(position - 1, 0)
    return _slice_column(start, start + max(count, 0))


def _replace_row(text: str, search: str, replacement: str = "") -> str:
    if len(replacement) > len(search) > 0:
        check_length("replace", len(text) + text.count(search) * (len(replacement) - len(search)))
    return text.replace(search, replacement) if search else text


def _replace_column(call: KernelCall) -> Strict | None:
    search, replacement = call.constant(1), call.constant(2, default="")
    if not isinstance(search, str) or not isinstance(replacement, str) or len(search) > _LONG_SEARCH:
        return None
    if not search:
        return lambda text, *_parts: text
    growth = max(len(replacement.encode()) / len(search.encode()), 1.0)

    def replaced(text: pa.Array, *_parts: pa.Scalar) -> pa.Array:
        if text.nbytes * growth > MOST_TEXT or _most_bytes(text) * growth > LONGEST_TEXT:
            raise Fallback
        return pc.replace_substring(text, search, replacement)

    return replaced


def _split_part(text: str, delimiter: str, index: int) -> str:
    if index == 0:
        raise ExpressionError("split_part counts parts from 1, or from -1 at the end; 0 is no part")
    parts = text.split(delimiter) if delimiter else [text]
    position = index - 1 if index > 0 else len(parts) + index
    return parts[position] if 0 <= position < len(parts) else ""


def _substring_index(text: str, delimiter: str, count: int) -> str:
    """Return the part before the count-th delimiter.

    A negative count counts from the end, and returns the part after the delimiter. Delimiters may overlap.
    """
    if count == 0 or not delimiter:
        return ""
    if count > 0:
        found = -1
        for _ in range(count):
            found = text.find(delimiter, found + 1)
            if found < 0:
                return text
        return text[:found]
    # The time of `find` grows with the sum of both lengths, that of `rfind` with their product.
    backwards, part, found = text[::-1], delimiter[::-1], -1
    for _ in range(-count):
        found = backwards.find(part, found + 1)
        if found < 0:
            return text
    return text[len(text) - found :]


_length = ScalarFunction(row=plain(len), column=kernel(_length_column), duckdb="length({0})")
_substring = ScalarFunction(
    row=plain(_substring_row),
    takes=_positions,
    column=_substring_column,
    duckdb=(
        "substr({0}, CASE WHEN {1} = 0 THEN 1 ELSE {1} END)",
        "substr({0}, CASE WHEN {1} = 0 THEN 1 ELSE {1} END, {2})",
    ),
)

STRINGS: dict[str, ScalarFunction] = {
    "ascii": ScalarFunction(row=plain(lambda text: ord(text[0]) if text else 0), duckdb=SAME),
    "char_length": _length,
    "chr": ScalarFunction(row=plain(_chr)),
    "concat": ScalarFunction(row=plain(_concat_row), column=kernel(_concat_column), duckdb=_concat_in_duckdb),
    "concat_ws": ScalarFunction(row=plain(_concat_ws), strict=False, duckdb=SAME),
    "contains": ScalarFunction(
        row=plain(lambda text, part: part in text), column=_part_column(pc.match_substring), duckdb=SAME
    ),
    "endswith": ScalarFunction(
        row=plain(str.endswith), column=_part_column(pc.ends_with), duckdb="ends_with({0}, {1})"
    ),
    "initcap": ScalarFunction(row=plain(_initcap)),
    "instr": ScalarFunction(
        row=plain(_instr_row), column=_instr_column, duckdb="CAST(instr({0}, {1}) AS INTEGER)"
    ),
    "left": ScalarFunction(
        row=plain(_left_row), takes=_positions, column=_left_column, duckdb=f"left({{0}}, {_AT_LEAST_0})"
    ),
    "length": _length,
    "levenshtein": ScalarFunction(row=plain(_levenshtein)),
    "locate": ScalarFunction(
        row=plain(_locate), takes=_positions, strict=False, duckdb="CAST(instr({1}, {0}) AS INTEGER)"
    ),
    "lower": ScalarFunction(
        row=plain(str.lower), column=kernel(lambda text: pc.ascii_lower(only_ascii(text))), duckdb=SAME
    ),
    "lpad": ScalarFunction(row=plain(_lpad), takes=_positions, duckdb=_pad_in_duckdb("lpad")),
    "ltrim": ScalarFunction(
        row=plain(lambda text: text.lstrip(" ")),
        column=kernel(lambda text: pc.ascii_ltrim(text, " ")),
        duckdb=SAME,
    ),
    "repeat": ScalarFunction(
        row=plain(_repeat_row), takes=_positions, column=kernel(_repeat_column), duckdb=SAME
    ),
    "replace": ScalarFunction(
        row=plain(_replace_row),
        column=_replace_column,
        duckdb=("replace({0}, {1}, '')", "replace({0}, {1}, {2})"),
    ),
    "reverse": ScalarFunction(
        row=plain(lambda text: text[::-1]), column=kernel(pc.utf8_reverse), duckdb=SAME
    ),
    "right": ScalarFunction(
        row=plain(_right_row), takes=_positions, column=_right_column, duckdb=f"right({{0}}, {_AT_LEAST_0})"
    ),
    "rpad": ScalarFunction(row=plain(_rpad), takes=_positions, duckdb=_pad_in_duckdb("rpad")),
    "rtrim": ScalarFunction(
        row=plain(lambda text: text.rstrip(" ")),
        column=kernel(lambda text: pc.ascii_rtrim(text, " ")),
        duckdb=SAME,
    ),
    "split_part": ScalarFunction(row=plain(_split_part), takes=_positions, duckdb=SAME),
    "startswith": ScalarFunction(
        row=plain(str.startswith), column=_part_column(pc.starts_with), duckdb="starts_with({0}, {1})"
    ),
    "substr": _substring,
    "substring": _substring,
    "substring_index": ScalarFunction(row=plain(_substring_index), takes=_positions),
    "translate": ScalarFunction(row=plain(_translate), duckdb=SAME),
    "trim": ScalarFunction(
        row=plain(lambda text: text.strip(" ")),
        column=kernel(lambda text: pc.ascii_trim(text, " ")),
        duckdb=SAME,
    ),
    "upper": ScalarFunction(
        row=plain(str.upper), column=kernel(lambda text: pc.ascii_upper(only_ascii(text))), duckdb=SAME
    ),
}
