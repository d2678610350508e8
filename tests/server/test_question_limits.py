"""Limits of ad hoc queries: time, memory and number; answers are streamed and end with their clients."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import httpx
import psutil
import psycopg
import pyarrow as pa
import pytest

from server.conftest import bid
from slicemill.api.mill import Mill
from slicemill.errors import SlicemillError
from slicemill.server.adhoc.ask import InMemoryRelation, QueryableRelation
from slicemill.server.adhoc.errors import AdhocQueryCancelled, AdhocQueryRejected, OutOfMemory
from slicemill.server.adhoc.pool import AdhocLimits, AnswerRows, QueryProcessPool
from slicemill.server.network import ServerSockets, serving
from slicemill.server.service import MillService

_LIMITS = AdhocLimits(memory_bytes=128 << 20, at_once=3, per_user=2, wait_s=0.3, ready=1)
_PATIENCE_S = 30
# The query would run for days, and returns no row before its end.
_ENDLESS = "SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE a.range * b.range % 7 = 3"
_MANY_ROWS = "SELECT range AS n, 'some text' AS word FROM range(10000000000000)"


def _nothing(name: str) -> QueryableRelation:
    raise AssertionError(name)


def _relation(relation: QueryableRelation, name: str) -> QueryableRelation:
    return relation


def _same(table: pa.Table) -> pa.Table:
    return table


def _until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + _PATIENCE_S
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.fixture(scope="module")
def pool() -> Iterator[QueryProcessPool]:
    made = QueryProcessPool(_LIMITS)
    yield made
    made.close()


@pytest.fixture
def limited(mill: Mill, pool: QueryProcessPool, service: MillService) -> MillService:
    service.adhoc_queries = pool
    return service


@pytest.fixture
def listening(limited: MillService) -> Iterator[ServerSockets]:
    made = ServerSockets(postgres_port=0)
    with serving(limited, made):
        yield made


def _in_background(
    pool: QueryProcessPool, user: str
) -> tuple[threading.Event, threading.Thread, list[object]]:
    interrupted, outcome = threading.Event(), list[object]()

    def ask() -> None:
        try:
            outcome.append(pool.ask(_ENDLESS, _nothing, user, interrupted=interrupted))
        except SlicemillError as problem:
            outcome.append(problem)

    thread = threading.Thread(target=ask)
    thread.start()
    return interrupted, thread, outcome


def _running(pool: QueryProcessPool) -> int:
    return len(pool._asked)


def test_cancellation_of_an_ad_hoc_query_ends_its_process(pool: QueryProcessPool) -> None:
    interrupted, thread, outcome = _in_background(pool, "ann")
    _until(lambda: _running(pool) == 1)
    (asked,) = pool._asked
    pid = asked.process.pid
    interrupted.set()
    thread.join(_PATIENCE_S)
    assert isinstance(outcome[0], AdhocQueryCancelled)
    assert not psutil.pid_exists(pid)
    assert _running(pool) == 0


def test_an_ad_hoc_query_has_a_time_limit() -> None:
    pool = QueryProcessPool(replace(_LIMITS, seconds=0.2))
    try:
        with pytest.raises(AdhocQueryCancelled, match=r"took more than 0\.2 s.*--adhoc-seconds"):
            pool.ask(_ENDLESS, _nothing)
        assert _running(pool) == 0
    finally:
        pool.close()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT list(range) AS all_of_them FROM range(1000000000)",
        "SELECT repeat('x', 900000000) AS long, repeat('y', 900000000) AS longer",
        "SELECT DISTINCT range * 7 FROM range(100000000)",
    ],
)
def test_an_ad_hoc_query_has_a_memory_limit(pool: QueryProcessPool, sql: str) -> None:
    with pytest.raises(OutOfMemory, match=r"more than 128 MB.*--adhoc-memory"):
        pool.ask(sql, _nothing).whole()
    # Later ad hoc queries are answered.
    assert pool.ask("SELECT 1 AS one", _nothing).whole().to_pylist() == [{"one": 1}]


@pytest.mark.slow_cpu
def test_each_user_has_its_own_number_of_concurrent_ad_hoc_queries(pool: QueryProcessPool) -> None:
    running = [_in_background(pool, "ann") for _ in range(_LIMITS.per_user)]
    try:
        _until(lambda: _running(pool) == _LIMITS.per_user)
        with pytest.raises(AdhocQueryRejected, match=r"2 ad hoc queries that run.*--adhoc-queries-per-user"):
            pool.ask("SELECT 1", _nothing, "ann")
        assert pool.ask("SELECT 1 AS one", _nothing, "bob").whole().num_rows == 1
        running.append(_in_background(pool, "bob"))
        _until(lambda: _running(pool) == _LIMITS.at_once)
        with pytest.raises(AdhocQueryRejected, match="3 ad hoc queries run, and 3 may"):
            pool.ask("SELECT 1", _nothing, "cid")
    finally:
        for interrupted, thread, _ in running:
            interrupted.set()
            thread.join(_PATIENCE_S)
    assert _running(pool) == 0


def test_rows_of_an_ad_hoc_query_are_computed_when_the_client_fetches_them(pool: QueryProcessPool) -> None:
    rows = pool.ask(_MANY_ROWS, _nothing)
    first = rows.take()
    assert first is not None and first.column("n")[0].as_py() == 0
    assert first.nbytes < 4 << 20
    (asked,) = pool._asked
    process = psutil.Process(asked.process.pid)
    for _ in range(20):
        assert rows.take() is not None
    assert process.memory_info().rss < 500 << 20
    rows.close()
    assert not psutil.pid_exists(process.pid)
    with pytest.raises(AdhocQueryCancelled):
        while rows.take() is not None:
            pass


def test_deletion_of_the_answer_ends_its_ad_hoc_query(pool: QueryProcessPool) -> None:
    rows: AnswerRows | None = pool.ask(_MANY_ROWS, _nothing)
    assert _running(pool) == 1
    assert rows is not None
    rows = None
    assert _running(pool) == 0


def test_an_ad_hoc_query_whose_rows_are_not_fetched_is_cancelled_for_the_next_query() -> None:
    pool = QueryProcessPool(replace(_LIMITS, at_once=1, per_user=1, idle_s=0.0, wait_s=30.0))
    try:
        forgotten = pool.ask(_MANY_ROWS, _nothing)
        assert pool.ask("SELECT 1 AS one", _nothing).whole().num_rows == 1
        with pytest.raises(AdhocQueryCancelled, match="no rows were fetched for 0 s"):
            forgotten.whole()
    finally:
        pool.close()


def test_an_unchanged_table_is_sent_to_the_query_process_once(pool: QueryProcessPool) -> None:
    table = pa.table({"n": list(range(1_000))})
    relation = InMemoryRelation(table.schema, partial(_same, table))
    for _ in range(2):
        assert pool.ask("SELECT sum(n) AS n FROM t", partial(_relation, relation)).whole().to_pylist() == [
            {"n": 499500}
        ]
        assert len(pool._handed._files) == 1
    del relation, table
    assert pool._handed._files == {}


def test_a_64_bit_overflow_after_the_first_rows_is_reported(pool: QueryProcessPool) -> None:
    sql = "SELECT range::HUGEINT * 1000000000000 AS n FROM range(20000000)"
    with pytest.raises(SlicemillError, match=r"does not fit in 64 bits.*CAST"):
        rows = pool.ask(sql, _nothing)
        while rows.take() is not None:
            pass


def test_close_of_the_process_pool_ends_its_processes() -> None:
    pool = QueryProcessPool(_LIMITS)
    _, thread, outcome = _in_background(pool, "ann")
    _until(lambda: _running(pool) == 1)
    pids = [asked.process.pid for asked in pool._asked]
    pool.close()
    thread.join(_PATIENCE_S)
    assert isinstance(outcome[0], AdhocQueryCancelled)
    assert not any(map(psutil.pid_exists, pids))


def _send(listening: ServerSockets, sql: str) -> socket.socket:
    """Send statements over HTTP, and read no answer."""
    body = json.dumps({"text": sql}).encode()
    made = socket.create_connection(listening.http.getsockname())
    head = f"POST /v1/statements HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    made.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode() + body)
    return made


@pytest.mark.slow_cpu
def test_disconnected_http_clients_cancel_their_ad_hoc_queries(
    limited: MillService, listening: ServerSockets
) -> None:
    bid(limited, (1, 20, 1))
    for _ in range(4):  # Two queries run and two wait.
        clients = [_send(listening, _ENDLESS) for _ in range(4)]
        _until(lambda: _running(limited.adhoc_queries) == _LIMITS.per_user)
        with httpx.Client(base_url=listening.url, timeout=_PATIENCE_S) as client:
            assert client.get("/health").json()["ready"]
            assert client.get("/v1/queries").status_code == 200
            said = client.post("/v1/statements", json={"text": "SELECT * FROM dear"})
            assert said.status_code == 429, said.text
        for each in clients:
            each.close()
        _until(lambda: _running(limited.adhoc_queries) == 0)
    with httpx.Client(base_url=listening.url, timeout=_PATIENCE_S) as client:
        said = client.post("/v1/statements", json={"text": "SELECT price FROM dear"})
        assert said.json()["answers"][0]["rows"] == [{"price": 20}]


def test_an_endless_answer_is_streamed_over_http(limited: MillService, listening: ServerSockets) -> None:
    with (
        httpx.Client(base_url=listening.url, timeout=_PATIENCE_S) as client,
        client.stream("POST", "/v1/statements", json={"text": _MANY_ROWS}) as response,
    ):
        assert response.status_code == 200
        received = b""
        for chunk in response.iter_bytes():
            received += chunk
            if len(received) > 5_000_000:
                break
    begin = received[received.index(b'"rows":[') + 8 : received.rindex(b"}, {")] + b"}"
    numbers = [row["n"] for row in json.loads(b"[" + begin + b"]")]
    assert numbers == list(range(len(numbers)))
    _until(lambda: _running(limited.adhoc_queries) == 0)


def test_an_error_after_the_first_rows_aborts_the_http_response(
    limited: MillService, listening: ServerSockets
) -> None:
    sql = "SELECT CAST(CASE WHEN i < 900000 THEN '1' ELSE 'x' END AS INT) AS n FROM range(1000000) t(i)"
    with (
        httpx.Client(base_url=listening.url, timeout=_PATIENCE_S) as client,
        pytest.raises(httpx.RemoteProtocolError),
    ):
        client.post("/v1/statements", json={"text": sql})
    _until(lambda: _running(limited.adhoc_queries) == 0)


def test_an_ad_hoc_query_followed_by_other_statements_has_a_limit_of_rows(
    limited: MillService, listening: ServerSockets
) -> None:
    with httpx.Client(base_url=listening.url, timeout=_PATIENCE_S) as client:
        said = client.post("/v1/statements", json={"text": "SELECT 1 AS one; SELECT 2 AS two; SHOW QUERIES"})
        assert [answer["rows"] for answer in said.json()["answers"]][:2] == [[{"one": 1}], [{"two": 2}]]
        said = client.post("/v1/statements", json={"text": f"{_MANY_ROWS}; SHOW QUERIES"})
        assert said.status_code == 400
        assert "send the ad hoc query by itself" in said.json()["errors"][0]["message"]
    assert _running(limited.adhoc_queries) == 0


def test_disconnected_postgresql_clients_cancel_their_ad_hoc_queries(
    limited: MillService, listening: ServerSockets
) -> None:
    url = listening.postgres_url
    assert url is not None and listening.postgres is not None
    for _ in range(2):
        clients = []
        for _ in range(3):
            made = socket.create_connection(listening.postgres.getsockname())
            made.sendall(struct.pack("!ii", 9, 196608) + b"\0")
            while b"Z\0\0\0\5" not in made.recv(65536):
                pass
            query = _ENDLESS.encode() + b"\0"
            # The client disconnects at once; the server must read that before the query's turn.
            made.sendall(b"Q" + struct.pack("!i", len(query) + 4) + query + b"X\0\0\0\4")
            clients.append(made)
        _until(lambda: _running(limited.adhoc_queries) == _LIMITS.per_user)
        for made in clients:
            made.close()
        _until(lambda: _running(limited.adhoc_queries) == 0)


def test_postgresql_streams_rows_and_cancels_statements(
    limited: MillService, listening: ServerSockets
) -> None:
    url = listening.postgres_url
    assert url is not None
    with psycopg.connect(url, autocommit=True) as connection:
        with connection.cursor() as cursor:
            found = []
            for row in cursor.stream(_MANY_ROWS):
                found.append(row[0])
                if len(found) == 50_000:
                    break
            assert found == list(range(50_000))
        _until(lambda: _running(limited.adhoc_queries) == 0)

        def cancel() -> None:
            _until(lambda: _running(limited.adhoc_queries) == 1)
            connection.cancel_safe()

        # Queries of the PostgreSQL catalog run in the same processes.
        for sql in ("SELECT count(*) FROM pg_class a, generate_series(1, 1000000000000) b", _ENDLESS):
            thread = threading.Thread(target=cancel)
            thread.start()
            with pytest.raises(psycopg.errors.QueryCanceled):
                connection.execute(sql)
            thread.join()
        with connection.cursor() as cursor, cursor.copy("COPY (SELECT 1) TO STDOUT") as copy:
            assert [bytes(one) for one in copy] == [b"1\n"]
    _until(lambda: _running(limited.adhoc_queries) == 0)
