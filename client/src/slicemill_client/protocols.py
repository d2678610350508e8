"""Interfaces that a mill in this process and a connection to a server have in common.

                    in this process        on a server
    SqlConnection   slicemill.Mill         Connection
    QueryHandle     slicemill.Query        RemoteQuery

A program that uses only these methods runs on either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

import pyarrow as pa

if TYPE_CHECKING:
    import pandas as pd


class LiveEpoch(Protocol):
    """Rows of one epoch. A follower continues with epoch `next`.

    With a `gap`, some earlier rows were no longer retained.
    """

    @property
    def epoch(self) -> int: ...
    @property
    def next(self) -> int: ...
    @property
    def version(self) -> int: ...
    @property
    def rows(self) -> list[dict[str, Any]]: ...
    @property
    def gap(self) -> bool: ...


class QueryState(Protocol):
    """Lifecycle state (running, backfilling, paused, failed or restarting), last error and next retry."""

    @property
    def state(self) -> str: ...
    @property
    def why(self) -> str | None: ...
    @property
    def failures(self) -> int: ...
    @property
    def next_try_us(self) -> int | None: ...
    @property
    def paused_us(self) -> int | None: ...
    @property
    def paused_by(self) -> str | None: ...


class Version(Protocol):
    """Definition of a query, in force from `epoch` on.

    `because` names a replaced object that the query uses, if the query's own text did not change.
    """

    @property
    def number(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def at_us(self) -> int: ...
    @property
    def by(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def because(self) -> str | None: ...


class Effect(Protocol):
    """Effect of a replacement on one query or stream: its name, the topic, and a description."""

    @property
    def name(self) -> str: ...
    @property
    def effect(self) -> str: ...
    @property
    def what(self) -> str: ...


class LiveSubscription(Protocol):
    """Subscription of a function to results; `error` is what the function raised."""

    error: Exception | None

    def stop(self) -> None:
        """Stop the subscription. No further call starts after this."""


class QueryHandle(Protocol):
    """Handle of a continuous query."""

    name: str

    @property
    def version(self) -> int:
        """Number of the current definition: 1, incremented by each replacement."""

    # -- results -----------------------------------------------------------------------------------

    def to_arrow(self) -> pa.Table:
        """Return all retained results, with their timestamp `_ts` (UTC) as the first column."""

    def to_pandas(self) -> pd.DataFrame:
        """Return the results of `to_arrow` as a data frame."""

    def rows(self) -> list[dict[str, Any]]:
        """Return the results of `to_arrow` as dictionaries."""

    def follow(self, since: int | None = None, stopped: Callable[[], bool] = ...) -> Iterator[LiveEpoch]:
        """Yield results as they are committed, until the query is dropped.

        Starts with epoch `since`, or without it with the next new results.
        """

    def subscribe(self, receive: Callable[[LiveEpoch], None], since: int | None = None) -> LiveSubscription:
        """Call a function with each new epoch of results, in order.

        A function that raises is not called again.
        """

    # -- state -------------------------------------------------------------------------------------

    def status(self) -> QueryState:
        """Return the lifecycle state of the query."""

    def metrics(self) -> dict[str, Any]:
        """Return the metrics of the query."""

    def progress(self) -> dict[str, Any] | None:
        """Return the progress of a backfill (FROM BEGINNING); None once it has caught up."""

    def versions(self) -> Sequence[Version]:
        """Return all definitions of the query, oldest first."""

    def explain(self) -> str:
        """Return the execution plan of the query."""

    # -- changes -----------------------------------------------------------------------------------

    def drop(self) -> None:
        """Drop the query."""

    def pause(self) -> None:
        """Emit no results until `resume`; no input is lost."""

    def resume(self) -> None:
        """Continue after a pause, with the input that has arrived since."""

    def restart(self) -> None:
        """Restart a failed query."""

    def replace(self, select: str) -> None:
        """Replace the definition by another `SELECT …`; compatible state is kept."""

    def explain_replace(self, select: str) -> Sequence[Effect]:
        """Return the effects of `replace` on state and results."""


class SqlConnection(Protocol):
    """Mill, or connection to the mill of a server."""

    @property
    def queries(self) -> Mapping[str, QueryHandle]:
        """Handles of the continuous queries, by name."""

    def execute(self, text: str, /) -> Sequence[object]:
        """Run the statements of a text; return one entry for each."""

    def query(self, text: str, /) -> QueryHandle:
        """Run one `CREATE QUERY …` statement; return the handle of the query."""

    def ask(self, sql: str, /) -> list[dict[str, Any]]:
        """Return the rows of an ad hoc query, `SELECT …`, over the rows that are stored now."""

    def check(self, text: str, /) -> None:
        """Raise an error if the statements have errors. Nothing is run."""

    def explain(self, query: str | None = None, form: str = "text") -> str:
        """Return the execution plan of a query, or of all queries.

        `form` is "text", "json", "svg", "mermaid" or "dot".
        """

    def metrics(self) -> dict[str, Any]:
        """Return the metrics of all queries, streams and subtasks."""

    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
