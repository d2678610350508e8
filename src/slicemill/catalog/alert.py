"""Alerts: definitions of webhook notifications and their conditions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from slicemill.catalog.expressions import Expr
from slicemill.types import BIGINT, DOUBLE, INTERVAL, VARCHAR, Column, Schema


class AlertSubject(StrEnum):
    """Kind of object that an alert watches."""

    QUERY = "query"
    STREAM = "stream"


# Metrics that a WHEN condition may read.
# Counts and rates cover the last minute, except `rows`, which is a total.
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
    """Alert, declared by `CREATE ALERT name ON target [WHEN condition] WEBHOOK 'url'`.

    Without a `target` the alert watches every query, or every stream. Without a `condition` the alert sends
    the result rows of the query. `text` is the source text of the condition.
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
        """Return a description of the watched object."""
        return f"any {self.watched}" if self.target is None else self.target
