"""The board against asking every unit, while rows arrive, units run and time goes on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.engine.board import Board, Goal
from slicemill.engine.program import UnitPlan
from slicemill.engine.steps import END
from slicemill.engine.task import run_task
from slicemill.engine.unit_run import RunningUnit, open_outputs
from slicemill.esl import bind
from slicemill.ingest.intake import packed
from slicemill.plan.build import build_graph
from slicemill.plan.units import cut
from slicemill.storage.home import Home

SCRIPT = """
CREATE STREAM a (x int, ts timestamp) ORDER BY ts;
CREATE STREAM b (x int, ts timestamp) ORDER BY ts;
CREATE QUERY plain AS SELECT x FROM a WHERE x > 3;
CREATE QUERY slid WITH (weight = 2) AS
  SELECT x, count(*) AS n FROM a [RANGE 5 SECONDS SLIDE 1 SECOND] GROUP BY x;
CREATE STREAM both AS SELECT x FROM a UNION ALL SELECT x FROM b;
CREATE QUERY later AS SELECT x FROM both WHERE x > 5;
"""
SECOND = 1_000_000


@dataclass(frozen=True)
class Plan:
    value: bytes


class Works:
    """Units whose tasks run here, over logs that grow."""

    def __init__(self, folder: Path) -> None:
        catalog = bind(SCRIPT).catalog
        graph = build_graph(catalog)
        self.home = Home(folder)
        self.inputs = {name: self.home.log(name, catalog.declared_stream(name).schema) for name in ("a", "b")}
        self.units = []
        for unit in cut(graph):
            plan = UnitPlan(unit, graph, catalog, {})
            open_outputs(plan, self.home)
            start = {log: self.home.logs[log].head for log in unit.inputs}
            self.units.append(RunningUnit(plan, self.home, start))
        self.now = 1
        self.ended = False
        self.board = Board(self.units, self.home.logs, {"plain": Goal(), "slid": Goal(2.0, 1.0)}, self.now)

    def arrive(self, stream: str, rows: list[int]) -> None:
        log = self.inputs[stream]
        table = pa.Table.from_pylist([{"x": x, "ts": self.now} for x in rows], log.columns)
        log.append(f"test:{self.now}", [log.write(packed(table, "ts"))], self.now)

    def complete(self, log: str) -> int:
        if log in self.inputs:
            return END if self.ended else self.now
        return next(
            unit for unit in self.units if any(log == out for _, out in unit.plan.unit.outputs)
        ).complete(log)

    def run(self, unit: RunningUnit) -> None:
        run = unit.begin({log: self.complete(log) for log in unit.plan.unit.inputs}, self.now)
        results = [run_task(task, {unit.digest: Plan(unit.pickled)}) for task in run.tasks]
        unit.finish(run, results, self.now, seconds=0.01)
        self.board.ran(unit, self.now)

    def can_run(self, unit: RunningUnit) -> bool:
        """What the board says, by asking."""
        reached = {log: self.complete(log) for log in unit.plan.unit.inputs}
        held = unit.due is not None and min(reached.values()) >= unit.due
        end = any(until == END and unit.told().get(log) != END for log, until in reached.items())
        return bool(unit.pending()) or held or end

    def check(self) -> list[RunningUnit]:
        self.board.refresh(self.now)
        positions, batches = self.board.ready(self.complete, self.now)
        ready = [self.units[position] for position in positions]
        assert ready == [unit for unit in self.units if self.can_run(unit)]
        for unit, rows, wait in zip(ready, batches.rows, batches.wait, strict=True):
            pending = unit.pending()
            assert rows == max(sum(epoch.rows for epoch in pending), 1)
            if pending:
                oldest = min(epoch.arrival_us for epoch in pending)
                assert wait >= (self.now - oldest) / SECOND
        return ready


steps = st.one_of(
    st.tuples(st.sampled_from(["a", "b"]), st.lists(st.integers(0, 9), max_size=3)),
    st.integers(0, 5),
    st.sampled_from(["time", "new board"]),
)


@given(st.lists(steps, max_size=20))
@settings(max_examples=15)
def test_the_board_knows_what_every_unit_would_say(history: list[object]) -> None:
    with TemporaryDirectory() as folder:
        works = Works(Path(folder))
        for step in [*history, "end", 0, 1, 2, 3, 4, 5]:
            works.now += SECOND // 2
            if isinstance(step, tuple):
                works.arrive(*step)
            elif isinstance(step, int):
                ready = works.check()
                if ready:
                    works.run(ready[step % len(ready)])
            elif step == "end":
                works.ended = True
            elif step == "new board":
                goals = {"plain": Goal(), "slid": Goal(2.0, 1.0)}
                works.board = Board(works.units, works.home.logs, goals, works.now, works.board)
            works.check()


def test_weights_deadlines_and_levels_are_those_of_the_queries(tmp_path: Path) -> None:
    works = Works(tmp_path)
    works.arrive("a", [1, 5, 9])
    works.now += 3 * SECOND
    works.check()
    positions, batches = works.board.ready(works.complete, works.now)
    by_name = {works.units[position].id: place for place, position in enumerate(positions)}
    plain, slid = by_name["select from a"], by_name["slid"]
    assert batches.weight[[plain, slid]].tolist() == [1, 2]
    assert batches.wait[slid] == pytest.approx(3)
    assert batches.slack[slid] == pytest.approx(1 - 3)
    assert np.isinf(batches.slack[plain])
    works.now += SECOND
    works.board.refresh(works.now)
    # Three rows since they arrived, for all of the four seconds that the board is old.
    assert works.board.rows_waiting("slid") == (3, pytest.approx(3, rel=1e-3), 3)
