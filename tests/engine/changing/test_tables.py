"""Tables change between two tuples, also over restarts; ad hoc queries see everything as it is now."""

from __future__ import annotations

from pathlib import Path

import pytest

from slicemill.api.mill import Mill
from slicemill.errors import SlicemillError
from slicemill.runtime.pipeline import unpack_plan
from slicemill.storage.check import check_home
from slicemill.testing import Clock, inline_pool, open_mill
from slicemill.time import wall_clock_us
from support.engine import fed_mill, feed_rows, finish, rows_as_table

SECOND = 1_000_000
STREAM = "CREATE STREAM s (k int, v bigint, ts timestamp) ORDER BY ts;"
GIVEN = "CREATE TABLE t (k int, name varchar);"
NAMED = "CREATE QUERY named AS SELECT t.name, s.v FROM s, t WHERE s.k = t.k;"
COUNTED = """CREATE QUERY counted AS
  SELECT t.name, count(*) OVER (PARTITION BY t.name ROWS 9 PRECEDING) AS n FROM s, t WHERE s.k = t.k;"""
NOW = "CREATE QUERY now AS SELECT name FROM t ORDER BY name;"


def started(home: Path, script: str) -> Mill:
    mill = open_mill(home=home, pool=inline_pool(), clock=Clock(), folder=home.parent, read_sources=False)
    mill.execute(script)
    mill.open()
    return mill


def rows(mill: Mill, query: str) -> list[tuple[object, ...]]:
    return [timed.row for timed in mill.queries[query].timed_rows()]


def csv(folder: Path, *names: str) -> None:
    lines = [f"{number},{name}" for number, name in enumerate(names)]
    (folder / "names.csv").write_text("\n".join(["k,name", *lines]) + "\n")


FILE = "CREATE TABLE t (k int, name varchar) USING csv OPTIONS (path 'names.csv', header 'true');"


def test_what_waits_meets_the_rows_from_before(tmp_path: Path) -> None:
    with started(tmp_path / "home", f"{STREAM} {GIVEN} {NAMED} {COUNTED} {NOW}") as mill:
        mill.tables.set_rows("T", [(0, "old")])
        feed_rows(mill, "s", [(0, 1, SECOND)])  # arrived, and nothing has run
        assert mill.tables.rows("now") == [("old",)]
        mill.tables.set_rows("t", [(0, "new")])
        feed_rows(mill, "s", [(0, 2, SECOND)])
        finish(mill)
        assert rows(mill, "named") == [("old", 1), ("new", 2)]
        assert rows(mill, "counted") == [("old", 1), ("new", 1)]
        assert mill.tables.rows("now") == [("new",)]


@pytest.mark.parametrize("checkpoint", [True, False])
def test_a_start_takes_what_the_source_holds_by_then(tmp_path: Path, checkpoint: bool) -> None:
    script, home = f"{STREAM} {FILE} {NAMED} {COUNTED} {NOW}", tmp_path / "home"
    csv(tmp_path, "a", "b")
    with started(home, script) as mill:
        feed_rows(mill, "s", [(0, 1, SECOND)])
        mill.dispatcher.run_all()
        feed_rows(mill, "s", [(1, 2, 2 * SECOND)])
        csv(tmp_path, "a", "c")
        assert mill.tables.rows("now") == [("a",), ("c",)]
        mill.close(checkpoint=checkpoint)
    for _ in range(2):  # a start at which nothing has changed changes nothing
        mill = started(home, script)
        mill.close(checkpoint=checkpoint)
    with started(home, script) as mill:
        feed_rows(mill, "s", [(1, 3, 3 * SECOND)])
        csv(tmp_path, "a", "d")
        mill.dispatcher.run_all()
        feed_rows(mill, "s", [(1, 4, 4 * SECOND)])
        mill.tables.refresh("t")
        feed_rows(mill, "s", [(1, 5, 5 * SECOND)])
        finish(mill)
        assert rows(mill, "named") == [("a", 1), ("b", 2), ("c", 3), ("c", 4), ("d", 5)]
        assert rows(mill, "counted") == [("a", 1), ("b", 1), ("c", 1), ("c", 2), ("d", 1)]


def test_a_table_changes_while_a_mill_is_at_work(tmp_path: Path) -> None:
    with fed_mill(tmp_path, wall_clock_us, inline_pool()) as mill:
        mill.execute(f"{STREAM} {GIVEN} {NAMED} {COUNTED}")
        mill.start()
        for number in range(20):
            mill.tables.set_rows("t", [(0, f"name {number}")])
            mill.feed("s", rows_as_table(mill, "s", [(0, number, number * SECOND)] * 3))
        mill.drain()
        assert rows(mill, "named") == [(f"name {n}", n) for n in range(20) for _ in range(3)]
        assert rows(mill, "counted") == [(f"name {n}", i + 1) for n in range(20) for i in range(3)]


def test_a_query_that_comes_later_sees_the_rows_of_the_others(tmp_path: Path) -> None:
    with started(tmp_path / "home", f"{STREAM} {GIVEN} {NAMED}") as mill:
        mill.tables.set_rows("t", [(0, "old")])
        feed_rows(mill, "s", [(0, 1, SECOND)])
        mill.tables.set_rows("t", [(0, "new")])
        mill.execute(COUNTED)
        feed_rows(mill, "s", [(0, 2, 2 * SECOND)])
        finish(mill)
        assert rows(mill, "named") == [("old", 1), ("new", 2)]
        assert rows(mill, "counted") == [("new", 1)]


def test_plans_hold_the_name_of_a_table_and_the_home_one_version(tmp_path: Path) -> None:
    home, sizes = tmp_path / "home", []
    with started(home, f"{STREAM} {GIVEN} {NAMED} CREATE QUERY bare AS SELECT k FROM s WHERE v > 5") as mill:
        for number in (1, 10_000):
            mill.tables.set_rows("t", [(k, f"name {k}") for k in range(number)])
            (task,) = mill.dispatcher.running.tasks
            sizes.append(len(task.packed))
            assert len(unpack_plan(task.packed).tables["t"]) == number
        assert sizes[0] == sizes[1]
        mill.home.free()
        assert len(list((home / "tables").iterdir())) == 1
    assert not check_home(home).errors
    (file,) = (home / "tables").iterdir()
    file.write_bytes(file.read_bytes()[:100])
    assert "is damaged" in check_home(home).errors[0]
    file.unlink()
    assert check_home(home).errors == [f"table t: file {file.name} is missing"]


def test_a_table_that_is_dropped_is_gone(tmp_path: Path) -> None:
    with started(tmp_path / "home", f"{STREAM} {GIVEN} {NAMED} {NOW}") as mill:
        mill.tables.set_rows("t", [(0, "old")])
        mill.execute("DROP QUERY named; DROP QUERY now; DROP TABLE t")
        assert dict(mill.home.tables) == {}
        mill.execute(f"CREATE TABLE t (name varchar); {NOW}")
        with pytest.raises(SlicemillError, match="rows of table t do not fit its columns"):
            mill.tables.set_rows("t", [(1.5,)])
        with pytest.raises(SlicemillError, match="there is no table s"):
            mill.tables.refresh("s")


def test_a_view_over_a_stream_is_asked_while_tuples_come(tmp_path: Path) -> None:
    script, home = (
        f"""{STREAM} CREATE VIEW recent AS SELECT k, v FROM s [RANGE 3 SECONDS];
        CREATE VIEW two AS SELECT v FROM s [ROWS 2];
        CREATE QUERY now AS SELECT v FROM recent ORDER BY v;
        CREATE QUERY last AS SELECT sum(v) AS t FROM two;""",
        tmp_path / "home",
    )
    with started(home, script) as mill:
        assert mill.tables.rows("now") == [] and mill.tables.rows("last") == [(None,)]
        feed_rows(mill, "s", [(0, 1, SECOND), (0, 2, 2 * SECOND)])
        mill.dispatcher.run_all()
        assert mill.tables.rows("now") == [(1,), (2,)] and mill.tables.rows("last") == [(3,)]
    with started(home, script) as mill:
        feed_rows(mill, "s", [(0, 3, 4 * SECOND)])
        mill.dispatcher.run_all()
        assert mill.tables.rows("now") == [(2,), (3,)] and mill.tables.rows("last") == [(5,)]
        for second in range(5, 9):
            feed_rows(mill, "s", [(0, second, second * SECOND)])
            mill.dispatcher.run_all()
            mill.retention.collect()
        assert mill.tables.rows("now") == [(6,), (7,), (8,)] and mill.tables.rows("last") == [(15,)]
        # What has left the windows goes.
        assert mill.home.logs["recent"].rows == 3 and mill.home.logs["two"].rows == 2
        mill.execute("DROP QUERY now")
        assert sorted(mill.tables.rows("recent")) == [(0, 6), (0, 7), (0, 8)]  # it is kept for whoever asks
        mill.execute("DROP VIEW recent")
        assert "recent" not in mill.home.logs
        assert mill.tables.rows("last") == [(15,)]
        finish(mill)
        assert mill.tables.rows("last") == [(15,)]


def test_a_clock_moves_the_window_of_a_view(tmp_path: Path) -> None:
    clock = Clock(SECOND)
    script = """CREATE STREAM i (v int, at timestamp) ORDER BY current_time;
    CREATE VIEW recent AS SELECT v FROM i [RANGE 3 SECONDS]; CREATE QUERY now AS SELECT v FROM recent;"""
    with fed_mill(tmp_path, clock, inline_pool()) as mill:
        mill.execute(script)
        mill.open()
        feed_rows(mill, "i", [(7, None)])
        mill.dispatcher.run_all()
        assert mill.tables.rows("now") == [(7,)]
        clock.now = 5 * SECOND
        feed_rows(mill, "i", [(8, None)])
        mill.dispatcher.run_all()
        assert mill.tables.rows("now") == [(8,)]
