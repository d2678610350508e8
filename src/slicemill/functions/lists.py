"""List functions. Positions of elements are counted from 1."""

from __future__ import annotations

from typing import TypeAlias

from slicemill.functions.function import ScalarFunction, Types, plain
from slicemill.functions.regular_expressions import java_pattern
from slicemill.functions.strings import join_texts
from slicemill.functions.values import ExpressionError
from slicemill.types import Type

Values: TypeAlias = tuple[object, ...]


def _element_or_null(values: Values, index: int) -> object:
    if index == 0:
        raise ExpressionError("elements are counted from 1, and from the end by -1, -2, …; there is no 0")
    return values[index - 1 if index > 0 else index] if abs(index) <= len(values) else None


def _element(values: Values, index: int) -> object:
    if abs(index) > len(values):
        raise ExpressionError(
            f"a list of {len(values)} has no element {index}; try_element_at gives NULL for it"
        )
    return _element_or_null(values, index)


def _contains(values: Values, wanted: object) -> bool | None:
    # NaN equals NaN here. A NULL element may be equal to the wanted value, so the result is unknown.
    found = any(value == wanted or (value != value and wanted != wanted) for value in values)
    return None if not found and None in values else found


def _split(text: str, pattern: str, limit: int = -1) -> Values:
    """Split a string at the matches of a pattern, as in Java.

    An empty match at the beginning is ignored.
    """
    if not pattern and limit <= 0:
        return tuple(text) or ("",)
    parts: list[str] = []
    begin = 0
    for match in java_pattern(pattern).matches(text):
        start, end = match.spans[0]
        if 0 < limit <= len(parts) + 1:
            break
        if end == 0:
            continue
        parts.append(text[begin:start])
        begin = end
    return (*parts, text[begin:])


def _elements(types: Types, result: Type) -> Types:
    return (result.element or types[0],) * len(types)


def _like_elements(types: Types, _result: object) -> Types:
    return types[0], types[0].element or types[1]


_SIZE = ScalarFunction(row=plain(len), duckdb="len({0})")

LISTS: dict[str, ScalarFunction] = {
    "array_contains": ScalarFunction(
        row=plain(_contains), takes=_like_elements, duckdb="list_contains({0}, {1})"
    ),
    "array": ScalarFunction(row=plain(lambda *values: values), takes=_elements, strict=False),
    "array_join": ScalarFunction(
        row=plain(lambda values, separator: join_texts("array_join", separator, values)),
        duckdb="array_to_string({0}, {1})",
    ),
    "array_size": _SIZE,
    "cardinality": _SIZE,
    "element_at": ScalarFunction(row=plain(_element)),
    "size": _SIZE,
    "split": ScalarFunction(row=plain(_split)),
    "try_element_at": ScalarFunction(row=plain(_element_or_null), duckdb="{0}[{1}]"),
}
