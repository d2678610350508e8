"""CREATE TABLE … AS MATERIALIZED: what a changelog comes to, as a table that others look up."""

from __future__ import annotations

from pathlib import Path

import pytest

from slicemill.api.mill import Mill
from slicemill.sql.errors import EslError
from slicemill.testing import Clock, inline_pool, open_mill
from slicemill.time import SECOND_US
from support.engine import feed_rows, finish

_SCRIPT = """
CREATE STREAM bid (item bigint, price bigint, ts timestamp) ORDER BY ts;
CREATE STREAM asked (item bigint, ts timestamp) ORDER BY ts;
CREATE QUERY totals AS SELECT item, sum(price) AS total FROM bid GROUP BY item;
CREATE TABLE total AS MATERIALIZED totals;
CREATE QUERY told AS SELECT a.item, t.total FROM asked AS a LEFT JOIN total AS t ON a.item = t.item;
"""


def _opened(home: Path, clock: Clock) -> Mill:
    mill = open_mill(home=home, pool=inline_pool(2), clock=clock, subtasks=2)
    mill.execute(_SCRIPT)
    mill.open()
    mill.tables.refresher.look()
    return mill


def _look(mill: Mill, clock: Clock) -> None:
    mill.dispatcher.run_all()
    clock.now += SECOND_US
    mill.tables.refresher.look()


@pytest.mark.parametrize("crash", [None, 0, 1, 2, 3])
def test_a_tuple_meets_what_the_query_had_come_to(tmp_path: Path, crash: int | None) -> None:
    clock = Clock(SECOND_US)
    mill = _opened(tmp_path, clock)
    expected: list[tuple[int, int | None]] = []
    total: int | None = None
    for step in range(4):
        feed_rows(mill, "asked", [(1, 10 * step + 1)])
        expected.append((1, total))
        feed_rows(mill, "bid", [(1, 5 + step, 10 * step + 2), (2, 1, 10 * step + 3)])
        feed_rows(mill, "asked", [(1, 10 * step + 4)])
        expected.append((1, total))  # it has arrived, and the table does not have it yet
        _look(mill, clock)
        total = (total or 0) + 5 + step
        assert sorted(mill.tables.rows("total")) == [(1, total), (2, step + 1)]
        if step == crash:
            mill.close(checkpoint=False)
            mill = _opened(tmp_path, clock)
    finish(mill)
    assert [timed.row for timed in mill.queries["told"].timed_rows()] == expected
    mill.close()


def test_what_has_not_changed_is_not_read_again(tmp_path: Path) -> None:
    clock = Clock(SECOND_US)
    with _opened(tmp_path, clock) as mill:
        feed_rows(mill, "bid", [(1, 5, 1)])
        _look(mill, clock)
        before = mill.home.epoch
        for _ in range(3):
            _look(mill, clock)
        assert mill.home.epoch == before


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("CREATE TABLE t AS MATERIALIZED plain", "would grow without a limit", "QUALIFY row_number()"),
        ("CREATE TABLE t AS MATERIALIZED nothing", "there is no query nothing", ""),
        ("INSERT INTO total VALUES (1, 2)", "are results of totals", "rows of its own"),
        ("DROP QUERY totals", "totals is used by total", "drop these objects first"),
        ("CREATE TABLE t AS SELECT 1", "did not expect AS", ""),
    ],
)
def test_mistakes_are_told(tmp_path: Path, text: str, message: str, hint: str) -> None:
    with _opened(tmp_path, Clock(SECOND_US)) as mill:
        mill.execute("CREATE QUERY plain AS SELECT item FROM bid")
        with pytest.raises(EslError) as refused:
            mill.execute(text)
        assert message in refused.value.diagnostics[0].message
        assert hint in (refused.value.diagnostics[0].hint or "")


def test_a_restart_without_a_script_has_the_table_again(tmp_path: Path) -> None:
    clock = Clock(SECOND_US)
    with _opened(tmp_path, clock) as mill:
        feed_rows(mill, "bid", [(1, 5, 1)])
        _look(mill, clock)
    with open_mill(home=tmp_path, pool=inline_pool(2), clock=clock) as mill:
        assert mill.statements.restore() == []
        mill.open()
        assert list(mill.tables.rows("total")) == [(1, 5)]
        mill.execute("DROP QUERY told; DROP TABLE total; DROP QUERY totals")
