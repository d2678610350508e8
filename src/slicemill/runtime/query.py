"""A query's handle: its results so far, news of more, and how it is doing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from slicemill.errors import SlicemillError
from slicemill.esl.types import Schema
from slicemill.execution.operator import Timed
from slicemill.runtime.arrow_schema import ARRIVAL, to_arrow, with_system_columns
from slicemill.runtime.log import StreamLog
from slicemill.runtime.rows import timed_rows

if TYPE_CHECKING:
    import pandas as pd

_KEPT_RESPONSES = 10_000


@dataclass(slots=True)
class QueryMetrics:
    """Rows out, and how long after their arrival results were there, of the latest ones."""

    rows: int = 0
    responses_us: list[int] = field(default_factory=list)

    def add(self, rows: int, responses_us: list[int]) -> None:
        self.rows += rows
        self.responses_us = (self.responses_us + responses_us)[-_KEPT_RESPONSES:]

    def response_ms(self, quantile: float) -> float | None:
        """A quantile of response times in milliseconds; None before the first result."""
        if not self.responses_us:
            return None
        ordered = sorted(self.responses_us)
        return ordered[min(len(ordered) - 1, int(quantile * len(ordered)))] / 1000


class Query:
    """A registered continuous query."""

    def __init__(
        self, name: str, schema: Schema, log: StreamLog, stop: Callable[[], None], explain: Callable[[], str]
    ) -> None:
        self.name = name
        self.schema = schema
        self.log = log
        self.error: str | None = None
        self._metrics = QueryMetrics()
        self._subscribers: list[Callable[[pa.Table], None]] = []
        self._stop = stop
        self._explain = explain

    def to_arrow(self) -> pa.Table:
        """All results that are kept, in timestamp order, with their timestamp as `_ts` in front."""
        parts = [self.log.read(epoch.number) for epoch in self.log.epochs(after=self.log.first - 1)]
        parts = [part for part in parts if part.num_rows]
        empty = with_system_columns(to_arrow(self.schema)).empty_table()
        return (pa.concat_tables(parts) if parts else empty).drop_columns([ARRIVAL])

    def to_pandas(self) -> pd.DataFrame:
        frame: pd.DataFrame = self.to_arrow().to_pandas()
        return frame

    def rows(self) -> list[Timed]:
        """All results that are kept, as (timestamp in microseconds, values)."""
        return timed_rows(self.to_arrow(), self.schema)

    def subscribe(self, receive: Callable[[pa.Table], None]) -> None:
        """Have every new set of results handed to a function, as an Arrow table, in order."""
        self._subscribers.append(receive)

    def stop(self) -> None:
        """Drop the query; its results stay readable through this handle."""
        self._stop()

    def explain(self) -> str:
        return self._explain()

    def metrics(self) -> QueryMetrics:
        return self._metrics

    def deliver(self, table: pa.Table, responses_us: list[int]) -> None:
        """Called by the mill after a commit."""
        self._metrics.add(table.num_rows, responses_us)
        for receive in self._subscribers:
            try:
                receive(table)
            except Exception as problem:
                # A subscriber's mistake is the subscriber's; the query goes on for the others.
                self._subscribers.remove(receive)
                raise SlicemillError(
                    f"a subscriber of {self.name} failed and is removed: {problem}"
                ) from problem

    @property
    def wants_tables(self) -> bool:
        return bool(self._subscribers)
