"""Messages as ordinary jobs: one job for all that was sent, and failures that stay with their own message."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from engine.workers.pools import Driver, driving
from slicemill.runtime.workers.events import Failure, WorkerLeft
from slicemill.runtime.workers.jobs import JobPool

if TYPE_CHECKING:
    from pyspark import SparkContext

OBEDIENT = "worker_handlers:obedient"


def jobs_of(context: SparkContext, driver: Driver) -> set[int]:
    assert isinstance(driver.pool, JobPool)
    return set(context.statusTracker().getJobIdsForGroup(driver.pool.group))


def under_way(context: SparkContext, driver: Driver) -> bool:
    """Whether the pool's own job is: of others' Spark is late to say that they have ended."""
    return not jobs_of(context, driver).isdisjoint(context.statusTracker().getActiveJobsIds())


def test_what_is_sent_before_a_wait_is_one_job_with_a_task_each(context: SparkContext) -> None:
    with driving(JobPool(context, 3, OBEDIENT), 3) as driver:
        for worker in range(3):
            driver.pool.send(worker, ("who",))
        assert not jobs_of(context, driver)
        assert [driver.answer(worker, 3)[0] for worker in range(3)] == [0, 1, 2]
        assert len(jobs_of(context, driver)) == 1
        assert driver.ask(1, "who")[0] == 1
        assert len(jobs_of(context, driver)) == 2


def test_a_process_is_not_to_be_relied_on_and_says_so(context: SparkContext) -> None:
    with driving(JobPool(context, 1, OBEDIENT), 1) as driver:
        assert driver.ask(0, "who")[3] is False


def test_a_message_that_ends_its_process_again_and_again_leaves_the_others_alone(
    context: SparkContext,
) -> None:
    with driving(JobPool(context, 2, OBEDIENT)) as driver:
        driver.pool.send(0, ("exit", 3))
        driver.pool.send(1, ("echo", 1))
        assert driver.answer(1, 0) == 1
        assert driver.lefts(0) == [WorkerLeft(0, 0, "the processes of its task ended")]
        assert driver.there(0).incarnation == 1
        assert driver.ask(0, "echo", 2) == 2
        assert not driver.lefts(1)


def test_a_hung_message_is_ended_and_reported(context: SparkContext) -> None:
    with driving(JobPool(context, 1, OBEDIENT, limit_s=0.5), 1) as driver:
        driver.pool.send(0, ("hang",))
        driver.until(lambda: bool(driver.lefts()))
        driver.there()
        assert driver.ask(0, "echo", 1) == 1


def test_a_process_without_memory_is_not_used_again(context: SparkContext) -> None:
    with driving(JobPool(context, 1, OBEDIENT), 1) as driver:
        failed = driver.ask(0, "allocate")
        assert isinstance(failed, Failure) and failed.error.startswith("MemoryError")
        assert driver.ask(0, "echo", 1) == 1


def test_a_handler_that_cannot_be_made_is_a_failure(context: SparkContext) -> None:
    with driving(JobPool(context, 1, "worker_handlers:broken"), 1) as driver:
        failed = driver.ask(0, "echo")
        assert isinstance(failed, Failure) and failed.error == "ValueError: worker 0 has no handler"


def test_a_job_that_is_cancelled_takes_its_messages_along(context: SparkContext) -> None:
    with driving(JobPool(context, 2, OBEDIENT)) as driver:
        driver.pool.send(0, ("hang",))
        driver.step(0)
        driver.until(lambda: under_way(context, driver))
        context.cancelAllJobs()
        driver.until(lambda: bool(driver.lefts()))
        driver.there()
        assert driver.ask(0, "echo", 1) == 1


def test_stop_ends_a_job_that_is_under_way(context: SparkContext) -> None:
    threads = set(threading.enumerate())
    with driving(JobPool(context, 1, OBEDIENT), 1) as driver:
        driver.pool.send(0, ("hang",))
        driver.step(0)
        driver.until(lambda: under_way(context, driver))
    driver.until(lambda: not under_way(context, driver))
    assert set(threading.enumerate()) <= threads
    driver.pool.stop()
