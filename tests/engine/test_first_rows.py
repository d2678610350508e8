"""The row of a global aggregate over no rows: it is there before the first tuple, once, whatever happens."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from slicemill.api.mill import Mill
from slicemill.operators.changelog.group import GlobalAggregateRow
from slicemill.runtime.pipeline import TaskPlan
from slicemill.server.service import MillService
from slicemill.testing import Clock, inline_pool
from slicemill.time import BEGINNING, EARLIEST
from slicemill.types import Row
from support.adhoc_queries import ask
from support.engine import fed_mill, feed_rows, finish

_STREAM = "CREATE STREAM S (k int, v int, ts timestamp) ORDER BY ts;"
_COUNT = "CREATE QUERY q AS SELECT count(*) AS n, sum(v) AS total FROM S EMIT CHANGES;"
_FIRST = (EARLIEST, ("insert", 0, None))
_SHOWN = datetime(1678, 1, 1, tzinfo=UTC)
_S = 1_000_000


def _opened(home: Path, esl: str, subtasks: int = 1) -> Mill:
    mill = fed_mill(home, Clock(), inline_pool(), subtasks)
    mill.execute(esl)
    mill.open()
    return mill


def _told(mill: Mill, query: str = "q") -> list[tuple[int, Row]]:
    mill.dispatcher.run_all()
    return [(timed.ts, timed.row) for timed in mill.queries[query].timed_rows()]


def _table(mill: Mill, query: str) -> list[tuple[object, ...]]:
    mill.dispatcher.run_all()
    found = mill.queries[query].table().drop_columns(["_ts"])
    return sorted((tuple(row.values()) for row in found.to_pylist()), key=repr)


@pytest.mark.parametrize("subtasks", [1, 2])
def test_a_global_aggregate_has_its_row_before_any_tuple_arrives(tmp_path: Path, subtasks: int) -> None:
    with _opened(tmp_path, _STREAM + _COUNT, subtasks) as mill:
        assert _told(mill) == [_FIRST]
        assert _table(mill, "q") == [(0, None)]
        assert mill.tables.rows("q") == [(0, None)]
        finish(mill)
        assert _told(mill) == [_FIRST]


@pytest.mark.parametrize("subtasks", [1, 2])
@pytest.mark.parametrize("checkpoint", [True, False])
@pytest.mark.parametrize("when", ["before it runs", "before a tuple", "after a tuple"])
def test_a_restart_neither_repeats_nor_loses_the_row(
    tmp_path: Path, when: str, checkpoint: bool, subtasks: int
) -> None:
    mill = _opened(tmp_path, _STREAM + _COUNT, subtasks)
    if when != "before it runs":
        mill.dispatcher.run_all()
    if when == "after a tuple":
        feed_rows(mill, "S", [(1, 5, _S)])
        mill.dispatcher.run_all()
    mill.close(checkpoint=checkpoint)
    with _opened(tmp_path, _STREAM + _COUNT, 3 - subtasks) as mill:
        if when != "after a tuple":
            assert _told(mill) == [_FIRST]
            feed_rows(mill, "S", [(1, 5, _S)])
        expected = [_FIRST, (_S, ("update_before", 0, None)), (_S, ("update_after", 1, 5))]
        assert _told(mill) == expected
        assert _table(mill, "q") == [(1, 5)]


def test_a_lost_worker_neither_repeats_nor_loses_the_row(tmp_path: Path) -> None:
    pool = inline_pool()
    mill = fed_mill(tmp_path, Clock(), pool)
    mill.execute(_STREAM + _COUNT)
    mill.open()
    with mill:
        mill.dispatcher.run_all()
        for worker in range(2):
            pool.lose(worker)
        feed_rows(mill, "S", [(1, 5, _S)])
        expected = [_FIRST, (_S, ("update_before", 0, None)), (_S, ("update_after", 1, 5))]
        assert _told(mill) == expected


@pytest.mark.parametrize("crash", [False, True])
def test_a_query_that_joins_a_running_task_has_its_own_row(tmp_path: Path, crash: bool) -> None:
    other = "CREATE QUERY later AS SELECT count(*) AS n FROM S WHERE v > 3 EMIT CHANGES;"
    mill = _opened(tmp_path, _STREAM + _COUNT)
    feed_rows(mill, "S", [(1, 5, _S)])
    before = _told(mill)
    mill.execute(other)
    assert len(mill.dispatcher.tasks) == 1
    if crash:
        mill.close(checkpoint=False)
        mill = _opened(tmp_path, _STREAM + _COUNT + other)
    with mill:
        assert _told(mill, "later") == [(EARLIEST, ("insert", 0))]
        assert _told(mill) == before
        mill.execute("DROP QUERY q;")
        assert _told(mill, "later") == [(EARLIEST, ("insert", 0))]
        feed_rows(mill, "S", [(1, 7, 2 * _S)])
        changes = [(2 * _S, ("update_before", 0)), (2 * _S, ("update_after", 1))]
        assert _told(mill, "later") == [(EARLIEST, ("insert", 0)), *changes]


_NESTED = """CREATE STREAM Parts AS SELECT k, count(*) AS n FROM S GROUP BY k;
CREATE STREAM Total AS SELECT count(*) AS n FROM Parts;
CREATE STREAM Large AS SELECT count(*) AS n, max(v) AS high FROM S WHERE v > 5;
CREATE QUERY counts AS SELECT n, count(*) AS m FROM Total GROUP BY n;
CREATE QUERY paired AS SELECT a.n AS n, b.high AS high FROM Total AS a JOIN Large AS b ON a.n = b.n;
CREATE QUERY every AS SELECT sum(n) AS total FROM Total EMIT EVERY 2 SECONDS;
CREATE QUERY both AS SELECT n FROM Total UNION ALL SELECT n FROM Large;
CREATE QUERY some AS SELECT n FROM Total WHERE n > 0;
CREATE QUERY sets AS SELECT k, count(*) AS n FROM S GROUP BY ROLLUP (k);
"""


@pytest.mark.parametrize("subtasks", [1, 2])
def test_queries_over_a_global_aggregate_read_its_row_before_any_tuple_arrives(
    tmp_path: Path, subtasks: int
) -> None:
    with _opened(tmp_path, _STREAM + _NESTED, subtasks) as mill:
        assert len(mill.dispatcher.tasks) > 3
        assert _table(mill, "counts") == [(0, 1)]
        assert _table(mill, "paired") == [(0, None)]
        assert _table(mill, "every") == [(0,)]
        assert _table(mill, "both") == [(0,), (0,)]
        assert _table(mill, "some") == []
        assert _table(mill, "sets") == [(None, 0)]


def test_a_log_is_complete_up_to_no_time_before_its_first_row_is_in_it(tmp_path: Path) -> None:
    with _opened(tmp_path, _STREAM + _NESTED) as mill:
        mill.running.streams["S"].announce_at_least("S", 5 * _S)
        assert mill.dispatcher.watermark("Large") == BEGINNING
        mill.dispatcher.run_all()
        assert mill.dispatcher.watermark("Large") == 5 * _S


def test_changes_before_the_first_tuple_do_not_depend_on_when_queries_are_made(tmp_path: Path) -> None:
    first, *rest = _NESTED.replace("\n", " ").split(";")[:-1]
    rows = [(1, 5, _S), (2, 7, 2 * _S), (1, 9, 3 * _S)]
    told = []
    for at_once in (True, False):
        mill = fed_mill(tmp_path / str(at_once), Clock(), inline_pool())
        mill.execute(_STREAM + first)
        mill.open()
        with mill:
            if at_once:
                mill.execute(";".join(rest))
            else:
                for statement in rest:
                    mill.execute(statement)
                    mill.dispatcher.run_all()
            for row in rows:
                feed_rows(mill, "S", [row])
                if not at_once:
                    mill.dispatcher.run_all()
            finish(mill)
            told.append({name: _told(mill, name) for name in mill.queries})
    assert told[0] == told[1]
    assert told[0]["every"][0] == (EARLIEST, ("insert", 0))


def test_having_decides_about_the_row_as_about_any(tmp_path: Path) -> None:
    esl = """CREATE QUERY none AS SELECT count(*) AS n FROM S HAVING count(*) = 0 EMIT CHANGES;
    CREATE QUERY some AS SELECT count(*) AS n FROM S HAVING count(*) > 0 EMIT CHANGES;"""
    with _opened(tmp_path, _STREAM + esl) as mill:
        assert _told(mill, "none") == [(EARLIEST, ("insert", 0))]
        assert _told(mill, "some") == []
        feed_rows(mill, "S", [(1, 5, _S)])
        assert _table(mill, "none") == []
        assert _table(mill, "some") == [(1,)]


def test_emit_final_has_the_row_of_an_empty_input_at_its_end(tmp_path: Path) -> None:
    esl = "CREATE QUERY q AS SELECT count(*) AS n, sum(v) AS total FROM S EMIT FINAL;"
    with _opened(tmp_path, _STREAM + esl) as mill:
        assert _told(mill) == []
        finish(mill)
        assert _told(mill) == [(EARLIEST, (0, None))]


def test_a_replaced_query_begins_with_its_own_row(tmp_path: Path) -> None:
    with _opened(tmp_path, _STREAM + _COUNT) as mill:
        feed_rows(mill, "S", [(1, 5, _S)])
        _told(mill)
        mill.execute("CREATE OR REPLACE QUERY q AS SELECT max(v) AS high FROM S EMIT CHANGES;")
        assert _told(mill) == [(EARLIEST, ("insert", None))]
        assert _table(mill, "q") == [(None,)]


def test_a_query_from_the_beginning_has_the_row_once(tmp_path: Path) -> None:
    stream = _STREAM.replace("ORDER BY ts", "ORDER BY ts RETAIN 1 HOUR")
    with _opened(tmp_path, stream) as mill:
        feed_rows(mill, "S", [(1, 5, _S), (1, 6, 2 * _S)])
        mill.dispatcher.run_all()
        mill.execute("CREATE QUERY q FROM BEGINNING AS SELECT count(*) AS n FROM S EMIT CHANGES;")
        for _ in range(3):
            mill.dispatcher.run_all()
        changes = [
            (ts * _S, (op, n)) for ts in (1, 2) for op, n in (("update_before", ts - 1), ("update_after", ts))
        ]
        assert _told(mill) == [(EARLIEST, ("insert", 0)), *changes]
        feed_rows(mill, "S", [(1, 6, 3 * _S)])
        assert _table(mill, "q") == [(3,)]


@pytest.fixture
def previous(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Run mills as the version before did, whose aggregates had no row before the first tuple.

    Calling the fixture ends that.
    """
    monkeypatch.setattr(TaskPlan, "has_changes", property(lambda _: False))
    monkeypatch.setattr(GlobalAggregateRow, "of", staticmethod(lambda *_: None))
    return monkeypatch.undo


@pytest.mark.parametrize("checkpoint", [True, False])
@pytest.mark.parametrize("rows", [0, 1, 2])
def test_a_home_of_the_version_before_goes_on(
    tmp_path: Path, previous: Callable[[], None], rows: int, checkpoint: bool
) -> None:
    """An aggregate that has counted rows keeps its log. One that has not gets its row at once."""
    other = "CREATE QUERY other AS SELECT max(v) AS high FROM S EMIT CHANGES;"
    esl = _STREAM + _COUNT.replace("FROM S", "FROM S WHERE v > 4") + other
    mill = _opened(tmp_path, esl)
    feed_rows(mill, "S", [(1, 1, _S), (1, 5, _S)][:rows])
    counted = rows == 2
    assert _told(mill) == ([(_S, ("insert", 1, 5))] if counted else [])
    mill.close(checkpoint=checkpoint)
    previous()
    with _opened(tmp_path, esl) as mill:
        assert _table(mill, "q") == [(1, 5) if counted else (0, None)]
        mill.execute("CREATE QUERY later AS SELECT count(*) AS n FROM S EMIT CHANGES;")
        assert len(mill.dispatcher.tasks) == 1
        assert _told(mill, "later") == [(EARLIEST, ("insert", 0))]
        feed_rows(mill, "S", [(1, 6, 2 * _S)])
        assert _table(mill, "q") == [(2, 11) if counted else (1, 6)]
        assert [row[0] for _, row in _told(mill)] == ["insert", "update_before", "update_after"]


def test_sinks_and_subscribers_get_the_row_before_any_tuple_arrives(tmp_path: Path) -> None:
    query = _COUNT.replace("QUERY q AS", "QUERY q WITH (sink = 'memory:') AS")
    with _opened(tmp_path, _STREAM + query) as mill:
        got: list[object] = []
        mill.queries["q"].subscribe(lambda live: got.extend(live.table.drop_columns(["_ts"]).to_pylist()))
        mill.dispatcher.run_all()
        mill.sinks.deliver_new()
        assert got == [{"_op": "insert", "n": 0, "total": None}]
        delivered = mill.sinks["q"].to_arrow()  # type: ignore[attr-defined]
        assert delivered.to_pylist() == [{"_ts": _SHOWN, "n": 0, "total": None}]
        asked = ask("SELECT * FROM q", MillService(mill).relation)
        assert asked.to_pylist() == [{"_ts": _SHOWN, "n": 0, "total": None}]
        assert mill.queries["q"].to_pandas()["_ts"].tolist() == [_SHOWN]
