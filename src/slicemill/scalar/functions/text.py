"""Functions of texts. Positions count characters from 1, negative ones from the end, as in SQL and Spark."""

from __future__ import annotations

from slicemill.esl.types import schema as t
from slicemill.esl.types.schema import Kind, Type
from slicemill.scalar.values import ExpressionError, Scalar, Types, plain


def _positions(types: Types, result: Type) -> Types:
    """Counts and positions are INT; a BIGINT must fit."""
    del result
    return tuple(t.INT if type_.kind is Kind.BIGINT else type_ for type_ in types)


def _chr(code: int) -> str:
    return "" if code < 0 else chr(code & 0xFF)


def _concat_ws(separator: str | None, *parts: str | None) -> str | None:
    return None if separator is None else separator.join(part for part in parts if part is not None)


def _initcap(text: str) -> str:
    return " ".join(word[:1].title() + word[1:] for word in text.lower().split(" "))


def _locate(part: str | None, text: str | None, start: int | None = 1) -> int | None:
    if start is None:
        return 0
    if part is None or text is None:
        return None
    if start < 1:
        return 0
    return text.find(part, start - 1) + 1 if part else 1


def _left(text: str, count: int) -> str:
    return text[:count] if count > 0 else ""


def _right(text: str, count: int) -> str:
    return text[-count:] if count > 0 else ""


def _substring(text: str, position: int, count: int = 0x7FFF_FFFF) -> str:
    start = position - 1 if position > 0 else len(text) + position if position < 0 else 0
    return text[max(start, 0) : max(start + count, 0)]


def _padding(text: str, width: int, pad: str) -> str:
    missing = width - len(text)
    return (pad * (missing // len(pad) + 1))[:missing] if pad and missing > 0 else ""


def _lpad(text: str, width: int, pad: str = " ") -> str:
    return _padding(text, width, pad) + text[: max(width, 0)]


def _rpad(text: str, width: int, pad: str = " ") -> str:
    return text[: max(width, 0)] + _padding(text, width, pad)


def _replace(text: str, search: str, replacement: str = "") -> str:
    return text.replace(search, replacement) if search else text


def _split_part(text: str, delimiter: str, index: int) -> str:
    if index == 0:
        raise ExpressionError("split_part counts parts from 1, or from -1 at the end; 0 is no part")
    parts = text.split(delimiter) if delimiter else [text]
    place = index - 1 if index > 0 else len(parts) + index
    return parts[place] if 0 <= place < len(parts) else ""


def _substring_index(text: str, delimiter: str, count: int) -> str:
    """What stands before the count-th delimiter, or behind it from the end; delimiters may overlap."""
    if count == 0 or not delimiter:
        return ""
    if count > 0:
        place = -1
        for _ in range(count):
            place = text.find(delimiter, place + 1)
            if place < 0:
                return text
        return text[:place]
    place = len(text) - len(delimiter) + 1
    for _ in range(-count):
        place = text.rfind(delimiter, 0, place - 1 + len(delimiter)) if place > 0 else -1
        if place < 0:
            return text
    return text[place + len(delimiter) :]


def _translate(text: str, matching: str, replacement: str) -> str:
    table: dict[int, str | None] = {}
    for index, letter in enumerate(matching):
        table.setdefault(ord(letter), replacement[index] if index < len(replacement) else None)
    return text.translate(table)


def _levenshtein(a: str, b: str) -> int:
    row = list(range(len(b) + 1))
    for i, left in enumerate(a, 1):
        diagonal, row[0] = row[0], i
        for j, right in enumerate(b, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (left != right))
    return row[-1]


TEXT: dict[str, Scalar] = {
    "ascii": plain(lambda text: ord(text[0]) if text else 0),
    "char_length": plain(len),
    "chr": plain(_chr),
    "concat": plain(lambda *parts: "".join(parts)),
    "concat_ws": plain(_concat_ws, strict=False),
    "contains": plain(lambda text, part: part in text),
    "endswith": plain(str.endswith),
    "initcap": plain(_initcap),
    "instr": plain(lambda text, part: text.find(part) + 1),
    "left": plain(_left, _positions),
    "length": plain(len),
    "levenshtein": plain(_levenshtein),
    "locate": plain(_locate, _positions, strict=False),
    "lower": plain(str.lower),
    "lpad": plain(_lpad, _positions),
    "ltrim": plain(lambda text: text.lstrip(" ")),
    "repeat": plain(lambda text, count: text * max(count, 0), _positions),
    "replace": plain(_replace),
    "reverse": plain(lambda text: text[::-1]),
    "right": plain(_right, _positions),
    "rpad": plain(_rpad, _positions),
    "rtrim": plain(lambda text: text.rstrip(" ")),
    "split_part": plain(_split_part, _positions),
    "startswith": plain(str.startswith),
    "substr": plain(_substring, _positions),
    "substring": plain(_substring, _positions),
    "substring_index": plain(_substring_index, _positions),
    "translate": plain(_translate),
    "trim": plain(lambda text: text.strip(" ")),
    "upper": plain(str.upper),
}
