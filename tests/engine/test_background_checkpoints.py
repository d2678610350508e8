"""A checkpoint is written beside the runs of its worker: until it is complete, the one before it counts."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from slicemill.api.mill import Mill
from slicemill.plan.placement import PlacementKind, placements_of
from slicemill.runtime import worker as worker_module
from slicemill.runtime.messages import RunTask
from slicemill.runtime.tasks import RunningTask
from slicemill.runtime.worker import Worker
from slicemill.runtime.workers.inline import InlinePool
from slicemill.runtime.workers.sharing import HANDLER
from slicemill.storage.checkpoints import CheckpointFiles
from slicemill.time import wall_clock_us
from support.engine import fed_mill, feed_rows, rows_as_table

SCRIPT = """
CREATE STREAM bid (item int, price double, ts timestamp micros) ORDER BY ts;
CREATE QUERY total AS SELECT item, sum(price) OVER (PARTITION BY item ROWS 99 PRECEDING) AS s FROM bid;
"""
JOIN = """
CREATE STREAM bid (item int, price double, ts timestamp micros) ORDER BY ts;
CREATE QUERY pairs AS SELECT a.item, a.ts, b.ts AS other FROM bid [RANGE 1 HOUR] AS a,
  bid [RANGE 30 MICROSECONDS] AS b WHERE a.item = b.item;
"""
ITEMS = 8


class HeldPool(InlinePool):
    """Workers in this process that write checkpoints only when a test says so."""

    def __init__(self) -> None:
        self.held: list[Callable[[], None]] = []
        self.runs: list[RunTask] = []
        super().__init__(2, HANDLER)

    def _made(self, worker: int) -> Worker:
        made = super()._made(worker)
        assert isinstance(made, Worker)
        made.in_background = self.held.append
        return made

    def send(self, worker: int, message: object) -> None:
        self.runs += [item for item in message.items if isinstance(item, RunTask)]  # type: ignore[attr-defined]
        super().send(worker, message)

    def write(self, count: int | None = None) -> None:
        """Write so many of the snapshots that wait, or all."""
        works = self.held[:count]
        del self.held[: len(works)]
        for work in works:
            work()

    def wait(self, timeout_s: float | None) -> list[object]:  # type: ignore[override]
        if timeout_s and not self._events:
            self.write()  # whoever waits, waits for these
        return super().wait(timeout_s)  # type: ignore[return-value]


@pytest.fixture
def pool() -> HeldPool:
    return HeldPool()


@pytest.fixture
def mill(tmp_path: Path, pool: HeldPool) -> Mill:
    return opened(tmp_path, pool)


def opened(home: Path, pool: HeldPool, script: str = SCRIPT) -> Mill:
    mill = fed_mill(home, wall_clock_us, pool, subtasks=2)
    mill.execute(script)
    mill.open()
    return mill


def feed(mill: Mill, since: int) -> None:
    feed_rows(mill, "bid", [(item, 1.0, since + item) for item in range(ITEMS)])


def feed_beside(mill: Mill, since: int) -> None:
    """Hand rows over, and read them as the loop does."""
    mill.feed("bid", rows_as_table(mill, "bid", [(item, 1.0, since + item) for item in range(ITEMS)]))
    mill.dispatcher._send_reads(handed_only=True)
    mill.dispatcher._take(mill.dispatcher._pool.wait(0))


def run(mill: Mill) -> None:
    """Do one turn of the dispatcher without waiting for checkpoints."""
    dispatcher = mill.dispatcher
    for _ in range(3):
        dispatcher.turn()


def begin_checkpoint(mill: Mill) -> RunningTask:
    """Have workers take their snapshots; none is written yet."""
    (task,) = mill.dispatcher.tasks.values()
    task._checkpointed_s = -1e9
    mill.dispatcher._send_due_checkpoint()
    mill.dispatcher._take(mill.dispatcher._pool.wait(0))
    assert task.writing
    return task


def sums(mill: Mill) -> list[tuple[object, ...]]:
    return sorted((timed.row for timed in mill.queries["total"].timed_rows()), key=repr)


def expected(rounds: int) -> list[tuple[object, ...]]:
    return sorted(((item, float(s)) for item in range(ITEMS) for s in range(1, rounds + 1)), key=repr)


def test_runs_go_on_while_a_checkpoint_is_written(mill: Mill, pool: HeldPool) -> None:
    feed(mill, 0)
    run(mill)
    task = begin_checkpoint(mill)
    assert len(pool.held) == 2  # one for each subtask
    then = dict(task.fields["cursors"])
    feed_beside(mill, 20)
    run(mill)
    assert task.fields["cursors"] != then and not task.fields["checkpoint"]["files"]
    pool.write()
    mill.dispatcher._take(pool.wait(0))
    assert task.fields["checkpoint"]["cursors"] == then and all(task.fields["checkpoint"]["files"])
    assert task.dirty and not task.writing  # the second run is in no checkpoint
    mill.close()
    assert sums(mill) == expected(2)


@pytest.mark.parametrize("written", [0, 1])
def test_a_kill_between_the_snapshots_and_the_last_file_goes_back_to_the_checkpoint_before(
    tmp_path: Path, pool: HeldPool, written: int
) -> None:
    mill = opened(tmp_path, pool)
    feed(mill, 0)
    mill.dispatcher.run_all()
    mill.dispatcher.checkpoint_all()
    feed(mill, 20)
    mill.dispatcher.run_all()
    task = begin_checkpoint(mill)
    before = task.fields["checkpoint"]
    feed_beside(mill, 40)
    run(mill)
    pool.write(written)  # the other cells' files are never complete
    pool.held.clear()
    for worker in (0, 1):
        pool.lose(worker)
    mill.dispatcher._take(pool.wait(0))
    assert not task.writing and task.fields["checkpoint"] == before
    pool.runs.clear()
    feed(mill, 60)
    mill.dispatcher.run_all()
    restores = [item.restore for item in pool.runs if item.restore is not None]
    assert len(restores) == 2
    # From the checkpoint before, with all that has come since.
    assert all(list(one.files) == before["files"][subtask] for subtask, one in enumerate(restores))
    assert all(len(one.replay["bid"].epochs) == 2 for one in restores)
    mill.close()
    assert sums(mill) == expected(4)


def test_a_mill_that_dies_while_a_checkpoint_is_written_starts_from_the_one_before(
    tmp_path: Path, pool: HeldPool
) -> None:
    mill = opened(tmp_path, pool)
    feed(mill, 0)
    mill.dispatcher.run_all()
    mill.dispatcher.checkpoint_all()
    feed(mill, 20)
    mill.dispatcher.run_all()
    begin_checkpoint(mill)
    pool.write()  # its files are complete, but no record names them
    mill.home.close()
    mill.home.unlock()
    again = opened(tmp_path, HeldPool())
    feed(again, 40)
    again.dispatcher.run_all()
    again.close()
    assert sums(again) == expected(3)


def test_whoever_pauses_the_engine_waits_for_checkpoints(mill: Mill, pool: HeldPool) -> None:
    feed(mill, 0)
    run(mill)
    task = begin_checkpoint(mill)
    with mill.dispatcher.paused():
        assert not pool.held and not task.writing and all(task.fields["checkpoint"]["files"])
    feed(mill, 20)
    run(mill)
    begin_checkpoint(mill)
    mill.rescaler.set_workers(1)
    assert not pool.held
    feed(mill, 40)
    mill.dispatcher.run_all()
    mill.execute("DROP QUERY total")
    mill.close()
    assert not pool.held


class StuckPool(HeldPool):
    """Workers that write no checkpoint while they are stuck, though the dispatcher waits."""

    stuck = True

    def wait(self, timeout_s: float | None) -> list[object]:  # type: ignore[override]
        return InlinePool.wait(self, timeout_s) if self.stuck else super().wait(timeout_s)  # type: ignore[return-value]


def test_tasks_continue_while_a_statement_waits_for_a_checkpoint(tmp_path: Path) -> None:
    pool, entered = StuckPool(), threading.Event()
    mill = opened(tmp_path, pool)
    feed(mill, 0)
    run(mill)
    task = begin_checkpoint(mill)
    mill.dispatcher.start()

    def statement() -> None:
        with mill.dispatcher.paused():
            assert not task.writing
            entered.set()

    waiting = threading.Thread(target=statement)
    waiting.start()
    while mill.dispatcher._begins_checkpoints:
        waiting.join(0.001)
    rows = rows_as_table(mill, "bid", [(item, 1.0, 20 + item) for item in range(ITEMS)])
    mill.feed("bid", rows)
    mill.dispatcher._pool.wake()
    with mill.dispatcher.changed:
        assert mill.dispatcher.changed.wait_for(lambda: sums(mill) == expected(2), 30)
    assert not entered.is_set() and task.writing
    pool.stuck = False
    mill.dispatcher._pool.wake()
    waiting.join(30)
    assert entered.is_set()
    mill.dispatcher.stop()
    mill.close()


def test_subtasks_change_while_a_checkpoint_is_written(tmp_path: Path, pool: HeldPool) -> None:
    def pairs(home: Path, pool: HeldPool, *, changed: bool) -> list[tuple[object, ...]]:
        mill = opened(home, pool, JOIN)
        feed(mill, 0)
        run(mill)
        task = begin_checkpoint(mill)
        feed_beside(mill, 20)
        run(mill)
        assert task.writing
        if changed:
            kinds = placements_of(task.plan.task, task.plan.graph, 3)
            (by_time,) = [one for one in kinds if one.kind is PlacementKind.TIME]
            assert mill.rescaler.rescale(task, by_time)
        feed(mill, 40)
        mill.dispatcher.run_all()
        mill.close()
        return sorted((timed.row for timed in mill.queries["pairs"].timed_rows()), key=repr)

    as_it_was = pairs(tmp_path / "one", HeldPool(), changed=False)
    assert as_it_was and pairs(tmp_path / "other", pool, changed=True) == as_it_was


def test_one_checkpoint_of_a_task_is_written_at_a_time(mill: Mill, pool: HeldPool) -> None:
    feed(mill, 0)
    run(mill)
    task = begin_checkpoint(mill)
    task._checkpointed_s = -1e9
    feed_beside(mill, 20)
    run(mill)  # it is overdue, and gets no second checkpoint
    mill.dispatcher._send_due_checkpoint()
    assert len(pool.held) == 2
    mill.close()
    assert sums(mill) == expected(2)


def test_a_task_that_is_overdue_is_checkpointed_before_its_run(mill: Mill, pool: HeldPool) -> None:
    feed(mill, 0)
    run(mill)
    (task,) = mill.dispatcher.tasks.values()
    then = dict(task.fields["cursors"])
    task._checkpointed_s = -1e9
    pool.runs.clear()
    feed_beside(mill, 20)
    run(mill)
    assert task.writing and len(pool.held) == 2 and not any(item.checkpoint for item in pool.runs)
    pool.write()
    mill.dispatcher._take(pool.wait(0))
    assert task.fields["checkpoint"]["cursors"] == then != task.fields["cursors"]
    mill.close()
    assert sums(mill) == expected(2)


def test_a_checkpoint_that_cannot_be_written_is_written_later(
    mill: Mill, pool: HeldPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> CheckpointFiles:
        raise OSError(errno.ENOSPC, "No space left on device")

    feed(mill, 0)
    run(mill)
    task = begin_checkpoint(mill)
    with monkeypatch.context() as context:
        context.setattr(worker_module, "write", full)
        pool.write()
    mill.dispatcher._take(pool.wait(0))
    assert not task.writing and task.dirty and "no space is left" in str(mill.dispatcher.problem)
    pool.runs.clear()
    feed_beside(mill, 20)
    run(mill)
    # The state in memory is intact: nothing is restored.
    assert pool.runs and all(item.restore is None for item in pool.runs)
    assert task.writing  # it is overdue, and is tried again with that run
    pool.write()
    mill.dispatcher._take(pool.wait(0))
    assert all(task.fields["checkpoint"]["files"])
    mill.close()
    assert sums(mill) == expected(2)
