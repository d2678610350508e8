"""Limits of open connections: idle clients cannot exhaust the file descriptors of a server."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import psycopg
import pytest

from slicemill.connectors.tcp.reader import TcpStatus, tcp_status
from slicemill.server.connections import ClientLimits, ConnectionLimits, OpenConnections
from slicemill.server.network import ServerSockets, serving
from slicemill.server.serve import PendingStatements, _watch
from slicemill.server.service import MillService

LIMITS = ConnectionLimits(total=12, per_address=8, first_spare=1 << 20)


def idle(port: int, count: int, address: str = "127.0.0.1") -> list[socket.socket]:
    return [
        socket.create_connection(("127.0.0.1", port), 30, source_address=(address, 0)) for _ in range(count)
    ]


def port_of(listening: socket.socket | None) -> int:
    assert listening is not None
    port: int = listening.getsockname()[1]
    return port


def open_ones(held: list[socket.socket]) -> int:
    """Count the connections that the server has not closed."""
    count = 0
    for one in held:
        one.settimeout(0.2)
        try:
            if one.recv(1, socket.MSG_PEEK):
                continue  # The server has rejected this connection.
        except TimeoutError:
            count += 1
        except ConnectionError:
            pass
    return count


def get(listening: ServerSockets, address: str) -> int:
    transport = httpx.HTTPTransport(local_address=address)
    with httpx.Client(transport=transport, timeout=30) as client:
        return client.get(f"{listening.url}/health").status_code


@pytest.fixture
def listening(service: MillService) -> Iterator[ServerSockets]:
    made = ServerSockets(postgres_port=0, connections=LIMITS)
    with serving(service, made, limits=ClientLimits(request_s=60, start_s=60)):
        yield made


@pytest.mark.parametrize("way", ["http", "postgres"])
def test_one_address_can_open_only_a_share_of_all_connections(listening: ServerSockets, way: str) -> None:
    with ExitStack() as stack:
        held = [stack.enter_context(one) for one in idle(port_of(getattr(listening, way)), 20)]
        assert open_ones(held) == LIMITS.per_address
        assert get(listening, "127.0.0.1") == 503
        with pytest.raises(psycopg.OperationalError, match="too many clients"):
            psycopg.connect(f"{listening.postgres_url}/mill", user="me", sslmode="disable")
        kept = httpx.Client(transport=httpx.HTTPTransport(local_address="127.0.0.2"), timeout=30)
        assert stack.enter_context(kept).get(f"{listening.url}/health").status_code == 200
        others = [stack.enter_context(one) for one in idle(port_of(listening.http), 8, "127.0.0.3")]
        assert open_ones(others) == LIMITS.total - LIMITS.per_address - 1
        assert get(listening, "127.0.0.2") == 503
    while get(listening, "127.0.0.1") != 200:
        pass  # Wait until the server has read the end of the closed connections.


def test_a_postgresql_client_must_send_its_token_before_the_start_limit(service: MillService) -> None:
    made = ServerSockets(postgres_port=0)
    with serving(service, made, limits=ClientLimits(start_s=0.5)):
        for sent in (b"", b"\0\0\0\x08", b"\0\0\0\x08\x04\xd2\x16\x2f"):  # the last message requests TLS
            with socket.create_connection(("127.0.0.1", port_of(made.postgres)), 30) as silent:
                silent.sendall(sent)
                while silent.recv(100):
                    pass


def test_a_connection_counts_against_the_limits_until_it_closes() -> None:
    counts = OpenConnections(LIMITS)
    ends = [counts.opened("2001:db8::1") for _ in range(4)] + [counts.opened("2001:db8::2") for _ in range(4)]
    assert "this address" in (counts.refusal(5, "2001:db8::3") or "")
    assert counts.refusal(5, "2001:db8:0:1::1") is None
    assert "descriptors" in (counts.refusal(LIMITS.first_spare, "192.0.2.1") or "")
    for end in ends:
        end()
    assert counts.refusal(5, "2001:db8::3") is None


# A server with 256 file descriptors. One stream reads a socket and stores its status in a file.
SERVER = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
import sys
from concurrent.futures import Future
from pathlib import Path
from slicemill.api import mill
from slicemill.sql.errors import SourceText
from slicemill.server import serve
from slicemill.server.network import ServerSockets
from support.engine import inline_pool

home, folder, port = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
serve.Mill = lambda spark, home: mill.Mill(home=home, pool=inline_pool(1), poll_ms=5)
script = f'''
CREATE STREAM bid (item int, price int, ts timestamp) ORDER BY ts USING csv OPTIONS (path '{folder}');
CREATE STREAM line (item int, ts timestamp) ORDER BY ts SOURCE 'tcp://127.0.0.1:{port}';
CREATE QUERY dear AS SELECT item, price FROM bid WHERE price > 10;
CREATE QUERY lines AS SELECT item FROM line;
'''
options = serve.ServeOptions(home, SourceText(script), log_format=serve.LogFormat.JSON)
serve.run_server(ServerSockets(postgres_port=0), serve.Access(home), options, Future())
"""


@pytest.mark.slow_cpu
def test_idle_connections_do_not_stop_a_server(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    paths = [str(root / part) for part in ("src", "client/src", "tests")]
    (tmp_path / "in").mkdir()
    with ExitStack() as stack:
        sender = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        sender.settimeout(30)
        server = subprocess.Popen(
            [
                sys.executable,
                "-c",
                SERVER,
                str(tmp_path / "home"),
                str(tmp_path / "in"),
                str(port_of(sender)),
            ],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
        stack.callback(server.wait, 60)
        stack.callback(server.kill)
        assert server.stderr is not None
        stack.callback(server.stderr.close)
        started = next(json.loads(line) for line in server.stderr if '"start"' in line)
        log = stack.enter_context(ThreadPoolExecutor(1)).submit(server.stderr.read)
        stack.callback(server.terminate)
        ports = [int(started[way].rpartition(":")[2]) for way in ("url", "postgres")]
        for port in ports:
            for one in idle(port, 650):
                stack.enter_context(one)
        connection = stack.enter_context(sender.accept()[0])
        connection.sendall(b"1,2026-01-01 00:00:00\n2,2026-01-01 00:00:01\n")
        (tmp_path / ".new").write_text("1,20,2026-01-01 00:00:00\n2,30,2026-01-01 00:00:01\n")
        (tmp_path / ".new").rename(tmp_path / "in" / "1.csv")
        transport = httpx.HTTPTransport(local_address="127.0.0.2")
        client = stack.enter_context(httpx.Client(base_url=started["url"], transport=transport, timeout=30))
        for query in ("dear", "lines"):
            with client.stream("GET", f"/v1/queries/{query}/live", params={"since": 0}) as response:
                assert any('"item": 2' in line for line in response.iter_lines())
        connection.shutdown(socket.SHUT_RDWR)  # The engine writes the status file and reconnects.
        stack.enter_context(sender.accept()[0])
        assert client.get("/health").json()["ready"] is True
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0, log.result()
        assert "connection refused" in log.result()
        assert "Traceback" not in log.result()


def test_an_unreadable_or_unwritable_tcp_status_stops_neither_reader_nor_server(
    service: MillService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "status.json").mkdir()
    assert tcp_status(tmp_path) is None
    (tmp_path / "status.json").rmdir()
    for content in ("", "[]", '{"other": 1}'):
        (tmp_path / "status.json").write_text(content)
        assert tcp_status(tmp_path) is None
    (tmp_path / "status.json").write_text('{"connected": true, "problem": null}')
    assert tcp_status(tmp_path) == TcpStatus(connected=True, problem=None)

    def failing() -> list[str]:
        raise OSError(24, "Too many open files")

    service.other_problems.append(failing)
    told: list[str] = []
    monkeypatch.setattr("slicemill.server.serve.note_event", lambda _, message, *__: told.append(message))

    _watch(service, PendingStatements(service), threading.Event(), 0.1)
    assert told == ["the status cannot be read: Too many open files"]
