"""Code is compiled beside what runs already."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from slicemill.engine import warming
from slicemill.engine.mill import Mill
from slicemill.engine.program import UnitPlan
from slicemill.time import wall_clock_us
from support.engine import fed_mill, inline_pool, rows_as_table

SCRIPT = """
CREATE STREAM s (k int, ts timestamp) ORDER BY ts;
CREATE QUERY plain AS SELECT k FROM s;
CREATE QUERY counted AS SELECT k, count(*) OVER (PARTITION BY k ROWS 9 PRECEDING) AS n FROM s;
"""
PATIENCE_S = 60.0


def wait_for_rows(mill: Mill, query: str) -> None:
    with mill.dispatcher.changed:
        assert mill.dispatcher.changed.wait_for(lambda: mill.queries[query].log.rows == 1, PATIENCE_S)


def test_a_query_does_not_wait_for_the_code_of_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    released = threading.Event()
    compiled: list[str] = []

    def slowly(plan: UnitPlan) -> None:
        if plan.unit.stateful:
            assert released.wait(PATIENCE_S)
        compiled.append(plan.unit.id)

    monkeypatch.setattr(warming, "warm_up", slowly)
    with fed_mill(tmp_path, wall_clock_us, inline_pool()) as mill:
        mill.execute(SCRIPT)
        mill.start()
        mill.feed("s", rows_as_table(mill, "s", [(1, 1)]))
        wait_for_rows(mill, "plain")
        assert not mill.queries["counted"].log.rows
        released.set()
        wait_for_rows(mill, "counted")
        assert len(compiled) == 2


def test_a_mill_that_stops_does_not_wait_for_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    released = threading.Event()
    monkeypatch.setattr(warming, "warm_up", lambda _: released.wait(PATIENCE_S))
    with fed_mill(tmp_path, wall_clock_us, inline_pool()) as mill:
        mill.execute(SCRIPT)
        mill.start()
        mill.feed("s", rows_as_table(mill, "s", [(1, 1)]))
        mill.drain()
        assert [mill.queries[name].log.rows for name in ("plain", "counted")] == [1, 1]
    released.set()
