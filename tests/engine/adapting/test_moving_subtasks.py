"""Cells move between workers, and workers come and go: nothing of it is seen in the results."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.api.mill import Mill
from slicemill.errors import SlicemillError
from slicemill.runtime.messages import CheckpointTask, Forget, Message, RunDone, RunTask
from slicemill.runtime.workers.events import WorkerAnswer
from slicemill.runtime.workers.inline import InlinePool
from slicemill.runtime.workers.sharing import HANDLER, stop_idle
from slicemill.scheduling.balance import Move
from slicemill.testing import Clock, open_mill
from slicemill.time import SECOND_US
from support.engine import feed_rows, finish, results_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCRIPT = """
CREATE STREAM a (k int, v int, ts timestamp micros) ORDER BY ts;
CREATE STREAM b (k int, w int, ts timestamp micros) ORDER BY ts;
CREATE QUERY pairs AS SELECT a.k, a.v, b.w FROM a [RANGE 40 MICROSECONDS], b [RANGE 20 MICROSECONDS]
  WHERE a.k = b.k;
CREATE QUERY sums AS SELECT k, sum(v) OVER (PARTITION BY k ROWS 9 PRECEDING) AS s FROM a;
CREATE QUERY some AS SELECT k, v FROM a WHERE v > 50;
"""


class CostlyPool(InlinePool):
    """Workers in this process whose runs take as long as a test says; what they are sent is kept."""

    def __init__(self, workers: int) -> None:
        super().__init__(workers, HANDLER)
        self.cost_s: Callable[[RunDone], float] | None = None
        self.sent: list[tuple[int, Message]] = []

    def send(self, worker: int, message: object) -> None:
        assert isinstance(message, Message)
        self.sent.append((worker, message))
        super().send(worker, message)

    def answered(self, answer: WorkerAnswer, message: object) -> WorkerAnswer | None:
        if self.cost_s is None or not isinstance(answer.message, tuple):
            return answer
        told = tuple(
            replace(done, cpu_s=self.cost_s(done)) if isinstance(done, RunDone) else done
            for done in answer.message
        )
        return replace(answer, message=told)

    def runs_of(self, task: str) -> list[tuple[int, RunTask]]:
        return [
            (worker, item)
            for worker, message in self.sent
            for item in message.items
            if isinstance(item, RunTask) and item.task == task
        ]


def opened(home: Path, pool: InlinePool, subtasks: int, clock: Clock) -> Mill:
    mill = open_mill(home=home, pool=pool, clock=clock, subtasks=subtasks, read_sources=False)
    mill.execute(SCRIPT)
    mill.open()
    return mill


def feed(mill: Mill, chooser: random.Random, since: int, count: int) -> None:
    for stream in ("a", "b"):
        rows = [(chooser.randrange(8), chooser.randrange(100), since + i) for i in range(count)]
        feed_rows(mill, stream, rows)


def task_of(mill: Mill, query: str) -> str:
    return mill.dispatcher.running.writers[query].id


@settings(max_examples=12)
@given(
    st.integers(0, 2**32),
    st.integers(2, 5),
    st.lists(
        st.sampled_from(["move", "at once", "lose", "workers", "checkpoint", "restart", "feed"]), max_size=25
    ),
)
def test_results_are_those_of_one_subtask_on_one_worker(seed: int, subtasks: int, steps: list[str]) -> None:
    def run(subtasks: int, workers: int, *, disturbed: bool) -> dict[str, list[object]]:
        chooser, disturber = random.Random(seed), random.Random(seed)
        clock, since = Clock(), 0
        with TemporaryDirectory() as folder:
            pool = CostlyPool(workers)
            mill = opened(Path(folder), pool, subtasks, clock)
            try:
                for step in ["feed", *steps, "feed"]:
                    if step == "feed":
                        feed(mill, chooser, since, 20)
                        since += 20
                        mill.dispatcher.run_all()
                    elif disturbed and step in ("move", "at once"):
                        subtask = (
                            task_of(mill, disturber.choice(["pairs", "sums"])),
                            disturber.randrange(subtasks),
                        )
                        worker = disturber.randrange(4)
                        mill.dispatcher.balancing.request(Move(subtask, worker, at_once=step == "at once"))
                    elif disturbed and step == "lose":
                        pool.lose(disturber.randrange(len(pool.members())))
                        with mill.dispatcher.paused():
                            mill.dispatcher._take(pool.wait(0))
                    elif disturbed and step == "workers":
                        mill.rescaler.set_workers(disturber.randint(1, 4))
                    elif disturbed and step == "checkpoint":
                        mill.dispatcher.checkpoint_all()
                    elif disturbed and step == "restart":
                        mill.close(checkpoint=disturber.random() < 0.5)
                        mill = opened(Path(folder), pool, subtasks, clock)
                finish(mill)
                return dict(results_of(mill))
            finally:
                mill.close()

    assert run(subtasks, 2, disturbed=True) == run(1, 1, disturbed=False)


def test_a_subtask_that_moves_has_nothing_to_replay(tmp_path: Path) -> None:
    pool = CostlyPool(2)
    with opened(tmp_path, pool, 2, Clock()) as mill:
        chooser, task = random.Random(1), task_of(mill, "pairs")
        feed(mill, chooser, 0, 20)
        mill.dispatcher.run_all()
        before = {item.subtask: worker for worker, item in pool.runs_of(task)}
        pool.sent.clear()
        mill.dispatcher.balancing.request(Move((task, 0), 1 - before[0], at_once=True))
        feed(mill, chooser, 20, 20)
        mill.dispatcher.run_all()
        # The state is written first; the run that follows is the new worker's.
        written = [
            (item.subtask, worker)
            for worker, message in pool.sent
            for item in message.items
            if isinstance(item, CheckpointTask) and item.task == task
        ]
        assert dict(written) == before and not any(item.checkpoint for _, item in pool.runs_of(task))
        moved = {item.subtask: (worker, item) for worker, item in pool.runs_of(task)}
        assert moved[0][0] == 1 - before[0] and moved[1][0] == before[1]
        restore = moved[0][1].restore
        assert restore is not None and restore.files
        assert not any(span.epochs for span in restore.replay.values())
        assert moved[1][1].restore is None
        feed(mill, chooser, 40, 20)
        mill.dispatcher.run_all()
        forgets = [(w, i.subtasks) for w, m in pool.sent for i in m.items if isinstance(i, Forget)]
        assert forgets == [(before[0], ((task, 0),))]
        assert mill.dispatcher.balancing.moved == 1


def test_a_move_that_is_not_urgent_waits_for_a_checkpoint(tmp_path: Path) -> None:
    pool = CostlyPool(2)
    with opened(tmp_path, pool, 2, Clock()) as mill:
        chooser, task = random.Random(1), task_of(mill, "pairs")
        feed(mill, chooser, 0, 20)
        mill.dispatcher.run_all()
        before = {item.subtask: worker for worker, item in pool.runs_of(task)}
        mill.dispatcher.balancing.request(Move((task, 1), 1 - before[1], at_once=False))
        for since in (20, 40):
            feed(mill, chooser, since, 20)
            mill.dispatcher.run_all()
            assert {item.subtask: worker for worker, item in pool.runs_of(task)} == before
        mill.dispatcher.checkpoint_all()
        assert any(isinstance(item, CheckpointTask) for _, m in pool.sent for item in m.items)
        feed(mill, chooser, 60, 20)
        mill.dispatcher.run_all()
        assert {item.subtask: w for w, item in pool.runs_of(task)}[1] == 1 - before[1]


def test_subtasks_leave_the_worker_that_has_most_to_do(tmp_path: Path) -> None:
    pool, clock = CostlyPool(2), Clock()
    with opened(tmp_path, pool, 4, clock) as mill:
        task, chooser = task_of(mill, "pairs"), random.Random(1)
        # Two subtasks of one worker are heavy: more than it can do.
        heavy: list[int] = []
        pool.cost_s = lambda done: 0.45 if done.task == task and done.subtask in heavy else 0.001
        where: list[dict[int, int]] = []
        for second in range(12):
            clock.now += SECOND_US
            feed(mill, chooser, 20 * second, 20)
            mill.dispatcher.run_all()
            subtasks = [subtask for subtask in mill.metrics()["subtasks"] if subtask["task"] == task]
            where.append({subtask["subtask"]: subtask["worker"] for subtask in subtasks})
            heavy = heavy or [subtask for subtask, worker in where[0].items() if worker == 0]
        assert len(heavy) == 2
        assert {where[0][subtask] for subtask in heavy} == {0} and {
            where[-1][subtask] for subtask in heavy
        } == {0, 1}
        assert mill.dispatcher.balancing.moved == 1


def test_a_worker_that_joins_later_gets_its_share(tmp_path: Path) -> None:
    pool, clock = CostlyPool(1), Clock()
    with opened(tmp_path, pool, 4, clock) as mill:
        task, chooser = task_of(mill, "pairs"), random.Random(1)
        pool.cost_s = lambda done: 0.2 if done.task == task else 0.001
        for second in range(60):
            clock.now += SECOND_US
            feed(mill, chooser, 20 * second, 10)
            mill.dispatcher.run_all()
            if second == 5:
                mill.rescaler.set_workers(2)
        subtasks = [subtask for subtask in mill.metrics()["subtasks"] if subtask["task"] == task]
        assert sorted(subtask["worker"] for subtask in subtasks) == [0, 0, 1, 1]
        # The subtasks of a removed worker move to the remaining workers.
        mill.rescaler.set_workers(1)
        feed(mill, chooser, 1200, 10)
        mill.dispatcher.run_all()
        subtasks = [subtask for subtask in mill.metrics()["subtasks"] if subtask["task"] == task]
        assert [subtask["worker"] for subtask in subtasks] == [0, 0, 0, 0]


def test_real_workers_come_and_go_while_queries_run(spark: SparkSession, tmp_path: Path) -> None:
    stop_idle(spark.sparkContext)  # the slots of the kept ones are needed
    expected = CostlyPool(1)
    with opened(tmp_path / "one", expected, 1, Clock()) as mill:
        for since in range(0, 80, 20):
            feed(mill, random.Random(since), since, 20)
        finish(mill)
        rows = results_of(mill)

    def wait_for(mill: Mill, count: int) -> None:
        until = time.monotonic() + 60
        with mill.dispatcher.paused():
            while len(mill.dispatcher._assignments) != count and time.monotonic() < until:
                mill.dispatcher._take(mill._cluster.pool.wait(0.1))
            assert len(mill.dispatcher._assignments) == count

    def run(mill: Mill, since: int) -> dict[int, int]:
        feed(mill, random.Random(since), since, 20)
        mill.dispatcher.run_all()
        task = task_of(mill, "pairs")
        subtasks = [subtask for subtask in mill.metrics()["subtasks"] if subtask["task"] == task]
        return {subtask["subtask"]: subtask["worker"] for subtask in subtasks}

    with open_mill(spark, tmp_path / "many", subtasks=4, read_sources=False) as mill:
        mill.execute(SCRIPT)
        mill.open()
        with pytest.raises(SlicemillError, match="slots for 1 to 3 workers"):
            mill.rescaler.set_workers(4)
        assert set(run(mill, 0).values()) <= {0, 1}
        mill.rescaler.set_workers(3)
        wait_for(mill, 3)
        mill.dispatcher.balancing.request(Move((task_of(mill, "pairs"), 1), 2, at_once=True))
        run(mill, 20)
        assert run(mill, 40)[1] == 2
        mill.rescaler.set_workers(1)
        assert set(run(mill, 60).values()) == {0}
        finish(mill)
        assert results_of(mill) == rows
