"""Workers that stay: they die, hang, run out of memory, come back, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from engine.workers.pools import PATIENCE_S, Driver, driving
from slicemill.runtime.workers.events import Failure, WorkerLeft
from slicemill.runtime.workers.pool import WorkerPool

if TYPE_CHECKING:
    from pyspark import SparkContext

OBEDIENT = "worker_handlers:obedient"


def kill(driver: Driver, worker: int = 0) -> None:
    """End a worker's process, and wait until another one has taken its place."""
    before = driver.there(worker)
    os.kill(before.pid, signal.SIGKILL)
    driver.until(lambda: driver.joined.get(worker, before).incarnation != before.incarnation)


def test_a_worker_stays_and_knows_who_it_is(resident: Driver) -> None:
    first, second = resident.ask(0, "who"), resident.ask(0, "who")
    assert first == second
    worker, incarnation, name, stays, pid = first
    here = resident.there()
    assert (worker, incarnation, stays, pid) == (0, here.incarnation, True, here.pid)
    assert resident.ask(1, "who")[2] != name


def test_pyspark_is_imported_from_where_it_is_installed(resident: Driver) -> None:
    assert "pyspark.zip" not in resident.ask(0, "modules", "pyspark.worker")


def test_a_killed_worker_leaves_and_another_takes_its_place(resident: Driver) -> None:
    before, name = resident.there(), resident.ask(0, "who")[2]
    kill(resident)
    assert resident.lefts() == [WorkerLeft(0, before.incarnation, "its process ended")]
    assert resident.there().incarnation > before.incarnation
    assert resident.ask(0, "who")[2] != name


def test_a_message_to_a_worker_that_has_just_died_is_lost_with_it(resident: Driver) -> None:
    process = psutil.Process(resident.there().pid)
    process.kill()
    process.wait(PATIENCE_S)
    resident.pool.send(0, ("echo", 1))
    resident.until(lambda: bool(resident.lefts()))
    resident.there()
    assert resident.ask(0, "echo", 2) == 2


def test_six_kills_in_a_row_are_survived_and_the_others_do_not_notice(resident: Driver) -> None:
    other = resident.ask(1, "who")
    for _ in range(6):
        kill(resident)
        assert resident.ask(0, "echo", 1) == 1
        assert resident.ask(1, "who") == other
    assert len(resident.lefts(0)) == 6 and not resident.lefts(1)


def test_a_process_that_exits_in_a_message_is_replaced(resident: Driver) -> None:
    resident.pool.send(0, ("exit", 3))
    resident.until(lambda: bool(resident.lefts()))
    resident.there()
    assert resident.ask(0, "echo", 1) == 1


def test_a_worker_without_memory_says_so_and_is_replaced(resident: Driver) -> None:
    before = resident.there()
    failed = resident.ask(0, "allocate")
    assert isinstance(failed, Failure) and failed.error.startswith("MemoryError")
    resident.until(lambda: bool(resident.lefts()))
    assert resident.lefts()[0].reason == "a message took more memory than there is"
    assert resident.there().pid != before.pid
    assert resident.ask(0, "echo", 1) == 1


def test_a_hung_worker_is_ended_and_reported(context: SparkContext) -> None:
    with driving(WorkerPool(context, 2, OBEDIENT, limit_s=0.5)) as driver:
        before = driver.there()
        driver.pool.send(0, ("hang",))
        driver.until(lambda: bool(driver.lefts()))
        assert driver.lefts() == [WorkerLeft(0, before.incarnation, "no answer within 0.5 s")]
        assert driver.there().pid != before.pid
        assert driver.ask(0, "echo", 1) == 1
        assert not driver.lefts(1)


def test_a_stopped_worker_that_reads_nothing_does_not_hold_the_others(context: SparkContext) -> None:
    with driving(WorkerPool(context, 2, OBEDIENT, limit_s=1.0)) as driver:
        os.kill(driver.there().pid, signal.SIGSTOP)
        driver.pool.send(0, ("size", bytes(32 << 20)))
        assert driver.ask(1, "echo", 1) == 1
        driver.until(lambda: bool(driver.lefts()))
        driver.there()
        assert driver.ask(0, "echo", 2) == 2


def test_notices_arrive_while_a_message_is_under_way(resident: Driver, tmp_path: Path) -> None:
    go_on = tmp_path / "go on"
    before = len(resident.events)
    resident.pool.send(0, ("notify_and_wait", "news", str(go_on)))
    resident.until(lambda: "news" in resident.notices())
    go_on.touch()
    assert resident.answer(0, before) == "waited"


def test_notices_from_before_a_worker_is_ready_come_after_it_has_joined(context: SparkContext) -> None:
    with driving(WorkerPool(context, 1, "worker_handlers:early"), 1) as driver:
        driver.until(lambda: driver.notices() == ["being made"])


@pytest.mark.parametrize(
    ("handler", "reason"),
    [
        ("worker_handlers:broken", "its handler could not be made: ValueError: worker 0 has no handler"),
        ("no_such_module:handler", "its handler could not be made: ModuleNotFoundError"),
        ("worker_handlers", "write package.module:factory"),
    ],
)
def test_a_worker_whose_handler_cannot_be_made_leaves_with_the_reason_again_and_again(
    context: SparkContext, handler: str, reason: str
) -> None:
    driver = Driver(WorkerPool(context, 1, handler))
    driver.pool.start()
    try:
        driver.until(lambda: len(driver.lefts()) == 3)
    finally:
        driver.pool.stop()
    assert not driver.joined
    assert all(reason in left.reason for left in driver.lefts())


def test_sending_to_a_worker_that_is_not_there_is_an_error(context: SparkContext) -> None:
    pool = WorkerPool(context, 1, OBEDIENT)
    with pytest.raises(RuntimeError, match="worker 0 is not there"):
        pool.send(0, 1)
    pool.stop()


def test_spark_runs_other_jobs_beside_the_workers(resident: Driver, context: SparkContext) -> None:
    assert context.parallelize(range(100)).map(lambda value: value + 1).sum() == 5050
    assert context.defaultParallelism == 2
    assert resident.ask(0, "echo", 1) == 1


def test_cancelled_jobs_of_workers_are_submitted_again(resident: Driver, context: SparkContext) -> None:
    before = resident.there()
    context.cancelAllJobs()
    resident.until(lambda: resident.joined.get(0, before).incarnation != before.incarnation)
    assert resident.ask(0, "echo", 1) == 1


def open_files() -> int:
    return int(psutil.Process().num_fds())


@pytest.mark.parametrize("busy", [False, True])
def test_stop_leaves_no_process_no_thread_no_file_and_no_job(context: SparkContext, busy: bool) -> None:
    threads, files = set(threading.enumerate()), open_files()
    with driving(WorkerPool(context, 2, OBEDIENT)) as driver:
        processes = [psutil.Process(driver.there(worker).pid) for worker in (0, 1)]
        if busy:
            driver.pool.send(1, ("hang",))
        sockets = set(Path(tempfile.gettempdir()).glob("slicemill-*/s"))
    assert not any(process.is_running() for process in processes)
    assert set(threading.enumerate()) <= threads
    assert open_files() <= files
    assert any(not path.parent.exists() for path in sockets)
    assert not context.statusTracker().getActiveJobsIds()
    driver.pool.stop()


def test_stop_before_the_workers_are_there_ends_their_jobs(context: SparkContext) -> None:
    pool = WorkerPool(context, 2, OBEDIENT)
    pool.start()
    pool.stop()
    assert not context.statusTracker().getActiveJobsIds()
