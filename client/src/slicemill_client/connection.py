"""Connections to a server, and handles of its queries."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

import httpx
import pyarrow as pa

from slicemill_client.errors import ClientError, ServerUnreachable, StatementRefused
from slicemill_client.messages import (
    ARROW,
    NEXT_EPOCH,
    SYSTEM_COLUMNS,
    VERSION,
    EventParser,
    LiveRows,
    QueryStatus,
    QueryVersion,
    ReplaceEffect,
    StatementResult,
    checked,
    decode_rows,
    results_of,
)

if TYPE_CHECKING:
    import pandas as pd

# Time without data after which a connection is lost: the server sends a keep-alive every 15 seconds
_SILENCE_S = 60.0
_RETRY_S = 1.0
_ROWS_AT_ONCE = 100_000


def connect(url: str = "http://127.0.0.1:8080", token: str | None = None, **options: Any) -> Connection:
    """Return a connection to a server.

    `options` are those of httpx, such as `verify` for a private certificate.
    """
    return Connection(url, token, **options)


def headers_of(token: str | None) -> dict[str, str]:
    return {} if token is None else {"Authorization": f"Bearer {token}"}


class Connection:
    """Connection to a server, to run statements and read queries. A with block closes it."""

    def __init__(self, url: str, token: str | None = None, **options: Any) -> None:
        self.url = url.rstrip("/")
        timeout = options.pop("timeout", httpx.Timeout(10.0, read=300.0))
        self.http = httpx.Client(base_url=self.url, headers=headers_of(token), timeout=timeout, **options)

    def execute(self, text: str) -> list[StatementResult]:
        """Run statements and return their results. Raises StatementRefused with all errors."""
        return results_of(self.request("POST", "/v1/statements", json={"text": text}).json())

    def query(self, text: str) -> RemoteQuery:
        """Run one `CREATE QUERY …` statement and return a handle of the query."""
        results = self.execute(text)
        made = [one for one in results if one.tag == "CREATE QUERY"]
        if len(made) != 1:
            raise ClientError(f"the text has {len(made)} CREATE QUERY statements; write exactly one")
        return self.queries[made[0].message.split(":")[0].removeprefix("query ")]

    def ask(self, sql: str) -> list[dict[str, Any]]:
        """Run an ad hoc query (SELECT) and return its rows."""
        *_, last = self.execute(sql)
        return decode_rows(last.rows, last.columns or ())

    def check(self, text: str) -> None:
        """Raise StatementRefused if the statements have errors. No statement is run."""
        response = self.request("POST", "/v1/check", json={"text": text})
        if response.json()["errors"]:
            response.status_code = 400
            checked(response)

    @property
    def queries(self) -> Mapping[str, RemoteQuery]:
        """Handles of the current queries of the server, by name."""
        return {
            entry["name"]: RemoteQuery(self, entry["name"])
            for entry in self.request("GET", "/v1/queries").json()
        }

    def explain(self, query: str | None = None, form: str = "text") -> str:
        """Return the execution plan of a query, or of all queries.

        `form` is "text", "json", "svg", "mermaid" or "dot".
        """
        path = "/v1/explain" if query is None else f"/v1/queries/{query}/explain"
        return self.request("GET", path, params={"format": form}).text

    def metrics(self) -> dict[str, Any]:
        """Return all metrics of the server's engine."""
        found: dict[str, Any] = self.request("GET", "/v1/metrics").json()
        return found

    def health(self) -> dict[str, Any]:
        """Return the health of the server: its version, whether queries run, and its problems."""
        try:
            found: dict[str, Any] = self.http.get("/health").json()
        except httpx.HTTPError as problem:
            raise ServerUnreachable(f"no server answers at {self.url}: {problem}") from None
        return found

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Send a request. Raises an error if the server is unreachable or rejects the request."""
        try:
            return checked(self.http.request(method, path, **options))
        except httpx.TimeoutException:
            raise ServerUnreachable(f"{self.url} did not answer in time") from None
        except httpx.HTTPError as problem:
            raise ServerUnreachable(f"no server answers at {self.url}: {problem}") from None

    def close(self) -> None:
        self.http.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class RemoteQuery:
    """Handle of a query on a server, to read its results and to change its state."""

    def __init__(self, connection: Connection, name: str) -> None:
        self.name = name
        self._connection = connection
        self._path = f"/v1/queries/{name}"

    def to_arrow(self) -> pa.Table:
        """Return all stored results of the query, with their timestamp `_ts` (UTC) as the first column.

        For a replaced query, these are the results of the current definition.
        """
        parts: list[pa.Table] = []
        since, version = 0, ""
        while True:
            response = self._connection.request(
                "GET",
                f"{self._path}/results",
                params={"since": since, "most_rows": _ROWS_AT_ONCE},
                headers={"Accept": ARROW},
            )
            if response.headers[VERSION] != version:
                # The results of an earlier definition are discarded.
                parts, version = (
                    [],
                    response.headers[VERSION],
                )
            parts.append(pa.ipc.open_stream(response.content).read_all())
            since = int(response.headers[NEXT_EPOCH])
            if not parts[-1].num_rows:
                return pa.concat_tables(parts)

    def to_pandas(self) -> pd.DataFrame:
        """Return all stored results as a pandas data frame."""
        frame: pd.DataFrame = self.to_arrow().to_pandas()
        return frame

    def rows(self) -> list[dict[str, Any]]:
        """Return all stored results as dictionaries."""
        found: list[dict[str, Any]] = self.to_arrow().to_pylist()
        return found

    def follow(
        self, since: int | None = None, stopped: Callable[[], bool] = lambda: False
    ) -> Iterator[LiveRows]:
        """Yield new results as they are committed, until the query is dropped.

        The first result is that of epoch (commit) `since`; by default only new results are returned. After a
        connection error the client reconnects and continues from its last epoch. No result is lost or
        duplicated as long as the server retains the results.
        """
        version, types = 0, list[tuple[str, str]]()
        for live in self.follow_json(since, stopped):
            if live.version != version:
                version, types = live.version, self._types()
            yield replace(live, rows=decode_rows(live.rows, types))

    def _types(self) -> list[tuple[str, str]]:
        """Return the columns with their types; empty if the query was dropped meanwhile."""
        try:
            columns = self._entry()["columns"]
        except StatementRefused:
            columns = []
        return [*SYSTEM_COLUMNS, *((column["name"], column["type"]) for column in columns)]

    def follow_json(
        self, since: int | None = None, stopped: Callable[[], bool] = lambda: False
    ) -> Iterator[LiveRows]:
        """Yield results as `follow` does, with values as in JSON: timestamps, for instance, are texts."""
        wait = threading.Event().wait
        while not stopped():
            params = {} if since is None else {"since": since}
            parser = EventParser()
            try:
                with self._connection.http.stream(
                    "GET", f"{self._path}/live", params=params, timeout=httpx.Timeout(10.0, read=_SILENCE_S)
                ) as response:
                    if not response.is_success:
                        response.read()
                    for line in checked(response).iter_lines():
                        found = parser.line(line)
                        if found is not None:
                            since = found.next
                            yield found
                        if stopped() or parser.ended:
                            break
            except httpx.HTTPError:
                wait(_RETRY_S)
                continue
            except StatementRefused as refused:
                if refused.status < 500:
                    raise
                wait(_RETRY_S)
            if parser.ended:
                return

    def subscribe(self, receive: Callable[[LiveRows], None], since: int | None = None) -> Subscription:
        """Call a function with each new epoch (commit) of results, in a background thread."""
        return Subscription(self, receive, since)

    def explain(self) -> str:
        return self._connection.explain(self.name)

    def progress(self) -> dict[str, Any] | None:
        """Return the progress of a backfill (FROM BEGINNING), or None after the query has caught up."""
        found: dict[str, Any] | None = self._entry()["progress"]
        return found

    def metrics(self) -> dict[str, Any]:
        """Return the metrics of the query."""
        found: dict[str, Any] = self._entry()["metrics"] or {}
        return found

    def _entry(self) -> dict[str, Any]:
        """Return the server's description of the query."""
        found: dict[str, Any] = self._connection.request("GET", self._path).json()
        return found

    def drop(self) -> None:
        """Drop the query."""
        self._do("DROP")

    def pause(self) -> None:
        """Pause the query. After `resume` its results continue without a gap."""
        self._do("PAUSE")

    def resume(self) -> None:
        """Resume the query, which first processes the rows that arrived during the pause."""
        self._do("RESUME")

    def restart(self) -> None:
        """Restart the query after a failure."""
        self._do("RESTART")

    def replace(self, select: str) -> None:
        """Replace the definition of the query by `SELECT …`. State that it can still use is kept."""
        self._connection.execute(f"CREATE OR REPLACE QUERY {self._quoted} AS {select}")

    def explain_replace(self, select: str) -> list[ReplaceEffect]:
        """Return the effects of `replace` on state and results."""
        (found,) = self._connection.execute(f"EXPLAIN REPLACE QUERY {self._quoted} AS {select}")
        return [ReplaceEffect(**row) for row in found.rows]

    def status(self) -> QueryStatus:
        """Return the state (running, paused, failed or restarting), the last error and the next retry."""
        return QueryStatus.of(self._entry())

    @property
    def version(self) -> int:
        """Number of the current definition: 1, incremented by each replacement."""
        return int(self._entry()["version"])

    def versions(self) -> list[QueryVersion]:
        """Return all definitions of the query with user and time, oldest first."""
        found = self._connection.request("GET", f"{self._path}/versions").json()
        return [QueryVersion.of(entry) for entry in found]

    @property
    def _quoted(self) -> str:
        return '"' + self.name.replace('"', '""') + '"'

    def _do(self, action: str) -> None:
        self._connection.execute(f"{action} QUERY {self._quoted}")


class Subscription:
    """Background thread that calls a function with new results until `stop` is called."""

    def __init__(self, query: RemoteQuery, receive: Callable[[LiveRows], None], since: int | None) -> None:
        self._stopped = threading.Event()
        self.error: Exception | None = None

        def run() -> None:
            try:
                for rows in query.follow(since, self._stopped.is_set):
                    receive(rows)
            except Exception as problem:
                self.error = problem

        self._thread = threading.Thread(target=run, name=f"results of {query.name}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the subscription. No further call of the function starts."""
        self._stopped.set()

    def join(self, timeout: float | None = None) -> None:
        """Wait until the query is dropped or an error occurs."""
        self._thread.join(timeout)
