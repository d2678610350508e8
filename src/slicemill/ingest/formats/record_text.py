"""Text of bad rows of typed sources: JSON, as Spark writes it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal


def record_text(record: Mapping[str, object]) -> str:
    """Return a record as one JSON object, including NULLs."""
    return json.dumps(record, default=_plain, ensure_ascii=False, separators=(",", ":"))


def _plain(value: object) -> object:
    convert: Callable[[object], object] = next(
        (function for kind, function in _PLAIN if isinstance(value, kind)), str
    )
    return convert(value)


def _instant(value: object) -> object:
    assert isinstance(value, datetime)
    text = value.isoformat(timespec="milliseconds" if value.microsecond % 1000 == 0 else "microseconds")
    return text.replace("+00:00", "Z")


_PLAIN: tuple[tuple[type, Callable[[object], object]], ...] = (
    (datetime, _instant),
    (date, str),
    (Decimal, lambda value: f"{value:f}"),
    (bytes, lambda value: value.decode(errors="replace") if isinstance(value, bytes) else value),
)
