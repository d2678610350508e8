"""ALTER STREAM … ADD COLUMN: rows get a column at one point, and what does not read it goes on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from engine.changing.backfills import EVENTS, SCRIPT, TABLES
from engine.changing.catalogue import KINDS
from engine.changing.come_and_go import Shown, events, shown
from slicemill.api.mill import Mill
from slicemill.errors import SlicemillError
from slicemill.lifecycle.catalog_journal import in_force
from slicemill.sql.errors import EslError
from slicemill.storage.changes import Change
from slicemill.storage.home import Home
from slicemill.testing import Clock, inline_pool
from support.engine import fed_mill, feed_rows, finish

SECOND = 1_000_000
STREAM = "CREATE STREAM s (at timestamp, k int, v int) ORDER BY at SLACK 2 SECONDS RETAIN 1 DAY;"
ADDED = "ALTER STREAM s ADD COLUMN note varchar DEFAULT 'none', ADD COLUMN w int"
ALL = "SELECT k, v, note, w FROM s"
WIDENED = "".join(f"ALTER STREAM {name} ADD COLUMN extra int DEFAULT 7;" for name in "sri")
# These keep rows by the positions of their columns.
REFUSED = ("join_three_rows", "join_closed", "runs_few")
# What keeps whole rows, or hands on columns that nobody reads.
TRIED = ("view", "top", "latest", "join_as_of", "runs_late", "over_join", "uda")


def of_each_kind(folder: Path, kinds: Sequence[str], altered: bool, reopened: str = "") -> dict[str, Shown]:
    """The results of a query of each kind, whose streams may get a column half-way."""
    clock, widened = Clock(), False
    script = SCRIPT + "".join(f"{KINDS[kind].create(f'q_{kind}')};" for kind in kinds)

    def started(script: str) -> Mill:
        mill = fed_mill(folder, clock, inline_pool(), 2)
        for name, rows in TABLES.items():
            mill.tables.set_rows(name, rows)
        mill.execute(script)
        mill.open()
        return mill

    mill = started(script)
    for number, event in enumerate(events(3, EVENTS)):
        if altered and number == EVENTS // 2:
            mill.execute(WIDENED)
            widened = True
            if reopened:
                mill.close(checkpoint=reopened == "checkpoint")
                mill = started(script + WIDENED)
        clock.now = event.at_us
        feed_rows(mill, event.stream, [(*event.row, number) if widened else event.row])
        if number % 9 == 0:
            mill.dispatcher.run_all()
    finish(mill)
    found = {}
    for kind in kinds:
        query = mill.queries[f"q_{kind}"]
        assert (query.error, query.version) == (None, 1), kind
        found[kind] = shown((timed.ts, timed.row) for timed in query.timed_rows())
    mill.close()
    return found


def test_queries_keep_their_state_when_a_stream_gets_a_column(tmp_path: Path) -> None:
    undisturbed = of_each_kind(tmp_path / "narrow", TRIED, altered=False)
    assert of_each_kind(tmp_path / "wide", TRIED, altered=True, reopened="crash") == undisturbed


def opened(folder: Path, esl: str) -> Mill:
    mill = fed_mill(folder, Clock(), inline_pool())
    mill.execute(esl)
    mill.open()
    return mill


def restored(folder: Path) -> Mill:
    mill = fed_mill(folder, Clock(), inline_pool())
    assert mill.statements.restore() == []
    mill.open()
    return mill


def feed(mill: Mill, *rows: tuple[object, ...]) -> None:
    feed_rows(mill, "s", [(at * SECOND, *rest) for at, *rest in rows])
    mill.dispatcher.run_all()


def rows(mill: Mill, name: str) -> list[tuple[object, ...]]:
    assert mill.queries[name].error is None
    return [timed.row for timed in mill.queries[name].timed_rows()]


def text_of(mill: Mill, kind: str, name: str) -> str:
    return str(in_force(mill.home.statements)[kind, name]["text"])


@pytest.mark.parametrize("reopened", ["", "checkpoint", "crash"])
def test_rows_from_before_have_the_default_wherever_they_are(tmp_path: Path, reopened: str) -> None:
    """In the log, in what is held back to be put in order, and in what comes too late."""
    mill = opened(tmp_path, f"{STREAM}CREATE QUERY q AS SELECT k FROM s;")
    feed(mill, (1, 1, 10), (9, 2, 20))  # the second one is held back
    mill.execute(ADDED)
    if reopened:
        mill.close(checkpoint=reopened == "checkpoint")
        mill = restored(tmp_path)
    feed(mill, (12, 3, 30, "new", 5), (13, 4, 40, None, None))
    mill.execute(
        f"CREATE QUERY past FROM BEGINNING AS {ALL}; CREATE QUERY some AS SELECT v FROM s WHERE w > 5"
    )
    feed(mill, (14, 5, 50, "last", 6), (2, 6, 60, "late", 7))
    for _ in range(6):
        mill.dispatcher.run_all()
    finish(mill)
    wide = [(1, 10, "none", None), (2, 20, "none", None), (3, 30, "new", 5), (4, 40, None, None)]
    assert rows(mill, "past") == [*wide, (5, 50, "last", 6)]
    assert rows(mill, "q") == [(1,), (2,), (3,), (4,), (5,)]
    assert rows(mill, "some") == [(50,)]
    late = mill.home.logs["s_late"]
    assert [late.read(epoch).column("note").to_pylist() for epoch in late.epochs()] == [["late"]]
    stored = mill.home.logs["s"]
    told = [note for epoch in stored.epochs() for note in stored.read(epoch).column("note").to_pylist()]
    assert told == ["none", "none", "new", None, "last"]
    mill.close()


def test_the_declaration_has_the_column_after_a_restart_and_in_a_script(tmp_path: Path) -> None:
    script = f"{STREAM}CREATE QUERY q AS SELECT k FROM s;"
    mill = opened(tmp_path, script)
    mill.execute(ADDED)
    declared = "CREATE STREAM s (at TIMESTAMP, k INT, v INT, note VARCHAR, w INT) ORDER BY at SLACK 2 SECONDS"
    assert text_of(mill, "relation", "s") == f"{declared} RETAIN 1 DAY"
    known = len(mill.home.statements)
    mill.close()
    mill = restored(tmp_path)
    assert mill.catalog.declared_stream("s").schema.names == ("at", "k", "v", "note", "w")
    mill.close()
    # Both say what is there: a script as it was with the ALTER behind it, and one with all columns.
    for again in (f"{script}{ADDED}", f"{declared} RETAIN 1 DAY; CREATE QUERY q AS SELECT k FROM s"):
        mill = opened(tmp_path, again)
        feed(mill, (20, 1, 2, "x", 3))
        assert len(mill.home.statements) == known
        mill.close()
    # Without it, the script has another stream.
    with (
        fed_mill(tmp_path, Clock(), inline_pool()) as mill,
        pytest.raises(EslError, match="its columns have"),
    ):
        mill.execute(script)


@pytest.mark.parametrize("started", [False, True])
def test_a_script_may_add_the_column_when_it_starts(tmp_path: Path, started: bool) -> None:
    script = f"{STREAM}CREATE QUERY q AS SELECT k, sum(v) OVER (ROWS 1 PRECEDING) AS n FROM s;"
    if started:
        mill = opened(tmp_path, script)
        feed(mill, (1, 1, 10))
        mill.close()
    mill = opened(tmp_path, f"{script}{ADDED};CREATE QUERY r AS SELECT w FROM s")
    feed(mill, (12, 2, 20, "new", 5))
    finish(mill)
    assert rows(mill, "q") == ([(1, 10), (2, 30)] if started else [(2, 20)])
    assert rows(mill, "r") == [(5,)] if not started else [(None,), (5,)]
    mill.close()


def test_a_star_stays_what_it_was(tmp_path: Path) -> None:
    """Also in a view, inside another query, of a join, and of the late rows; after a restart as well."""
    script = f"""{STREAM}
    CREATE STREAM r (at timestamp, k int, note int) ORDER BY at;
    CREATE STREAM d AS SELECT * FROM s WHERE v > 1;
    CREATE VIEW recent AS SELECT * FROM s [RANGE 5 SECONDS];
    CREATE QUERY q AS SELECT * FROM s; -- all of it
    CREATE QUERY over_d AS SELECT * FROM d;
    CREATE QUERY nested AS SELECT * FROM (SELECT *, k + v AS n FROM s WHERE v > 1) AS i WHERE n > 2;
    CREATE QUERY joined AS SELECT a.*, b.note FROM s [RANGE 5 SECONDS] AS a, r [RANGE 5 SECONDS] AS b
      WHERE a.k = b.k;
    CREATE QUERY late AS SELECT * FROM s_late"""
    mill = opened(tmp_path, script)
    before = {name: query.schema for name, query in mill.queries.items()}
    feed(mill, (1, 1, 10))
    mill.execute(ADDED)
    assert text_of(mill, "query", "q") == "CREATE QUERY q AS SELECT at, k, v FROM s"
    assert text_of(mill, "query", "over_d") == "CREATE QUERY over_d AS SELECT * FROM d"
    assert "SELECT a.at, a.k, a.v, b.note FROM" in text_of(mill, "query", "joined")
    mill.close()
    mill = restored(tmp_path)
    assert {name: query.schema for name, query in mill.queries.items()} == before
    mill.execute("CREATE QUERY every AS SELECT * FROM s")
    feed(mill, (12, 2, 20, "new", 5))
    finish(mill)
    assert rows(mill, "q") == rows(mill, "over_d") == [(SECOND, 1, 10), (12 * SECOND, 2, 20)]
    assert rows(mill, "every")[-1] == (12 * SECOND, 2, 20, "new", 5)
    assert mill.queries["q"].version == 1
    mill.close()


@pytest.mark.parametrize(
    ("query", "told"),
    [
        (
            "CREATE QUERY q AS SELECT note FROM s [RANGE 1 SECOND], r [RANGE 1 SECOND] WHERE s.k = r.k",
            "the new column note, w of s would change the meaning of query q: note could be a column",
        ),
        (
            "CREATE QUERY q AS WITH i AS (SELECT * FROM s WHERE v > 1) "
            "SELECT sum(v) OVER (ROWS 2 PRECEDING) AS n FROM i",
            r"q has a subquery with SELECT \* over the stream, and would lose its state",
        ),
        (
            "CREATE QUERY q AS SELECT a.v FROM s [ROWS 2] AS a, r [ROWS 2] AS b, s [ROWS 3] AS c "
            "WHERE a.k = b.k AND b.k = c.k",
            "the state of q stores whole rows of the stream, and no column can be added",
        ),
        (
            "CREATE QUERY q AS SELECT a.v FROM s [CLOSE WHEN v = 3] AS a, r AS b WHERE a.k = b.k",
            "the state of q stores whole rows of the stream, and no column can be added",
        ),
    ],
)
def test_what_would_not_be_what_it_was_is_told_and_nothing_changes(
    tmp_path: Path, query: str, told: str
) -> None:
    mill = opened(tmp_path, f"{STREAM}CREATE STREAM r (at timestamp, k int, note int) ORDER BY at;{query}")
    feed(mill, (1, 1, 10))
    known = len(mill.home.statements)
    with pytest.raises(SlicemillError, match=told):
        mill.execute(ADDED)
    assert len(mill.home.statements) == known
    assert mill.catalog.declared_stream("s").schema.names == ("at", "k", "v")
    feed(mill, (12, 2, 20))
    finish(mill)
    assert mill.queries["q"].error is None
    mill.execute("DROP QUERY q")
    mill.execute(ADDED)
    mill.close()


@pytest.mark.parametrize("after", [False, True])
def test_a_process_that_dies_at_the_change_leaves_the_old_columns_or_the_new_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    mill = opened(
        tmp_path, f"{STREAM}CREATE QUERY q AS SELECT *, sum(v) OVER (ROWS 1 PRECEDING) AS n FROM s;"
    )
    feed(mill, (1, 1, 10), (2, 2, 20), (9, 3, 30))
    commit = Home.commit

    def dying(home: Home, change: Change) -> int:
        if change.widened and not after:
            raise KeyboardInterrupt
        done = commit(home, change)
        if change.widened:
            raise KeyboardInterrupt
        return done

    with monkeypatch.context() as patched:
        patched.setattr(Home, "commit", dying)
        with pytest.raises(KeyboardInterrupt):
            mill.execute(ADDED)
    mill.home.close()
    mill.home.unlock()
    mill = restored(tmp_path)
    wide = ("note", "w") if after else ()
    assert mill.catalog.declared_stream("s").schema.names == ("at", "k", "v", *wide)
    assert mill.home.logs["s"].columns.names == ["at", "k", "v", *wide]
    feed(mill, (20, 4, 40, *(("new", 5) if after else ())))
    finish(mill)
    assert [row[1:] for row in rows(mill, "q")] == [(1, 10, 10), (2, 20, 30), (3, 30, 50), (4, 40, 70)]
    mill.close()


def test_a_stream_that_nobody_reads_gets_a_column(tmp_path: Path) -> None:
    mill = opened(tmp_path, "CREATE STREAM s (at timestamp, k int, v int) ORDER BY at SLACK 2 SECONDS")
    mill.execute(f"{ADDED}; CREATE QUERY q AS {ALL}")
    feed(mill, (1, 1, 10, "new", 5))
    finish(mill)
    assert rows(mill, "q") == [(1, 10, "new", 5)]
    mill.close()
