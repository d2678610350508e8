"""LIKE and regular expressions.

The LIKE kernel uses Arrow's test for a prefix, a suffix or a substring where possible.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from slicemill.functions.function import SAME, ScalarFunction, plain
from slicemill.functions.kernel import KernelCall, KernelMaker, Strict
from slicemill.functions.regular_expressions import java_pattern, like_pattern
from slicemill.functions.strings import only_ascii
from slicemill.functions.values import ExpressionError, check_length
from slicemill.functions.vectors import on_arrow
from slicemill.kernels.arrays import Bools

# -- LIKE -------------------------------------------------------------------------------------------------

# Pattern length above which RE2 is not used: its time may grow with pattern length times text length.
_LONG_PATTERN = 100
_FIXED = re.compile(r"[^%_]*")


def _like_row(text: str, pattern: str, escape: str = "\\") -> bool:
    return like_pattern(pattern, escape, False).matches(text)


def _ilike_row(text: str, pattern: str, escape: str = "\\") -> bool:
    return like_pattern(pattern, escape, True).matches(text.lower())


def _like_test(pattern: str, escape: str) -> Callable[[pa.Array], Bools] | None:
    """Return a function that matches a LIKE pattern against a column of strings.

    Return None if only the row function exists.
    """
    if len(escape) != 1 or escape in pattern or len(pattern) > _LONG_PATTERN:
        return None
    inner = pattern.strip("%")
    if _FIXED.fullmatch(inner):
        leading, trailing = pattern.startswith("%"), pattern.endswith("%")
        if not leading and not trailing:
            return lambda text: on_arrow(pc.equal, text, pa.scalar(pattern))
        test = pc.match_substring if leading and trailing else pc.ends_with if leading else pc.starts_with
        return lambda text: on_arrow(lambda column: test(column, inner), text)
    parts = [{"%": ".*", "_": "."}.get(letter) or re.escape(letter) for letter in pattern]
    expression = f"(?s)\\A{''.join(parts)}\\z"
    return lambda text: on_arrow(lambda column: pc.match_substring_regex(column, expression), text)


def _like_column(ignore_case: bool) -> KernelMaker:
    def make(call: KernelCall) -> Strict | None:
        pattern, escape = call.constant(1), call.constant(2, default="\\")
        if not isinstance(pattern, str) or not isinstance(escape, str):
            return None
        test = _like_test(pattern.lower() if ignore_case else pattern, escape)
        if test is None:
            return None
        if ignore_case:
            return lambda text, *_patterns: test(pc.ascii_lower(only_ascii(text)))
        return lambda text, *_patterns: test(text)

    return make


# -- regular expressions ----------------------------------------------------------------------------------

_REFERENCE = re.compile(r"\\(.)|\$(?:(\d+)|\{(\w+)\})|([\\$])", re.DOTALL | re.ASCII)


@lru_cache(maxsize=512)
def _replacement(template: str, pattern: str) -> tuple[str | int, ...]:
    """Return the strings and group numbers of a Java replacement string."""
    compiled = java_pattern(pattern)
    parts: list[str | int] = []
    index = 0
    for match in _REFERENCE.finditer(template):
        parts.append(template[index : match.start()])
        index = match.end()
        escaped, digits, name, stray = match.groups()
        if stray:
            raise ExpressionError(f"in the replacement '{template}', write \\{stray} for a plain {stray}")
        if escaped:
            parts.append(escaped)
        elif name:
            number = int(name) if name.isdigit() else compiled.names.get(name, -1)
            if not 0 <= number <= compiled.groups:
                raise ExpressionError(
                    f"the replacement '{template}' does not fit '{pattern}': there is no group {name}"
                )
            parts.append(number)
        else:
            # $12 is group 12 if there is one, else group 1 and the digit 2.
            groups = compiled.groups
            length = next((n for n in range(len(digits), 0, -1) if int(digits[:n]) <= groups), None)
            if length is None:
                raise ExpressionError(f"the replacement '{template}' names group {digits}, of {groups}")
            parts += [int(digits[:length]), digits[length:]]
    return (*parts, template[index:])


def _regexp_extract(text: str, pattern: str, group: int = 1) -> str:
    compiled = java_pattern(pattern)
    if not 0 <= group <= compiled.groups:
        raise ExpressionError(f"'{pattern}' has {compiled.groups} groups; there is no group {group}")
    match = next(compiled.matches(text), None)
    return (match.group(group) or "") if match else ""


def _regexp_replace(text: str, pattern: str, template: str) -> str:
    replacement = _replacement(template, pattern)
    parts: list[str] = []
    index, length = 0, len(text)
    for match in java_pattern(pattern).matches(text):
        start, end = match.spans[0]
        parts.append(text[index:start])
        made = [part if isinstance(part, str) else match.group(part) or "" for part in replacement]
        length += sum(map(len, made)) - (end - start)
        check_length("regexp_replace", length)
        parts += made
        index = end
    return "".join([*parts, text[index:]])


def _regexp_like(text: str, pattern: str) -> bool:
    return java_pattern(pattern).found_in(text)


_matching = ScalarFunction(row=plain(_regexp_like), duckdb="regexp_matches({0}, {1})")

PATTERNS: dict[str, ScalarFunction] = {
    "like": ScalarFunction(row=plain(_like_row), column=_like_column(ignore_case=False), duckdb=SAME),
    "ilike": ScalarFunction(row=plain(_ilike_row), column=_like_column(ignore_case=True), duckdb=SAME),
    "rlike": _matching,
    "regexp_like": _matching,
    "regexp_extract": ScalarFunction(
        row=plain(_regexp_extract),
        duckdb=("regexp_extract({0}, {1}, 1)", "regexp_extract({0}, {1}, {2})"),
    ),
    "regexp_replace": ScalarFunction(row=plain(_regexp_replace)),
}
