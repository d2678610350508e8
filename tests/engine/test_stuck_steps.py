"""A step that is stuck in one call of machine code ends its worker, and fails no query but its own."""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from itertools import repeat
from pathlib import Path

import pytest

from slicemill.api.mill import Mill
from slicemill.api.status import problems
from slicemill.functions.registry import FUNCTIONS
from slicemill.runtime import driver as dispatcher
from slicemill.runtime import tasks as task
from slicemill.runtime.step_limit import (
    StepPosition,
    StepRecord,
    cancel_steps,
    current_step,
    make_folder,
    remove_records,
)
from slicemill.testing import Clock, inline_pool, open_mill
from support.engine import fed_mill, feed_rows
from support.fork_pool import ForkPool

SCRIPT = """
CREATE STREAM bid (item int, price int, ts timestamp micros) ORDER BY ts;
CREATE QUERY slow AS SELECT item FROM bid WHERE crc32(cast(price AS varchar)) >= 0;
CREATE QUERY dear AS SELECT item, price FROM bid WHERE price > 10;
CREATE QUERY counted AS SELECT item, count(*) OVER (PARTITION BY item RANGE UNBOUNDED PRECEDING) AS n
  FROM bid;
"""
SPLIT = """
CREATE QUERY split AS
  SELECT item, sum(crc32(cast(price AS varchar))) OVER (PARTITION BY item ROWS 3 PRECEDING) AS n FROM bid;
CREATE QUERY every AS SELECT item, price FROM bid;
"""
STUCK = 666


@pytest.fixture(autouse=True)
def stuck_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a function be stuck in a call that keeps the interpreter lock, for one price."""

    def crc32(text: str) -> int:
        return len(deque(repeat(text, 10**12 * (text == str(STUCK))), maxlen=0))

    stuck = replace(FUNCTIONS["crc32"], row=lambda *_: crc32, column=None)
    monkeypatch.setitem(FUNCTIONS, "crc32", stuck)


@pytest.fixture(scope="module", autouse=True)
def warm(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Load the kernels once, in the process from which workers are forked."""
    with fed_mill(tmp_path_factory.mktemp("warm") / "home", Clock(), inline_pool(2), subtasks=2) as mill:
        mill.execute((SCRIPT + SPLIT).replace("crc32", "length"))
        mill.open()
        for first in (0, 5):
            feed_rows(mill, "bid", [(item, 20, first + item) for item in range(5)])
            mill.dispatcher.run_all()


@pytest.fixture
def pool() -> Iterator[ForkPool]:
    made = ForkPool(1)
    yield made
    made.stop()


def _rows(mill: Mill, name: str) -> list[object]:
    return [row["item"] for row in mill.queries[name].table().to_pylist()]


def _mill(home: Path, pool: ForkPool, script: str = SCRIPT, subtasks: int = 1) -> Mill:
    mill = open_mill(home=home, pool=pool, clock=Clock(), subtasks=subtasks, read_sources=False)
    mill.execute(script)
    mill.open()
    return mill


def test_a_stuck_step_ends_its_worker_and_fails_alone(
    tmp_path: Path, pool: ForkPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "STEP_S", 0.7)
    with _mill(tmp_path / "home", pool) as mill:
        feed_rows(mill, "bid", [(1, 20, 1), (2, 30, 2)])
        mill.dispatcher.run_all()
        feed_rows(mill, "bid", [(3, STUCK, 3), (4, 5, 4)])
        mill.dispatcher.run_all()
        assert pool.ended == [signal.SIGPROF]
        assert (mill.queries["slow"].error or "").startswith(
            "one call in a step took more than 0.7 s of processor time for 2 rows"
        )
        assert [problem.split(":")[0] for problem in problems(mill)] == ["slow stopped"]
        assert [_rows(mill, name) for name in ("slow", "dear", "counted")] == [
            [1, 2],
            [1, 2, 3],
            [1, 2, 3, 4],
        ]
        # A failed query does not compute its rows again when later rows arrive.
        feed_rows(mill, "bid", [(5, STUCK, 5)])
        mill.dispatcher.run_all()
        assert len(pool.ended) == 1
        assert _rows(mill, "counted") == [1, 2, 3, 4, 5]
    assert not list((tmp_path / "home" / "steps").iterdir())


def test_a_stuck_step_of_one_subtask_ends_one_worker_and_stops_the_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "STEP_S", 0.7)
    pool = ForkPool(2)
    script = ";".join(SCRIPT.split(";")[:1]) + ";" + SPLIT
    with _mill(tmp_path / "home", pool, script, subtasks=2) as mill:
        assert sorted(one.subtasks for one in mill.dispatcher.tasks.values()) == [1, 2]
        feed_rows(mill, "bid", [(item, 1, item) for item in range(10)])
        mill.dispatcher.run_all()
        feed_rows(mill, "bid", [(item, STUCK if item == 3 else 1, 10 + item) for item in range(10)])
        mill.dispatcher.run_all()
        assert pool.ended == [signal.SIGPROF]
        assert "its worker was ended" in (mill.queries["split"].error or "")
        assert [one.resumable for one in mill.dispatcher.tasks.values() if one.subtasks == 2] == [["split"]]
        assert _rows(mill, "every") == [*range(10)] * 2
        assert sorted(map(str, _rows(mill, "split"))) == sorted(map(str, range(10)))
    pool.stop()


def test_a_stuck_query_that_is_alone_is_stopped_at_once_and_can_go_on(
    tmp_path: Path, pool: ForkPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "STEP_S", 0.7)
    with _mill(tmp_path / "home", pool, ";".join(SCRIPT.split(";")[:2])) as mill:
        feed_rows(mill, "bid", [(3, STUCK, 3)])
        mill.dispatcher.run_all()
        assert len(pool.ended) == 1
        assert "its worker was ended" in (mill.queries["slow"].error or "")
        assert [one.resumable for one in mill.dispatcher.tasks.values()] == [["slow"]]


@pytest.mark.parametrize("machine_code", [True, False], ids=["machine code", "Python"])
def test_dropping_a_query_ends_its_step(
    tmp_path: Path, pool: ForkPool, monkeypatch: pytest.MonkeyPatch, machine_code: bool
) -> None:
    """The limit of a step is so long that nothing but DROP ends this one."""
    monkeypatch.setattr(task, "STEP_S", 1000.0)
    monkeypatch.setattr(dispatcher, "CANCEL_S", 0.2)
    monkeypatch.setattr(dispatcher, "END_S", 0.2 if machine_code else 1000.0)
    expression = "levenshtein(repeat('a', price * 100), repeat('b', price * 100))"
    script = SCRIPT if machine_code else SCRIPT.replace("crc32(cast(price AS varchar))", expression)
    with _mill(tmp_path / "home", pool, script) as mill:
        feed_rows(mill, "bid", [(3, STUCK, 3), (4, 5, 4)])
        mill.dispatcher.start()
        _wait_until_stuck(tmp_path / "home")
        mill.execute("DROP QUERY slow")
        mill.dispatcher.stop()
        mill.dispatcher.run_all()
        assert pool.ended == [signal.SIGPROF] * machine_code
        assert "slow" not in mill.queries
        assert [_rows(mill, name) for name in ("dear", "counted")] == [[3], [3, 4]]


def test_an_engine_that_ends_does_not_wait_for_a_stalled_worker(
    tmp_path: Path, pool: ForkPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limits of the step and of ending are so long that only the one for stalled workers can be over."""
    monkeypatch.setattr(task, "STEP_S", 1000.0)
    monkeypatch.setattr(dispatcher, "STALLED_S", -1.0)
    monkeypatch.setattr(dispatcher, "_STALLED_ENDS_S", 0.1)
    mill = _mill(tmp_path / "home", pool)
    feed_rows(mill, "bid", [(3, STUCK, 3), (4, 5, 4)])
    mill.dispatcher.start()
    _wait_until_stuck(tmp_path / "home")
    assert [problem.split(" for ")[0] for problem in problems(mill)] == ["worker 0 has been computing slow"]
    mill.close(within_s=1000)
    pool.stop()
    monkeypatch.setattr(task, "STEP_S", 0.7)
    again = ForkPool(1)
    with _mill(tmp_path / "home", again) as mill:
        mill.dispatcher.run_all()
        assert [_rows(mill, name) for name in ("slow", "dear", "counted")] == [[], [3], [3, 4]]
    again.stop()


def _wait_until_stuck(home: Path) -> None:
    deadline = time.monotonic() + 60
    while not _is_stuck(home):
        assert time.monotonic() < deadline
        os.sched_yield()


def _is_stuck(home: Path) -> bool:
    return any(current_step(path) is not None for path in (home / "steps").iterdir())


def test_a_step_that_ends_its_worker_again_and_again_fails_alone(
    tmp_path: Path, pool: ForkPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """End the process without a message, as the OOM killer does."""

    def crc32(text: str) -> int:
        if text == str(STUCK):
            os.kill(os.getpid(), signal.SIGKILL)
        return 1

    deadly = replace(FUNCTIONS["crc32"], row=lambda *_: crc32, column=None)
    monkeypatch.setitem(FUNCTIONS, "crc32", deadly)
    with _mill(tmp_path / "home", pool) as mill:
        feed_rows(mill, "bid", [(3, STUCK, 3), (4, 5, 4)])
        mill.dispatcher.run_all()
        assert pool.ended == [signal.SIGKILL] * 3
        assert mill.queries["slow"].error == "its process ended"
        assert [_rows(mill, name) for name in ("slow", "dear", "counted")] == [[], [3], [3, 4]]


def test_a_record_tells_the_step_and_whether_its_process_was_stuck(tmp_path: Path) -> None:
    make_folder(tmp_path / "steps")
    path = tmp_path / "steps" / "m-0-1"
    assert current_step(path) is None
    record = StepRecord(path)
    try:
        record.take_up()
        assert current_step(path) is None
        record.begin(StepPosition(2, 5))
        assert current_step(path) == ((2, 5), False)
        child = os.fork()
        if not child:
            os.kill(os.getpid(), signal.SIGPROF)
            os._exit(0)
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGPROF
        assert current_step(path) == ((2, 5), True)
        record.end()
        assert current_step(path) is None
    finally:
        record.close()


def test_only_named_steps_of_the_message_are_cancelled(tmp_path: Path) -> None:
    make_folder(tmp_path / "steps")
    record = StepRecord(tmp_path / "steps" / "m-0-1")
    try:
        assert not record.is_cancelled(StepPosition(0, 3), 7)
        cancel_steps(record.path, 7, [StepPosition(0, 3)])
        assert record.is_cancelled(StepPosition(0, 3), 7)
        assert not record.is_cancelled(StepPosition(0, 4), 7)
        assert not record.is_cancelled(StepPosition(0, 3), 8)
    finally:
        record.close()
    remove_records(tmp_path / "steps", "other")
    assert len(list((tmp_path / "steps").iterdir())) == 2
    remove_records(tmp_path / "steps", "m")
    assert not list((tmp_path / "steps").iterdir())
