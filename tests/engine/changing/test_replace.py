"""CREATE OR REPLACE: state that fits is kept, results of two definitions are never mixed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from slicemill.api.mill import Mill
from slicemill.sql.errors import EslError
from slicemill.storage.changes import Change
from slicemill.storage.home import Home
from slicemill.testing import Clock, inline_pool
from support.engine import fed_mill, feed_rows, finish

SECOND = 1_000_000
DECLARED = """
CREATE STREAM s (at timestamp, k int, v int) ORDER BY at;
CREATE STREAM big AS SELECT at, k, v FROM s WHERE v > 5;
CREATE VIEW recent AS SELECT k, v FROM s [RANGE 5 SECONDS] WHERE v > 3;
"""
ROWS = [(second * SECOND, second % 3, second) for second in range(1, 31)]
OTHER = "CREATE QUERY other AS SELECT k, sum(v) OVER (PARTITION BY k ROWS 2 PRECEDING) AS n FROM s;"


def opened(folder: Path, esl: str, clock: Clock) -> Mill:
    mill = fed_mill(folder, clock, inline_pool())
    mill.execute(esl)
    mill.open()
    return mill


def feed(mill: Mill, first: int, last: int) -> None:
    for row in ROWS[first:last]:
        feed_rows(mill, "s", [row])
        mill.dispatcher.run_all()


def rows(mill: Mill, name: str) -> list[tuple[object, ...]]:
    return [(timed.ts, *timed.row) for timed in mill.queries[name].timed_rows()]


KEEPS = {
    "HAVING": (
        "SELECT k, sum(v) AS n FROM s [RANGE 6 SECONDS SLIDE 3 SECONDS] GROUP BY k HAVING sum(v) > 3",
        "SELECT k, sum(v) AS n FROM s [RANGE 6 SECONDS SLIDE 3 SECONDS] GROUP BY k HAVING sum(v) > 9",
    ),
    "what is made of a window": (
        "SELECT k, sum(v) OVER (PARTITION BY k ROWS 2 PRECEDING) AS n FROM s",
        "SELECT sum(v) OVER (PARTITION BY k ROWS 2 PRECEDING) AS n, k FROM s",
    ),
}


@pytest.mark.parametrize(("before", "after"), KEEPS.values(), ids=KEEPS.keys())
@pytest.mark.parametrize("reopened", ["", "checkpoint", "crash"])
def test_state_that_fits_is_kept(tmp_path: Path, before: str, after: str, reopened: str) -> None:
    clock = Clock()
    mill = opened(tmp_path / "home", f"{DECLARED}{OTHER}CREATE QUERY q AS {before};", clock)
    since = mill.queries["q"].complete_from()
    feed(mill, 0, 13)
    mill.execute(f"CREATE OR REPLACE QUERY q AS {after}")
    assert mill.queries["q"].complete_from() == since
    assert rows(mill, "q") == []
    border = mill.home.epoch
    if reopened:
        mill.close(checkpoint=reopened == "checkpoint")
        mill = fed_mill(tmp_path / "home", clock, inline_pool())
        mill.statements.restore()
        mill.open()
    feed(mill, 13, 30)
    finish(mill)
    always = opened(tmp_path / "always", f"{DECLARED}{OTHER}CREATE QUERY q AS {after};", clock)
    feed(always, 0, 13)
    seen = len(rows(always, "q"))
    feed(always, 13, 30)
    finish(always)
    assert rows(mill, "q") == rows(always, "q")[seen:]
    assert rows(mill, "other") == rows(always, "other")
    assert mill.queries["q"].version == 2
    epochs = mill.home.logs["q"].epochs()
    assert {mill.queries["q"].version_at(epoch.number) for epoch in epochs} == {1, 2}
    assert all(
        (epoch.number > border) == (mill.queries["q"].version_at(epoch.number) == 2) for epoch in epochs
    )
    mill.close()
    always.close()


@pytest.mark.parametrize("reopened", ["", "checkpoint", "crash"])
def test_what_does_not_fit_begins_anew_with_other_columns(tmp_path: Path, reopened: str) -> None:
    clock = Clock()
    before = "SELECT k, sum(v) OVER (PARTITION BY k ROWS 2 PRECEDING) AS n FROM s"
    after = "SELECT k, v, sum(v) OVER (PARTITION BY k RANGE 4 SECONDS PRECEDING) AS t FROM s"
    mill = opened(tmp_path / "home", f"{DECLARED}{OTHER}CREATE QUERY q AS {before};", clock)
    feed(mill, 0, 13)
    old = mill.queries["q"].to_arrow()
    effects = [
        (one.effect, one.what)
        for one in mill.statements.explain_replace(f"CREATE OR REPLACE QUERY q AS {after}")
    ]
    assert [effect for effect, _ in effects] == ["begins anew", "ends", "complete from", "columns"]
    assert "1970-01-01T00:00:17" in effects[2][1]
    mill.queries["q"].replace(after)
    assert mill.queries["q"].complete_from() == 17 * SECOND
    assert mill.queries["q"].schema.names == ("k", "v", "t")
    if reopened:
        mill.close(checkpoint=reopened == "checkpoint")
        mill = fed_mill(tmp_path / "home", clock, inline_pool())
        mill.statements.restore()
        mill.open()
    feed(mill, 13, 30)
    finish(mill)
    fresh = opened(tmp_path / "fresh", DECLARED + OTHER, clock)
    feed(fresh, 0, 13)
    fresh.execute(f"CREATE QUERY q AS {after}")
    feed(fresh, 13, 30)
    finish(fresh)
    assert rows(mill, "q") == rows(fresh, "q")
    assert rows(mill, "other") == rows(fresh, "other")
    log = mill.home.logs["q"]
    kept = [log.read(epoch) for epoch in log.epochs() if mill.queries["q"].version_at(epoch.number) == 1]
    assert sum(table.num_rows for table in kept) == old.num_rows
    assert all(table.column_names[-2:] == ["k", "n"] for table in kept)
    assert [(one.number, one.text) for one in mill.queries["q"].versions()] == [
        (1, f"CREATE QUERY q AS {before}"),
        (2, f"CREATE OR REPLACE QUERY q AS {after}"),
    ]
    mill.close()
    fresh.close()


def test_the_same_definition_in_other_words_changes_nothing(tmp_path: Path) -> None:
    select = "SELECT k, sum(v) OVER (PARTITION BY k ROWS 2 PRECEDING) AS n FROM s"
    mill = opened(tmp_path / "home", f"{DECLARED}CREATE QUERY q AS {select};", Clock())
    feed(mill, 0, 5)
    epoch = mill.home.epoch
    mill.execute(f"CREATE OR REPLACE QUERY q AS -- again\n {select.lower()}")
    assert (mill.home.epoch, mill.queries["q"].version) == (epoch, 1)
    assert [one.effect for one in mill.statements.explain_replace(f"REPLACE QUERY q AS {select}")] == [
        "keeps"
    ]
    mill.close()


@pytest.mark.parametrize("reopened", ["", "checkpoint", "crash"])
def test_queries_over_a_stream_that_is_replaced_begin_anew(tmp_path: Path, reopened: str) -> None:
    clock = Clock()
    q = "CREATE QUERY q AS SELECT k, sum(v) OVER (PARTITION BY k ROWS 2 PRECEDING) AS n FROM big;"
    replaced = "CREATE OR REPLACE STREAM big AS SELECT at, k, v * 100 AS v FROM s WHERE v > 7"
    mill = opened(tmp_path / "home", DECLARED + OTHER + q, clock)
    feed(mill, 0, 13)
    mill.execute(replaced, by="ann")
    if reopened:
        mill.close(checkpoint=reopened == "checkpoint")
        mill = fed_mill(tmp_path / "home", clock, inline_pool())
        mill.statements.restore()
        mill.open()
    feed(mill, 13, 30)
    finish(mill)
    fresh = opened(tmp_path / "fresh", DECLARED + OTHER, clock)
    feed(fresh, 0, 13)
    fresh.execute(replaced)
    fresh.execute(q)
    feed(fresh, 13, 30)
    finish(fresh)
    assert rows(mill, "q") == rows(fresh, "q")
    assert rows(mill, "other") == rows(fresh, "other")
    assert [(one.number, one.by, one.because) for one in mill.queries["q"].versions()][1:] == [
        (2, "ann", "big")
    ]
    mill.close()
    fresh.close()


def test_queries_over_a_view_and_an_aggregate_that_are_replaced_mean_the_new_one(tmp_path: Path) -> None:
    clock = Clock()
    body = "{{ TABLE st(n int); "
    body += "INITIALIZE: {{ INSERT INTO st VALUES ({0}); INSERT INTO RETURN SELECT n FROM st; }}"
    body += " ITERATE: {{ UPDATE st SET n = n + {0}; INSERT INTO RETURN SELECT n FROM st; }} }}"
    aggregate = f"AGGREGATE total(x int) : int {body}"
    users = """CREATE QUERY met AS SELECT s.k, q.v FROM s, recent AS q WHERE s.k = q.k;
    CREATE QUERY totals AS SELECT k, total(v) AS n FROM s GROUP BY k;"""
    mill = opened(tmp_path / "home", f"{DECLARED}CREATE {aggregate.format('x')};{users}{OTHER}", clock)
    feed(mill, 0, 13)
    new = f"""CREATE OR REPLACE VIEW recent AS SELECT k, v FROM s [RANGE 5 SECONDS] WHERE v > 15;
    CREATE OR REPLACE {aggregate.format("2 * x")};"""
    mill.execute(new)
    assert {name: mill.queries[name].version for name in ("met", "totals", "other")} == {
        "met": 2,
        "totals": 2,
        "other": 1,
    }
    feed(mill, 13, 30)
    finish(mill)
    fresh = opened(tmp_path / "fresh", f"{DECLARED}CREATE {aggregate.format('x')};{OTHER}", clock)
    feed(fresh, 0, 13)
    fresh.execute(new + users)
    feed(fresh, 13, 30)
    finish(fresh)
    for name in ("totals", "other"):
        assert rows(mill, name) == rows(fresh, name), name
    assert {row[-1] for row in rows(mill, "met")} and min(row[-1] for row in rows(mill, "met")) > 15
    mill.close()
    fresh.close()


def test_what_no_longer_fits_its_users_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    q = "CREATE QUERY q AS SELECT k, v FROM big;"
    mill = opened(tmp_path / "home", DECLARED + q, Clock())
    feed(mill, 0, 8)
    epoch = mill.home.epoch
    with pytest.raises(EslError, match="query q uses big, and would not be right any more") as refused:
        mill.execute("CREATE OR REPLACE STREAM big AS SELECT at, k FROM s")
    assert "replace query q in the same text" in str(refused.value)
    assert mill.home.epoch == epoch
    mill.execute("""CREATE OR REPLACE STREAM big AS SELECT at, k FROM s;
    CREATE OR REPLACE QUERY q AS SELECT k FROM big""")
    feed(mill, 8, 12)
    assert len(rows(mill, "q")) == 4
    mill.close()


def test_a_start_with_another_definition_goes_on_with_the_state_that_fits(tmp_path: Path) -> None:
    clock = Clock()
    window = "FROM s [RANGE 6 SECONDS SLIDE 3 SECONDS] GROUP BY k"
    script = (
        f"{DECLARED}{OTHER}CREATE OR REPLACE QUERY q AS SELECT k, sum(v) AS n {window} HAVING sum(v) > {{}};"
    )
    mill = opened(tmp_path / "home", script.format(3), clock)
    feed(mill, 0, 13)
    mill.close(checkpoint=False)
    mill = opened(tmp_path / "home", script.format(9), clock)
    assert mill.queries["q"].version == 2
    feed(mill, 13, 30)
    finish(mill)
    always = opened(tmp_path / "always", script.format(9), clock)
    feed(always, 0, 13)
    seen = len(rows(always, "q"))
    feed(always, 13, 30)
    finish(always)
    assert rows(mill, "q") == rows(always, "q")[seen:]
    assert rows(mill, "other") == rows(always, "other")
    mill.close()
    always.close()


def test_a_sink_gets_all_results_of_both_definitions(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    q = f"CREATE QUERY q WITH (sink = 'jsonl:{folder}') AS SELECT k, v FROM s;"
    mill = opened(tmp_path / "home", DECLARED + q, Clock())
    feed(mill, 0, 8)
    other = tmp_path / "other"
    mill.execute(f"CREATE OR REPLACE QUERY q WITH (sink = 'jsonl:{other}') AS SELECT k, v + 1 AS w FROM s;")
    feed(mill, 8, 12)
    mill.drain()
    mill.close()
    written = [
        sum(len(file.read_text().splitlines()) for file in index.rglob("*.jsonl"))
        for index in (folder, other)
    ]
    assert written == [8, 4]


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("what", ["QUERY q", "STREAM big"])
def test_a_kill_at_any_commit_leaves_exactly_the_old_or_exactly_the_new_definition(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    q = "CREATE QUERY q AS SELECT k, sum(v) OVER (PARTITION BY k ROWS 2 PRECEDING) AS n FROM big;"
    new = {
        "QUERY q": "SELECT k, v, max(v) OVER (PARTITION BY k ROWS 2 PRECEDING) AS n FROM s",
        "STREAM big": "SELECT at, k, v * 100 AS v FROM s WHERE v > 7",
    }[what]
    mill = opened(tmp_path / "home", DECLARED + OTHER + q, clock)
    feed(mill, 0, 13)
    feed_rows(mill, "s", [ROWS[13]])
    mill.close(checkpoint=False)
    outcomes: list[int] = []
    commit = Home.commit
    while not outcomes or outcomes[-1]:
        left = [len(outcomes)]
        copy = tmp_path / f"killed {len(outcomes)}"
        shutil.copytree(tmp_path / "home", copy)
        mill = fed_mill(copy, clock, inline_pool())
        mill.statements.restore()
        mill.open()

        def counted(home: Home, change: Change, left: list[int] = left) -> int:
            if change and not left[0]:
                raise Killed
            left[0] -= bool(change)
            return commit(home, change)

        monkeypatch.setattr(Home, "commit", counted)
        killed = False
        try:
            mill.execute(f"CREATE OR REPLACE {what} AS {new}")
        except Killed:
            killed = True
        monkeypatch.setattr(Home, "commit", commit)
        after = tmp_path / f"after {len(outcomes)}"
        shutil.copytree(copy, after)
        mill.close(checkpoint=False)
        mill = fed_mill(after, clock, inline_pool())
        assert mill.statements.restore() == []
        mill.open()
        replaced = mill.queries["q"].version == 2
        assert replaced or killed
        feed(mill, 14, 30)
        finish(mill)
        expected = opened(tmp_path / f"expected {len(outcomes)}", DECLARED + OTHER + q, clock)
        feed(expected, 0, 14)
        if replaced:
            expected.execute(f"CREATE OR REPLACE {what} AS {new}")
        feed(expected, 14, 30)
        finish(expected)
        for name in ("q", "other"):
            assert rows(mill, name) == rows(expected, name), (name, len(outcomes))
        outcomes.append(killed)
        mill.close()
        expected.close()
    assert len(outcomes) > 1


@pytest.mark.parametrize(
    ("columns", "kept"), [("a.k", True), ("a.k, a.v, b.v AS w", True), ("a.k, b.at", False)]
)
def test_a_join_goes_on_if_its_rows_have_what_is_read_of_them(
    tmp_path: Path, columns: str, kept: bool
) -> None:
    """A join keeps of a row what somebody reads of it."""
    mill = opened(tmp_path, DECLARED, Clock())
    joined = "FROM s [RANGE 9 SECONDS] AS a, big [RANGE 9 SECONDS] AS b WHERE a.k = b.k"
    mill.execute(f"CREATE QUERY q AS SELECT a.k, a.v, b.v AS w {joined} AND b.v > 6")
    feed(mill, 0, 8)
    after = f"CREATE OR REPLACE QUERY q AS SELECT {columns} {joined} AND b.v > 6"
    effects = [one.effect for one in mill.statements.explain_replace(after)]
    assert ("begins anew" not in effects) is kept
    mill.execute(f"{after}; CREATE QUERY twin AS SELECT {columns} {joined} AND b.v > 6")
    feed(mill, 8, 20)
    finish(mill)
    whole = opened(
        tmp_path / "always", f"{DECLARED}CREATE QUERY q AS SELECT {columns} {joined} AND b.v > 6", Clock()
    )
    feed(whole, 0, 20)
    finish(whole)
    complete = mill.queries["q"].complete_from()
    assert complete is not None
    # What came by the second at which it was replaced was told by the old definition.
    begins = max(complete, ROWS[7][0])
    assert [row for row in rows(mill, "q") if row[0] > begins] == [
        r for r in rows(whole, "q") if r[0] > begins
    ]
    assert (complete < ROWS[7][0]) is kept
    mill.close()
    whole.close()
