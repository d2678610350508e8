"""A full disk: statements fail and change nothing, ad hoc queries work, and processing resumes with space."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import psycopg
import pytest

from server.conftest import BIDS, bid
from slicemill.server.audit import AuditLog
from slicemill.server.network import ServerSockets, serving
from slicemill.server.service import MillService
from slicemill.server.user_session import UserSession
from slicemill.storage.filesystem import StorageFull
from support.engine import Clock, fed_mill, inline_pool, rows_as_table
from support.full_disk import FullDisk, disk_that_fills, fill, small_file_system

DECLARED = BIDS + (
    "CREATE TABLE t (k bigint PRIMARY KEY, v bigint); INSERT INTO t VALUES (1, 1);"
    "CREATE QUERY sums AS SELECT item, sum(price) AS n FROM bid [RANGE 1 SECONDS] GROUP BY item;"
)
STATEMENTS = (
    "INSERT INTO t VALUES (2, 2)",
    "UPDATE t SET v = 3",
    "CREATE QUERY q AS SELECT item FROM bid",
    "CREATE STREAM d AS SELECT item, ts FROM bid",
    "CREATE STREAM other (k int, ts timestamp) ORDER BY ts RETAIN 1 DAYS",
    "CREATE TABLE u (k bigint); INSERT INTO u VALUES (1)",
    "CREATE VIEW v AS SELECT item FROM bid [RANGE 1 SECONDS]",
    "CREATE OR REPLACE QUERY dear AS SELECT item, price FROM bid WHERE price > 20",
    "ALTER QUERY dear SET (weight = 2)",
    "ALTER STREAM bid ADD COLUMN more int DEFAULT 0",
    "PAUSE QUERY dear",
    "DROP QUERY dear",
    "DROP QUERY dear; CREATE QUERY dear AS SELECT price FROM bid",
    "DROP TABLE t",
    "SET policy = 'hnr'",
)


@pytest.fixture
def disk() -> Iterator[FullDisk]:
    with disk_that_fills() as made:
        yield made


def state(service: MillService) -> object:
    """Return all that statements change, from the catalog and from the journal."""
    mill = service.mill
    rows = {name: list(mill.held(name)) for name in ("t", "u") if mill.catalog.relation(name) is not None}
    statements = [(entry["name"], entry["text"]) for entry in service.statements()]
    lives = {name: "paused" in life for name, life in mill.home.lives.items()}
    return (
        rows,
        statements,
        lives,
        sorted(mill.queries),
        sorted(mill.home.logs),
        sorted(mill.streams),
        mill.policy,
    )


@pytest.mark.parametrize("text", STATEMENTS)
def test_a_statement_on_a_full_disk_changes_nothing_and_works_later(
    text: str, disk: FullDisk, tmp_path: Path
) -> None:
    with fed_mill(tmp_path / "home", Clock(), inline_pool()) as mill:
        service = MillService(mill)
        user = UserSession(service)
        user.execute(DECLARED)
        mill.open()
        bid(service, (1, 20, 1), (2, 5, 2))
        before, results = state(service), mill.queries["dear"].rows()
        disk.full = True
        for _ in range(2):
            with pytest.raises(StorageFull, match="no space is left"):
                user.execute(text)
            assert state(service) == before
            assert mill.queries["dear"].rows() == results
        disk.full = False
        user.execute(text)
        after = state(service)
        assert after != before
        bid(service, *[(3, 30, 3)] if "more" not in text else ())
        assert all(query.error is None for query in mill.queries.values())
    with fed_mill(tmp_path / "home", Clock(), inline_pool()) as mill:
        assert mill.restore() == []
        mill.open()
        assert state(MillService(mill)) == after


def test_a_run_that_a_full_disk_interrupted_is_repeated_when_space_is_free(
    disk: FullDisk, tmp_path: Path
) -> None:
    with fed_mill(tmp_path / "home", Clock(), inline_pool()) as mill:
        service = MillService(mill)
        UserSession(service).execute(DECLARED)
        mill.open()
        mill.feed("bid", rows_as_table(mill, "bid", [(1, 20, 1)]))
        disk.full = True
        with pytest.raises(StorageFull):
            mill.execute("CREATE QUERY q AS SELECT item FROM bid")
        disk.full = False
        mill.execute("CREATE QUERY q AS SELECT item FROM bid")
        bid(service, (2, 30, 2))
        assert [timed.row for timed in mill.queries["dear"].rows()] == [(1, 20), (2, 30)]
        assert [timed.row for timed in mill.queries["q"].rows()][-1] == (2,)


def test_a_statement_does_not_wait_for_a_dispatcher_that_waits_for_space(
    disk: FullDisk, tmp_path: Path
) -> None:
    clock = Clock()
    with fed_mill(tmp_path / "home", clock, inline_pool()) as mill:
        service = MillService(mill)
        UserSession(service).execute(DECLARED)
        mill.start()
        bid(service, (1, 20, 1))
        table = rows_as_table(mill, "bid", [(2, 30, 2)])
        with mill.dispatcher.paused():
            mill.feed("bid", table)
            disk.full = True
        waited = threading.Event()
        for _ in range(1_000):
            if mill.dispatcher.problem is not None or waited.wait(0.01):
                break
        assert "no space is left" in str(mill.dispatcher.problem)
        with pytest.raises(StorageFull, match="no space is left"):
            mill.execute("CREATE QUERY q AS SELECT item FROM bid")
        assert [row["item"] for row in asked(service, "SELECT item FROM dear")] == [1]
        disk.full = False
        clock.now += 60_000_000
        mill.dispatcher.notify()
        with mill.dispatcher.changed:
            assert mill.dispatcher.changed.wait_for(lambda: len(mill.queries["dear"].rows()) == 2, 60)
        mill.check()
        mill.execute("CREATE QUERY q AS SELECT item FROM bid")


def asked(service: MillService, text: str) -> list[dict[str, object]]:
    (answer,) = UserSession(service).execute(text)
    assert answer.table is not None
    found: list[dict[str, object]] = answer.table.to_pylist()
    return found


def test_clients_get_an_error_message_when_the_disk_is_full(tmp_path: Path) -> None:
    with (
        small_file_system(tmp_path / "disk", "3m") as folder,
        fed_mill(folder / "home", Clock(), inline_pool()) as mill,
    ):
        service = MillService(mill, audit=AuditLog(folder / "home"))
        UserSession(service).execute(DECLARED)
        mill.open()
        bid(service, (1, 20, 1))
        listening = ServerSockets(postgres_port=0)
        with serving(service, listening) as url, httpx.Client(base_url=url, timeout=60) as client:
            address = str(listening.postgres_url)
            with psycopg.connect(address, autocommit=True) as connection:
                ballast = fill(folder)
                refused = client.post("/v1/statements", json={"text": "INSERT INTO t VALUES (2, 2)"})
                assert refused.status_code == 507
                assert "no space is left" in refused.json()["errors"][0]["message"]
                with pytest.raises(psycopg.errors.DiskFull):
                    connection.execute("INSERT INTO t VALUES (3, 3)")
                read = client.post("/v1/statements", json={"text": "SELECT item FROM dear"})
                assert read.json()["answers"][0]["rows"] == [{"item": 1}]
                assert connection.execute("SELECT k FROM t").fetchall() == [(1,)]
                ballast.unlink()
                done = client.post("/v1/statements", json={"text": "INSERT INTO t VALUES (2, 2)"})
                assert done.status_code == 200 and "warning" not in done.json()["answers"][0]["message"]
                connection.execute("INSERT INTO t VALUES (3, 3)")
                assert connection.execute("SELECT k FROM t ORDER BY k").fetchall() == [(1,), (2,), (3,)]
        lines = (folder / "home" / "access" / "audit.jsonl").read_text().splitlines()
        outcomes = [json.loads(line)["outcome"] for line in lines]
        assert outcomes == ["done", "done", "done", "refused", "refused", "done", "done"]


def test_a_committed_statement_succeeds_even_if_its_audit_entry_cannot_be_written(tmp_path: Path) -> None:
    with fed_mill(tmp_path / "home", Clock(), inline_pool()) as mill:
        service = MillService(mill, audit=AuditLog(tmp_path / "home"))
        UserSession(service).execute(DECLARED)
        mill.open()
        log = tmp_path / "home" / "access" / "audit.jsonl"
        log.rename(tmp_path / "before")
        log.mkdir()
        with serving(service, ServerSockets()) as url, httpx.Client(base_url=url, timeout=60) as client:
            done = client.post("/v1/statements", json={"text": "INSERT INTO t VALUES (2, 2)"})
            assert done.status_code == 200
            assert "the audit log" in done.json()["answers"][0]["message"]
            declared = client.post("/v1/statements", json={"text": "CREATE QUERY q AS SELECT item FROM bid"})
            assert declared.status_code == 200 and "the audit log" in declared.text
        assert list(mill.held("t")) == [(1, 1), (2, 2)]
        assert any("the audit log" in problem for problem in service.problems())
        log.rmdir()
        assert not service.problems()
        assert [json.loads(line)["outcome"] for line in log.read_text().splitlines()] == ["done", "done"]
