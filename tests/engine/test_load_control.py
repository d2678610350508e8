"""Load that a query allows to be shed: who has no budget loses nothing, whole windows are exact."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slicemill.runtime.load_control import LoadControl
from slicemill.shedding.accuracy import AccuracyReport
from slicemill.shedding.load import Backlog, SheddingDecision
from slicemill.storage.log import Epoch
from slicemill.testing import Clock, inline_pool
from support.engine import fed_mill, feed_rows, finish

STREAM = "CREATE STREAM s (k int, v int, ts timestamp) ORDER BY ts;"
SECOND = 1_000_000
SELECTION = "SELECT k, v FROM s"
GROUPS = "SELECT k, count(*) AS n, sum(v) AS total FROM s [RANGE 2 SECONDS SLIDE 1 SECOND] GROUP BY k"
# Sixty batches of a second each, with ten tuples.
BATCHES = [[(i % 3, (i * 37) % 10, (10 * b + i) * SECOND // 10) for i in range(10)] for b in range(60)]


class Works:
    """A mill that runs its tasks `wait_s` after a batch has arrived; all that waits would take ten times as
    long."""

    made: ClassVar[list[Works]] = []

    def __init__(self, folder: Path, script: str, subtasks: int = 2) -> None:
        self.script = STREAM + script
        self.folder = folder
        self.subtasks = subtasks
        self.clock = Clock(SECOND)
        self.open()
        self.made.append(self)

    def open(self) -> None:
        self.mill = fed_mill(self.folder, self.clock, inline_pool(), self.subtasks)
        self.mill.execute(self.script)
        self.mill.open()
        self.tasks = self.mill.dispatcher.running.tasks

    def restart(self) -> None:
        """As after a crash: what was in memory only is gone."""
        self.mill.close(checkpoint=False)
        self.open()

    def arrive(self, rows: list[tuple[int, int, int]], wait_s: float) -> None:
        feed_rows(self.mill, "s", rows)
        self.clock.now += round(wait_s * SECOND)
        with mock.patch.object(self.mill.dispatcher.running, "backlog", lambda _: Backlog(0.0, 10 * wait_s)):
            self.mill.dispatcher.run_all()
        assert not any(task.failed for task in self.tasks)

    def end(self) -> None:
        finish(self.mill)

    def rows(self, query: str) -> Counter[tuple[object, ...]]:
        return Counter((timed.ts, *timed.row) for timed in self.mill.queries[query].timed_rows())

    def shed(self) -> AccuracyReport:
        (found,) = [report for task in self.tasks for report in task.sheds.values()]
        return found


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """What a test has opened is closed after it."""
    yield
    while Works.made:
        Works.made.pop().mill.close()


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


def test_what_each_input_loses_is_counted(tmp_path: Path) -> None:
    both = "SELECT v FROM s UNION ALL SELECT v FROM t"
    works = Works(tmp_path, STREAM.replace(" s ", " t ") + with_budget(", keep = 0.3", both))
    for batch in BATCHES[:20]:
        feed_rows(works.mill, "t", batch)
        works.arrive(batch, 5)
    works.end()
    lost = works.rows("exact").total() - works.rows("shed").total()
    found = works.mill.queries["shed"].measured().shed
    assert found is not None
    assert 0 < lost == found.dropped
    assert found.arrived == 400


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
            works.restart()
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
    assert sorted(len(task.plan.task.outputs) for task in works.tasks) == [1, 1, 2]
    for batch in BATCHES:
        works.arrive(batch, 5)
    assert works.rows("one").total() < works.rows("exact").total() or works.rows("one") != works.rows("exact")


def test_state_is_kept_within_its_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Bytes are else counted twice a second at most, and this takes less.
    monkeypatch.setattr("slicemill.runtime.worker._COUNT_BYTES_S", 0.0)
    monkeypatch.setattr("slicemill.runtime.worker._RUNS_PER_COUNT", 0)
    window = "s [RANGE 30 SECONDS]"
    pairs = f"SELECT A.v FROM {window} AS A, {window} AS B WHERE A.k = B.k AND A.v = B.v"
    script = f"CREATE QUERY shed WITH (memory = '40 KB') AS {pairs}; CREATE QUERY exact AS {pairs};"
    works = Works(tmp_path, script, subtasks=1)
    most = {"shed": 0, "exact": 0}
    for batch in BATCHES:
        works.arrive(sorted(batch * 5, key=lambda row: row[2]), 0.1)
        for task in works.tasks:
            (log,) = [log for _, log in task.plan.task.outputs]
            most[log] = max(most[log], task.state_bytes)
    assert most["shed"] < 60_000 < most["exact"]
    assert works.shed().dropped > 0


def test_old_pairs_are_not_looked_for_under_load(tmp_path: Path) -> None:
    """State stays whole: when the load is over, all pairs come again (S55)."""
    window = "s [RANGE 10 SECONDS]"
    pairs = f"SELECT A.v AS a, B.v AS b FROM {window} AS A, {window} AS B WHERE A.k = B.k"
    works = Works(tmp_path, with_budget(", keep = 0.2, shedding = 'age'", pairs))
    assert len(works.tasks) == 1, "they share one chain of slices all the same"
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


AGED = """
CREATE STREAM t (k int, v int, ts timestamp) ORDER BY ts;
CREATE QUERY exact AS
  SELECT s.v AS a, t.v AS b FROM s [RANGE 10 SECONDS], t [RANGE 6 SECONDS] WHERE s.k = t.k;
CREATE QUERY shed WITH (lag = '2 s', shedding = 'age') AS
  SELECT s.v AS a, t.v AS b FROM s [RANGE 8 SECONDS], t [RANGE 6 SECONDS] WHERE s.k = t.k;
"""


# Of three streams, and of two in the same node: the last one gives up nothing, and shares their states.
AGED_MANY = """
CREATE STREAM t (k int, v int, ts timestamp) ORDER BY ts;
CREATE STREAM u (k int, v int, ts timestamp) ORDER BY ts;
CREATE QUERY shed WITH (lag = '2 s', shedding = 'age') AS
  SELECT s.v AS a, t.v AS b, u.v AS c FROM s [RANGE 2 SECONDS], t [RANGE 3 SECONDS], u [RANGE 1 SECOND]
  WHERE s.k = t.k AND t.k = u.k;
CREATE QUERY exact AS
  SELECT s.v AS a, t.v AS b FROM s [RANGE 1 SECONDS], t [RANGE 2 SECONDS] WHERE s.k = t.k;
"""


@pytest.mark.slow_cpu
@settings(max_examples=8)
@given(
    st.lists(st.tuples(st.floats(0.05, 1.0), st.integers(1, 3)), min_size=1, max_size=8),
    st.integers(2, 6),
    st.sampled_from([AGED, AGED_MANY]),
)
@example([(0.3, 2), (0.6, 3), (1.0, 1)], 3, AGED_MANY)
def test_the_same_pairs_are_given_up_in_however_many_subtasks(
    decisions: list[tuple[float, int]], subtasks: int, script: str
) -> None:
    """A shedding decision applies to all subtasks of a task (S55)."""

    def run(folder: Path, subtasks: int) -> list[list[tuple[Any, ...]]]:
        shares = iter(share for share, _ in decisions)

        def decide(load: LoadControl, *_: object) -> dict[str, SheddingDecision]:
            share = next(shares, 1.0)
            return {node: SheddingDecision(share, reach=share) for node in load._controllers}

        with mock.patch.object(LoadControl, "decide", decide):
            works = Works(folder, script, subtasks)
            (task,) = works.tasks
            assert task.subtasks == subtasks
            batches = iter(BATCHES)
            for _, count in decisions:
                for batch in (next(batches) for _ in range(count)):
                    feed_rows(works.mill, "s", batch)
                    for number, name in enumerate(task.plan.task.inputs):
                        if name != "s":
                            feed_rows(works.mill, name, [(k, v + 100 * number, ts) for k, v, ts in batch])
                works.mill.dispatcher.run_all()
            finish(works.mill)
            reports = [(report.arrived, report.accuracy) for report in task.sheds.values()]
            found = [
                [(t.ts, *t.row) for t in works.mill.queries[name].timed_rows()] for name in ("exact", "shed")
            ]
            works.mill.close()
            return [*found, reports]

    with TemporaryDirectory() as one, TemporaryDirectory() as many:
        alone, together = run(Path(one), 1), run(Path(many), subtasks)
    assert together[:2] == alone[:2]
    assert np.allclose(together[2], alone[2])


def test_the_reach_follows_what_was_compared(tmp_path: Path) -> None:
    """Most comparisons are with the youngest rows: little of the windows is most of the work (S54)."""
    works = Works(tmp_path, AGED, subtasks=3)
    (task,) = works.tasks
    for number, batch in enumerate(BATCHES[:40]):
        # A key lives for two seconds: only young rows are compared.
        rows = [(number // 2, v, ts) for _, v, ts in batch]
        feed_rows(works.mill, "s", rows)
        feed_rows(works.mill, "t", rows)
        works.mill.dispatcher.run_all()
    waiting = [Epoch(0, (), 10, 100, 0, 0, 0)]
    decided = task._load.decide({"s": waiting}, 0, Backlog(0.0, 100.0), 10 * SECOND)
    (found,) = [dropping for dropping in decided.values() if dropping.share < 1]
    assert found.share < 0.2
    assert 0 < found.reach < 0.5 * found.share
