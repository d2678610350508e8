"""Responses of the server as Python values: results of statements, and live results."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import httpx

from slicemill_client.errors import StatementMistake, StatementRefused

ARROW = "application/vnd.apache.arrow.stream"
NEXT_EPOCH = "slicemill-next-epoch"
VERSION = "slicemill-version"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Columns that every result has.
SYSTEM_COLUMNS = (("_ts", "timestamp[us, tz=UTC]"),)


@dataclass(frozen=True, slots=True)
class StatementResult:
    """Result of one statement: a message, or columns (name and type) with rows."""

    tag: str
    message: str
    columns: list[tuple[str, str]] | None = None
    rows: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class LiveRows:
    """Result rows of one epoch (commit), received from a subscription.

    With a `gap`, some earlier rows were no longer retained.
    """

    epoch: int
    next: int
    version: int
    rows: list[dict[str, Any]]
    gap: bool = False


@dataclass(frozen=True, slots=True)
class QueryStatus:
    """Lifecycle state of a query, with its last error and next retry."""

    state: str
    why: str | None
    failures: int
    next_try_us: int | None
    paused_us: int | None
    paused_by: str | None

    @staticmethod
    def of(entry: Mapping[str, Any]) -> QueryStatus:
        """Return the status in the server's description of a query."""
        return QueryStatus(
            entry["state"],
            entry["error"],
            entry["failures"],
            _microseconds(entry["next_try"]),
            _microseconds(entry["paused_since"]),
            entry["paused_by"],
        )


@dataclass(frozen=True, slots=True)
class QueryVersion:
    """Definition of a query, in force from `epoch` on.

    `because` names a replaced object that the query uses, if the query's own text did not change.
    """

    number: int
    epoch: int
    at_us: int
    by: str
    text: str
    because: str | None = None

    @staticmethod
    def of(entry: Mapping[str, Any]) -> QueryVersion:
        """Return the server's description of a version."""
        at_us = _microseconds(entry["at"]) or 0
        return QueryVersion(
            entry["version"], entry["epoch"], at_us, entry["by"], entry["text"], entry["because"]
        )


@dataclass(frozen=True, slots=True)
class ReplaceEffect:
    """Effect of a replacement on one query or stream: its name, the topic, and a description."""

    name: str
    effect: str
    what: str


def _microseconds(moment: str | None) -> int | None:
    if moment is None:
        return None
    return (datetime.fromisoformat(moment) - _EPOCH) // timedelta(microseconds=1)


# Values that JSON has no type for: a server sends them as texts, and intervals as microseconds.


Decode = Callable[[Any], Any]


def decode_rows(rows: Iterable[Mapping[str, Any]], types: Iterable[tuple[str, str]]) -> list[dict[str, Any]]:
    """Convert JSON values to the Python values of their columns, given as (name, Arrow type).

    >>> decode_rows([{"on": "2026-01-01", "n": 1}], [("on", "date32[day]"), ("n", "int32")])
    [{'on': datetime.date(2026, 1, 1), 'n': 1}]
    """
    decoders = {name: found for name, type_ in types if (found := _decoder(type_)) is not None}
    return [
        {
            name: value if value is None or name not in decoders else decoders[name](value)
            for name, value in row.items()
        }
        for row in rows
    ]


def _decoder(type_: str) -> Decode | None:
    """Return the function that converts a JSON value of an Arrow type; None if JSON has the type."""
    for prefix in ("list<", "large_list<"):
        if type_.startswith(prefix):
            element = _decoder(type_.removeprefix(prefix).removesuffix(">").partition(": ")[2])
            return None if element is None else _list_decoder(element)
    if type_.startswith("struct<"):
        begin = type_.removeprefix("struct<begin: ").partition(", end: ")[0]
        inner = _decoder(begin)
        return None if inner is None else lambda value: {name: inner(one) for name, one in value.items()}
    return next((decode for prefix, decode in _DECODERS.items() if type_.startswith(prefix)), None)


def _list_decoder(element: Decode) -> Decode:
    return lambda values: [None if value is None else element(value) for value in values]


def _text_to(convert: Callable[[str], Any]) -> Decode:
    """Convert texts only: a moment outside of Python's calendar is sent as a number."""
    return lambda value: convert(value) if isinstance(value, str) else value


_DECODERS: Mapping[str, Decode] = {
    "timestamp": _text_to(datetime.fromisoformat),
    "date": _text_to(date.fromisoformat),
    "decimal": _text_to(Decimal),
    "double": float,
    "float": float,
    "binary": _text_to(b64decode),
    "duration": lambda value: timedelta(microseconds=value),
}


def results_of(body: dict[str, Any]) -> list[StatementResult]:
    """Return the results of the statements in a response."""
    return [
        StatementResult(
            answer["tag"],
            answer["message"],
            None
            if answer["columns"] is None
            else [(column["name"], column["type"]) for column in answer["columns"]],
            answer["rows"] or [],
        )
        for answer in body["answers"]
    ]


def checked(response: httpx.Response) -> httpx.Response:
    """Return the response if it is a success. Otherwise raise StatementRefused with all errors."""
    if response.is_success:
        return response
    raise StatementRefused(_mistakes(response), response.status_code)


def _mistakes(response: httpx.Response) -> list[StatementMistake]:
    try:
        found = response.json()["errors"]
        return [StatementMistake(**one) for one in found]
    except (ValueError, KeyError, TypeError):
        text = response.text.strip() or response.reason_phrase
        return [StatementMistake(f"{response.status_code}: {text}")]


class EventParser:
    """Parser of server-sent events into live rows."""

    def __init__(self) -> None:
        self._fields: dict[str, str] = {}
        self._gap = False
        self.ended = False

    def line(self, line: str) -> LiveRows | None:
        """Parse a line. Return rows if the line completes an event with rows."""
        if line:
            if not line.startswith(":"):
                name, _, value = line.partition(":")
                self._fields[name] = value.removeprefix(" ")
            return None
        fields, self._fields = self._fields, {}
        kind = fields.get("event")
        self._gap = self._gap or kind == "gap"
        self.ended = self.ended or kind == "end"
        if kind != "rows":
            return None
        gap, self._gap = self._gap, False
        return LiveRows(**json.loads(fields["data"]), gap=gap)
