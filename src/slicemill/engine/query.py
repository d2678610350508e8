"""A query's handle: its results, subscriptions and metrics."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from slicemill.columns.changes import table_of_now
from slicemill.columns.rows import timed_rows
from slicemill.engine.changing.versions import QueryVersion, shown_after, version_at
from slicemill.engine.state_view import StoredSlice
from slicemill.esl.types.schema import Schema
from slicemill.metrics.query_metrics import QueryMetrics
from slicemill.plan.content import quoted
from slicemill.rows import Timed
from slicemill.storage.arrow_schema import as_results, to_arrow, with_system_columns
from slicemill.storage.log import Log

if TYPE_CHECKING:
    import pandas as pd

    from slicemill.engine.changing.backfill import BackfillProgress
    from slicemill.engine.changing.lives import Life


class Query:
    """A registered continuous query; as a context manager it is dropped at the end."""

    def __init__(
        self,
        name: str,
        schema: Schema,
        log: Log,
        execute: Callable[[str], object],
        explain: Callable[[], str],
        complete_from: Callable[[], int | None],
        state: Callable[[], list[StoredSlice]],
        model_values: Callable[[], list[dict[str, Any]]],
        metrics: Callable[[], QueryMetrics],
        life: Callable[[], Life],
        versions: Callable[[], list[QueryVersion]],
        progress: Callable[[], BackfillProgress | None],
    ) -> None:
        self.name = name
        self.schema = schema
        self.log = log
        self.error: str | None = None
        self._subscribers: list[Callable[[pa.Table], None]] = []
        self._kept: pa.Table | None = None
        self._execute = execute
        self._explain = explain
        self._complete_from = complete_from
        self._state = state
        self._model_values = model_values
        self._metrics = metrics
        self._life = life
        self._versions = versions
        self._delivered = log.head  # the last epoch that subscribers have
        self._progress = progress

    def to_arrow(self) -> pa.Table:
        """All results that are kept, in timestamp order, with their timestamp, `_ts` (UTC), in front.

        Of a query that was replaced, these are the results of its definition of now; while it is paused, of
        that of then. Of results that change, these are all changes; `_op` says what each one does.
        """
        return self._results(self.log.read_after(self._before())[1]) if self._kept is None else self._kept

    def _before(self) -> int:
        """The last epoch that may have results of an earlier definition than that which is shown."""
        return shown_after(self.versions(), self.log.hold)

    @property
    def _shown(self) -> Schema:
        return self.log.schema_shown(self.schema)

    @property
    def version(self) -> int:
        """The number of its definition: 1, and one more each time it is replaced."""
        return max(1, len(self.versions()))

    def version_at(self, epoch: int) -> int:
        """The number of the definition whose results an epoch has."""
        return version_at(self.versions(), epoch)

    def versions(self) -> list[QueryVersion]:
        """All definitions that it has had, with who and when, the oldest first."""
        return self._versions()

    def newest(self, count: int) -> list[Timed]:
        """The last results, as `rows`; no more is read than has them."""
        table = self._kept
        if table is None:
            epochs = 1
            while epochs < len(self.log) and self.log.rows_after(self.log.newest(epochs) - 1) < count:
                epochs *= 2
            first = max(self.log.newest(epochs if count else 0) - 1, self._before())
            table = self._results(self.log.read_after(first)[1])
        return timed_rows(table.slice(max(0, table.num_rows - count)), self._shown)

    def _results(self, tables: Sequence[pa.Table]) -> pa.Table:
        parts = [part for part in tables if part.num_rows]
        empty = with_system_columns(to_arrow(self._shown)).empty_table()
        return as_results(pa.concat_tables(parts) if parts else empty)

    def table(self) -> pa.Table:
        """What results that change come to: the rows of now, each with the timestamp of its last change.

        Of results that only come, it is all of them.
        """
        schema = self._shown
        return table_of_now(self.to_arrow(), schema) if schema.changelog else self.to_arrow()

    def to_pandas(self) -> pd.DataFrame:
        """The same as a data frame."""
        frame: pd.DataFrame = self.to_arrow().to_pandas()
        return frame

    def rows(self) -> list[Timed]:
        """All results that are kept, as (timestamp in microseconds, values)."""
        return timed_rows(self.to_arrow(), self._shown)

    def subscribe(self, receive: Callable[[pa.Table], None]) -> None:
        """Have every new set of results handed to a function, as `to_arrow` has them, in order.

        A function that raises is not called again; the query goes on.
        """
        self._subscribers.append(receive)

    def stop(self) -> None:
        """Drop the query; its results stay readable through this handle."""
        self._execute(f"DROP QUERY {quoted(self.name)}")

    def pause(self) -> None:
        """Give no results until `resume`; nothing is missed."""
        self._execute(f"PAUSE QUERY {quoted(self.name)}")

    def resume(self) -> None:
        """Go on after a pause, with what has come meanwhile."""
        self._execute(f"RESUME QUERY {quoted(self.name)}")

    def restart(self) -> None:
        """Run a query that has failed: from where it stood if that can be, or with what comes from now on."""
        self._execute(f"RESTART QUERY {quoted(self.name)}")

    def replace(self, select: str) -> None:
        """Give it another definition, `SELECT …`; state that fits is kept."""
        self._execute(f"CREATE OR REPLACE QUERY {quoted(self.name)} AS {select}")

    def life(self) -> Life:
        """Is it running, paused, failed or tried again soon, and why?"""
        return self._life()

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

    def progress(self) -> BackfillProgress | None:
        """How far a query is that reads the past (FROM BEGINNING); None once it is where its streams are."""
        return self._progress()

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
        """Called by the mill when there is more to read in the log."""
        last, self._delivered = self._delivered, self.log.head
        for epoch in self.log.epochs(after=last) if self._subscribers else ():
            table = as_results(self.log.read(epoch))
            self._subscribers = [receive for receive in self._subscribers if _took(receive, table)]

    def detach(self) -> None:
        """Keep the results with the handle: the log is about to go."""
        self._kept = self.to_arrow()

    def attach(self) -> None:
        """Read the log again: it stays."""
        self._kept = None


def _took(receive: Callable[[pa.Table], None], table: pa.Table) -> bool:
    try:
        receive(table)
    except Exception:  # whatever a subscriber does wrong is no reason to stop the query
        logging.getLogger("slicemill").exception("a subscriber failed and is not called again")
        return False
    return True
