"""Joins that share a task come and go while it runs, and over a restart; its state stays."""

from __future__ import annotations

from pathlib import Path

from slicemill.api.mill import Mill
from slicemill.testing import inline_pool
from slicemill.time import END, wall_clock_us
from support.engine import fed_mill, feed_rows, finish

STREAMS = """
CREATE STREAM A (k int, v int, ts timestamp) ORDER BY ts;
CREATE STREAM B (k int, ts timestamp) ORDER BY ts;
"""
TASK = "joins of A and B on k = k"
SECOND = 1_000_000


def query(name: str, window_s: int, where: str = "") -> str:
    window = f"[RANGE {window_s} SECONDS]"
    return f"CREATE QUERY {name} AS SELECT A.v, B.ts FROM A {window}, B {window} WHERE A.k = B.k{where};"


def seconds(mill: Mill, seconds: range) -> None:
    """A tuple of A every second, with the second as its value, and one of B half a second later; one key."""
    feed_rows(mill, "A", [(1, second, second * SECOND) for second in seconds])
    feed_rows(mill, "B", [(1, second * SECOND + SECOND // 2) for second in seconds])


def mill_in(home: Path) -> Mill:
    return fed_mill(home, wall_clock_us, inline_pool(), subtasks=2)


def expected(seconds: range, window_s: int, first: int = 0) -> list[tuple[int, int]]:
    """(v of A, second of B): half a second apart, and less than the window, and both since `first`."""
    return sorted(
        (a, b)
        for a in seconds
        for b in seconds
        if a >= first and b >= first and abs((b + 0.5) - a) < window_s
    )


def pairs(mill: Mill, name: str) -> list[tuple[int, int]]:
    return sorted((t.row[0], t.row[1] // SECOND) for t in mill.queries[name].timed_rows())


def test_joins_come_and_go_with_state_kept(tmp_path: Path) -> None:
    with mill_in(tmp_path) as mill:
        mill.execute(STREAMS + query("always", 4))
        mill.open()
        seconds(mill, range(5))
        mill.dispatcher.run_all()
        mill.execute(query("later", 2, " AND A.v <> 7"))
        assert list(mill.dispatcher.tasks) == [TASK]
        seconds(mill, range(5, 9))
        mill.dispatcher.run_all()
        assert mill.queries["always"].complete_from() == -END
        came = 4 * SECOND + SECOND // 2
        assert mill.queries["later"].complete_from() == came, "what it wants of the past is stored already"
        held = mill.queries["always"].state_slices()
        assert {h.task for h in held} == {TASK} and 7 <= sum(h.rows for h in held) <= 9
        later = mill.queries["later"]
        mill.execute("DROP QUERY later")
        seconds(mill, range(9, 12))
        finish(mill)
        assert pairs(mill, "always") == expected(range(12), 4)
        possible = [pair for pair in expected(range(9), 2) if pair[0] != 7]
        known = [(a, b) for a, b in possible if max(a, b + 0.5) * SECOND >= came and max(a, b) < 8]
        found = sorted((t.row[0], t.row[1] // SECOND) for t in later.timed_rows())
        assert set(known) <= set(found) <= set(possible)


def test_a_join_with_a_longer_window_is_complete_when_the_difference_has_passed(
    tmp_path: Path,
) -> None:
    with mill_in(tmp_path) as mill:
        mill.execute(STREAMS + query("always", 2))
        mill.open()
        seconds(mill, range(6))
        mill.dispatcher.run_all()
        mill.execute(query("later", 5) + query("other", 1, " AND A.k > 0"))
        came = 5 * SECOND + SECOND // 2
        assert mill.queries["later"].complete_from() == came + 3 * SECOND
        assert mill.queries["other"].complete_from() == came + SECOND, "nobody stored A.k"
        seconds(mill, range(6, 13))
        finish(mill)
        possible = expected(range(13), 5)
        known = [(a, b) for a, b in possible if max(a, b + 0.5) * SECOND >= came + 3 * SECOND]
        assert set(known) <= set(pairs(mill, "later")) < set(possible)
        assert pairs(mill, "other") == [pair for pair in expected(range(13), 1) if pair[0] >= 6]


def test_a_query_that_is_dropped_and_created_again_is_a_new_one(tmp_path: Path) -> None:
    alone = query("again", 3, " AND A.k > 0")
    with mill_in(tmp_path) as mill:
        mill.execute(STREAMS + query("always", 2) + alone)
        mill.open()
        seconds(mill, range(6))
        mill.dispatcher.run_all()
        mill.execute("DROP QUERY again")
        mill.execute(alone)
    with mill_in(tmp_path) as mill:
        mill.execute(STREAMS + query("always", 2) + alone)
        mill.open()
        seconds(mill, range(6, 10))
        finish(mill)
        assert pairs(mill, "always") == expected(range(10), 2)
        found = set(pairs(mill, "again"))
        assert set(expected(range(10), 3, first=6)) <= found, "all that has come since"
        assert min(a for a, _ in found) == 6, "nothing that was stored for the one before"


def test_so_are_windows(tmp_path: Path) -> None:
    def window(name: str) -> str:
        sliding = "A [RANGE 5 SECONDS SLIDE 1 SECOND]"
        return f"CREATE QUERY {name} AS SELECT k, count(*) AS c FROM {sliding} GROUP BY k;"

    with mill_in(tmp_path) as mill:
        mill.execute(STREAMS + query("pairs_too", 1) + window("stays") + window("again"))
        mill.open()
        seconds(mill, range(6))
        mill.dispatcher.run_all()
        mill.execute("DROP QUERY again")
        mill.execute(window("again WITH (incomplete = 'show')"))
        seconds(mill, range(6, 9))
        finish(mill)
        assert [timed.row[1] for timed in mill.queries["again"].timed_rows()] == [1, 2, 3, 3, 3, 2, 1]
        assert [timed.row[1] for timed in mill.queries["stays"].timed_rows()][:5] == [1, 2, 3, 4, 5]


def test_a_join_that_is_new_after_a_restart_finds_what_is_stored(tmp_path: Path) -> None:
    with mill_in(tmp_path) as mill:
        mill.execute(STREAMS + query("always", 4))
        mill.open()
        seconds(mill, range(4))
        mill.dispatcher.run_all()
        seconds(mill, range(4, 6))  # in the log, and not run when the process ends
    with mill_in(tmp_path) as mill:
        mill.execute(STREAMS + query("always", 4) + query("later", 3))
        mill.open()
        mill.dispatcher.run_all()
        seconds(mill, range(6, 10))
        finish(mill)
        assert pairs(mill, "always") == expected(range(10), 4)
        came = mill.queries["later"].complete_from()
        assert came == 5 * SECOND + SECOND // 2
        possible = expected(range(10), 3)
        known = [(a, b) for a, b in possible if max(a, b + 0.5) * SECOND >= came]
        assert set(known) <= set(pairs(mill, "later")) < set(possible)
