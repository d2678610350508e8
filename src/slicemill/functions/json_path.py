"""JSON paths of Spark's `get_json_object`: `$`, `$.name`, `$['name']` and `$[0]`."""

from __future__ import annotations

import re
from functools import lru_cache

from slicemill.functions.values import ExpressionError

_STEP = re.compile(r"\.(?P<name>[^.\[*']+)|\['(?P<quoted>[^']*)'\]|\[(?P<index>\d+)\]")


@lru_cache(maxsize=256)
def json_path(text: str) -> tuple[str | int, ...]:
    """Return the steps of a path: field names and array indexes."""
    if not text.startswith("$"):
        raise ExpressionError("a path starts with $, as in '$.a.b[0]'")
    steps: list[str | int] = []
    position = 1
    while position < len(text):
        found = _STEP.match(text, position)
        if found is None:
            wild = "*" in text[position : position + 3]
            reason = "the wildcard * is not supported" if wild else f"cannot read {text[position:]!r}"
            raise ExpressionError(f"{reason}; a path is written as in '$.a.b[0]'")
        index = found["index"]
        steps.append(int(index) if index is not None else found["name"] or found["quoted"] or "")
        position = found.end()
    return tuple(steps)
