"""Connections to a server, and the queries that it has."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

import httpx
import pyarrow as pa

from slicemill_client.errors import ClientError, ServerUnreachable, StatementRefused
from slicemill_client.messages import (
    ARROW,
    NEXT_EPOCH,
    VERSION,
    EventParser,
    LiveRows,
    StatementResult,
    checked,
    results_of,
)

if TYPE_CHECKING:
    import pandas as pd

# A server says that it is there every 15 seconds.
_SILENCE_S = 60.0
_RETRY_S = 1.0
_ROWS_AT_ONCE = 100_000
_LIFE = ("state", "error", "failures", "next_try", "paused_since", "paused_by", "version")


def connect(url: str = "http://127.0.0.1:8080", token: str | None = None, **options: Any) -> Connection:
    """A connection to a server; `options` are httpx's, such as `verify` for a certificate of your own."""
    return Connection(url, token, **options)


def headers_of(token: str | None) -> dict[str, str]:
    return {} if token is None else {"Authorization": f"Bearer {token}"}


class Connection:
    """A server's statements and queries; as a context manager it is closed at the end."""

    def __init__(self, url: str, token: str | None = None, **options: Any) -> None:
        self.url = url.rstrip("/")
        timeout = options.pop("timeout", httpx.Timeout(10.0, read=300.0))
        self.http = httpx.Client(base_url=self.url, headers=headers_of(token), timeout=timeout, **options)

    def execute(self, text: str) -> list[StatementResult]:
        """Run statements; StatementRefused has every mistake."""
        return results_of(self.request("POST", "/v1/statements", json={"text": text}).json())

    def query(self, text: str) -> RemoteQuery:
        """Register one query, `CREATE QUERY …`, and return its handle."""
        results = self.execute(text)
        made = [one for one in results if one.tag == "CREATE QUERY"]
        if len(made) != 1:
            raise ClientError("give one CREATE QUERY")
        return self.queries[made[0].message.split(":")[0].removeprefix("query ")]

    def ask(self, sql: str) -> list[dict[str, Any]]:
        """The rows of a question, `SELECT …`, about what is there now."""
        *_, last = self.execute(sql)
        return last.rows

    def check(self, text: str) -> None:
        """Raise StatementRefused if there are mistakes in statements; nothing is run."""
        response = self.request("POST", "/v1/check", json={"text": text})
        if response.json()["errors"]:
            response.status_code = 400
            checked(response)

    @property
    def queries(self) -> Mapping[str, RemoteQuery]:
        """The queries that the server has now, by name."""
        return {
            entry["name"]: RemoteQuery(self, entry["name"])
            for entry in self.request("GET", "/v1/queries").json()
        }

    def explain(self, query: str | None = None, form: str = "text") -> str:
        """How a query runs, or all of them: as text, json or svg."""
        path = "/v1/explain" if query is None else f"/v1/queries/{query}/explain"
        return self.request("GET", path, params={"format": form}).text

    def metrics(self) -> dict[str, Any]:
        """All figures of the server's mill."""
        found: dict[str, Any] = self.request("GET", "/v1/metrics").json()
        return found

    def health(self) -> dict[str, Any]:
        """Whether queries run, and what is wrong if they do not."""
        try:
            found: dict[str, Any] = self.http.get("/health").json()
        except httpx.HTTPError as problem:
            raise ServerUnreachable(f"no server answers at {self.url}: {problem}") from None
        return found

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """A request whose answer is checked."""
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
    """A query of a server: its results so far, and those to come."""

    def __init__(self, connection: Connection, name: str) -> None:
        self.name = name
        self._connection = connection
        self._path = f"/v1/queries/{name}"

    def to_arrow(self) -> pa.Table:
        """All results that are retained, with their timestamp, `_ts` (UTC), in front.

        Of a query that was replaced, these are the results of its definition of now.
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
                parts, version = [], response.headers[VERSION]  # of an earlier definition
            parts.append(pa.ipc.open_stream(response.content).read_all())
            since = int(response.headers[NEXT_EPOCH])
            if not parts[-1].num_rows:
                return pa.concat_tables(parts)

    def to_pandas(self) -> pd.DataFrame:
        """The same as a data frame."""
        frame: pd.DataFrame = self.to_arrow().to_pandas()
        return frame

    def rows(self) -> list[dict[str, Any]]:
        """The same as dictionaries."""
        found: list[dict[str, Any]] = self.to_arrow().to_pylist()
        return found

    def follow(
        self, since: int | None = None, stopped: Callable[[], bool] = lambda: False
    ) -> Iterator[LiveRows]:
        """Results as they are committed, from epoch `since` on, or from now; until the query is dropped.

        A connection that breaks is made again, and goes on where it was: nothing is lost or comes twice, as
        long as the server retains it.
        """
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
        """Have every new set of results handed to a function, in a thread of its own."""
        return Subscription(self, receive, since)

    def explain(self) -> str:
        return self._connection.explain(self.name)

    def progress(self) -> dict[str, Any] | None:
        """How far a query is that reads the past (FROM BEGINNING); None once it is where its streams are."""
        found: dict[str, Any] | None = self.metrics()["progress"]
        return found

    def metrics(self) -> dict[str, Any]:
        """How the query is doing."""
        found: dict[str, Any] = self._connection.request("GET", self._path).json()
        return found

    def stop(self) -> None:
        """Drop the query."""
        self._do("DROP")

    def pause(self) -> None:
        """Let it give no results until `resume`; nothing is missed."""
        self._do("PAUSE")

    def resume(self) -> None:
        """Let it go on after a pause, with what has come meanwhile."""
        self._do("RESUME")

    def restart(self) -> None:
        """Run it after it has failed."""
        self._do("RESTART")

    def replace(self, select: str) -> None:
        """Give it another definition, `SELECT …`; state that fits is kept."""
        self._connection.execute(f"CREATE OR REPLACE QUERY {self._quoted} AS {select}")

    def explain_replace(self, select: str) -> list[dict[str, Any]]:
        """What `replace` would keep, what would begin anew, and from when on results would be whole."""
        (found,) = self._connection.execute(f"EXPLAIN REPLACE QUERY {self._quoted} AS {select}")
        return found.rows

    def life(self) -> dict[str, Any]:
        """Its state (running, paused, failed, restarting), error, failures, next try and version."""
        found = self.metrics()
        return {name: found[name] for name in _LIFE}

    @property
    def version(self) -> int:
        """The number of its definition: 1, and one more each time it is replaced."""
        return int(self.metrics()["version"])

    def versions(self) -> list[dict[str, Any]]:
        """All definitions that it has had, with who and when, the oldest first."""
        found: list[dict[str, Any]] = self._connection.request("GET", f"{self._path}/versions").json()
        return found

    @property
    def _quoted(self) -> str:
        return '"' + self.name.replace('"', '""') + '"'

    def _do(self, action: str) -> None:
        self._connection.execute(f"{action} QUERY {self._quoted}")


class Subscription:
    """A function that is called with results until `stop`."""

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
        """No call is begun after this."""
        self._stopped.set()

    def join(self, timeout: float | None = None) -> None:
        """Wait until the query is dropped or something fails."""
        self._thread.join(timeout)
