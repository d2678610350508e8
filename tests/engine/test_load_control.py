"""Load that a query allows to be shed: who has no budget loses nothing, whole windows are exact."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from slicemill.engine.program import UnitPlan
from slicemill.engine.rows import timed_rows
from slicemill.engine.steps import END
from slicemill.engine.task import run_task
from slicemill.engine.unit_run import RunningUnit, open_outputs
from slicemill.esl import bind
from slicemill.ingest.intake import packed
from slicemill.plan.build import build_graph
from slicemill.plan.optimize import optimize, share
from slicemill.plan.units import cut
from slicemill.shedding.control import Backlog
from slicemill.shedding.report import Report
from slicemill.storage.home import Home

STREAM = "CREATE STREAM s (k int, v int, ts timestamp) ORDER BY ts;"
SECOND = 1_000_000
SELECTION = "SELECT k, v FROM s"
GROUPS = "SELECT k, count(*) AS n, sum(v) AS total FROM s [RANGE 2 SECONDS SLIDE 1 SECOND] GROUP BY k"
# Sixty batches of a second each, with ten tuples.
BATCHES = [[(i % 3, (i * 37) % 10, (10 * b + i) * SECOND // 10) for i in range(10)] for b in range(60)]


@dataclass(frozen=True)
class Plan:
    value: bytes


class Works:
    """The units of a script, run here: `wait_s` after it has arrived, each batch.

    All that waits would take ten times as long.
    """

    def __init__(self, folder: Path, script: str, buckets: int = 2) -> None:
        self.catalog = bind(STREAM + script).catalog
        self.graph = share(optimize(build_graph(self.catalog)), self.catalog)
        self.folder = folder
        self.buckets = buckets
        self.now = 0
        self.open()

    def open(self) -> None:
        """As after a restart."""
        self.home = Home(self.folder)
        self.log = self.home.log("s", self.catalog.declared_stream("s").schema)
        self.units = []
        for unit in cut(self.graph):
            plan = UnitPlan(unit, self.graph, self.catalog, {}, self.buckets)
            open_outputs(plan, self.home)
            self.units.append(RunningUnit(plan, self.home, {"s": -1}))

    def arrive(self, rows: list[tuple[int, int, int]], wait_s: float, complete: int | None = None) -> None:
        table = pa.Table.from_pylist([{"k": k, "v": v, "ts": ts} for k, v, ts in rows], self.log.columns)
        if rows:
            self.log.append(f"test:{self.now}", [self.log.write(packed(table, "ts"))], self.now)
        self.now += round(wait_s * SECOND)
        for unit in self.units:
            until = rows[-1][2] if complete is None else complete
            run = unit.begin({"s": until}, self.now, Backlog(0.0, 10 * wait_s))
            results = [run_task(task, {unit.digest: Plan(unit.pickled)}) for task in run.tasks]
            unit.finish(run, results, self.now, seconds=0.01)
            assert not unit.failed

    def end(self) -> None:
        self.arrive([], 0, END)

    def rows(self, query: str) -> Counter[tuple[object, ...]]:
        log = self.home.logs[query]
        schema = self.catalog.queries[query].schema
        tables = [log.read(epoch.number) for epoch in log.epochs(after=-1)]
        return Counter((row.ts, *row.row) for table in tables for row in timed_rows(table, schema))

    def shed(self) -> Report:
        (found,) = [report for unit in self.units for report in unit.sheds.values()]
        return found


def with_budget(options: str, query: str) -> str:
    return f"CREATE QUERY exact AS {query}; CREATE QUERY shed WITH (lag = '2 s'{options}) AS {query};"


@pytest.mark.parametrize("query", [SELECTION, GROUPS])
@pytest.mark.parametrize("options", ["", ", utility = 'v'"])
def test_without_load_nothing_is_dropped(tmp_path: Path, query: str, options: str) -> None:
    works = Works(tmp_path, with_budget(options, query))
    for batch in BATCHES:
        works.arrive(batch, 0.1)
    works.end()
    assert works.rows("shed") == works.rows("exact")
    assert (works.shed().arrived, works.shed().dropped, works.shed().accuracy) == (600, 0, 1.0)


def test_tuples_are_dropped_at_random_and_counted(tmp_path: Path) -> None:
    works = Works(tmp_path, with_budget(", keep = 0.3", SELECTION))
    for batch in BATCHES:
        works.arrive(batch, 5)
    shed, exact = works.rows("shed"), works.rows("exact")
    assert exact.total() == 600
    assert shed <= exact
    assert shed.total() == 600 - works.shed().dropped
    assert 130 < shed.total() < 260
    assert works.shed().accuracy == pytest.approx(shed.total() / 600)


def test_what_is_useful_stays(tmp_path: Path) -> None:
    works = Works(tmp_path, with_budget(", keep = 0.4, utility = 'v % 5 = 0'", SELECTION))
    for batch in BATCHES:
        works.arrive(batch, 5)
    kept, exact = works.rows("shed"), works.rows("exact")
    useful = Counter({row: n for row, n in exact.items() if int(str(row[2])) % 5 == 0})
    # Two of ten are; four of ten stay at least.
    assert useful <= kept
    assert kept.total() < 400


@pytest.mark.parametrize("restarts", [False, True])
def test_whole_windows_are_exact(tmp_path: Path, restarts: bool) -> None:
    works = Works(tmp_path, with_budget(", keep = 0.5, shedding = 'windows'", GROUPS))
    for number, batch in enumerate(BATCHES):
        works.arrive(batch, 5)
        if restarts and number % 7 == 3:
            works.open()
    works.end()
    shed, exact = works.rows("shed"), works.rows("exact")
    assert shed <= exact, "a window of which something was dropped has reported"
    ends = {row[0] for row in shed}
    assert shed == Counter({row: n for row, n in exact.items() if row[0] in ends}), "a group is missing"
    assert 15 < len(ends) < 50
    assert works.shed().dropped > 150


def test_queries_of_one_budget_share_behind_one_box(tmp_path: Path) -> None:
    script = f"""
      CREATE QUERY one WITH (lag = '2 s') AS {GROUPS};
      CREATE QUERY two WITH (lag = '2 s') AS {GROUPS.replace("RANGE 2", "RANGE 5")};
      CREATE QUERY other WITH (lag = '3 s') AS {GROUPS};
      CREATE QUERY exact AS {GROUPS};
    """
    works = Works(tmp_path, script)
    assert sorted(len(unit.plan.unit.outputs) for unit in works.units) == [1, 1, 2]
    for batch in BATCHES:
        works.arrive(batch, 5)
    assert works.rows("one").total() < works.rows("exact").total() or works.rows("one") != works.rows("exact")


def test_state_is_kept_within_its_memory(tmp_path: Path) -> None:
    window = "s [RANGE 30 SECONDS]"
    pairs = f"SELECT A.v FROM {window} AS A, {window} AS B WHERE A.k = B.k AND A.v = B.v"
    script = f"CREATE QUERY shed WITH (memory = '40 KB') AS {pairs}; CREATE QUERY exact AS {pairs};"
    works = Works(tmp_path, script, buckets=1)
    most = {"shed": 0, "exact": 0}
    for batch in BATCHES:
        works.arrive(batch * 5, 0.1)
        for unit in works.units:
            (log,) = [log for _, log in unit.plan.unit.outputs]
            most[log] = max(most[log], sum(part.chunk.bytes for part in unit.version.slices))
    assert most["shed"] < 60_000 < most["exact"]
    assert works.shed().dropped > 0


def test_old_pairs_are_not_looked_for_under_load(tmp_path: Path) -> None:
    """State stays whole: when the load is over, all pairs come again (S55)."""
    window = "s [RANGE 10 SECONDS]"
    pairs = f"SELECT A.v AS a, B.v AS b FROM {window} AS A, {window} AS B WHERE A.k = B.k"
    works = Works(tmp_path, with_budget(", keep = 0.2, shedding = 'age'", pairs))
    assert len(works.units) == 1, "they share one chain of slices all the same"
    loaded, calm = 30 * SECOND, 45 * SECOND
    for batch in BATCHES:
        works.arrive(batch, 5 if batch[0][2] < loaded else 0.1)
    shed, exact = works.rows("shed"), works.rows("exact")
    assert shed <= exact
    at = {name: Counter(row[0] for row in found.elements()) for name, found in (("s", shed), ("e", exact))}
    for ts in at["e"]:
        share = at["s"][ts] / at["e"][ts]
        if 20 * SECOND < int(str(ts)) < loaded:
            assert share == pytest.approx(0.2, abs=0.1)
        elif int(str(ts)) > calm:
            assert share == 1.0
    assert works.shed().accuracy < 0.8
