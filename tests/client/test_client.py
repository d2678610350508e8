"""The client against a real server over a socket."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import slicemill
from server.conftest import bid, mill, service  # noqa: F401
from slicemill.server.network import ServerSockets, serving
from slicemill.server.service import MillService
from slicemill.server.user_session import UserSession
from slicemill_client import Connection, LiveRows, ServerUnreachable, StatementRefused, connect_async
from slicemill_client.notebook import as_html


@pytest.fixture
def connection(service: MillService) -> Iterator[Connection]:  # noqa: F811
    with (
        serving(service, ServerSockets()) as url,
        slicemill.connect(url) as made,
    ):
        yield made


def test_statements_and_questions_give_rows(connection: Connection, service: MillService) -> None:  # noqa: F811
    bid(service, (1, 20, 1), (2, 30, 2))
    assert connection.ask("SELECT sum(price) AS total FROM dear") == [{"total": 50}]
    (shown,) = connection.execute("DESCRIBE dear")
    assert [row["column"] for row in shown.rows] == ["item", "price"]
    assert "<td>item</td>" in as_html(shown)


def test_all_results_are_read_epoch_by_epoch(connection: Connection, service: MillService) -> None:  # noqa: F811
    for price in (20, 30, 40):
        bid(service, (1, price, price))
    query = connection.queries["dear"]
    assert query.to_arrow().column("price").to_pylist() == [20, 30, 40]
    assert list(query.to_pandas()["price"]) == [20, 30, 40]
    assert [row["price"] for row in query.rows()] == [20, 30, 40]


def test_a_mistake_is_raised_with_its_place(connection: Connection) -> None:
    with pytest.raises(StatementRefused, match=r"1:26: .*did you mean item") as caught:
        connection.execute("CREATE QUERY q AS SELECT itm FROM bid")
    assert caught.value.mistakes[0].column == 26
    with pytest.raises(StatementRefused):
        connection.check("CREATE QUERY q AS SELECT itm FROM bid")
    connection.check("CREATE QUERY q AS SELECT item FROM bid")
    assert list(connection.queries) == ["dear"]


def test_a_query_lives_and_ends(connection: Connection) -> None:
    query = connection.query("CREATE QUERY cheap AS SELECT item FROM bid WHERE price < 5")
    assert "price < 5" in query.explain()
    assert query.status().state == "running"
    query.drop()
    assert list(connection.queries) == ["dear"]


def test_a_subscriber_gets_every_row_once_although_its_server_ends_and_comes_back(
    service: MillService,  # noqa: F811
) -> None:
    listening = ServerSockets()
    port = listening.http.getsockname()[1]
    got: list[int] = []
    came = threading.Semaphore(0)

    def receive(rows: LiveRows) -> None:
        got.extend(row["price"] for row in rows.rows)
        came.release()

    with slicemill.connect(f"http://127.0.0.1:{port}") as made:
        with serving(service, listening):
            subscription = made.queries["dear"].subscribe(receive, since=0)
            bid(service, (1, 20, 1))
            assert came.acquire(timeout=20)
        bid(service, (1, 21, 2))
        with serving(service, ServerSockets(port=port)):
            assert came.acquire(timeout=20)
            bid(service, (1, 22, 3))
            assert came.acquire(timeout=20)
            UserSession(service).execute("DROP QUERY dear")
            service.mill.dispatcher.notify()
            subscription.join(20)
    assert got == [20, 21, 22]
    assert subscription.error is None


def test_a_loop_follows_results(connection: Connection, service: MillService) -> None:  # noqa: F811
    async def first_two() -> list[int]:
        async with connect_async(connection.url) as server:
            await server.execute("CREATE QUERY all_of_them AS SELECT price FROM bid")
            found: list[int] = []
            await asyncio.to_thread(bid, service, (1, 20, 1))
            async for rows in server.follow("dear", since=0):
                found += [row["price"] for row in rows.rows]
                if len(found) == 2:
                    return found
                await asyncio.to_thread(bid, service, (1, 21, 2))
            return found

    assert asyncio.run(first_two()) == [20, 21]


def test_nobody_there_is_told() -> None:
    with slicemill.connect("http://127.0.0.1:9") as made, pytest.raises(ServerUnreachable, match="no server"):
        made.execute("SHOW QUERIES")


def test_the_client_loads_neither_spark_nor_the_engine() -> None:
    code = (
        "import sys, slicemill_client; "
        "print([m for m in sys.modules if m.split('.')[0] in ('pyspark', 'slicemill', 'numba', 'py4j')])"
    )
    folder = Path(slicemill.__file__).parents[2] / "client" / "src"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(folder)},
    )
    assert done.stdout.strip() == "[]"
