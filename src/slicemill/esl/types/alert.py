"""Alerts: what is told to a webhook, and when."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from slicemill.esl.types.expression import Expr
from slicemill.esl.types.schema import BIGINT, DOUBLE, INTERVAL, VARCHAR, Column, Schema


class AlertSubject(StrEnum):
    """What an alert can be on."""

    QUERY = "query"
    STREAM = "stream"


# What a condition can name. Counts and rates are those of the last minute, except `rows`.
FIGURES: dict[AlertSubject, Schema] = {
    AlertSubject.QUERY: Schema(
        (
            Column("state", VARCHAR),
            Column("rows", BIGINT),
            Column("rate", DOUBLE),
            Column("silence", INTERVAL),
            Column("lag", INTERVAL),
            Column("rows_waiting", BIGINT),
            Column("p50", INTERVAL),
            Column("p99", INTERVAL),
            Column("staleness", DOUBLE),
            Column("freshness", DOUBLE),
            Column("errors", BIGINT),
        )
    ),
    AlertSubject.STREAM: Schema(
        (
            Column("state", VARCHAR),
            Column("rows", BIGINT),
            Column("rate", DOUBLE),
            Column("silence", INTERVAL),
            Column("lag", INTERVAL),
            Column("late", BIGINT),
            Column("errors", BIGINT),
        )
    ),
}


@dataclass(frozen=True, slots=True)
class Alert:
    """`CREATE ALERT name ON target [WHEN condition] WEBHOOK 'url'`.

    Without a `target` it is on every query, or on every stream. Without a `condition` the rows of its query
    are told. `text` is the condition as it was written.
    """

    name: str
    watched: AlertSubject
    target: str | None
    url: str
    condition: Expr | None = None
    text: str = ""
    for_us: int = 0
    repeat_us: int | None = None

    @property
    def on(self) -> str:
        """What it is on, in words."""
        return f"any {self.watched}" if self.target is None else self.target
