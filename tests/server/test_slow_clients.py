"""Clients that stop reading are disconnected, can resume, and do not delay other clients."""

from __future__ import annotations

import json
import re
import socket
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from server.conftest import bid
from server.test_http import events
from slicemill.server.answer import StatementAnswer
from slicemill.server.connections import ClientLimits
from slicemill.server.network import ServerSockets, serving
from slicemill.server.postgres.session import PostgresSession
from slicemill.server.service import MillService
from slicemill.server.user_session import UserSession

LIMITS = ClientLimits(stuck_s=1.0, request_s=0.5)
EPOCHS, ROWS = 24, 40  # Rows of 10 KB exceed the buffers of both sockets.
WIDE = "CREATE QUERY wide AS SELECT price, repeat('x', 10000) AS filling FROM bid"


@pytest.fixture
def listening(service: MillService) -> Iterator[ServerSockets]:
    UserSession(service).execute(WIDE)
    made = ServerSockets(postgres_port=0)
    with serving(service, made, limits=LIMITS):
        yield made


def connected(port: int) -> socket.socket:
    """Return a socket with a small buffer, which is soon full."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.settimeout(30)
    made.connect(("127.0.0.1", port))
    return made


def fill(service: MillService) -> None:
    for epoch in range(EPOCHS):
        bid(service, *((1, epoch * ROWS + row, epoch * ROWS + row) for row in range(ROWS)))


def taken_until_cut_off(stuck: socket.socket) -> bytes:
    """Return all bytes that were sent before the connection ended."""
    found = bytearray()
    try:
        while part := stuck.recv(1 << 20):
            found += part
    except ConnectionResetError:
        pass
    return bytes(found)


def live_prices(listening: ServerSockets, since: int) -> list[int]:
    """Return the prices of all epochs from `since` on, read by a fast client."""
    found: list[int] = []
    with (
        httpx.Client(base_url=listening.url, timeout=30) as client,
        client.stream("GET", "/v1/queries/wide/live", params={"since": since}) as response,
    ):
        for event in events(response):
            found += [row["price"] for row in json.loads(event["data"])["rows"]]
            if found[-1] == EPOCHS * ROWS - 1:
                break
    return found


class CutOff:
    """Collects the log messages about disconnected clients."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: str) -> None:
        self.told = threading.Event()
        monkeypatch.setattr(f"{module}.note_event", self._note)

    def _note(self, event: str, *_: object, **__: object) -> None:
        if event == "client cut off":
            self.told.set()


def test_a_live_client_that_does_not_read_is_disconnected_and_can_resume(
    listening: ServerSockets, service: MillService, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_off = CutOff(monkeypatch, "slicemill.server.http.protection")
    with connected(listening.http.getsockname()[1]) as stuck:
        stuck.sendall(b"GET /v1/queries/wide/live?since=0 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        fill(service)
        assert live_prices(listening, 0) == list(range(EPOCHS * ROWS)), "others get all, meanwhile"
        assert cut_off.told.wait(30)
        got = taken_until_cut_off(stuck)
    ids = [int(line[4:]) for line in got.split(b"\n") if line.startswith(b"id: ")]
    whole = got.count(b"\n\n") - 1  # The last event may be incomplete.
    assert whole < EPOCHS
    after = live_prices(listening, ids[whole - 1] if whole else 0)
    assert after == list(range(whole * ROWS, EPOCHS * ROWS))


def test_a_postgresql_client_that_does_not_read_is_disconnected(
    listening: ServerSockets, service: MillService, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert listening.postgres is not None
    cut_off = CutOff(monkeypatch, "slicemill.server.postgres.listen")
    statement = b"SUBSCRIBE wide SINCE 0\0"
    with connected(listening.postgres.getsockname()[1]) as stuck:
        stuck.sendall(struct.pack("!ii", 9, 196608) + b"\0")
        stuck.sendall(b"Q" + struct.pack("!i", len(statement) + 4) + statement)
        fill(service)
        assert live_prices(listening, 0) == list(range(EPOCHS * ROWS)), "others get all, meanwhile"
        assert cut_off.told.wait(30)
        assert len(taken_until_cut_off(stuck)) < EPOCHS * ROWS * 10_000


def test_a_slow_reading_client_is_not_disconnected(listening: ServerSockets, service: MillService) -> None:
    fill(service)
    taken = 0
    whole = EPOCHS * ROWS * 10_000
    # The limit passes more than once before the client has read all rows.
    with socket.create_connection(("127.0.0.1", listening.http.getsockname()[1]), 30) as slow:
        slow.sendall(b"GET /v1/queries/wide/results HTTP/1.1\r\nHost: localhost\r\n\r\n")
        pause = threading.Event()
        while taken < whole:
            part = slow.recv(200_000)
            assert part, f"cut off after {taken} of {whole} bytes"
            taken += len(part)
            pause.wait(LIMITS.stuck_s / 20)


def reset(connection: socket.socket) -> None:
    """Close a connection so that the server's next read or write fails."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def test_no_rows_are_encoded_for_a_live_client_after_it_has_disconnected(
    listening: ServerSockets, service: MillService
) -> None:
    fill(service)
    with httpx.Client(base_url=listening.url, timeout=30) as client:
        gone = connected(listening.http.getsockname()[1])
        gone.sendall(b"GET /v1/queries/wide/live?since=0 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert gone.recv(1)
        reset(gone)
        metrics = client.get("/metrics").text
        while "slicemill_live_clients 0.0" not in metrics:
            metrics = client.get("/metrics").text
    (encoded,) = re.findall(r"^slicemill_live_epochs_encoded_total (\d+)\.0$", metrics, re.MULTILINE)
    assert 0 < int(encoded) < EPOCHS


def test_no_further_statement_runs_for_a_postgresql_client_that_has_disconnected(
    listening: ServerSockets, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert listening.postgres is not None
    disconnected, ended, executed = threading.Event(), threading.Event(), list[str]()

    def execute(_: UserSession, text: str, *__: object) -> list[StatementAnswer]:
        assert disconnected.wait(30)
        executed.append(text)
        return [StatementAnswer("CREATE QUERY", "created")]

    async def serve(session: PostgresSession) -> None:
        try:
            await served(session)
        finally:
            ended.set()

    served = PostgresSession.serve
    monkeypatch.setattr(PostgresSession, "serve", serve)
    monkeypatch.setattr(UserSession, "execute", execute)
    statements = b"CREATE QUERY q AS SELECT price FROM bid;" * 50 + b"\0"
    gone = connected(listening.postgres.getsockname()[1])
    gone.sendall(struct.pack("!ii", 9, 196608) + b"\0")
    gone.sendall(b"Q" + struct.pack("!i", len(statements) + 4) + statements)
    assert gone.recv(1)
    reset(gone)
    disconnected.set()
    assert ended.wait(30)
    assert [record.message for record in caplog.records if record.name == "asyncio"] == []
    assert 0 < len(executed) < 50


@pytest.mark.parametrize("sent", [b"", b"GET /health HTT", b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: "])
def test_an_incomplete_request_closes_its_connection(listening: ServerSockets, sent: bytes) -> None:
    with connected(listening.http.getsockname()[1]) as silent:
        silent.sendall(sent)
        assert taken_until_cut_off(silent) == b""


def test_a_connection_with_repeated_requests_stays_open(listening: ServerSockets) -> None:
    with httpx.Client(base_url=listening.url, timeout=60) as client:
        pause = threading.Event()
        for _ in range(4):
            assert client.get("/health").status_code == 200
            pause.wait(LIMITS.request_s / 2)


def test_results_are_encoded_once_for_all_followers(listening: ServerSockets, service: MillService) -> None:
    def count(name: str) -> float:
        lines = httpx.get(f"{listening.url}/metrics", timeout=60).text.splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith(name))

    fill(service)
    with ThreadPoolExecutor(4) as clients:
        for prices in clients.map(lambda _: live_prices(listening, 0), range(4)):
            assert prices == list(range(EPOCHS * ROWS))
    assert count("slicemill_live_epochs_encoded_total") == EPOCHS
    assert count("slicemill_live_epochs_sent_total") == 4 * EPOCHS
