"""A step that takes far longer than usual ends its own query, and no other."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from slicemill.api.mill import Mill
from slicemill.api.status import problems
from slicemill.runtime import driver as dispatcher
from slicemill.runtime import tasks as task
from slicemill.runtime.step_limit import StepLimit, StepOverran
from slicemill.testing import Clock, inline_pool
from support.engine import fed_mill, feed_rows

SCRIPT = """
CREATE STREAM bid (item int, price int, ts timestamp micros) ORDER BY ts;
CREATE QUERY slow AS SELECT item FROM bid
  WHERE levenshtein(repeat('a', price), repeat('b', price)) >= 0;
CREATE QUERY dear AS SELECT item, price FROM bid WHERE price > 10;
CREATE QUERY counted AS
  SELECT item, count(*) OVER (PARTITION BY item RANGE UNBOUNDED PRECEDING) AS n FROM bid;
"""
# Three seconds and more of comparing letters.
_STALLS = 6_000


@pytest.fixture(autouse=True)
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task, "STEP_S", 0.5)


def _rows(mill: Mill, name: str) -> list[object]:
    return [row["item"] for row in mill.queries[name].table().to_pylist()]


def test_a_query_that_stalls_fails_alone_and_can_be_dropped(tmp_path: Path) -> None:
    with fed_mill(tmp_path / "home", Clock(), inline_pool(1)) as mill:
        mill.execute(SCRIPT)
        mill.open()
        feed_rows(mill, "bid", [(1, 20, 1), (2, 30, 2)])
        mill.dispatcher.run_all()
        assert [_rows(mill, name) for name in ("slow", "dear", "counted")] == [[1, 2]] * 3
        feed_rows(mill, "bid", [(3, _STALLS, 3), (4, 5, 4)])
        began = time.process_time()
        mill.dispatcher.run_all()
        assert time.process_time() - began < 5
        assert "took more than 0.5 s of processor time for 2 rows" in (mill.queries["slow"].error or "")
        assert any(problem.startswith("slow stopped: one step took") for problem in problems(mill))
        assert _rows(mill, "slow") == [1, 2]
        assert _rows(mill, "dear") == [1, 2, 3]
        assert _rows(mill, "counted") == [1, 2, 3, 4]
        # A failed query does not compute its rows again when later rows arrive.
        feed_rows(mill, "bid", [(5, _STALLS, 5)])
        began = time.process_time()
        mill.dispatcher.run_all()
        assert time.process_time() - began < 1
        assert _rows(mill, "dear") == [1, 2, 3, 5]
        mill.execute("DROP QUERY slow")
        feed_rows(mill, "bid", [(6, 40, 6)])
        mill.dispatcher.run_all()
        assert _rows(mill, "dear") == [1, 2, 3, 5, 6]
        assert _rows(mill, "counted") == [1, 2, 3, 4, 5, 6]


def test_a_query_that_stalls_and_is_alone_is_stopped_at_once(tmp_path: Path) -> None:
    with fed_mill(tmp_path / "home", Clock(), inline_pool(1)) as mill:
        mill.execute(";".join(SCRIPT.split(";")[:2]))
        mill.open()
        feed_rows(mill, "bid", [(3, _STALLS, 3)])
        began = time.process_time()
        mill.dispatcher.run_all()
        assert time.process_time() - began < 5
        assert "took more than 0.5 s" in (mill.queries["slow"].error or "")


def test_a_step_that_takes_what_is_usual_goes_on(tmp_path: Path) -> None:
    with fed_mill(tmp_path / "home", Clock(), inline_pool(1)) as mill:
        mill.execute(SCRIPT)
        mill.open()
        feed_rows(mill, "bid", [(3, 500, 3)])
        mill.dispatcher.run_all()
        assert _rows(mill, "slow") == [3]


def test_a_limit_counts_from_the_begin_of_each_step_and_only_inside_steps() -> None:
    limit = StepLimit(0.6)

    def work(seconds: float) -> None:
        until = time.process_time() + seconds
        while time.process_time() < until:
            pass

    with limit.watching():
        for _ in range(2):
            limit.begin(0)
            work(0.5)
            limit.end()
        work(0.6)
        limit.begin(0)
        with pytest.raises(StepOverran):
            work(5)
        limit.end()
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGVTALRM) is signal.SIG_DFL


def test_what_takes_long_is_among_the_problems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = inline_pool(1)
    with fed_mill(tmp_path / "home", Clock(), pool) as mill:
        mill.execute(SCRIPT)
        mill.open()
        seen: list[list[str]] = []
        answer = pool._handlers[0]

        def slowly(message: object) -> object:
            monkeypatch.setattr(dispatcher, "STALLED_S", -1.0)
            seen.append(problems(mill))
            monkeypatch.setattr(dispatcher, "STALLED_S", 5.0)
            return answer(message)

        pool._handlers[0] = slowly
        feed_rows(mill, "bid", [(1, 20, 1)])
        mill.dispatcher.run_all()
        assert seen[0] == ["worker 0 has been reading bid for 0 s; what needs it waits"]
        assert any("has been computing" in one and "slow" in one for found in seen for one in found)
        assert problems(mill) == []
