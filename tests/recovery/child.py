"""A driver that may be killed: a mill over files, in a process of its own.

It registers its queries, reads what is there while they run, and, if it is asked to, drains. Its Spark is its
own, or that of a JVM which the environment names. As a program this module forks a driver for each line of
its input, and says with which status it ended.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from recovery import daemon, kill
from recovery.scenario import lines, passing, put_next, statements
from recovery.warm import warm_up
from slicemill.api import mill
from slicemill.lifecycle import retention
from slicemill.runtime import tasks as task
from slicemill.runtime.spark_session import local_session
from slicemill.runtime.tasks import RunningTask
from slicemill.storage.home import Home

# Set where there is a JVM to share.
SHARED = "PYSPARK_GATEWAY_PORT"

_POLL_S = 0.05
_SNAPSHOT_EVERY = 8_000  # bytes of records
# Then a driver that hangs is ended by a signal that is not the one of a kill.
_DEADLINE_S = 300


@dataclass(frozen=True, slots=True)
class Work:
    home: str
    folder: str
    database: str
    drain: bool
    subtasks: int = 2
    by_spark: bool = False
    points: tuple[kill.Point, ...] = ()
    counters: str = ""

    def encoded(self) -> str:
        return json.dumps(asdict(self))


def decoded(text: str) -> Work:
    content = json.loads(text)
    return Work(**{**content, "points": tuple(kill.Point(**point) for point in content["points"])})


def main(work: Work) -> None:
    spark = attached() if SHARED in os.environ else local_session(cores=2)
    # Read when the first worker starts, which is later than this.
    spark.sparkContext._jsc.sc().conf().set("spark.python.daemon.module", daemon.__name__)
    if work.points:
        kill.watch(kill.DRIVER)
    run_mill(spark, work)
    if SHARED not in os.environ:
        spark.stop()


def run_mill(spark: SparkSession, work: Work) -> None:
    folder = Path(work.folder)
    arm(work, kill.ANYWHERE)
    # Small figures, so that a short run checkpoints, frees and writes snapshots too.
    task.CHECKPOINT_ROWS = 4
    retention.BETWEEN_COLLECTIONS_S = 0.0
    mill.Home = functools.partial(Home, snapshot_every=(_SNAPSHOT_EVERY, _SNAPSHOT_EVERY))  # type: ignore[misc,assignment]
    running = mill.Mill(spark, work.home, folder=work.folder, subtasks=work.subtasks)
    for statement in statements(work.database, work.by_spark):
        running.execute(statement)
    arm(work, kill.RUNNING)
    running.start()
    # One file of each stream after the other, so that there is a number of rounds to count on.
    wait_for_all(running, folder)
    while put_next(folder):
        wait_for_all(running, folder)
    # Each under a name of its own: one that a kill left behind is not known any more.
    name = f"passing_{os.getpid()}"
    running.execute(passing(name))
    running.execute(f"DROP QUERY {name}")
    running.dispatcher.checkpoint_all()
    with running.dispatcher.paused():
        running.retention.collect()
    if work.drain:
        arm(work, kill.DRAINING)
        running.drain()
    running.close()


def arm(work: Work, phase: str) -> None:
    """From here on the points count, if this is their phase."""
    if work.points and work.points[0].phase == phase:
        kill.give(kill.Order(work.points, work.home, os.getpid(), work.counters, SHARED not in os.environ))


def wait_for_all(running: mill.Mill, folder: Path) -> None:
    """Until all that is there is read and run, and checkpoints are written that are due."""
    there = lines(folder)
    while not _is_done(running, there):
        with running.dispatcher.changed:
            running.dispatcher.changed.wait(_POLL_S)


def _is_done(running: mill.Mill, there: Mapping[str, int]) -> bool:
    running.dispatcher.check()
    wrong = {query.name: query.error for query in running.queries.values() if query.error is not None}
    assert not wrong, wrong
    for stream, count in ((stream, there[stream]) for stream in running.running.streams):
        # Rows are numbered as they arrive, unreadable ones apart.
        fields = running.home.streams.get(stream, {})
        if fields.get("next_arrival", 0) + fields.get("next_error", 0) < count:
            return False
    tasks = running.dispatcher.tasks.values()
    return not any(each.run or each.pending() or _is_to_be_written(running, each) for each in tasks)


def _is_to_be_written(running: mill.Mill, one: RunningTask) -> bool:
    """Return True if a checkpoint is being written, or is due and can be: a worker that was killed has
    nothing to write."""
    assignments = running.dispatcher._assignments
    held = all(assignments.holder_of(one, subtask) is not None for subtask in range(one.subtasks))
    return one.writing or (held and one.checkpoint_due(time.monotonic()))


def attached() -> SparkSession:
    """The session of the JVM that the environment names, without what a killed driver left running in it."""
    gateway = launch_gateway()
    # The JVM reports a dead driver's callbacks as garbage to the living one: their names must differ.
    gateway.gateway_property.pool.next_id = os.getpid() * 1_000
    shared = gateway.jvm.org.apache.spark.SparkContext.getOrCreate()
    context = SparkContext(
        gateway=gateway,
        jsc=gateway.jvm.JavaSparkContext.fromSparkContext(shared),
        conf=SparkConf(_jconf=shared.conf()),
    )
    found = SparkSession(context)
    for query in found.streams.active:
        query.stop()
    context.cancelAllJobs()
    return found


def status_of(work: Work) -> int:
    driver = os.fork()
    if driver:
        return os.waitstatus_to_exitcode(os.waitpid(driver, 0)[1])
    os.setsid()
    signal.alarm(_DEADLINE_S)
    # What a driver prints is for people; the parent's output is for whoever asked.
    os.dup2(2, 1)
    try:
        main(work)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    # The interpreter's own exit would wait for a JVM that goes on.
    os._exit(0)


if __name__ == "__main__":
    warm_up()
    for line in sys.stdin:
        print(status_of(decoded(line)), flush=True)
