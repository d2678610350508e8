"""Responses of the server as Python values: results of statements, and live results."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import httpx

from slicemill_client.errors import StatementMistake, StatementRefused

ARROW = "application/vnd.apache.arrow.stream"
NEXT_EPOCH = "slicemill-next-epoch"
VERSION = "slicemill-version"


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
