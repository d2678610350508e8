"""Many who read results of one server: 200 over server-sent events and 50 over PostgreSQL's protocol.

    sender ── lines with a number and the time ──► slicemill serve ──► clients, in a process of their own

Each line is a result of exactly one of the queries, so what a client has to get is known: the numbers of its
query, one after another. A delay is from when a line is sent until a client has read its result. The same
server has one client, then all, then clients that do not read besides, and then statements that create and
drop queries meanwhile. Bounds: the middle delay with all clients at most twice that with one; results are
encoded once for each protocol; nothing is lost or comes twice.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from slicemill.errors import SlicemillError
from slicemill_lab.bench.benchmark import Benchmark
from slicemill_lab.bench.live.processes import Program
from slicemill_lab.bench.live.systems import RUN
from slicemill_lab.claims import Claim, at_most, equal, timed
from slicemill_lab.experiment import Result, Scale

_PATIENCE_S = 180.0
_WARM_S = 10.0
_TICK_S = 0.01
_WIDE = 20_000  # characters of a row for clients that do not read: their sockets are full in seconds
_CLIENTS = (sys.executable, "-m", "slicemill_lab.bench.live.many_subscribers")


@dataclass(frozen=True, slots=True)
class ServeSizes:
    queries: int
    rows_a_second: int
    sse: int
    postgres: int
    slow: int
    statements: int
    seconds: float


SIZES: Mapping[Scale, ServeSizes] = {
    "small": ServeSizes(50, 500, 200, 50, 5, 100, 8.0),
    "full": ServeSizes(50, 2_000, 200, 50, 10, 1_000, 60.0),
}


class LineSender:
    """Sends lines to whoever connects, so many a second; line i belongs to query i modulo their number."""

    def __init__(self, queries: int, rows_a_second: int) -> None:
        self._queries = queries
        self._rate = rows_a_second
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.sent = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._listening.close()
        self._thread.join(5)

    def _run(self) -> None:
        try:
            connection, _ = self._listening.accept()
        except OSError:
            return
        began = time.monotonic()
        with connection:
            while not self._stop.wait(_TICK_S):
                due = int((time.monotonic() - began) * self._rate)
                now = int(time.time() * 1_000_000)
                lines = "".join(
                    f"{n % self._queries},{n // self._queries},{now}\n" for n in range(self.sent, due)
                )
                try:
                    connection.sendall(lines.encode())
                except OSError:
                    return
                self.sent = max(due, self.sent)


@dataclass(frozen=True, slots=True)
class PhaseResult:
    """What clients got in one phase."""

    clients: Sequence[Mapping[str, Any]]
    failed: Sequence[str]
    encoded: float
    sent: float

    @property
    def delays_ms(self) -> list[float]:
        return [delay for client in self.clients for delay in client["delays_ms"]]

    @property
    def p50_ms(self) -> float:
        return statistics.median(self.delays_ms)

    @property
    def rows(self) -> int:
        return sum(len(client["numbers"]) for client in self.clients)

    @property
    def broken(self) -> int:
        """Clients that did not get the numbers of their query one after another, or nothing at all."""
        return len(self.failed) + sum(not _in_a_row(client["numbers"]) for client in self.clients)

    def plain(self) -> dict[str, Any]:
        ordered = sorted(self.delays_ms)
        return {
            "clients": len(self.clients),
            "rows": self.rows,
            "p50 ms": round(self.p50_ms, 1),
            "p99 ms": round(ordered[int(len(ordered) * 0.99)], 1),
            "epochs encoded": self.encoded,
            "epochs sent": self.sent,
        }


def _in_a_row(numbers: Sequence[int]) -> bool:
    return bool(numbers) and list(numbers) == list(range(numbers[0], numbers[0] + len(numbers)))


class MeasuredServer:
    """A server in a process of its own, with the queries that clients read."""

    def __init__(self, folder: Path, sizes: ServeSizes, sender: LineSender) -> None:
        self.queries = [f"q{place}" for place in range(sizes.queries)]
        script = folder / "serve.esl"
        stream = f"CREATE STREAM line (kind int, n bigint, sent bigint) SOURCE 'tcp://127.0.0.1:{sender.port}?lines=csv';"
        each = (
            f"CREATE QUERY {name} AS SELECT n, sent FROM line WHERE kind = {place};"
            for place, name in enumerate(self.queries)
        )
        wide = f"CREATE QUERY wide AS SELECT n, repeat('x', {_WIDE}) AS filling FROM line WHERE kind = 0;"
        script.write_text("\n".join((stream, *each, wide)), encoding="utf-8")
        options = [
            "--home",
            str(folder / "home"),
            "--port",
            "0",
            "--postgres-port",
            "0",
            "--log-format",
            "json",
        ]
        self._folder = folder
        self.program = Program("serve", [*RUN, "serve", str(script), *options], folder)
        self._started = self._event("start")
        self.url: str = self._started["url"]
        self.http_port = int(self.url.rpartition(":")[2])
        self.postgres_port = int(self._started["postgres"].rpartition(":")[2])

    def _event(self, wanted: str) -> dict[str, Any]:
        ends = time.monotonic() + _PATIENCE_S
        while time.monotonic() < ends:
            self.program.check()
            for entry in self.events():
                if entry["event"] == wanted:
                    return entry
            time.sleep(0.2)
        raise SlicemillError(f"the server did not start: {self.program.last_words()}")

    def events(self) -> list[dict[str, Any]]:
        """What it has logged so far."""
        lines = (self._folder / "serve.stderr").read_text(errors="replace").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    def encoded_and_sent(self) -> tuple[float, float]:
        text = httpx.get(f"{self.url}/metrics", timeout=60).text
        found = {s.name: s.value for family in text_string_to_metric_families(text) for s in family.samples}
        return found["slicemill_live_epochs_encoded_total"], found["slicemill_live_epochs_sent_total"]

    def kept_rows(self, expected: int) -> list[list[int]]:
        """What the server keeps of each query, once it is as much as was sent, or does not get more."""
        ends = time.monotonic() + _PATIENCE_S / 3
        while True:
            found = [self.rows_of(query) for query in self.queries]
            if sum(map(len, found)) >= expected or time.monotonic() > ends:
                return found

    def rows_of(self, query: str) -> list[int]:
        """The numbers of all results of a query that the server keeps."""
        numbers: list[int] = []
        since = 0
        while True:
            page = httpx.get(
                f"{self.url}/v1/queries/{query}/results", params={"since": since}, timeout=60
            ).json()
            if not page["rows"]:
                return numbers
            numbers += [row["n"] for row in page["rows"]]
            since = page["next"]


@contextmanager
def _clients(server: MeasuredServer, folder: Path, sse: int, postgres: int) -> Iterator[Program]:
    program = Program("clients", _CLIENTS, folder)
    try:
        ports = {"http": server.http_port, "postgres": server.postgres_port}
        program.say(json.dumps({**ports, "queries": server.queries, "sse": sse, "pg": postgres}))
        program.line(_PATIENCE_S)
        yield program
    finally:
        program.stop()


def _phase(server: MeasuredServer, folder: Path, sse: int, postgres: int, seconds: float) -> PhaseResult:
    """Let so many clients read for a time."""
    before = server.encoded_and_sent()
    with _clients(server, folder, sse, postgres) as clients:
        time.sleep(seconds)
        clients.say("")
        found = json.loads(clients.line(_PATIENCE_S))
    encoded, sent = server.encoded_and_sent()
    return PhaseResult(found["clients"], found["failed"], encoded - before[0], sent - before[1])


@contextmanager
def _not_reading(server: MeasuredServer, count: int) -> Iterator[None]:
    """Clients that ask for wide rows and read none of them."""
    stuck = []
    for _ in range(count):
        made = socket.socket()
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        made.connect(("127.0.0.1", server.http_port))
        made.sendall(b"GET /v1/queries/wide/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        stuck.append(made)
    try:
        yield
    finally:
        for made in stuck:
            made.close()


class StatementLoad(threading.Thread):
    """Creates and drops queries, one after another."""

    def __init__(self, url: str, count: int) -> None:
        super().__init__(daemon=True)
        self._url = url
        self._count = count
        self.done = 0
        self.seconds = 0.0

    def run(self) -> None:
        began = time.monotonic()
        with httpx.Client(base_url=self._url, timeout=60) as client:
            for number in range(self._count // 2):
                name = f"other{number}"
                for text in (
                    f"CREATE QUERY {name} AS SELECT n FROM line WHERE kind = {number % 7} AND n % 5 = 1",
                    f"DROP QUERY {name}",
                ):
                    client.post("/v1/statements", json={"text": text}).raise_for_status()
                    self.done += 1
        self.seconds = time.monotonic() - began


def run(scale: Scale) -> Result:
    sizes = SIZES[scale]
    sender = LineSender(sizes.queries, sizes.rows_a_second)
    with tempfile.TemporaryDirectory(prefix="slicemill-bench-") as name:
        folder = Path(name)
        server = MeasuredServer(folder, sizes, sender)
        try:
            _phase(server, folder, 1, 0, _WARM_S)
            one = _phase(server, folder, 1, 0, sizes.seconds)
            every = _phase(server, folder, sizes.sse, sizes.postgres, sizes.seconds)
            with _not_reading(server, sizes.slow):
                beside = _phase(server, folder, sizes.sse, sizes.postgres, sizes.seconds)
            load = StatementLoad(server.url, sizes.statements)
            load.start()
            disturbed = _phase(server, folder, sizes.sse, sizes.postgres, sizes.seconds)
            load.join(_PATIENCE_S * 5)
            sender.stop()
            kept = server.kept_rows(sender.sent)
            gaps = sum(not _in_a_row(numbers) or numbers[0] != 0 for numbers in kept)
            cut_off = sum(event["event"] == "client cut off" for event in server.events())
        finally:
            server.program.stop(interrupt=True)
            sender.stop()
    phases = {"one client": one, "all": every, "clients that do not read": beside, "statements": disturbed}
    return Result(
        _claims(sizes, phases, load, gaps, sender.sent - sum(map(len, kept))),
        {
            "how": f"{sizes.rows_a_second} rows a second over {sizes.queries} queries; "
            f"{sizes.sse} clients of server-sent events, {sizes.postgres} of PostgreSQL; wall time",
            "load of the machine, 1 min": round(os.getloadavg()[0], 1),
            "lines sent": sender.sent,
            **{name: phase.plain() for name, phase in phases.items()},
            "clients that were cut off": cut_off,
            "statements": {"done": load.done, "seconds": round(load.seconds, 1)},
        },
    )


def _claims(
    sizes: ServeSizes, phases: Mapping[str, PhaseResult], load: StatementLoad, gaps: int, missing: int
) -> tuple[Claim, ...]:
    one, every, beside = (phases[name] for name in ("one client", "all", "clients that do not read"))
    epochs = {(client["query"], client["epochs"]) for client in every.clients if client["way"] == "sse"}
    most = sum(max(count for query, count in epochs if query == name) for name in {q for q, _ in epochs})
    return (
        timed(
            at_most(
                "middle delay with all clients over that with one",
                round(every.p50_ms / one.p50_ms, 2),
                2,
                f"{every.p50_ms:.0f} ms and {one.p50_ms:.0f} ms",
            )
        ),
        timed(
            at_most(
                "middle delay beside clients that do not read over that without them",
                round(beside.p50_ms / every.p50_ms, 2),
                1.5,
            )
        ),
        # A tenth more: epochs of the moments before the first and after the last client of a query.
        at_most("epochs encoded over epochs of results, in two forms", every.encoded / (2 * most), 1.1),
        *(
            equal(
                f"clients that miss a row or get one twice: {name}", phase.broken, 0, f"{phase.rows:,} rows"
            )
            for name, phase in phases.items()
        ),
        equal("queries whose kept results have a gap or a row twice, after all of it", gaps, 0),
        equal("lines sent without a result that is kept, after all of it", missing, 0),
        equal("statements done while rows flowed", load.done, sizes.statements // 2 * 2),
    )


BENCHMARK = Benchmark("Many who read results of one server", run)
