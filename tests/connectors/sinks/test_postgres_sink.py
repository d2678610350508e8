"""PostgreSQL sink against a real server: rows and cursor change together, also on aborts and crashes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import psycopg
import pytest
from psycopg.types.range import Range

from connectors.sinks.logs import (
    EVERY_TYPE,
    NOTHING,
    NUMBERS,
    ONE_OF_EACH,
    append,
    home_with,
    more_numbers,
    numbers_home,
    open_home,
)
from connectors.sinks.postgres_server import Server, postgres_server
from slicemill.connectors.sinks.delivery import SinkRunner
from slicemill.connectors.sinks.registry import open_sink
from slicemill.storage.filesystem import LOCAL
from slicemill.storage.home import Home
from slicemill.types import Timed
from storage.faulty_files import Crashed, crashes_of

RETRY_S = 60


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgres_server() as running:
        yield running


@pytest.fixture
def database(server: Server) -> Iterator[psycopg.Connection]:
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS q, hot, slicemill_cursors")
        yield connection


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def values(database: psycopg.Connection, table: str = "q") -> list[int]:
    return [row[0] for row in database.execute(f"SELECT n FROM {table} ORDER BY n").fetchall()]


def cursor(database: psycopg.Connection) -> int:
    row = database.execute("SELECT epoch FROM slicemill_cursors WHERE query = 'q'").fetchone()
    assert row is not None
    return int(row[0])


def deliver(home: Home, url: str) -> list[str]:
    problems: list[str] = []
    with SinkRunner(home, report=problems.append) as runner:
        runner.add("q", open_sink(url, "q", NUMBERS))
        runner.deliver_new()
    return problems


def test_all_rows_are_stored_once_in_the_table_named_in_the_url(
    server: Server, database: psycopg.Connection, tmp_path: Path
) -> None:
    home = numbers_home(tmp_path)
    assert deliver(home, f"{server.url}&table=public.hot") == []
    more_numbers(home, 6)
    deliver(home, f"{server.url}&table=public.hot")
    assert values(database, "hot") == list(range(7))
    assert cursor(database) == 6
    stamp = database.execute("SELECT _ts FROM hot WHERE n = 6").fetchone()
    assert stamp == (datetime(1970, 1, 1, 0, 0, 6, tzinfo=UTC),)


def test_values_of_every_type_survive_a_round_trip(
    server: Server, database: psycopg.Connection, tmp_path: Path
) -> None:
    home = home_with(tmp_path, "q", EVERY_TYPE)
    append(home, [Timed(5, ONE_OF_EACH), Timed(6, NOTHING)])
    with SinkRunner(home) as runner:
        runner.add("q", open_sink(server.url, "q", EVERY_TYPE))
        runner.deliver_new()
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    first, second = database.execute("SELECT * FROM q ORDER BY _ts").fetchall()
    assert first == (
        epoch + timedelta(microseconds=5),
        True,
        7,
        2**60,
        2.5,
        Decimal("12.50"),
        'Zürich "7"\t\\N\n',
        "abc",
        b"\x00\xff",
        epoch + timedelta(seconds=1.5),
        date(2022, 1, 8),
        timedelta(seconds=90),
        timedelta(days=365 + 60),  # The driver counts a year and two months as this number of days.
        Range(epoch, epoch + timedelta(seconds=2)),
    )
    assert set(second[1:]) == {None}


def test_every_row_is_stored_once_after_a_crash_of_the_engine_at_any_step(
    server: Server, database: psycopg.Connection, tmp_path: Path
) -> None:
    for number, files in enumerate(crashes_of(LOCAL)):
        database.execute("DROP TABLE IF EXISTS q, slicemill_cursors")
        home = numbers_home(tmp_path / str(number))
        with closing(open_sink(server.url, "q", NUMBERS)) as sink, suppress(Crashed):
            dying = SinkRunner(home, files=files)
            dying.add("q", sink)
            dying.deliver_new()
            more_numbers(home, 6, 7)
            dying.deliver_new()
        committed = home.logs["q"].head
        home.close()
        assert deliver(open_home(home.folder), server.url) == []
        assert values(database) == list(range(8 if committed == 6 else 6)), (files.mode, number)


def test_an_aborted_transaction_stores_neither_rows_nor_cursor(
    server: Server, database: psycopg.Connection, tmp_path: Path
) -> None:
    home, clock, problems = numbers_home(tmp_path), Clock(), []
    database.execute("CREATE TABLE q (_ts timestamptz, n integer CHECK (n <> 7))")
    with SinkRunner(home, report=problems.append, clock=clock) as runner:
        runner.add("q", open_sink(server.url, "q", NUMBERS))
        runner.deliver_new()
        more_numbers(home, 6)
        more_numbers(home, 7)
        runner.deliver_new()
        assert "violates check constraint" in problems[0]
        assert (values(database), cursor(database)) == (list(range(6)), 4)
        database.execute("ALTER TABLE q DROP CONSTRAINT q_n_check")
        clock.now_s += RETRY_S
        runner.deliver_new()
    assert (values(database), cursor(database)) == (list(range(8)), 7)


def test_a_connection_lost_inside_a_transaction_repeats_no_row(
    server: Server, database: psycopg.Connection, tmp_path: Path
) -> None:
    home, clock, problems = numbers_home(tmp_path), Clock(), []
    database.execute("CREATE TABLE q (_ts timestamptz, n integer)")
    database.execute(
        "CREATE OR REPLACE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW; END $$"
    )
    database.execute(
        "CREATE TRIGGER dies AFTER INSERT ON q FOR EACH ROW WHEN (NEW.n = 4) EXECUTE FUNCTION die()"
    )
    with SinkRunner(home, report=problems.append, clock=clock) as runner:
        runner.add("q", open_sink(server.url, "q", NUMBERS))
        runner.deliver_new()
        assert "terminating connection" in problems[0]
        assert (values(database), cursor(database)) == ([], -1)
        database.execute("DROP TRIGGER dies ON q")
        clock.now_s += RETRY_S
        runner.deliver_new()
    assert (values(database), cursor(database)) == (list(range(6)), 4)


def test_a_crashed_and_recovered_server_has_every_row_once(server: Server, tmp_path: Path) -> None:
    with psycopg.connect(server.url, autocommit=True) as database:
        database.execute("DROP TABLE IF EXISTS q, slicemill_cursors")
    home, clock, problems = numbers_home(tmp_path), Clock(), []
    with SinkRunner(home, report=problems.append, clock=clock) as runner:
        runner.add("q", open_sink(server.url, "q", NUMBERS))
        runner.deliver_new()
        server.crash()
        more_numbers(home, 6)
        runner.deliver_new()
        clock.now_s += RETRY_S
        runner.deliver_new()
        assert len(problems) == 2
        server.start()
        clock.now_s += RETRY_S
        runner.deliver_new()
    with psycopg.connect(server.url, autocommit=True) as database:
        assert (values(database), cursor(database)) == (list(range(7)), 6)


def test_another_home_directory_does_not_continue_from_the_cursor_of_the_first(
    server: Server, database: psycopg.Connection, tmp_path: Path
) -> None:
    assert deliver(numbers_home(tmp_path / "a"), server.url) == []
    (problem,) = deliver(numbers_home(tmp_path / "b"), server.url)
    assert "has the results of another home's query q" in problem
    assert values(database) == list(range(6))


def test_an_existing_table_needs_no_permission_to_create_tables(
    server: Server, database: psycopg.Connection, tmp_path: Path
) -> None:
    home = numbers_home(tmp_path)
    deliver(home, server.url)
    database.execute("DROP ROLE IF EXISTS guest")
    database.execute("CREATE ROLE guest LOGIN")
    try:
        database.execute("GRANT SELECT, INSERT, UPDATE ON q, slicemill_cursors TO guest")
        more_numbers(home, 6)
        assert deliver(home, server.url.replace("postgres@", "guest@")) == []
        assert values(database) == list(range(7))
    finally:
        database.execute("DROP OWNED BY guest")
        database.execute("DROP ROLE guest")


@pytest.fixture
def guarded(server: Server, database: psycopg.Connection) -> Iterator[str]:
    """Yield the address of the server for a user with a password, which the address does not contain."""
    access = server.folder / "data" / "pg_hba.conf"
    before = access.read_text()
    access.write_text(f"local all ada scram-sha-256\n{before}")
    server.reload()
    database.execute("CREATE ROLE ada LOGIN SUPERUSER PASSWORD 'p@ss:w/ü%'")
    yield f"postgres://ada{{}}@/postgres?host={server.folder}"
    database.execute("DROP TABLE IF EXISTS q, slicemill_cursors")
    database.execute("DROP ROLE ada")
    access.write_text(before)
    server.reload()


@pytest.mark.parametrize(
    ("password", "option"),
    [(":${SLICEMILL_SECRET_SHOP}", ""), ("", "&password=${SLICEMILL_SECRET_SHOP}")],
)
def test_a_password_is_read_from_the_environment_when_the_sink_is_opened(
    password: str,
    option: str,
    guarded: str,
    database: psycopg.Connection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home, url = numbers_home(tmp_path), f"{guarded.format(password)}{option}"
    monkeypatch.delenv("SLICEMILL_SECRET_SHOP", raising=False)
    assert "SLICEMILL_SECRET_SHOP is not set" in deliver(home, url)[0]
    monkeypatch.setenv("SLICEMILL_SECRET_SHOP", "wrong")
    assert "password authentication failed" in deliver(home, url)[0]
    monkeypatch.setenv("SLICEMILL_SECRET_SHOP", "p@ss:w/ü%")
    assert deliver(home, url) == []
    assert values(database) == list(range(6))


def test_a_password_can_be_in_the_pgpassword_variable(
    guarded: str, database: psycopg.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", "p@ss:w/ü%")
    assert deliver(numbers_home(tmp_path), guarded.format("")) == []
    assert values(database) == list(range(6))
