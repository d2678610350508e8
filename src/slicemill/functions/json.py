"""JSON functions, as in Spark."""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

from slicemill.functions.function import ScalarFunction, plain
from slicemill.functions.json_path import json_path
from slicemill.functions.values import double_text


class _JsonNumber(str):
    """Number in a JSON text, in Spark's format."""

    __slots__ = ()


def _double(value: float) -> _JsonNumber:
    return _JsonNumber(double_text(value) if math.isfinite(value) else f'"{double_text(value)}"')


def _not_json(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


class _JsonObject(list[tuple[str, Any]]):
    """Fields of a JSON object, including duplicate names."""

    def first(self, name: str) -> Any:
        return next((value for own, value in self if own == name), None)


_DECODER = json.JSONDecoder(
    parse_int=lambda text: _JsonNumber(int(text) if len(text) < 4_000 else text),
    parse_float=lambda text: _double(float(text)),
    parse_constant=_not_json,
    object_pairs_hook=_JsonObject,
    strict=False,
)
_BLANKS = " \t\r\n"
_ESCAPED = re.compile(r'[\x00-\x1f"\\\U00010000-\U0010ffff]')
_SHORT = {"\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "\\": "\\\\"}


def get_json_object(text: str, path: str) -> str | None:
    """Return the value at a path of a JSON text.

    Return None if the path does not exist or the text is not JSON.
    """
    steps = json_path(path)
    text = text.lstrip(_BLANKS)
    try:
        value, end = _DECODER.raw_decode(text)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, _JsonNumber) and text[end : end + 1].strip(_BLANKS):
        return None  # the text 2024-02-29 is not the number 2024
    for step in steps:
        if isinstance(step, str):
            value = value.first(step) if isinstance(value, _JsonObject) else None
        else:
            value = value[step] if type(value) is list and step < len(value) else None
        if value is None:
            return None
    return value if type(value) is str else None if value is None else _print_value(value)


def _print_value(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, _JsonNumber):
        return str(value)
    if isinstance(value, str):
        return f'"{_ESCAPED.sub(_escape, value)}"'
    if isinstance(value, _JsonObject):
        fields = (f"{_print_value(name)}:{_print_value(one)}" for name, one in value)
        return f"{{{','.join(fields)}}}"
    return f"[{','.join(map(_print_value, value))}]"


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code > 0xFFFF:  # as a surrogate pair
        return f"\\u{0xD7C0 + (code >> 10):04X}\\u{0xDC00 + (code & 0x3FF):04X}"
    return _SHORT.get(found[0]) or f"\\u{code:04X}"


JSON: dict[str, ScalarFunction] = {"get_json_object": ScalarFunction(row=plain(get_json_object))}
