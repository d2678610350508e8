"""Sinks of changelogs: tables have exactly the current rows, and file sinks report unsupported changelogs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from itertools import pairwise
from pathlib import Path

import psycopg
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from connectors.sinks.logs import append, home_with, open_home
from connectors.sinks.postgres_server import Server, postgres_server
from slicemill.api.mill import Mill
from slicemill.columns.arrow_schema import as_results
from slicemill.columns.changelog import table_of_now
from slicemill.columns.rows import plain_rows, to_table
from slicemill.connectors.sinks.delivery import SinkRunner
from slicemill.connectors.sinks.memory import MemoryTable
from slicemill.connectors.sinks.registry import open_sink
from slicemill.connectors.sinks.sink import SinkError
from slicemill.errors import SlicemillError
from slicemill.lifecycle.compaction import fold_epochs
from slicemill.storage.changes import Change
from slicemill.storage.filesystem import LOCAL
from slicemill.storage.home import Home
from slicemill.testing import Clock, inline_pool
from slicemill.types import INT, VARCHAR, Column, Row, Schema, Timed, changelog
from storage.faulty_files import Crashed, crashes_of
from support.engine import fed_mill, feed_rows

COUNTS = changelog((Column("item", VARCHAR), Column("n", INT)), ("item",))
WITHOUT_KEY = changelog(COUNTS.own, None)
ONE_ROW = changelog((Column("n", INT),), ())
# Changes by epoch. NULL is a key like any other, and a deleted key is inserted again.
FIRST: list[Row] = [
    ("insert", "a", 1),
    ("insert", None, 1),
    ("update_before", "a", 1),
    ("update_after", "a", 2),
]
SECOND: list[Row] = [
    ("insert", "b", 1),
    ("delete", "a", 2),
    ("update_before", None, 1),
    ("update_after", None, 5),
]
THIRD: list[Row] = [("insert", "a", 7), ("delete", "b", 1), ("insert", "b", 9), ("delete", None, 5)]
AFTER = [[("a", 2), (None, 1)], [("b", 1), (None, 5)], [("a", 7), ("b", 9)]]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgres_server() as running:
        yield running


@pytest.fixture
def database(server: Server) -> Iterator[psycopg.Connection]:
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS q, slicemill_cursors")
        yield connection


def changes(home: Home, rows: Sequence[Row]) -> None:
    append(home, [Timed(home.epoch * 1_000_000, row) for row in rows])


def deliver(home: Home, url: str, schema: Schema = COUNTS) -> list[str]:
    problems: list[str] = []
    with SinkRunner(home, report=problems.append) as runner:
        runner.add("q", open_sink(url, "q", schema))
        runner.deliver_new()
    return problems


def table(database: psycopg.Connection, columns: str = "item, n") -> list[Row]:
    return sorted(database.execute(f"SELECT {columns} FROM q").fetchall(), key=repr)


def by_repr(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=repr)


def test_a_postgres_table_has_the_current_rows_of_the_changelog(
    server: Server, database: psycopg.Connection, tmp_path: Path
) -> None:
    home = home_with(tmp_path, "q", COUNTS)
    for rows, expected in zip((FIRST, SECOND, THIRD), AFTER, strict=True):
        changes(home, rows)
        assert deliver(home, server.url) == []
        assert table(database) == by_repr(expected)


def test_several_epochs_in_one_delivery_give_the_same_table(
    server: Server, database: psycopg.Connection, tmp_path: Path
) -> None:
    home = home_with(tmp_path, "q", COUNTS)
    for rows in (FIRST, SECOND, THIRD):
        changes(home, rows)
    assert deliver(home, server.url) == []
    assert table(database) == by_repr(AFTER[-1])


def test_the_table_is_correct_after_a_crash_of_the_engine_at_any_step(
    server: Server, database: psycopg.Connection, tmp_path: Path
) -> None:
    for number, files in enumerate(crashes_of(LOCAL)):
        database.execute("DROP TABLE IF EXISTS q, slicemill_cursors")
        home = home_with(tmp_path / str(number), "q", COUNTS)
        changes(home, FIRST)
        with closing(open_sink(server.url, "q", COUNTS)) as sink, suppress(Crashed):
            dying = SinkRunner(home, files=files)
            dying.add("q", sink)
            dying.deliver_new()
            changes(home, SECOND)
            dying.deliver_new()
            changes(home, THIRD)
            dying.deliver_new()
        committed = home.logs["q"].head
        home.close()
        assert deliver(open_home(home.folder), server.url) == []
        assert table(database) == by_repr(AFTER[committed - 1]), (files.mode, number)


def folded_home(folder: Path) -> tuple[Home, Change]:
    """Return a home directory with changes in three epochs, and the change that compacts the first two."""
    home = home_with(folder, "q", COUNTS)
    for rows in (FIRST, SECOND, THIRD):
        changes(home, rows)
    log = home.logs["q"]
    done = fold_epochs(log, COUNTS, log.epochs()[:2])
    return home, Change(based={"q": (done.upto, done.base)})


def test_a_table_that_missed_compacted_changes_is_replaced_in_one_transaction(
    server: Server, database: psycopg.Connection, tmp_path: Path
) -> None:
    for number, files in enumerate(crashes_of(LOCAL)):
        database.execute("DROP TABLE IF EXISTS q, slicemill_cursors")
        home, fold = folded_home(tmp_path / str(number))
        first = home.logs["q"].epochs()[0].number
        with closing(open_sink(server.url, "q", COUNTS)) as sink, suppress(Crashed):
            dying = SinkRunner(home, files=files)
            dying.add("q", sink)
            sink.resume(dying._deliveries["q"].cursor.id, -1)
            sink.deliver(first, first, as_results(home.logs["q"].read(home.logs["q"].epochs()[0])))
            home.commit(fold)
            dying.deliver_new()
        home.close()
        deliver(open_home(home.folder), server.url)
        assert table(database) == by_repr(AFTER[-1]), (files.mode, number)


def test_an_aborted_transaction_leaves_the_table_unchanged(
    server: Server, database: psycopg.Connection, tmp_path: Path
) -> None:
    home = home_with(tmp_path, "q", COUNTS)
    changes(home, FIRST)
    assert deliver(home, server.url) == []
    database.execute("ALTER TABLE q ADD CHECK (n < 5)")
    changes(home, SECOND)
    assert "violates check constraint" in deliver(home, server.url)[0]
    assert table(database) == by_repr(AFTER[0])
    database.execute("ALTER TABLE q DROP CONSTRAINT q_n_check")
    assert deliver(home, server.url) == []
    assert table(database) == by_repr(AFTER[1])


def test_the_table_of_a_global_aggregate_has_one_row(
    server: Server, database: psycopg.Connection, tmp_path: Path
) -> None:
    home = home_with(tmp_path, "q", ONE_ROW)
    changes(home, [("insert", 1), ("update_before", 1), ("update_after", 2)])
    deliver(home, server.url, ONE_ROW)
    changes(home, [("update_before", 2), ("update_after", 3)])
    assert deliver(home, server.url, ONE_ROW) == []
    assert table(database, "n") == [(3,)]


def test_a_sink_with_changelog_true_writes_the_changes_themselves(
    server: Server, database: psycopg.Connection, tmp_path: Path
) -> None:
    home = home_with(tmp_path, "q", WITHOUT_KEY)
    changes(home, FIRST)
    assert deliver(home, f"{server.url}&changelog=true", WITHOUT_KEY) == []
    assert table(database, "_op, item, n") == by_repr(FIRST)
    other = home_with(tmp_path / "other", "q", WITHOUT_KEY)
    changes(other, FIRST)
    assert deliver(other, f"json:{tmp_path / 'out'}?changelog=true", WITHOUT_KEY) == []
    (file,) = (tmp_path / "out").glob("*.jsonl")
    told = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(line["_op"], line["item"], line["n"]) for line in told] == FIRST


@pytest.mark.parametrize(
    ("url", "schema", "told"),
    [
        ("json:out", COUNTS, "rows in a file cannot be retracted"),
        ("parquet:out", COUNTS, r"parquet:out\?changelog=true"),
        ("memory:?rows=3", COUNTS, r"memory:\?changelog=true&rows=3"),
        ("postgres://ada@db/shop", WITHOUT_KEY, "no columns tell its rows apart"),
        ("json:out?changelog=yes", COUNTS, "write changelog=true"),
        ("json:out?changelog=true", COUNTS.own, "results that do not change"),
    ],
)
def test_a_sink_that_cannot_store_a_changelog_names_the_alternative(
    url: str, schema: Schema, told: str
) -> None:
    with pytest.raises(SinkError, match=told):
        open_sink(url, "q", schema)


def _step(state: dict[str, int], item: str, n: int) -> list[Row]:
    """Return the changes of a table of counts for one step; an item with count 0 is deleted."""
    before = state.pop(item, None)
    if n:
        state[item] = n
    if before is not None and n:
        return [("update_before", item, before), ("update_after", item, n)] if before != n else []
    return [("delete", item, before)] if before is not None else [("insert", item, n)] if n else []


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), max_size=20),
    st.sets(st.integers(0, 40)),
    st.booleans(),
)
@example([("a", 1), ("a", 0), ("a", 1)], {1}, True)
def test_the_net_effect_of_changes_does_not_depend_on_their_division_into_epochs(
    steps: list[tuple[str, int]], cuts: set[int], keyed: bool
) -> None:
    schema = COUNTS if keyed else WITHOUT_KEY
    state: dict[str, int] = {}
    rows = [row for item, n in steps for row in _step(state, item, n)]
    timed = [Timed(place, row) for place, row in enumerate(rows)]
    stored = to_table(timed, schema, [0] * len(timed))
    expected = sorted(state.items())
    assert sorted(plain_rows(table_of_now(stored, schema), schema.own)) == expected
    sink = MemoryTable(schema)
    borders = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    for number, (start, end) in enumerate(pairwise(borders)):
        sink.deliver(number, number, as_results(stored.slice(start, end - start)))
    assert sorted(plain_rows(sink.to_arrow(), schema.own)) == expected


def test_the_postgres_table_of_a_replaced_query_has_only_rows_of_the_new_definition(
    server: Server, database: psycopg.Connection, tmp_path: Path
) -> None:
    """The sink crashes once, between the deletes and the inserts."""

    def definition(mode: str, select: str, url: str = server.url) -> str:
        return f"{mode} QUERY q WITH (sink = '{url}') AS {select};"

    def feed(mill: Mill, items: str) -> None:
        for item in items:
            feed_rows(mill, "s", [(item, mill.home.epoch * 1_000_000)])
            mill.dispatcher.run_all()

    counts = "SELECT item, count(*) AS n FROM s GROUP BY item"
    database.execute("DROP TABLE IF EXISTS q_2")
    mill = fed_mill(tmp_path, Clock(), inline_pool())
    mill.execute("CREATE STREAM s (item varchar, ts timestamp) ORDER BY ts;" + definition("CREATE", counts))
    mill.open()
    feed(mill, "aabc")
    mill.sinks.deliver_new()
    assert table(database) == [("a", 2), ("b", 1), ("c", 1)]
    mill.execute(definition("CREATE OR REPLACE", f"{counts} HAVING count(*) > 1"))
    assert mill.sinks.deliver_rest("q") == 0
    assert table(database) == []
    mill.close(checkpoint=False)
    mill = fed_mill(tmp_path, Clock(), inline_pool())
    mill.statements.restore()
    mill.open()
    feed(mill, "abbb")
    mill.sinks.deliver_new()
    assert table(database) == [("a", 3), ("b", 4)]  # the new definition takes over the counts
    other = "SELECT count(*) AS n, max(item) AS latest FROM s"
    with pytest.raises(SlicemillError, match="table=q_2") as refused:
        mill.execute(definition("CREATE OR REPLACE", other))
    another = str(refused.value).split("'")[1]
    mill.execute(definition("CREATE OR REPLACE", other, another))
    feed(mill, "ac")
    mill.sinks.deliver_new()
    assert database.execute("SELECT n, latest FROM q_2").fetchall() == [(2, "c")]
    assert table(database) == [("a", 3), ("b", 4)]
    mill.close()
