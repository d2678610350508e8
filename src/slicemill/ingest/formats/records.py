"""Raw records of a source: untyped values by name, or bad rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from slicemill.ingest.formats.raw_values import JsonNumber, no_constant

Record = Mapping[str, object]

NO_TEXT = "this is no UTF-8 text"
NO_JSON = "this is no JSON object"


@dataclass(frozen=True, slots=True)
class BadRow:
    """Row that could not be read, with the reason."""

    raw: str
    reason: str


# The line of text (None without lines) and its record, or a bad row.
Entry: TypeAlias = tuple[str | None, Record] | BadRow


def value_of(record: Record, name: str) -> object:
    """Return a value by exact name, else ignoring case."""
    value = record.get(name)
    if value is None:
        lowered = name.lower()
        for key, other in record.items():
            if key.lower() == lowered:
                value = other
    return value


def json_record(line: str) -> Entry:
    """Parse one JSON object on one line."""
    try:
        record = json.loads(line, parse_float=JsonNumber, parse_constant=no_constant)
    except (ValueError, RecursionError):
        record = None
    return (line, record) if isinstance(record, dict) else BadRow(line, NO_JSON)
