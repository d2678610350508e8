"""Calls that run row by row in Python, with hints for faster replacements.

`slicemill check` reports calls without a *kernel*, which is an implementation over whole columns. This module
uses only names and types, so that a script can be checked without NumPy and Arrow. A test compares this
module with the steps of `functions.evaluate`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass

from slicemill.catalog.expressions import Call, Cast, Expr, Literal
from slicemill.types import Kind

_NUMBERS = (Kind.DECIMAL, Kind.DOUBLE)
_HASHED_BY_ROW = (Kind.VARCHAR, Kind.BINARY, Kind.DECIMAL)
_NO_E = 6  # maximum number of decimal places of a decimal that is written without an exponent

# Functions without a kernel, each with an expression to use instead, if there is one.
_FUNCTIONS: dict[str, str] = {
    "array": "",
    "ascii": "",
    "cbrt": "",
    "chr": "",
    "concat_ws": "concat(a, ',', b), if no value is NULL",
    "cosh": "",
    "crc32": "",
    "from_unixtime": "timestamp_seconds(x), or CAST(timestamp_seconds(x) AS VARCHAR) for a text",
    "get_json_object": "a column of the stream, if its source is JSON",
    "hash": "the column itself: GROUP BY, PARTITION BY and joins hash their keys",
    "initcap": "",
    "levenshtein": "",
    "locate": "instr(text, part)",
    "lpad": "",
    "make_timestamp": "a timestamp column of the stream",
    "md5": "",
    "regexp_extract": "",
    "regexp_like": "LIKE, startswith or contains, if the pattern allows it",
    "regexp_replace": "replace, if the pattern is a plain text",
    "rlike": "LIKE, startswith or contains, if the pattern allows it",
    "rpad": "",
    "sha1": "",
    "sha2": "",
    "sinh": "",
    "split": "",
    "split_part": "",
    "substring_index": "",
    "tanh": "",
    "to_date": "CAST(text AS DATE), if the texts have the form 2026-01-31",
    "to_timestamp": "CAST(text AS TIMESTAMP), if the texts have the form 2026-01-31 12:00:00",
    "translate": "replace, for one letter",
    "unhex": "",
    "unix_timestamp": "CAST(CAST(text AS TIMESTAMP) AS BIGINT)",
    "xxhash64": "the column itself: GROUP BY, PARTITION BY and joins hash their keys",
}


def calls_by_row(value: object) -> Iterator[tuple[Call | Cast, str]]:
    """Yield the calls in a bound statement that run row by row, with hints."""
    if isinstance(value, Call | Cast) and (hint := hint_by_row(value)) is not None:
        yield value, hint
    if is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from calls_by_row(getattr(value, field.name))
    elif isinstance(value, tuple | list):
        for part in value:
            yield from calls_by_row(part)


def hint_by_row(expr: Expr) -> str | None:
    """Return the hint for replacing a call that runs row by row.

    The hint may be empty. Return None for a call that runs over whole columns.
    """
    if isinstance(expr, Cast):
        return _of_cast(expr)
    if not isinstance(expr, Call) or all(isinstance(argument, Literal) for argument in expr.arguments):
        return None
    name = expr.function.lower()
    if name in ("to_date", "to_timestamp") and len(expr.arguments) < 2:
        return None
    if name == "timestamp_seconds":
        return "whole seconds" if expr.arguments[0].type.kind in _NUMBERS else None
    if name == "unix_timestamp" and expr.arguments[0].type.kind is not Kind.VARCHAR:
        return None
    if name in ("hash", "xxhash64") and not any(a.type.kind in _HASHED_BY_ROW for a in expr.arguments):
        return None
    return _FUNCTIONS.get(name)


def _of_cast(cast: Cast) -> str | None:
    source, target = cast.operand.type, cast.type
    kinds = (source.kind, target.kind)
    if kinds == (Kind.DOUBLE, Kind.VARCHAR):
        return "the number itself"
    if kinds == (Kind.DECIMAL, Kind.VARCHAR):
        return "a decimal with six places" if (source.scale or 0) > _NO_E else None
    if kinds == (Kind.DOUBLE, Kind.DECIMAL):
        return "a column that is declared as DECIMAL"
    if kinds in ((Kind.DECIMAL, Kind.TIMESTAMP), (Kind.TIMESTAMP, Kind.DECIMAL)):
        return "whole seconds, as BIGINT"
    return None
