"""Row changes of tables over HTTP, PostgreSQL and the client, with permissions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import httpx
import psycopg
import pytest

from server.conftest import bid
from slicemill.errors import SlicemillError
from slicemill.server.audit import AuditLog
from slicemill.server.auth import Access, PermissionDenied, Principal, UserRole
from slicemill.server.network import ServerSockets, serving
from slicemill.server.service import MillService
from slicemill.server.user_session import UserSession
from slicemill_client import connect

_DECLARED = "CREATE TABLE item (id bigint PRIMARY KEY, name varchar NOT NULL, price double, at timestamp)"


@pytest.fixture
def listening(service: MillService) -> Iterator[ServerSockets]:
    made = ServerSockets(postgres_port=0)
    with serving(service, made):
        UserSession(service).execute(_DECLARED)
        yield made


@pytest.fixture
def connection(listening: ServerSockets) -> Iterator[psycopg.Connection]:
    with psycopg.connect(_address(listening), autocommit=True) as made:
        yield made


def _address(listening: ServerSockets, password: str = "none") -> str:
    assert listening.postgres is not None
    port = listening.postgres.getsockname()[1]
    return f"host=127.0.0.1 port={port} user=ann dbname=slicemill password={password}"


def test_postgresql_reports_the_number_of_changed_rows(connection: psycopg.Connection) -> None:
    for change, tag in (
        (
            "INSERT INTO item VALUES (1, 'clock', 2.5, '2026-01-01 00:00:00'), (2, 'pan', 3, NULL)",
            "INSERT 0 2",
        ),
        ("UPDATE item SET price = price + 1 WHERE id > 0", "UPDATE 2"),
        ("INSERT INTO item VALUES (2, 'pot', 1, NULL) ON CONFLICT DO NOTHING", "INSERT 0 0"),
        ("DELETE FROM item WHERE id = 2", "DELETE 1"),
        ("TRUNCATE item", "TRUNCATE TABLE"),
    ):
        assert connection.execute(change).statusmessage == tag
    assert connection.execute("SELECT count(*) FROM item").fetchall() == [(0,)]


@pytest.mark.parametrize("binary", [False, True])
def test_parameter_values_are_inserted_unchanged(connection: psycopg.Connection, binary: bool) -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 6000, tzinfo=UTC)
    rows = [(1, "it's; DROP TABLE item --", 0.1, moment), (2, "7", None, None), (2**40, "", 1e300, moment)]
    with connection.cursor(binary=binary) as cursor:
        cursor.executemany("INSERT INTO item VALUES (%s, %s, %s, %s)", rows)
        cursor.execute("UPDATE item SET price = %s WHERE id = %s", (2.5, 2))
        assert cursor.rowcount == 1
        found = cursor.execute("SELECT * FROM item ORDER BY id").fetchall()
    assert found == [rows[0], (2, "7", 2.5, None), rows[2]]


def test_a_rejected_row_has_a_reason_and_changes_nothing(connection: psycopg.Connection) -> None:
    connection.execute("INSERT INTO item (id, name) VALUES (1, 'a')")
    with pytest.raises(psycopg.Error) as refused:
        connection.execute("INSERT INTO item (id, name) VALUES (2, 'b'), (1, 'c')")
    assert "id = 1 already" in str(refused.value)
    assert "OR REPLACE" in str(refused.value)
    assert connection.execute("SELECT id FROM item").fetchall() == [(1,)]


def test_a_rollback_warns_that_changed_rows_stay(listening: ServerSockets) -> None:
    said: list[str | None] = []
    with psycopg.connect(_address(listening)) as made:
        made.add_notice_handler(lambda notice: said.append(notice.message_primary))
        made.execute("INSERT INTO item (id, name) VALUES (1, 'a')")
        made.rollback()
    assert said == ["ROLLBACK has no effect: each statement is committed as its own transaction"]


def test_rest_and_the_python_client_change_rows(service: MillService, listening: ServerSockets) -> None:
    with httpx.Client(base_url=listening.url) as http:
        texts = "INSERT INTO item (id, name) VALUES (1, 'a'), (2, 'b'); DELETE FROM item WHERE id = 1"
        answer = http.post("/v1/statements", json={"text": texts})
        assert [(one["tag"], one["message"]) for one in answer.json()["answers"]] == [
            ("INSERT 0 2", "2 rows inserted"),
            ("DELETE 1", "1 row deleted"),
        ]
        refused = http.post("/v1/statements", json={"text": "INSERT INTO item (id, name) VALUES (2, 'a')"})
        assert refused.status_code == 400
        assert refused.json()["errors"][0]["line"] == 1
        checked = http.post("/v1/check", json={"text": "UPDATE item SET nam = 'a'"})
        assert "there is no column nam" in checked.json()["errors"][0]["message"]
    with connect(listening.url) as client:
        client.execute("UPDATE item SET name = 'c'")
        assert client.ask("SELECT name FROM item") == [{"name": "c"}]


def test_a_running_lookup_join_reads_the_table_as_of_the_time_of_each_row(
    service: MillService, listening: ServerSockets
) -> None:
    user = UserSession(service)
    user.execute("CREATE QUERY named AS SELECT i.name, b.price FROM bid AS b, item AS i WHERE b.item = i.id")
    user.execute("INSERT INTO item (id, name) VALUES (1, 'old')")
    bid(service, (1, 5, 1))
    user.execute("UPDATE item SET name = 'new'")
    bid(service, (1, 6, 2))
    service.mill.dispatcher.end_streams()
    service.mill.dispatcher.run_all()
    assert [timed.row for timed in service.mill.queries["named"].timed_rows()] == [("old", 5), ("new", 6)]


def test_row_changes_need_the_operator_role_and_access_to_the_table(
    service: MillService, tmp_path: Path
) -> None:
    service.audit = AuditLog(tmp_path)
    owner = UserSession(service)
    owner.execute(
        "CREATE TABLE sales_item (id bigint); CREATE TABLE secret (id bigint); INSERT INTO secret VALUES (7)"
    )
    reader = UserSession(service, Principal("ann", UserRole.READER))
    limited = UserSession(service, Principal("bob", UserRole.OPERATOR, ("sales_*",)))
    for change in (
        "INSERT INTO sales_item VALUES (1)",
        "UPDATE sales_item SET id = 2",
        "DELETE FROM sales_item",
        "TRUNCATE sales_item",
    ):
        with pytest.raises(PermissionDenied):
            reader.execute(change)
        limited.execute(change)
    for change in (
        "INSERT INTO secret VALUES (1)",
        "INSERT INTO sales_item SELECT id FROM secret",
        "INSERT INTO sales_item VALUES ((SELECT max(id) FROM secret))",
        "UPDATE sales_item SET id = (SELECT max(id) FROM secret)",
        "DELETE FROM sales_item WHERE EXISTS (SELECT id FROM secret)",
    ):
        with pytest.raises(PermissionDenied):
            limited.execute(change)
    with pytest.raises(SlicemillError):
        limited.execute("INSERT INTO sales_item VALUES (1, 2)")
    noted = [json.loads(line) for line in (tmp_path / "access" / "audit.jsonl").read_text().splitlines()]
    outcomes = [entry["outcome"] for entry in noted if entry["by"] == "bob"]
    assert outcomes == ["done"] * 4 + ["denied"] * 5 + ["refused"]


def test_tokens_decide_about_row_changes_over_postgresql(service: MillService, tmp_path: Path) -> None:
    access = Access(tmp_path / "home")
    tokens = {role.word: access.add(role.word, role.word, (), 0) for role in UserRole}
    UserSession(service).execute("CREATE TABLE item (id bigint)")
    made = ServerSockets(postgres_port=0)
    with serving(service, made, access):
        with (
            psycopg.connect(_address(made, tokens["reader"]), autocommit=True) as reading,
            pytest.raises(psycopg.errors.InsufficientPrivilege),
        ):
            reading.execute("INSERT INTO item VALUES (1)")
        with psycopg.connect(_address(made, tokens["operator"]), autocommit=True) as operating:
            assert operating.execute("INSERT INTO item VALUES (1)").statusmessage == "INSERT 0 1"
