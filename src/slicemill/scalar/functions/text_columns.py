"""Functions of texts over whole columns, by Arrow's; LIKE by the cheapest test that means the same.

Where Arrow counts bytes or knows fewer letters than Python does, columns that are not ASCII are left to the
reference.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from slicemill.scalar.functions.comparison_columns import on_arrow
from slicemill.scalar.kernel import Bound, Maker, Out, Strict, Unfit, plain
from slicemill.scalar.vectors import Mask, Numbers, numbers

_END = 0x7FFF_FFFF
_LONG = 10_000
_FIXED = re.compile(r"[^%_]*")


def _ascii(text: pa.Array) -> pa.Array:
    if pc.all(pc.string_is_ascii(text)).as_py() is False:
        raise Unfit
    return text


def _on_ascii(function: Callable[..., Any]) -> Maker:
    return plain(lambda text: function(_ascii(text)))


def _length(text: pa.Array) -> Numbers:
    return numbers(pc.utf8_length(text))


def _with_pattern(function: Callable[..., Any]) -> Maker:
    """A test of a text against a constant part of it."""

    def make(bound: Bound) -> Strict | None:
        part = bound.constant(1)
        if not isinstance(part, str):
            return None
        return lambda text, _part: on_arrow(lambda column: function(column, part), text)

    return make


def _instr(bound: Bound) -> Strict | None:
    part = bound.constant(1)
    if not isinstance(part, str):
        return None
    return lambda text, _part: numbers(pc.find_substring(_ascii(text), part)) + np.int32(1)


def _concat(bound: Bound) -> Strict:
    del bound
    return lambda *parts: pc.binary_join_element_wise(*parts, "")


def _slice(start: int, stop: int | None = None) -> Strict:
    return lambda text, *_places: pc.utf8_slice_codeunits(text, start, stop)


def _substring(bound: Bound) -> Strict | None:
    position, count = bound.constant(1), bound.constant(2, default=_END)
    if not isinstance(position, int) or not isinstance(count, int):
        return None
    if position < 0:
        # A start before the text would shorten the count; only without one the start alone decides.
        return _slice(position) if count == _END else None
    start = max(position - 1, 0)
    return _slice(start, start + max(count, 0))


def _left(bound: Bound) -> Strict | None:
    count = bound.constant(1)
    return _slice(0, max(count, 0)) if isinstance(count, int) else None


def _right(bound: Bound) -> Strict | None:
    count = bound.constant(1)
    if not isinstance(count, int):
        return None
    return _slice(-count) if count > 0 else _slice(0, 0)


def _replace(bound: Bound) -> Strict | None:
    search, replacement = bound.constant(1), bound.constant(2, default="")
    if not isinstance(search, str) or not isinstance(replacement, str):
        return None
    if not search:
        return lambda text, *_parts: text
    return lambda text, *_parts: pc.replace_substring(text, search, replacement)


def _repeat(text: pa.Array | pa.Scalar, count: NDArray[np.int32]) -> Out:
    bounded = np.clip(count, 0, _LONG)
    times = pa.scalar(int(bounded)) if np.ndim(count) == 0 else pa.array(bounded)
    if isinstance(text, pa.Scalar) and not isinstance(times, pa.Scalar):
        text = pa.repeat(text, len(times))
    return Out(pc.binary_repeat(text, times), unsure=np.asarray(count > _LONG))


# -- LIKE -------------------------------------------------------------------------------------------------


def like_test(pattern: str, escape: str) -> Callable[[pa.Array], Mask] | None:
    """Whether texts match a pattern; None for a pattern that only the reference judges."""
    if len(escape) != 1 or escape in pattern:
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


def _like(ignore_case: bool) -> Maker:
    def make(bound: Bound) -> Strict | None:
        pattern, escape = bound.constant(1), bound.constant(2, default="\\")
        if not isinstance(pattern, str) or not isinstance(escape, str):
            return None
        test = like_test(pattern.lower() if ignore_case else pattern, escape)
        if test is None:
            return None
        if ignore_case:
            return lambda text, *_patterns: test(pc.ascii_lower(_ascii(text)))
        return lambda text, *_patterns: test(text)

    return make


TEXT: dict[str, Maker] = {
    "char_length": plain(_length),
    "concat": _concat,
    "contains": _with_pattern(pc.match_substring),
    "endswith": _with_pattern(pc.ends_with),
    "ilike": _like(ignore_case=True),
    "instr": _instr,
    "left": _left,
    "length": plain(_length),
    "like": _like(ignore_case=False),
    "lower": _on_ascii(pc.ascii_lower),
    "ltrim": plain(lambda text: pc.ascii_ltrim(text, " ")),
    "repeat": plain(_repeat),
    "replace": _replace,
    "reverse": plain(pc.utf8_reverse),
    "right": _right,
    "rtrim": plain(lambda text: pc.ascii_rtrim(text, " ")),
    "startswith": _with_pattern(pc.starts_with),
    "substr": _substring,
    "substring": _substring,
    "trim": plain(lambda text: pc.ascii_trim(text, " ")),
    "upper": _on_ascii(pc.ascii_upper),
}
