"""CREATE OR REPLACE of results that change: who follows a table comes to that of the new definition alone."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slicemill.api.mill import Mill
from slicemill.columns.rows import plain_rows
from slicemill.connectors.follow import Follower
from slicemill.connectors.sinks.memory import MemoryTable, Upserts, UpsertSink
from slicemill.errors import SlicemillError
from slicemill.server.service import MillService
from slicemill.sql.errors import EslError
from slicemill.storage.changes import Change
from slicemill.storage.home import Home
from slicemill.types import Row
from support.adhoc_queries import ask
from support.changelogs import TableOfNow
from support.engine import Clock, fed_mill, feed_rows, finish, inline_pool

SECOND = 1_000_000
DECLARED = """CREATE STREAM s (k int, v int, ts timestamp) ORDER BY ts RETAIN 1 DAY;
CREATE STREAM totals AS SELECT k, count(*) AS n FROM s GROUP BY k;
CREATE QUERY other AS SELECT k, count(*) AS n FROM s GROUP BY k;
"""
# All have the same columns and key.
KINDS = {
    "groups": "SELECT k, count(*) AS n FROM s GROUP BY k",
    "HAVING": "SELECT k, count(*) AS n FROM s GROUP BY k HAVING count(*) > 2",
    "of some": "SELECT k, count(*) AS n FROM s WHERE v > 4 GROUP BY k",
    "first rows": "SELECT k, CAST(v AS bigint) AS n FROM s"
    " QUALIFY row_number() OVER (PARTITION BY k ORDER BY v DESC) = 1",
    "over a table": "SELECT k, max(n) AS n FROM totals GROUP BY k",
    "now and then": "SELECT k, sum(v) AS n FROM s GROUP BY k EMIT EVERY 3 SECONDS",
    "from the beginning": "SELECT k, sum(v) AS n FROM s GROUP BY k",
}
OTHERS = {
    "windows": "SELECT k, count(*) AS n FROM s [RANGE 3 SECONDS SLIDE 3 SECONDS] GROUP BY k",
    "other columns": "SELECT v, count(*) AS n, max(k) AS k FROM s GROUP BY v",
    "another key": "SELECT n, count(*) AS k FROM totals GROUP BY n",
    "one row": "SELECT count(*) AS n FROM s",
    "rows as they come": "SELECT v, k FROM s",
}
ALL = {**KINDS, **OTHERS}
# Their counts are the same, so one takes over those of the other.
SAME_COUNTS = {"groups", "HAVING"}


def create(kind: str, mode: str = "CREATE", options: str = "") -> str:
    past = " FROM BEGINNING" if kind == "from the beginning" else ""
    return f"{mode} QUERY q{options}{past} AS {ALL[kind]};"


def begins(kind: str, since: int, replacement: str, at: int) -> int:
    """Return from which row on a replacement counts, given the row from which on the definition does."""
    return since if {kind, replacement} <= SAME_COUNTS else at


@contextmanager
def opened(folder: Path, esl: str = "") -> Iterator[Mill]:
    with fed_mill(folder, Clock(), inline_pool()) as mill:
        if esl:
            mill.execute(esl)
        else:
            mill.restore()
        mill.open()
        yield mill


def row_at(at: int) -> Row:
    return at % 3, at * 7 % 11, at * SECOND


def feed(mill: Mill, first: int, last: int, run: bool = True) -> None:
    for at in range(first, last):
        feed_rows(mill, "s", [row_at(at)])
        if run:
            mill.dispatcher.run_all()


def table(mill: Mill, name: str = "q") -> Counter[Row]:
    query = mill.queries[name]
    return Counter(plain_rows(query.table(), query.schema.own))


def table_alone(kind: str, before: int, count: int) -> Counter[Row]:
    """What a query comes to that is created after some rows, where nothing was before it."""
    with tempfile.TemporaryDirectory() as folder, opened(Path(folder), DECLARED) as mill:
        feed(mill, 0, before)
        mill.execute(create(kind))
        feed(mill, before, count)
        finish(mill)
        return table(mill)


def folded_by_a_reader(follower: Follower, seen: TableOfNow) -> None:
    for committed in follower.poll():
        for row in committed.rows.drop_columns(["_ts"]).to_pylist():
            seen.apply(0, tuple(row.values()))


class Database:
    """A table that keeps the epoch with its rows, and dies before or after it has taken one."""

    def __init__(self, chooser: random.Random) -> None:
        self.rows: dict[object, Row] = {}
        self.epoch: int | None = None
        self._chooser = chooser

    def take(self, upserts: Upserts) -> None:
        dies = self._chooser.random()
        if dies < 0.1:
            raise RuntimeError("before")
        if upserts.whole:
            self.rows = {}
        for row in upserts.rows.to_pylist():
            if row["_op"] == "upsert":
                self.rows[row["k"]] = (row["k"], row["n"])
            else:
                del self.rows[row["k"]]  # a row that is not there is deleted by nobody
        self.epoch = upserts.epoch
        if dies > 0.9:
            raise RuntimeError("after")


@pytest.mark.slow_cpu
@settings(max_examples=10)
@given(
    st.integers(0, 2**32), st.lists(st.tuples(st.integers(0, 5), st.sampled_from(sorted(KINDS))), max_size=3)
)
@example(0, [(3, "groups"), (0, "HAVING"), (4, "groups")])
@example(1, [(4, "over a table"), (4, "from the beginning")])
@example(2, [(5, "from the beginning"), (0, "HAVING")])
def test_all_who_follow_a_table_come_to_that_of_the_definition_of_now(
    seed: int, replaced: list[tuple[int, str]]
) -> None:
    chooser = random.Random(seed)
    database, at, kind, begun = Database(chooser), 0, "groups", 0
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        with opened(folder, DECLARED + create("groups")) as mill:
            schema = mill.queries["q"].schema
            follower, seen = Follower(folder, ["q"]), TableOfNow(schema)
            steps = [*replaced, (4, "")]
            while steps:
                mill.sinks.add("q", UpsertSink(database.take, schema, lambda: database.epoch), "database")
                memory = MemoryTable(schema)
                mill.sinks.add("q", memory, "memory")
                count, chosen = steps.pop(0)
                for _ in range(count):
                    feed(mill, at, at + 1, run=chooser.random() < 0.8)
                    at += 1
                    if chooser.random() < 0.3:
                        mill.sinks.deliver_new()
                    if chooser.random() < 0.2:
                        folded_by_a_reader(follower, seen)
                if chosen and ALL[chosen] != ALL[kind]:
                    mill.execute(create(chosen, "CREATE OR REPLACE"))
                    kind, begun = chosen, begins(kind, begun, chosen, at)
                if steps and chooser.random() < 0.5:
                    mill.close(checkpoint=chooser.random() < 0.5)
                    mill = fed_mill(folder, Clock(), inline_pool())
                    mill.restore()
                    mill.open()
                elif steps:
                    mill.sinks.remove("database")
                    mill.sinks.remove("memory")
            finish(mill)
            folded_by_a_reader(follower, seen)
            for name in ("memory", "database"):
                while mill.sinks.deliver_rest(name):
                    mill.sinks._deliveries[name]._retry_at = 0.0  # it would be tried again later
            expected = table_alone(kind, begun, at)
            assert table(mill) == expected
            assert Counter(plain_rows(memory.to_arrow(), schema.own)) == expected
            assert Counter(database.rows.values()) == expected
            assert seen.rows == expected
            asked = ask("SELECT k, n FROM q", MillService(mill).relation)
            assert Counter(tuple(row.values()) for row in asked.to_pylist()) == expected
            assert Counter(plain_rows(mill.queries["other"].table(), schema.own)) == table_alone(
                "groups", 0, at
            )
            mill.close()


@pytest.mark.parametrize("reopened", ["", "crash"])
@pytest.mark.parametrize(
    ("before", "after"),
    [("groups", other) for other in OTHERS] + [(one, "groups") for one in OTHERS],
)
def test_columns_keys_and_kinds_may_be_others(tmp_path: Path, before: str, after: str, reopened: str) -> None:
    mill = fed_mill(tmp_path, Clock(), inline_pool())
    mill.execute(DECLARED + create(before, options=" WITH (sink = 'memory:')"))
    mill.open()
    feed(mill, 0, 9)
    mill.execute(create(after, "CREATE OR REPLACE", " WITH (sink = 'memory:')"))
    if reopened:
        mill.close(checkpoint=reopened == "checkpoint")
        mill = fed_mill(tmp_path, Clock(), inline_pool())
        mill.restore()
        mill.open()
    feed(mill, 9, 20)
    finish(mill)
    mill.sinks.deliver_new()
    expected, query = table_alone(after, 9, 20), mill.queries["q"]
    assert table(mill) == expected and query.version == 2
    delivered = plain_rows(mill.sinks["q"].to_arrow(), query.schema.own)  # type: ignore[attr-defined]
    assert Counter(delivered) == expected
    columns = ", ".join(query.schema.own.names)
    asked = ask(f"SELECT {columns} FROM q", MillService(mill).relation)
    assert Counter(tuple(row.values()) for row in asked.to_pylist()) == expected
    mill.close()


def test_pages_of_results_have_the_deletes_as_the_last_rows_of_the_version_before(tmp_path: Path) -> None:
    with opened(tmp_path, DECLARED + create("groups")) as mill:
        feed(mill, 0, 4)
        service = MillService(mill)
        first = service.results("q").next_epoch
        mill.execute(create("other columns", "CREATE OR REPLACE"))
        feed(mill, 4, 6)
        deletes = service.results("q", first)
        assert deletes.version == 1
        assert [(row["_op"], row["k"], row["n"]) for row in deletes.table.to_pylist()] == [
            ("delete", 1, 1),
            ("delete", 2, 1),
            ("delete", 0, 2),
        ]
        after = service.results("q", deletes.next_epoch)
        assert after.version == 2 and after.table.column_names == ["_ts", "_op", "v", "n", "k"]
        # From the beginning on is from the beginning of the table.
        assert service.results("q").version == 2


def test_users_of_a_stream_whose_table_is_replaced_are_over_the_new_one(tmp_path: Path) -> None:
    over = """CREATE QUERY q AS SELECT n, count(*) AS groups FROM totals GROUP BY n;
    CREATE TABLE held AS MATERIALIZED totals;
    CREATE QUERY looked_up AS SELECT s.k, h.n FROM s, held AS h WHERE s.k = h.k;"""
    with opened(tmp_path, DECLARED + over) as mill:
        feed(mill, 0, 7)
        mill.execute(
            "CREATE OR REPLACE STREAM totals AS SELECT k, count(*) AS n FROM s WHERE k > 0 GROUP BY k"
        )
        feed(mill, 7, 12)
        assert mill.queries["q"].version == 2 and mill.queries["looked_up"].version == 1
        mill.refresh("held")
        assert Counter(mill.held("held")) == Counter([(1, 2), (2, 2)])
        feed(mill, 12, 14)
        finish(mill)
        assert table(mill) == Counter([(3, 1), (2, 1)])
        mill.execute("CREATE QUERY later AS SELECT sum(n) AS n FROM totals")
        mill.dispatcher.run_all()
        assert table(mill, "later") == Counter([(5,)])


def test_a_table_of_other_columns_is_refused_and_the_hint_works(tmp_path: Path) -> None:
    with opened(tmp_path, DECLARED + "CREATE TABLE held AS MATERIALIZED totals;") as mill:
        feed(mill, 0, 7)
        text = "CREATE OR REPLACE STREAM totals AS SELECT v, count(*) AS n FROM s GROUP BY v"
        with pytest.raises(EslError, match=r"table held has the rows of totals(.|\n)*DROP TABLE held first"):
            mill.execute(text)
        mill.execute("DROP TABLE held")
        mill.execute(text)
        mill.execute("CREATE TABLE held AS MATERIALIZED totals")
        feed(mill, 7, 9)
        mill.refresh("held")
        assert Counter(mill.held("held")) == Counter([(5, 1), (1, 1)])


def test_a_sink_that_lasts_gets_no_other_columns_and_the_hint_works(tmp_path: Path) -> None:
    index = f"jsonl:{tmp_path / 'out'}?changelog=true"
    with opened(tmp_path / "home", DECLARED + create("groups", options=f" WITH (sink = '{index}')")) as mill:
        feed(mill, 0, 3)
        with pytest.raises(SlicemillError, match="give it another place") as refused:
            mill.execute(create("other columns", "CREATE OR REPLACE", f" WITH (sink = '{index}')"))
        assert mill.queries["q"].version == 1
        another = str(refused.value).split("'")[1]
        mill.execute(create("other columns", "CREATE OR REPLACE", f" WITH (sink = '{another}')"))
        feed(mill, 3, 5)
        mill.drain()
    written = {
        folder.name: sum(len(file.read_text().splitlines()) for file in folder.glob("*.jsonl"))
        for folder in (tmp_path / "out", tmp_path / "out_2")
    }
    assert written == {"out": 3, "out_2": 2}


def test_a_sink_of_a_program_that_holds_a_table_is_named(tmp_path: Path) -> None:
    with opened(tmp_path, DECLARED + create("groups")) as mill:
        mill.sinks.add("q", MemoryTable(mill.queries["q"].schema), "mine")
        with pytest.raises(SlicemillError, match=r"mill.sinks.remove\('mine'\)"):
            mill.execute(create("one row", "CREATE OR REPLACE"))
        mill.execute(create("HAVING", "CREATE OR REPLACE"))
        mill.sinks.remove("mine")
        mill.execute(create("one row", "CREATE OR REPLACE"))


def test_explain_says_that_the_table_is_deleted_and_from_where_the_new_one_is(tmp_path: Path) -> None:
    with opened(tmp_path, DECLARED + create("groups")) as mill:
        feed(mill, 0, 3)

        def effects(kind: str) -> dict[str, str]:
            found = mill.explain_replace(create(kind, "CREATE OR REPLACE"))
            return {one.effect: one.what for one in found}

        told = effects("HAVING")
        assert told["deletes"] == "all rows that its table has then"
        assert "keeps" in told and "begins anew" not in told
        assert told["complete from"] == "as before: the beginning"
        told = effects("of some")
        assert told["deletes"] == "all rows that its table has then"
        assert "begins anew" in told and "keeps" not in told
        assert told["complete from"].startswith("no time that can be told")
        assert effects("over a table")["complete from"] == "as complete as the tables that it reads"
        assert effects("from the beginning")["complete from"] == "as far back as its streams are retained"
        assert mill.queries["q"].version == 1


@pytest.mark.parametrize("reopened", [False, True])
def test_users_of_a_stream_that_is_paused_and_replaced_begin_with_its_new_table(
    tmp_path: Path, reopened: bool
) -> None:
    with opened(tmp_path, DECLARED) as mill:
        mill.execute("CREATE QUERY before AS SELECT sum(n) AS n FROM totals")
        feed(mill, 0, 5)
        mill.execute("PAUSE STREAM totals")
        mill.execute("DROP QUERY before")
        mill.execute("CREATE OR REPLACE STREAM totals AS SELECT v, k, count(*) AS c FROM s GROUP BY v, k")
        mill.execute("CREATE QUERY after AS SELECT k, sum(c) AS n FROM totals GROUP BY k")
        feed(mill, 5, 9)
        assert not table(mill, "after")
        mill.close(checkpoint=False)
    with opened(tmp_path) as mill:
        if reopened:
            feed(mill, 9, 10)
            assert not table(mill, "after")
            mill.close()
    with opened(tmp_path) as mill:
        mill.execute("RESUME STREAM totals")
        feed(mill, 10, 12)
        finish(mill)
        read = [*range(5, 9), *([9] if reopened else []), 10, 11]
        assert table(mill, "after") == Counter(Counter(at % 3 for at in read).items())


@pytest.mark.parametrize("kind", ["groups", "now and then", "rows as they come", "windows", "over a table"])
@pytest.mark.parametrize("reopened", [False, True])
def test_the_same_query_from_the_beginning_reads_the_past(tmp_path: Path, kind: str, reopened: bool) -> None:
    past = create(kind, "CREATE OR REPLACE").replace("QUERY q", "QUERY q FROM BEGINNING")
    with opened(tmp_path, DECLARED) as mill:
        feed(mill, 0, 6)
        mill.execute(create(kind))
        feed(mill, 6, 9)
        told = {one.effect: one.what for one in mill.explain_replace(past)}
        assert told["complete from"] == "as far back as its streams are retained"
        mill.execute(past)
        assert mill.queries["q"].version == 2
        feed(mill, 9, 12)
    with opened(tmp_path) as mill:
        if reopened:
            # It begins there already: nothing changes.
            mill.execute(past)
            mill.execute(past.replace(" AS SELECT", "   AS SELECT"))
            mill.execute(create(kind, "CREATE OR REPLACE"))
        feed(mill, 12, 15)
        finish(mill)
        assert mill.queries["q"].version == 2
        assert table(mill) == table_alone(kind, 0, 15)


def test_what_is_paused_keeps_back_the_deletes_too(tmp_path: Path) -> None:
    with opened(tmp_path, DECLARED + create("groups")) as mill:
        memory = MemoryTable(mill.queries["q"].schema)
        mill.sinks.add("q", memory, "memory")
        feed(mill, 0, 5)
        mill.sinks.deliver_new()
        mill.execute("PAUSE QUERY q")
        feed(mill, 5, 7)
        mill.execute(create("of some", "CREATE OR REPLACE"))
        feed(mill, 7, 15)
        mill.sinks.deliver_new()
        own = mill.queries["q"].schema.own
        assert Counter(plain_rows(memory.to_arrow(), own)) == table_alone("groups", 0, 5)
        mill.execute("RESUME QUERY q")
        finish(mill)
        mill.sinks.deliver_new()
        expected = table_alone("of some", 7, 15)
        assert Counter(plain_rows(memory.to_arrow(), own)) == table(mill) == expected


@pytest.mark.parametrize("reopened", ["", "snapshot", "crash"])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("groups", "HAVING"),
        ("groups", "from the beginning"),
        ("groups", "one row"),
        ("another key", "other columns"),
        ("groups", "rows as they come"),
        ("rows as they come", "groups"),
        ("rows as they come", "windows"),
    ],
)
def test_what_is_paused_shows_the_definition_of_then_until_it_goes_on(
    tmp_path: Path, before: str, after: str, reopened: str
) -> None:
    def shown(mill: Mill) -> None:
        query = mill.queries["q"]
        for found in (query.table(), ask("SELECT * FROM q", MillService(mill).relation)):
            assert found.drop_columns(["_ts"]).column_names == list(own.names)
            assert Counter(plain_rows(found, own)) == expected
        assert len(query.rows()) == len(query.newest(100)) > 0
        assert next(one for one in MillService(mill).relations() if one.name == "q").rows.column_names == [
            "_ts",
            *own.names,
        ]
        if before != "rows as they come":  # whose log has the changes of before too
            seen = [one.rows for one in Follower(tmp_path, ["q"]).poll()]
            assert sum(rows.num_rows for rows in seen) == len(query.rows())

    # Of a definition before it, nothing is shown.
    with opened(tmp_path, DECLARED + create("of some")) as mill:
        feed(mill, 0, 4)
        mill.execute(create(before, "CREATE OR REPLACE"))
        feed(mill, 4, 9)
        own, expected = mill.queries["q"].schema.own, table_alone(before, 4, 9)
        mill.execute("PAUSE QUERY q")
        feed(mill, 9, 11)
        shown(mill)
        mill.execute(create(after, "CREATE OR REPLACE"))
        shown(mill)
        feed(mill, 11, 15)
        shown(mill)
        mill.close(checkpoint=reopened != "crash")
    if reopened == "snapshot":
        home = Home(tmp_path, snapshot_every=(1, 1), background=False)
        home.open()
        home.commit(Change(lives={"q": {}}))
        home.close()
    with opened(tmp_path) as mill:
        shown(mill)
        mill.execute("RESUME QUERY q")
        feed(mill, 15, 20)
        finish(mill)
        assert table(mill) == table_alone(after, begins(before, 4, after, 11), 20)


def test_tables_of_before_are_folded_away(tmp_path: Path) -> None:
    with opened(tmp_path, DECLARED + create("groups")) as mill:
        mill.collector.keep_us, mill.collector.compactor.least_rows = 0, 1
        mill._clock.now = 10**15  # type: ignore[attr-defined]
        feed(mill, 0, 12)
        mill.execute(create("other columns", "CREATE OR REPLACE"))
        for at in (12, 20):
            mill.checkpoint()
            for _ in range(4):
                mill.collect()
                mill.collector.compactor.wait()
            log = mill.queries["q"].log
            assert log.base is not None and log.base >= log.begun_after
            assert log.rows == sum(table(mill).values())
            feed(mill, at, 20)
        finish(mill)
        assert table(mill) == table_alone("other columns", 12, 20)


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("kind", ["HAVING", "over a table", "from the beginning", "other columns"])
def test_a_kill_at_any_commit_leaves_exactly_the_old_or_exactly_the_new_table(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path / "home", DECLARED + create("groups")) as mill:
        feed(mill, 0, 8)
        feed(mill, 8, 10, run=False)
        mill.close(checkpoint=False)
    commit = Home.commit
    begun = begins("groups", 0, kind, 10)
    expected = {1: table_alone("groups", 0, 20), 2: table_alone(kind, begun, 20)}
    killed, tried, versions = True, 0, set()
    while killed:
        copy, after, left = tmp_path / f"killed {tried}", tmp_path / f"after {tried}", [tried]
        shutil.copytree(tmp_path / "home", copy)

        def counted(home: Home, change: Change, left: list[int] = left) -> int:
            if change and not left[0]:
                raise Killed
            left[0] -= bool(change)
            return commit(home, change)

        with opened(copy) as mill:
            monkeypatch.setattr(Home, "commit", counted)
            try:
                mill.execute(create(kind, "CREATE OR REPLACE"))
                killed = False
            except Killed:
                pass
            monkeypatch.setattr(Home, "commit", commit)
            shutil.copytree(copy, after)
            mill.close(checkpoint=False)
        with opened(after) as mill:
            feed(mill, 10, 20)
            finish(mill)
            version = mill.queries["q"].version
            assert table(mill) == expected[version], tried
            follower, seen = Follower(after, ["q"]), TableOfNow(mill.queries["q"].schema)
            folded_by_a_reader(follower, seen)
            assert seen.rows == expected[version], tried
        assert version == 2 or killed
        versions.add(version)
        tried += 1
    assert versions == {1, 2}


def test_what_has_arrived_is_worked_out_by_the_definition_that_goes(tmp_path: Path) -> None:
    """Also where its task goes with it."""
    two = "CREATE STREAM r (k int, v int, ts timestamp) ORDER BY ts;"
    with opened(tmp_path, f"{DECLARED}{two}CREATE QUERY rows_of AS SELECT k, v FROM s;") as mill:
        feed(mill, 0, 3, run=False)
        mill.execute("CREATE OR REPLACE QUERY rows_of AS SELECT k, v FROM r WHERE v > 3")
        mill.dispatcher.run_all()
        assert mill.home.logs["rows_of"].rows == 3
