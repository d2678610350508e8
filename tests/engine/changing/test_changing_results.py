"""Results that change as users read them: log of changes, table of now, and what is kept of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from slicemill.api.mill import Mill
from slicemill.server.service import MillService
from slicemill.testing import Clock, inline_pool
from support.adhoc_queries import ask
from support.engine import checkpoint_twice, fed_mill, feed_rows, finish

SECOND = 1_000_000
SCRIPT = """
CREATE STREAM s (k int, v int, ts timestamp) ORDER BY ts;
CREATE STREAM totals AS SELECT k, count(*) AS n FROM s GROUP BY k;
CREATE QUERY counted AS SELECT n, count(*) AS groups FROM totals GROUP BY n;
CREATE QUERY values_of AS SELECT v FROM s ORDER BY v DESC LIMIT 2;
CREATE QUERY plain AS SELECT k FROM s;
"""


@pytest.fixture
def mill(tmp_path: Path) -> Iterator[Mill]:
    with fed_mill(tmp_path, Clock(), inline_pool()) as made:
        made.execute(SCRIPT)
        made.open()
        rows = [(1, 5, 1), (2, 5, 2), (1, 7, 3), (3, 1, 4)]
        feed_rows(made, "s", [(k, v, at * SECOND) for k, v, at in rows])
        finish(made)
        yield made


def test_the_table_of_now_is_what_the_changes_come_to(mill: Mill) -> None:
    counted = mill.queries["counted"]
    assert counted.table().column_names == ["_ts", "n", "groups"]
    assert sorted(mill.tables.rows("counted")) == [(1, 2), (2, 1)]
    assert sorted(mill.tables.rows("values_of")) == [(5,), (7,)]
    assert [row.row for row in counted.timed_rows()][:2] == [("insert", 1, 1), ("update_before", 1, 1)]
    assert counted.to_arrow().column("_op").to_pylist()[0] == "insert"
    assert mill.queries["plain"].table().equals(mill.queries["plain"].to_arrow())


def test_equal_rows_without_a_key_are_there_as_often_as_they_came(mill: Mill) -> None:
    assert [row.row for row in mill.queries["values_of"].timed_rows()] == [
        ("insert", 5),
        ("insert", 5),
        ("delete", 5),
        ("insert", 7),
    ]


def test_the_table_stays_as_long_as_the_query_and_other_results_go(mill: Mill) -> None:
    mill.retention.keep_us = 0
    assert isinstance(mill.running.clock, Clock)
    mill.running.clock.now = 10**15
    mill.retention.collect()
    assert len(mill.queries["plain"].timed_rows()) == 0
    assert sorted(mill.tables.rows("counted")) == [(1, 2), (2, 1)]


def fold(mill: Mill) -> None:
    """Fold what can be folded now, log by log."""
    for _ in mill.home.logs:
        mill.retention.collect()
        mill.retention.compactor.wait()
    mill.retention.collect()


def test_questions_see_the_table_of_now(mill: Mill) -> None:
    service = MillService(mill)
    assert ask("SELECT * FROM counted ORDER BY n", service.relation).to_pydict()["groups"] == [2, 1]
    # Rows that only tasks read are deleted once no task needs them, and are no longer in the table.
    before = ask("SELECT * FROM totals ORDER BY ALL", service.relation)
    checkpoint_twice(mill)
    mill.retention.compactor.least_rows = 1
    fold(mill)
    assert mill.home.logs["totals"].base is not None
    assert ask("SELECT * FROM totals ORDER BY ALL", service.relation).equals(before)
