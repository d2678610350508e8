"""The running tasks against asking every task, while rows arrive, tasks run and time goes on."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.api.mill import Mill
from slicemill.runtime.task_queue import Goal, RunningTasks
from slicemill.runtime.tasks import RunningTask
from slicemill.scheduling.statistics import BatchCost
from slicemill.testing import Clock, inline_pool
from slicemill.time import END
from support.engine import fed_mill, feed_rows, finish, watermarks

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


class Works:
    """A mill whose tasks run one by one, over streams that grow."""

    def __init__(self, folder: Path) -> None:
        self.clock = Clock(1)
        self.mill = fed_mill(folder, self.clock, inline_pool(1))
        self.mill.execute(SCRIPT)
        self.mill.open()
        self.tasks = self.mill.dispatcher.running.tasks
        self.renew()

    @property
    def running(self) -> RunningTasks:
        return self.mill.dispatcher.running

    def close(self) -> None:
        self.mill.close()

    def renew(self) -> None:
        self.mill.dispatcher.replace(self.tasks, {"plain": Goal(), "slid": Goal(2.0, 1.0)})

    def arrive(self, stream: str, rows: list[int]) -> None:
        feed_rows(self.mill, stream, [(x, self.clock.now) for x in rows])

    def run(self, task: RunningTask) -> None:
        dispatcher = self.mill.dispatcher
        with dispatcher.paused():
            dispatcher._send_runs({task: 1.0}, 1.0)
            dispatcher._wait_for_answers()

    def can_run(self, task: RunningTask) -> bool:
        """What the table says, by asking."""
        reached = {log: self.mill.dispatcher.watermark(log) for log in task.plan.task.inputs}
        held = any(all(reached[log] >= ts for log, ts in due.items()) for due in task.due)
        end = any(until == END and task.input_watermarks().get(log) != END for log, until in reached.items())
        return bool(task.pending()) or held or end

    def check(self) -> list[RunningTask]:
        now = self.clock.now
        self.running.refresh(now)
        positions, batches = self.running.ready(watermarks(self.mill), now)
        ready = [self.tasks[position] for position in positions]
        assert ready == [task for task in self.tasks if self.can_run(task)]
        for task, rows, wait in zip(ready, batches.rows, batches.wait, strict=True):
            pending = task.pending()
            assert rows == max(sum(epoch.rows for epoch in pending), 1)
            if pending:
                oldest = min(epoch.arrival_us for epoch in pending)
                assert wait >= (now - oldest) / SECOND
        return ready


steps = st.one_of(
    st.tuples(st.sampled_from(["a", "b"]), st.lists(st.integers(0, 9), max_size=3)),
    st.integers(0, 5),
    st.sampled_from(["time", "new table"]),
)


@given(st.lists(steps, max_size=20))
@settings(max_examples=15)
def test_the_table_knows_what_every_task_would_say(history: list[object]) -> None:
    with TemporaryDirectory() as folder, closing(Works(Path(folder))) as works:
        for step in [*history, "end", 0, 1, 2, 3, 4, 5]:
            works.clock.now += SECOND // 2
            if isinstance(step, tuple):
                works.arrive(*step)
            elif isinstance(step, int):
                ready = works.check()
                if ready:
                    works.run(ready[step % len(ready)])
            elif step == "end":
                works.mill.dispatcher.end_streams()
            elif step == "new table":
                works.renew()
            works.check()


def test_weights_deadlines_and_levels_are_those_of_the_queries(tmp_path: Path) -> None:
    with closing(Works(tmp_path)) as works:
        works.arrive("a", [1, 5, 9])
        works.clock.now += 3 * SECOND
        works.check()
        positions, batches = works.running.ready(watermarks(works.mill), works.clock.now)
        by_name = {works.tasks[position].id: index for index, position in enumerate(positions)}
        plain, slid = (by_name[works.running.writers[name].id] for name in ("plain", "slid"))
        assert batches.figures.weight[positions[[plain, slid]]].tolist() == [1, 2]
        assert batches.wait[slid] == pytest.approx(3)
        assert batches.slack[slid] == pytest.approx(1 - 3)
        assert np.isinf(batches.slack[plain])
        works.clock.now += SECOND
        works.running.refresh(works.clock.now)
        # Three rows since they arrived, for all of the four seconds that the table is old.
        assert works.running.rows_waiting(works.running.writers["slid"].id) == (
            3,
            pytest.approx(3, rel=1e-3),
            3,
        )


def test_a_run_takes_no_more_than_a_quantum_while_another_task_waits(tmp_path: Path) -> None:
    with closing(Works(tmp_path)) as works:
        plain, slid = (works.running.writers[name] for name in ("plain", "slid"))
        for task in (plain, slid):
            task.statistics.cost = BatchCost(overhead=0.001, per_row=0.005)
        works.renew()
        for number in range(9):
            works.arrive("a", [number])
            works.clock.now += SECOND
        assert works.mill.dispatcher.quantum_s == 0.02
        works.mill.dispatcher.run_some()
        assert [len(task.pending()) for task in (plain, slid)] == [6, 6], "1 + 3 · 5 ms fit into 20 ms"
        works.mill.dispatcher.run_all()
        assert not plain.pending() and not slid.pending()


def test_a_task_that_waits_alone_takes_all(tmp_path: Path) -> None:
    with closing(Works(tmp_path)) as works:
        later = works.running.writers["both"]
        later.statistics.cost = BatchCost(overhead=0.001, per_row=0.005)
        works.renew()
        for number in range(9):
            works.arrive("b", [number])
        works.mill.dispatcher.run_some()
        assert not later.pending()


WINDOWS = """
CREATE STREAM a (x int, ts timestamp) ORDER BY ts;
CREATE STREAM b (x int, ts timestamp) ORDER BY ts;
CREATE QUERY often AS SELECT count(*) AS n FROM a [RANGE 10 SECONDS SLIDE 10 SECONDS];
CREATE STREAM sums AS SELECT x, sum(x) OVER (PARTITION BY x ROWS 2 PRECEDING) AS s FROM b;
CREATE QUERY seldom WITH (slo = 'p99 < 5 s') AS
  SELECT sum(s) AS n FROM sums [RANGE 60 SECONDS SLIDE 60 SECONDS];
CREATE QUERY plain WITH (slo = 'p99 < 40 s') AS SELECT x FROM b WHERE x > 3;
"""


def slacks(mill: Mill) -> dict[str, float]:
    """By one of its logs, how long each task that could run has until its deadline."""
    running, now = mill.dispatcher.running, mill.dispatcher._clock()
    running.refresh(now)
    positions, batches = running.ready(watermarks(mill), now)
    names = [running.tasks[position].plan.task.outputs[0][1] for position in positions]
    return dict(zip(names, batches.slack.tolist(), strict=True))


def test_the_end_of_a_window_is_its_deadline_and_that_of_who_feeds_it(tmp_path: Path) -> None:
    """P24: not the arrival of its rows. A service level counts from there."""
    clock = Clock(1_000 * SECOND)
    with fed_mill(tmp_path, clock, inline_pool(1)) as mill:
        mill.execute(WINDOWS)
        mill.open()
        for stream in ("a", "b"):
            feed_rows(mill, stream, [(5, clock.now), (6, clock.now + 1)])
        mill.dispatcher.run_all()
        clock.now += 4 * SECOND
        for stream in ("a", "b"):
            feed_rows(mill, stream, [(7, clock.now)])
        mill.dispatcher.admit_handed()
        found = slacks(mill)
        # `often` ends at 1010, `seldom` at 1020, and has five seconds more; rows of `plain` have 40 each.
        assert found["often"] == pytest.approx(6, abs=1e-3)
        assert found["sums"] == pytest.approx(16 + 5, abs=1e-3)
        assert found["plain"] == pytest.approx(40, abs=1e-3)
        mill.dispatcher.chooser.set_policy("edf")
        first = [task.plan.task.outputs[0][1] for task in mill.dispatcher._ranked()]
        assert first == ["often", "sums", "plain"]
        clock.now += 7 * SECOND  # the window of `often` has ended, and its result is late
        assert slacks(mill)["often"] == pytest.approx(-1, abs=1e-3)


def test_a_task_that_runs_is_not_ready(tmp_path: Path) -> None:
    with closing(Works(tmp_path)) as works:
        works.arrive("a", [1, 5, 9])
        (first, *others) = works.check()
        works.running.began(first)
        assert [works.tasks[p] for p in works.running.ready(watermarks(works.mill), 2)[0]] == others
        works.running.ran(first, 2)
        assert works.check() == [first, *others]


def test_what_was_shed_does_not_count_for_the_policy(tmp_path: Path) -> None:
    """P38: shedder and policy see one load. Of forty rows a task that sheds half will take twenty."""
    with closing(Works(tmp_path)) as works:
        works.arrive("a", [5] * 40)
        (task, *_) = works.check()
        index = works.running.position[task.id]
        for share, rows in ((1.0, 40), (0.5, 20), (0.001, 1)):
            task.kept_share = share
            works.running.ran(task, 2)
            positions, batches = works.running.ready(watermarks(works.mill), 2)
            assert batches.rows[positions.tolist().index(index)] == rows
        assert works.running.rows[index] == 40, "all of them wait, and the shedder counts them"


def test_rows_of_the_rarer_side_of_a_join_count_for_more(tmp_path: Path) -> None:
    """P23: both sides make as many pairs, so each of two rows brings more than each of eight."""
    clock = Clock(SECOND)
    with fed_mill(tmp_path, clock, inline_pool(1)) as mill:
        mill.execute("""
            CREATE STREAM l (k int, ts timestamp) ORDER BY ts;
            CREATE STREAM r (k int, ts timestamp) ORDER BY ts;
            CREATE QUERY j AS SELECT l.k FROM l [RANGE 10 SECONDS], r [RANGE 10 SECONDS] WHERE l.k = r.k;
        """)
        mill.open()
        for _ in range(4):
            clock.now += SECOND
            feed_rows(mill, "l", [(1, clock.now)] * 2)
            feed_rows(mill, "r", [(1, clock.now)] * 8)
            mill.dispatcher.run_all()
        clock.now += SECOND
        running = mill.dispatcher.running

        def worth(stream: str) -> float:
            feed_rows(mill, stream, [(1, clock.now)])
            mill.dispatcher.admit_handed()
            running.refresh(clock.now)
            return float(running.ready(watermarks(mill), clock.now)[1].worth[0])

        assert worth("l") == pytest.approx(10 / (2 * 2))
        assert worth("r") == pytest.approx(10 / (2 * 2) + 10 / (2 * 8))


def test_time_passes_over_a_derived_stream_that_no_row_comes_through(tmp_path: Path) -> None:
    """M23: rows of `t` waited for one that passes the filter of `d`, however far `s` had come."""
    clock = Clock(1_000_000)
    with fed_mill(tmp_path, clock, inline_pool(1)) as mill:
        mill.execute("""
            CREATE STREAM s (x int, ts timestamp) ORDER BY ts;
            CREATE STREAM t (x int, ts timestamp) ORDER BY ts;
            CREATE STREAM d AS
              SELECT x, sum(x) OVER (PARTITION BY x ROWS 2 PRECEDING) AS y FROM s WHERE x > 100;
            CREATE STREAM u AS SELECT x FROM d UNION ALL SELECT x FROM t;
            CREATE QUERY q AS SELECT x FROM u;
        """)
        mill.open()
        for number in range(1, 5):
            clock.now += 1_000_000
            feed_rows(mill, "s", [(500 if number == 1 else 5, clock.now)])
            feed_rows(mill, "t", [(number, clock.now)])
            mill.dispatcher.run_all()
            # The last one of `t` may still have one of `s` at the same time before it.
            assert {row[0] for _, row in mill.queries["q"].timed_rows()} >= {500, *range(1, number)}
        finish(mill)
        assert [row[0] for _, row in mill.queries["q"].timed_rows()] == [500, 1, 2, 3, 4]
