"""Benchmark of live results: 200 clients over server-sent events and 50 over PostgreSQL's protocol.

    sender ── lines with a number and the time ──► slicemill serve ──► clients, in another process

Each line is a result of exactly one query, so the expected rows of a client are known: the consecutive
numbers of its query. The delay is from sending a line until a client has read its result. The server has
first one client, then all clients, then also clients that do not read, and then statements that create and
drop queries. Clients share the machine with the server, so the CPU time of both is reported. Bars: the median
delay with all clients is at most twice that with one client. Results are encoded once per protocol. No row is
lost or duplicated. A client that does not read is disconnected, and receives the next row after it
reconnects.
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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
from prometheus_client.parser import text_string_to_metric_families

from slicemill.errors import SlicemillError
from slicemill_lab.bench.benchmark import Benchmark
from slicemill_lab.bench.live.processes import Program
from slicemill_lab.bench.live.systems import RUN
from slicemill_lab.claims import Claim, at_most, equal, timed
from slicemill_lab.experiment import Result, Scale
from slicemill_lab.progress import say

_PATIENCE_S = 180.0
_STATEMENTS_WITHIN_S = 600.0
_WARM_S = 10.0
_TICK_S = 0.01
_WIDE = 20_000  # characters of a row for clients that do not read, which fills their sockets in seconds
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
    "small": ServeSizes(50, 2_000, 200, 50, 5, 1_000, 8.0),
    "full": ServeSizes(50, 2_000, 200, 50, 10, 1_000, 60.0),
}


class LineSender:
    """Sends lines at a fixed rate to the first client.

    Line i belongs to query i modulo the number of queries.
    """

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
    """Measurements of the clients in one phase."""

    clients: Sequence[Mapping[str, Any]]
    failed: Sequence[str]
    encoded: float
    sent: float
    driver_cpu_s: float = 0.0
    clients_cpu_s: float = 0.0

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
        """Number of clients that received no rows, or rows with gaps or duplicates."""
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
            "CPU s of the server's process": round(self.driver_cpu_s, 2),
            "CPU s of all clients": round(self.clients_cpu_s, 2),
        }


def _in_a_row(numbers: Sequence[int]) -> bool:
    return bool(numbers) and list(numbers) == list(range(numbers[0], numbers[0] + len(numbers)))


@dataclass(slots=True)
class ReadNumbers:
    """Numbers of results that were read so far, and the epoch to continue from."""

    numbers: list[int] = field(default_factory=list)
    since: int = 0


class MeasuredServer:
    """Server in another process, with the queries that clients read."""

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
        """Return the log entries of the server so far."""
        lines = (self._folder / "serve.stderr").read_text(errors="replace").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    def wait_for_rows(self) -> None:
        """Wait until rows arrive. The start of workers takes longer on a busy machine."""
        ends, rows = time.monotonic() + _PATIENCE_S, ReadNumbers()
        while not rows.numbers:
            self.read_on(self.queries[0], rows)
            if time.monotonic() > ends:
                raise SlicemillError(f"no row came in {_PATIENCE_S:g} s: {self.program.last_words()}")
            time.sleep(0.5)

    def encoded_and_sent(self) -> tuple[float, float]:
        text = httpx.get(f"{self.url}/metrics", timeout=60).text
        found = {s.name: s.value for family in text_string_to_metric_families(text) for s in family.samples}
        return found["slicemill_live_epochs_encoded_total"], found["slicemill_live_epochs_sent_total"]

    def kept_rows(self, expected: int) -> list[list[int]]:
        """Return the retained result numbers of each query, once all lines have results or time is up."""
        kept = {query: ReadNumbers() for query in self.queries}
        ends = time.monotonic() + _PATIENCE_S / 3
        while True:
            for query, rows in kept.items():
                self.read_on(query, rows)
            if sum(len(rows.numbers) for rows in kept.values()) >= expected or time.monotonic() > ends:
                return [rows.numbers for rows in kept.values()]
            time.sleep(0.5)

    def read_on(self, query: str, rows: ReadNumbers) -> None:
        """Read the results that are new since the last call."""
        while True:
            asked = {"since": rows.since}
            page = httpx.get(f"{self.url}/v1/queries/{query}/results", params=asked, timeout=60).json()
            if not page["rows"]:
                return
            rows.numbers += [row["n"] for row in page["rows"]]
            rows.since = page["next"]


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
    """Run clients for some seconds, and return their measurements."""
    before = server.encoded_and_sent()
    with _clients(server, folder, sse, postgres) as clients:
        server_s, clients_s = _cpu_s(server.program.pid), _cpu_s(clients.pid)
        time.sleep(seconds)
        server_s, clients_s = _cpu_s(server.program.pid) - server_s, _cpu_s(clients.pid) - clients_s
        clients.say("")
        found = json.loads(clients.line(_PATIENCE_S))
    encoded, sent = server.encoded_and_sent()
    counts = encoded - before[0], sent - before[1]
    return PhaseResult(found["clients"], found["failed"], *counts, server_s, clients_s)


def _cpu_s(pid: int) -> float:
    """Return the CPU time of a process without its children."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


class StuckClient:
    """Client of wide rows that reads one row and then stops reading."""

    def __init__(self, port: int, last_id: str = "") -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._socket.settimeout(_PATIENCE_S)
        self._socket.connect(("127.0.0.1", port))
        place = f"Last-Event-ID: {last_id}\r\n" if last_id else ""
        asked = f"GET /v1/queries/wide/live HTTP/1.1\r\nHost: localhost\r\n{place}\r\n"
        self._socket.sendall(asked.encode())
        self.last_id, self.numbers = self._first_event()

    def _first_event(self) -> tuple[str, list[int]]:
        last_id = ""
        with self._socket.makefile("rb") as lines:
            for line in lines:
                if line.startswith(b"id: "):
                    last_id = line[4:].decode().strip()
                elif line.startswith(b"data: {"):
                    return last_id, [row["n"] for row in json.loads(line[6:])["rows"]]
        raise SlicemillError("a client of wide rows got none")

    def finds_the_next_row(self, port: int) -> bool:
        """Reconnect, and return True if the next row follows the last one read."""
        back = StuckClient(port, self.last_id)
        back.close()
        return back.numbers[0] == self.numbers[-1] + 1

    def close(self) -> None:
        self._socket.close()


def _cut_off(server: MeasuredServer, clients: Sequence[StuckClient]) -> int:
    """Wait until all stuck clients are disconnected, or time is up. Return their number."""
    ends = time.monotonic() + _PATIENCE_S / 2
    while True:
        found = len([event for event in server.events() if event["event"] == "client cut off"])
        if found >= len(clients) or time.monotonic() > ends:
            return found
        time.sleep(0.5)


class StatementLoad(threading.Thread):
    """Thread that creates and drops queries, one after another."""

    def __init__(self, url: str, count: int) -> None:
        super().__init__(daemon=True)
        self._url = url
        self._count = count
        self.done = 0
        self.seconds = 0.0
        self.refused = ""

    def run(self) -> None:
        began = time.monotonic()
        with httpx.Client(base_url=self._url, timeout=60) as client:
            for number in range(self._count // 2):
                name = f"other{number}"
                for text in (
                    f"CREATE QUERY {name} AS SELECT n FROM line WHERE kind = {number % 7} AND n % 5 = 1",
                    f"DROP QUERY {name}",
                ):
                    answer = client.post("/v1/statements", json={"text": text})
                    if answer.status_code != httpx.codes.OK:
                        self.refused = f"{text}: {answer.text}"
                        return
                    self.done += 1
                    self.seconds = time.monotonic() - began
                    say(f"{self.done} of {self._count} statements")


def run(scale: Scale) -> Result:
    sizes = SIZES[scale]
    sender = LineSender(sizes.queries, sizes.rows_a_second)
    with tempfile.TemporaryDirectory(prefix="slicemill-bench-") as name:
        folder = Path(name)
        server = MeasuredServer(folder, sizes, sender)
        try:
            say("waiting for the first rows")
            server.wait_for_rows()
            say("one client")
            _phase(server, folder, 1, 0, _WARM_S)
            one = _phase(server, folder, 1, 0, sizes.seconds)
            say(f"{sizes.sse + sizes.postgres} clients")
            every = _phase(server, folder, sizes.sse, sizes.postgres, sizes.seconds)
            say(f"{sizes.slow} clients that do not read besides")
            stuck = [StuckClient(server.http_port) for _ in range(sizes.slow)]
            beside = _phase(server, folder, sizes.sse, sizes.postgres, sizes.seconds)
            load = StatementLoad(server.url, sizes.statements)
            load.start()
            disturbed = _phase(server, folder, sizes.sse, sizes.postgres, sizes.seconds)
            load.join(_STATEMENTS_WITHIN_S)
            say("clients that were cut off come back")
            cut_off = _cut_off(server, stuck)
            found = sum(client.finds_the_next_row(server.http_port) for client in stuck)
            sender.stop()
            say("all results are read again")
            kept = server.kept_rows(sender.sent)
            gaps = sum(not _in_a_row(numbers) or numbers[0] != 0 for numbers in kept)
        finally:
            server.program.stop(interrupt=True)
            sender.stop()
    phases = {"one client": one, "all": every, "clients that do not read": beside, "statements": disturbed}
    return Result(
        (
            *_claims(phases),
            equal("clients that read nothing and were cut off", cut_off, sizes.slow),
            equal("… which came back and found the next row", found, sizes.slow),
            equal("statements done while rows flowed", load.done, sizes.statements // 2 * 2, load.refused),
            equal("queries whose kept results have a gap or a row twice, after all of it", gaps, 0),
            equal(
                "lines sent without a result that is kept, after all of it",
                sender.sent - sum(map(len, kept)),
                0,
            ),
        ),
        {
            "how": f"{sizes.rows_a_second} rows a second over {sizes.queries} queries; "
            f"{sizes.sse} clients of server-sent events, {sizes.postgres} of PostgreSQL; wall time",
            "load of the machine, 1 min": round(os.getloadavg()[0], 1),
            "lines sent": sender.sent,
            **{name: phase.plain() for name, phase in phases.items()},
            "statements to create and drop": {"done": load.done, "seconds": round(load.seconds, 1)},
        },
    )


def _claims(phases: Mapping[str, PhaseResult]) -> tuple[Claim, ...]:
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
        # A tenth more, for epochs before the first and after the last client of a query.
        at_most("epochs encoded over epochs of results, in two forms", every.encoded / (2 * most), 1.1),
        *(
            equal(
                f"clients that miss a row or get one twice: {name}", phase.broken, 0, f"{phase.rows:,} rows"
            )
            for name, phase in phases.items()
        ),
    )


BENCHMARK = Benchmark("Many who read results of one server", run)
