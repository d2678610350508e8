"""A worker that dies in the middle of anything changes nothing in the results."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from slicemill.api.mill import Mill
from slicemill.errors import SlicemillError
from slicemill.runtime.messages import CheckpointTask, Item, Message, ReadStream
from slicemill.runtime.workers.inline import InlinePool
from slicemill.runtime.workers.sharing import HANDLER
from slicemill.testing import open_mill
from slicemill.time import wall_clock_us
from support.engine import fed_mill, feed_rows, finish

BID = "CREATE STREAM bid (item int, price double, ts timestamp micros) ORDER BY ts"
TOTAL = (
    "CREATE QUERY total AS SELECT item, sum(price) OVER (PARTITION BY item ROWS 99 PRECEDING) AS s FROM bid"
)


class MortalPool(InlinePool):
    """Workers in this process that die of some items, a number of times."""

    def __init__(self) -> None:
        super().__init__(2, HANDLER)
        self.deaths = 0
        self.deadly: Callable[[Item], bool] = lambda _: False

    def send(self, worker: int, message: object) -> None:
        assert isinstance(message, Message)
        if self.deaths and any(self.deadly(item) for item in message.items):
            self.deaths -= 1
            self.lose(worker)
        else:
            super().send(worker, message)


@pytest.fixture
def pool() -> MortalPool:
    return MortalPool()


def rows(mill: Mill, query: str) -> list[tuple[object, ...]]:
    return sorted((timed.row for timed in mill.queries[query].timed_rows()), key=repr)


def test_a_checkpoint_has_the_subtasks_of_one_run(tmp_path: Path, pool: MortalPool) -> None:
    def open_mill() -> Mill:
        mill = fed_mill(tmp_path, wall_clock_us, pool, subtasks=2)
        mill.execute(f"{BID}; {TOTAL}")
        mill.open()
        return mill

    def feed(mill: Mill, ts: int) -> None:
        feed_rows(mill, "bid", [(item, 1.0, ts + item) for item in range(10)])
        mill.dispatcher.run_all()

    mill = open_mill()
    feed(mill, 0)
    # One subtask is written as of now, the other is not: together they are no checkpoint, now or later.
    pool.deadly, pool.deaths = (lambda item: isinstance(item, CheckpointTask) and item.subtask == 0), 1
    mill.dispatcher.checkpoint_all()
    assert not pool.deaths
    feed(mill, 20)
    mill.dispatcher.checkpoint_all()
    mill.close(checkpoint=False)
    mill = open_mill()
    feed(mill, 40)
    mill.close()
    assert rows(mill, "total") == sorted((item, s) for item in range(10) for s in (1.0, 2.0, 3.0))


def test_what_is_held_back_comes_out_at_the_end(tmp_path: Path, pool: MortalPool) -> None:
    with fed_mill(tmp_path, wall_clock_us, pool) as mill:
        mill.execute(f"{BID} SLACK 1 HOUR; CREATE QUERY all_ AS SELECT item FROM bid")
        mill.open()
        feed_rows(mill, "bid", [(item, 1.0, item) for item in range(4)])
        pool.deadly, pool.deaths = (lambda item: isinstance(item, ReadStream) and item.flush), 2
        finish(mill)
        assert not pool.deaths
        assert rows(mill, "all_") == [(item,) for item in range(4)]


def test_a_stream_that_cannot_be_ended_is_told(tmp_path: Path, pool: MortalPool) -> None:
    with fed_mill(tmp_path, wall_clock_us, pool) as mill:
        mill.execute(f"{BID}; CREATE QUERY all_ AS SELECT item FROM bid")
        mill.open()
        pool.deadly, pool.deaths = (lambda item: isinstance(item, ReadStream)), 3
        with pytest.raises(SlicemillError, match="bid could not be ended: lost"):
            finish(mill)


def test_a_drain_reads_all_there_is(tmp_path: Path, pool: MortalPool) -> None:
    (tmp_path / "bids").mkdir()
    for number in range(3):
        row = {"item": number, "price": 1.0, "ts": number}
        (tmp_path / "bids" / f"{number}.json").write_text(json.dumps(row))
    with open_mill(home=tmp_path / "home", pool=pool, folder=tmp_path) as mill:
        mill.execute(f"{BID} USING json OPTIONS (path 'bids', maxFilesPerTrigger 1); {TOTAL}")
        pool.deadly, pool.deaths = (lambda item: isinstance(item, ReadStream) and not item.flush), 2
        mill.drain()
        assert not pool.deaths
        assert rows(mill, "total") == [(0, 1.0), (1, 1.0), (2, 1.0)]


def test_state_is_written_though_its_worker_has_died_since_the_last_run(
    tmp_path: Path, pool: MortalPool
) -> None:
    with fed_mill(tmp_path, wall_clock_us, pool, subtasks=2) as mill:
        mill.execute(f"{BID}; {TOTAL}")
        mill.open()
        feed_rows(mill, "bid", [(item, 1.0, item) for item in range(10)])
        mill.dispatcher.run_all()
        (task,) = mill.dispatcher.tasks.values()
        pool.lose(0)
        with mill.dispatcher.paused():
            mill.dispatcher._take(pool.wait(0))
        assert task.is_checkpoint_outdated
        mill.dispatcher.checkpoint_all()
        assert not task.is_checkpoint_outdated and not task.dirty
        assert len(rows(mill, "total")) == 10
