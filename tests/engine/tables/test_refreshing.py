"""REFRESH EVERY: sources are read again by the clock; one that fails leaves the rows as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from slicemill.api.status import problems
from slicemill.sql.errors import EslError
from slicemill.testing import Clock, inline_pool, open_mill
from slicemill.time import SECOND_US
from support.engine import feed_rows, finish

_SCRIPT = """
CREATE STREAM s (id bigint, ts timestamp) ORDER BY ts;
CREATE TABLE item (id bigint PRIMARY KEY, name varchar)
  USING csv OPTIONS (path 'item.csv') REFRESH EVERY 10 MINUTES;
CREATE QUERY named AS SELECT s.id, i.name FROM s, item AS i WHERE s.id = i.id;
"""
_MINUTE = 60 * SECOND_US


def test_rows_are_taken_when_they_are_due_and_not_before(tmp_path: Path) -> None:
    clock, source = Clock(0), tmp_path / "item.csv"
    source.write_text("1,one\n")
    with open_mill(home=tmp_path / "home", folder=tmp_path, pool=inline_pool(1), clock=clock) as mill:
        mill.execute(_SCRIPT)
        mill.open()
        mill.tables.refresher.look()
        feed_rows(mill, "s", [(1, 1)])
        source.write_text("1,two\n")
        clock.now = 10 * _MINUTE - 1
        mill.tables.refresher.look()
        feed_rows(mill, "s", [(1, 2)])
        clock.now += 1
        mill.tables.refresher.look()
        assert list(mill.tables.rows("item")) == [(1, "two")]
        feed_rows(mill, "s", [(1, 3)])
        finish(mill)
        assert [timed.row for timed in mill.queries["named"].timed_rows()] == [
            (1, "one"),
            (1, "one"),
            (1, "two"),
        ]


def test_a_source_that_fails_keeps_the_rows_is_told_and_tried_again(tmp_path: Path) -> None:
    clock, source = Clock(0), tmp_path / "item.csv"
    source.write_text("1,one\n")
    with open_mill(home=tmp_path / "home", folder=tmp_path, pool=inline_pool(1), clock=clock) as mill:
        mill.execute(_SCRIPT)
        mill.open()
        mill.tables.refresher.look()
        for content in (None, "1,one\n1,again\n"):
            if content is None:
                source.unlink()
            else:
                source.write_text(content)
            clock.now += 10 * _MINUTE
            mill.tables.refresher.look()
            assert list(mill.tables.rows("item")) == [(1, "one")]
            assert [one for one in problems(mill) if "table item keeps its rows" in one]
        source.write_text("2,two\n")
        clock.now += 8 * SECOND_US
        mill.tables.refresher.look()
        assert list(mill.tables.rows("item")) == [(2, "two")]
        assert problems(mill) == []


def test_only_a_table_with_a_source_is_refreshed(tmp_path: Path) -> None:
    with open_mill(home=tmp_path / "home", pool=inline_pool(1)) as mill:
        with pytest.raises(EslError, match="only a table with a SOURCE"):
            mill.execute("CREATE TABLE t (a int) REFRESH EVERY 1 MINUTE")
        with pytest.raises(EslError, match="once a second at most"):
            mill.execute("CREATE TABLE t (a int) SOURCE 'x.csv' REFRESH EVERY 10 MILLISECONDS")
