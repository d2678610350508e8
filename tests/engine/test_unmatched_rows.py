"""Rows without a partner come out when time passes, also if no row comes any more (M21)."""

from __future__ import annotations

from pathlib import Path

from slicemill.testing import Clock, inline_pool, open_mill
from slicemill.types import Timed
from support.engine import feed_rows, turn

SECOND = 1_000_000
BEGIN = 100 * SECOND


def test_a_row_without_a_partner_comes_out_when_the_clock_has_passed_its_window(tmp_path: Path) -> None:
    clock = Clock(BEGIN)
    with open_mill(
        home=tmp_path / "home", folder=tmp_path, pool=inline_pool(1), clock=clock, subtasks=1
    ) as mill:
        mill.execute(
            """CREATE STREAM a (k int, v int) ORDER BY current_time;
            CREATE STREAM b (k int, w int) ORDER BY current_time;
            CREATE QUERY q AS SELECT a.v, b.w FROM a [RANGE 5 SECONDS] LEFT JOIN b [RANGE 5 SECONDS]
              ON a.k = b.k;"""
        )
        mill.open()
        feed_rows(mill, "a", [(1, 10), (2, 20)])
        clock.now += SECOND
        feed_rows(mill, "b", [(1, 11)])
        clock.now += 1
        turn(mill)
        pair = Timed(BEGIN + SECOND, (10, 11))
        assert list(mill.queries["q"].timed_rows()) == [pair]
        clock.now = BEGIN + 5 * SECOND - 1
        turn(mill)
        assert list(mill.queries["q"].timed_rows()) == [pair]
        clock.now = BEGIN + 5 * SECOND + 1
        turn(mill)
        assert list(mill.queries["q"].timed_rows()) == [pair, Timed(BEGIN + 5 * SECOND, (20, None))]


def test_a_row_without_partners_in_two_streams_comes_out_by_the_clock(tmp_path: Path) -> None:
    """It is known to be without the second one a microsecond after the first."""
    clock = Clock(BEGIN)
    with open_mill(
        home=tmp_path / "home", folder=tmp_path, pool=inline_pool(1), clock=clock, subtasks=1
    ) as mill:
        mill.execute(
            """CREATE STREAM a (k int, v int) ORDER BY current_time;
            CREATE STREAM b (k int, w int) ORDER BY current_time;
            CREATE STREAM c (k int, x int) ORDER BY current_time;
            CREATE QUERY q AS SELECT a.v, b.w, c.x FROM a [RANGE 5 SECONDS] LEFT JOIN b [RANGE 5 SECONDS]
              ON a.k = b.k LEFT JOIN c [RANGE 5 SECONDS] ON a.k = c.k;"""
        )
        mill.open()
        feed_rows(mill, "a", [(1, 10), (2, 20), (3, 30)])
        clock.now += SECOND
        feed_rows(mill, "b", [(1, 11)])
        feed_rows(mill, "c", [(2, 22)])
        clock.now += 1
        turn(mill)
        assert list(mill.queries["q"].timed_rows()) == []
        clock.now = BEGIN + 5 * SECOND - 1
        turn(mill)
        assert list(mill.queries["q"].timed_rows()) == []
        clock.now = BEGIN + 5 * SECOND + 2
        turn(mill)
        assert list(mill.queries["q"].timed_rows()) == [
            Timed(BEGIN + 5 * SECOND, (10, 11, None)),
            Timed(BEGIN + 5 * SECOND, (20, None, 22)),
            Timed(BEGIN + 5 * SECOND + 1, (30, None, None)),
        ]
