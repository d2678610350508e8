"""Live results: each epoch is encoded once for all followers, with the JSON of fetched results."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pyarrow as pa
import pytest

from server.conftest import bid
from slicemill.columns.arrow_schema import as_results, to_arrow, with_system_columns
from slicemill.server.encoding import EpochRows, RowLayout, json_of_epoch, json_rows
from slicemill.server.network import ServerSockets, serving
from slicemill.server.postgres.session import _as_lines, _as_rows, _rows
from slicemill.server.postgres.values import CopyFormat, copy_line
from slicemill.server.postgres.wire import copy_data, data_row
from slicemill.server.service import MillService
from slicemill.server.user_session import UserSession
from slicemill.storage.log import Log
from slicemill.storage.segments import SegmentWriters
from slicemill.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    INTERVAL,
    MONTHS,
    OP,
    PERIOD,
    TIMESTAMP,
    VARCHAR,
    Column,
    Schema,
    Type,
    decimal,
)

_AT = datetime(2026, 1, 31, 12, 0, 0, 1500, tzinfo=UTC)
VALUES: list[tuple[Type, list[Any]]] = [
    (BOOLEAN, [True, None, False]),
    (INT, [1, None, -5]),
    (BIGINT, [2**62, None, 0]),
    (DOUBLE, [0.1, float("nan"), float("-inf")]),
    (decimal(10, 2), [Decimal("1.50"), None, Decimal("-0.01")]),
    (VARCHAR, ["é\t\\\n'\"", None, ""]),
    (BINARY, [b"\x00\xff", None, b""]),
    (TIMESTAMP, [_AT, None, datetime(1969, 12, 31, tzinfo=UTC)]),
    (DATE, [_AT.date(), None, _AT.date()]),
    (INTERVAL, [timedelta(seconds=90), None, -timedelta(microseconds=1)]),
    (MONTHS, [14, None, 0]),
    (PERIOD, [{"begin": _AT, "end": _AT + timedelta(hours=1)}, None, {"begin": _AT, "end": _AT}]),
]


@pytest.mark.parametrize("extents", [1, 2])
@pytest.mark.parametrize(("kind", "values"), VALUES, ids=lambda value: str(value)[:20])
def test_an_encoded_epoch_equals_the_json_of_its_table(
    tmp_path: Path, kind: Type, values: list[Any], extents: int
) -> None:
    columns = to_arrow(Schema((Column("v", kind), Column("n", BIGINT))))
    writers = SegmentWriters("w0")
    log = Log("q", tmp_path, columns)
    schema = with_system_columns(columns)
    parts = [
        pa.table(
            [
                *[pa.array([at, at], pa.int64())] * 3,
                pa.array(two, columns.field(0).type),
                pa.array([1, 2]),
            ],
            schema=schema,
        )
        for at, two in enumerate((values[:2], values[1:]))
    ]
    log.append(0, [writers.append(tmp_path, part) for part in parts[:extents]], 0, 1, 0)
    (epoch,) = log.epochs()
    table = as_results(log.read(epoch))
    rows = EpochRows.read(log, epoch, RowLayout.of(log.columns))
    assert json_of_epoch(rows) == json_rows(table)
    assert _as_rows(rows, epoch, 1) == b"".join(data_row(row) for row in _rows(table, ()))
    assert _as_lines(CopyFormat(), rows, epoch, 1) == b"".join(
        copy_data(copy_line(row)) for row in _rows(table, ())
    )


def test_live_rows_name_their_changelog_operation(service: MillService, user: UserSession) -> None:
    user.execute("CREATE QUERY sums AS SELECT item, sum(price) AS total FROM bid GROUP BY item")
    bid(service, (1, 50, 1))
    bid(service, (1, 60, 2))
    log = service.query("sums").log
    for epoch in log.epochs():
        rows = EpochRows.read(log, epoch, RowLayout.of(log.columns))
        assert json_of_epoch(rows) == json_rows(as_results(log.read(epoch)))
        assert all(isinstance(row[OP], str) for row in json.loads(json_of_epoch(rows)))


# -- Followers over connections ---------------------------------------------------------------------------

Events = Iterator[dict[str, Any]]


@pytest.fixture
def listening(service: MillService) -> Iterator[ServerSockets]:
    made = ServerSockets(postgres_port=0)
    with serving(service, made):
        yield made


@pytest.fixture
def follow(listening: ServerSockets) -> Iterator[Callable[[str], Events]]:
    """Connect to a query's live results; yield the events with rows, and `{}` at the end."""
    open_now: list[httpx.Response] = []

    def connected(name: str) -> Events:
        request = client.build_request("GET", f"/v1/queries/{name}/live")
        response = client.send(request, stream=True)
        assert response.status_code == 200
        open_now.append(response)
        lines = response.iter_lines()
        return (json.loads(line[6:]) for line in lines if line.startswith("data: "))

    limits = httpx.Limits(max_connections=200)
    with httpx.Client(base_url=listening.url, timeout=30, limits=limits) as client:
        yield connected
        for response in open_now:
            response.close()


def test_twenty_followers_get_every_row_once_from_one_encoding(
    service: MillService, listening: ServerSockets, follow: Callable[[str], Events]
) -> None:
    followers = [follow("dear") for _ in range(20)]
    before = _counts(listening)
    for number in range(1, 31):
        bid(service, (number, 50, number))
    for events in followers:
        found: list[int] = []
        while len(found) < 30:
            found += [row["item"] for row in next(events)["rows"]]
        assert found == list(range(1, 31))
    after = _counts(listening)
    assert after["encoded"] - before["encoded"] == 30
    assert after["sent"] - before["sent"] == 600


def _counts(listening: ServerSockets) -> dict[str, float]:
    text = httpx.get(f"{listening.url}/metrics", timeout=30).text
    names = {"encoded": "slicemill_live_epochs_encoded_total", "sent": "slicemill_live_epochs_sent_total"}
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return {short: float(lines[name]) for short, name in names.items()}


def test_followers_of_a_dropped_query_get_no_rows_of_a_new_query_with_its_name(
    service: MillService, user: UserSession, follow: Callable[[str], Events]
) -> None:
    events = follow("dear")
    bid(service, (1, 50, 1))
    assert next(events)["rows"][0]["item"] == 1
    user.execute("DROP QUERY dear; CREATE QUERY dear AS SELECT price, item AS other FROM bid")
    bid(service, (2, 60, 2))
    assert next(events) == {}
    with pytest.raises(StopIteration):
        next(events)


def test_every_commit_wakes_a_waiting_follower(service: MillService, follow: Callable[[str], Events]) -> None:
    """A commit during the delivery of the previous commit wakes the follower, too."""
    events = follow("dear")
    for number in range(1, 200):
        bid(service, (number, 50, number))
        assert [row["item"] for row in next(events)["rows"]] == [number]


def test_an_http_1_0_client_gets_live_rows_without_chunked_encoding(
    service: MillService, listening: ServerSockets
) -> None:
    with socket.create_connection(("127.0.0.1", listening.http.getsockname()[1]), 30) as made:
        made.sendall(b"GET /v1/queries/dear/live?since=0 HTTP/1.0\r\nHost: localhost\r\n\r\n")
        answer = made.makefile("rb")
        while answer.readline() != b"\r\n":
            pass
        for number in (1, 2, 3):
            bid(service, (number, 50, number))
            lines = [answer.readline() for _ in range(4)]
            assert lines[0].startswith(b"id: ") and lines[1] == b"event: rows\n" and lines[3] == b"\n"
            assert json.loads(lines[2][6:])["rows"][0]["item"] == number


def test_http_and_postgresql_clients_follow_one_query(
    service: MillService, listening: ServerSockets, follow: Callable[[str], Events]
) -> None:
    assert listening.postgres is not None
    events = follow("dear")
    port = listening.postgres.getsockname()[1]
    with (
        psycopg.connect(f"host=127.0.0.1 port={port} user=me dbname=x", autocommit=True) as connection,
        connection.cursor() as cursor,
    ):
        bid(service, (1, 50, 1))
        rows = cursor.stream("SUBSCRIBE dear SINCE 0")
        for number in (1, 2, 3):
            if number > 1:
                bid(service, (number, 50, number))
            assert next(rows)[-2:] == (number, 50)
            assert next(events)["rows"][0]["item"] == number
        connection.cancel_safe(timeout=20)
        with pytest.raises(psycopg.errors.QueryCanceled):
            next(rows)
