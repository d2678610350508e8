"""Reports of subtasks on their runs, and the bytes that they read of logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from slicemill.api.mill import Mill
from slicemill.testing import inline_pool
from slicemill.time import wall_clock_us
from support.engine import fed_mill, feed_rows, finish

STREAMS = """
CREATE STREAM a (k int, v double, ts timestamp micros) ORDER BY ts;
CREATE STREAM b (k int, w double, ts timestamp micros) ORDER BY ts;
"""
JOIN = """
CREATE QUERY pairs AS SELECT a.k, a.v, b.w
FROM a [RANGE 2000 MICROSECONDS], b [RANGE 2000 MICROSECONDS] WHERE a.k = b.k;
"""


def joined(home: Path, subtasks: int, rows: int, batches: int = 1) -> Mill:
    """A mill that has joined so many rows of each stream."""
    mill = fed_mill(home, wall_clock_us, inline_pool(), subtasks=subtasks)
    mill.execute(STREAMS + JOIN)
    mill.open()
    for batch in range(batches):
        for stream in ("a", "b"):
            feed_rows(
                mill, stream, [(i * 7 % 1000, i / 2, i) for i in range(batch * rows, (batch + 1) * rows)]
            )
        mill.dispatcher.run_all()
    return mill


def test_subtasks_tell_what_they_do(tmp_path: Path) -> None:
    with joined(tmp_path, subtasks=3, rows=300, batches=2) as mill:
        subtasks = mill.metrics()["subtasks"]
        assert [subtask["subtask"] for subtask in subtasks] == [0, 1, 2]
        assert {subtask["worker"] for subtask in subtasks} == {0, 1}
        assert sum(subtask["rows"] for subtask in subtasks) == 1200
        assert all(
            subtask["runs"] == 2 and subtask["cpu_s"] > 0 and subtask["state_bytes"] > 0
            for subtask in subtasks
        )
        words = mill.queries["pairs"].explain().splitlines()[-3:]
        assert [line.split(":")[0] for line in words] == [
            f"subtask {subtask['subtask']} on worker {subtask['worker']}" for subtask in subtasks
        ]
        finish(mill)
        # Rows of a key are 1000 apart, so that each meets its twin and one older row; both were compared.
        (task,) = mill.dispatcher.tasks.values()
        made = mill.queries["pairs"].log.rows
        assert made == sum(subtask.pairs for subtask in task.statistics.subtasks.values()) > 0


@pytest.mark.parametrize("subtasks", [1, 2, 4, 8])
def test_bytes_read_by_key_do_not_grow_with_the_subtasks(tmp_path: Path, subtasks: int) -> None:
    with joined(tmp_path, subtasks=subtasks, rows=20_000) as mill:
        (task,) = mill.dispatcher.tasks.values()
        stored = sum(mill.home.logs[log].bytes for log in ("a", "b"))
        read = [subtask.bytes_read for subtask in task.statistics.subtasks.values()]
        assert len(read) == subtasks
        # Each subtask maps its own rows: all of them together read the logs once.
        assert 0.5 * stored <= sum(read) <= stored + 4096 * subtasks
        assert max(read) <= 1.5 * stored / subtasks


def test_small_batches_are_read_once_by_each_worker(tmp_path: Path) -> None:
    with joined(tmp_path, subtasks=8, rows=200, batches=3) as mill:
        (task,) = mill.dispatcher.tasks.values()
        stored = sum(mill.home.logs[log].bytes for log in ("a", "b"))
        assert sum(subtask.bytes_read for subtask in task.statistics.subtasks.values()) <= 2 * stored
