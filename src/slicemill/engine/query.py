"""A query's handle: its results, subscriptions and metrics."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from slicemill.columns.changes import table_of_now
from slicemill.columns.rows import timed_rows
from slicemill.engine.state_view import StoredSlice
from slicemill.esl.types.schema import Schema
from slicemill.metrics.query_metrics import QueryMetrics
from slicemill.rows import Timed
from slicemill.storage.arrow_schema import as_results, to_arrow, with_system_columns
from slicemill.storage.log import Epoch, Log

if TYPE_CHECKING:
    import pandas as pd


class Query:
    """A registered continuous query; as a context manager it is dropped at the end."""

    def __init__(
        self,
        name: str,
        schema: Schema,
        log: Log,
        stop: Callable[[], None],
        explain: Callable[[], str],
        complete_from: Callable[[], int | None],
        state: Callable[[], list[StoredSlice]],
        model_values: Callable[[], list[dict[str, Any]]],
        metrics: Callable[[], QueryMetrics],
    ) -> None:
        self.name = name
        self.schema = schema
        self.log = log
        self.error: str | None = None
        self._subscribers: list[Callable[[pa.Table], None]] = []
        self._kept: pa.Table | None = None
        self._stop = stop
        self._explain = explain
        self._complete_from = complete_from
        self._state = state
        self._model_values = model_values
        self._metrics = metrics

    def to_arrow(self) -> pa.Table:
        """All results that are kept, in timestamp order, with their timestamp, `_ts` (UTC), in front.

        Of results that change, these are all changes; `_op` says what each one does.
        """
        return self._read(self.log.epochs()) if self._kept is None else self._kept

    def newest(self, count: int) -> list[Timed]:
        """The last results, as `rows`; no more is read than has them."""
        table = self._kept
        if table is None:
            epochs = 1
            while epochs < len(self.log) and self.log.rows_after(self.log.newest(epochs) - 1) < count:
                epochs *= 2
            table = self._read(self.log.epochs(after=self.log.newest(epochs if count else 0) - 1))
        return timed_rows(table.slice(max(0, table.num_rows - count)), self.schema)

    def _read(self, epochs: Sequence[Epoch]) -> pa.Table:
        parts = [self.log.read(epoch) for epoch in epochs]
        parts = [part for part in parts if part.num_rows]
        empty = with_system_columns(to_arrow(self.schema)).empty_table()
        return as_results(pa.concat_tables(parts) if parts else empty)

    def table(self) -> pa.Table:
        """What results that change come to: the rows of now, each with the timestamp of its last change.

        Of results that only come, it is all of them.
        """
        return table_of_now(self.to_arrow(), self.schema) if self.schema.changelog else self.to_arrow()

    def to_pandas(self) -> pd.DataFrame:
        """The same as a data frame."""
        frame: pd.DataFrame = self.to_arrow().to_pandas()
        return frame

    def rows(self) -> list[Timed]:
        """All results that are kept, as (timestamp in microseconds, values)."""
        return timed_rows(self.to_arrow(), self.schema)

    def subscribe(self, receive: Callable[[pa.Table], None]) -> None:
        """Have every new set of results handed to a function, as `to_arrow` has them, in order.

        A function that raises is not called again; the query goes on.
        """
        self._subscribers.append(receive)

    def stop(self) -> None:
        """Drop the query; its results stay readable through this handle."""
        self._stop()

    def __enter__(self) -> Query:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def explain(self) -> str:
        return self._explain()

    def metrics(self) -> QueryMetrics:
        """How the query is doing; `plain()` of it is for JSON."""
        return self._metrics()

    def complete_from(self) -> int | None:
        """The timestamp from which results are those of a query that was always there (S23).

        Tuples that came before the query count for nothing, except in joins that find them stored for others:
        it is complete when its windows hold none that count for nothing. It is None where no time can be
        told: windows that count rows, or never end.
        """
        return self._complete_from()

    def state(self) -> list[StoredSlice]:
        """The slices of state that hold rows for this query, as last committed."""
        return self._state()

    def model_values(self) -> list[dict[str, Any]]:
        """What its models with OVER have come to, for JSON: by call and partition, the value of each core.

        The values are those after all tuples that have been committed.
        """
        return self._model_values()

    def delivered(self) -> None:
        """Called by the mill after a commit that added rows to the log."""
        if self._subscribers:
            (epoch,) = self.log.epochs(after=self.log.head - 1)
            table = as_results(self.log.read(epoch))
            self._subscribers = [receive for receive in self._subscribers if _took(receive, table)]

    def detach(self) -> None:
        """Keep the results with the handle: the log is about to go."""
        self._kept = self.to_arrow()


def _took(receive: Callable[[pa.Table], None], table: pa.Table) -> bool:
    try:
        receive(table)
    except Exception:  # whatever a subscriber does wrong is no reason to stop the query
        logging.getLogger("slicemill").exception("a subscriber failed and is not called again")
        return False
    return True
