"""A driver that may be killed: a mill over files, in a process of its own.

It registers its queries, reads what is there while they run, and, if it is asked to, drains. Its Spark is its
own, or that of a JVM which outlives it: to start a JVM takes longer than all the rest.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from runtime.recovery import daemon, kill
from runtime.recovery.points import ANYWHERE, DRAINING, RUNNING
from runtime.recovery.scenario import STATEMENTS
from slicemill.runtime import log_manifest, mill
from slicemill.runtime.session import local_session, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL, SHARED = "local", "shared"

_BID_LINES = ("every", "bid_too_late", "bad")
_POLL_S = 0.05
_POLLS = 6_000


@dataclass(frozen=True, slots=True)
class Work:
    spark: str  # a master, LOCAL for a JVM of its own, SHARED for that of the environment
    home: str
    folder: str
    lines: int  # of bids, to wait for
    buckets: int
    drain: bool
    point: kill.Point | None = None
    phase: str = ANYWHERE
    counter: str = ""

    def encoded(self) -> str:
        return json.dumps(asdict(self))


def decoded(text: str) -> Work:
    content = json.loads(text)
    point = content["point"]
    return Work(**{**content, "point": None if point is None else kill.Point(**point)})


def main(work: Work) -> None:
    spark = spark_of(work)
    if work.point is not None:
        kill.watch(kill.DRIVER)
    arm(work, ANYWHERE)
    # Small figures, so that a short run frees and merges too.
    mill._RUNS_BETWEEN_COLLECTIONS = 5
    log_manifest.MERGED_WIDTHS = (8, 2)
    running = mill.Mill(spark, work.home, folder=work.folder, buckets=work.buckets)
    for statement in STATEMENTS:
        running.execute(statement)
    arm(work, RUNNING)
    running.start()
    wait_for_all(running, work.lines)
    if work.drain:
        arm(work, DRAINING)
        running.drain()
    running.close()
    if work.spark != SHARED:
        spark.stop()


def arm(work: Work, phase: str) -> None:
    """From here on the point counts, if this is its phase."""
    if work.point is not None and work.phase == phase:
        with_jvm = work.spark == LOCAL
        kill.give(kill.Order(work.point, work.home, os.getpid(), work.counter, with_jvm))


def wait_for_all(running: mill.Mill, lines: int) -> None:
    for _ in range(_POLLS):
        running.check()
        logs = [running.queries[name].log for name in _BID_LINES]
        if sum(epoch.rows for log in logs for epoch in log.epochs()) >= lines:
            return
        with running.dispatcher.changed:
            running.dispatcher.changed.wait(_POLL_S)
    raise AssertionError(f"of {lines} lines not all came through")


def spark_of(work: Work) -> SparkSession:
    if work.spark not in (LOCAL, SHARED):
        return session(work.spark)
    spark = attached() if work.spark == SHARED else local_session(cores=2)
    # Read when the first worker starts, which is later than this.
    spark.sparkContext._jsc.sc().conf().set("spark.python.daemon.module", daemon.__name__)
    return spark


def attached() -> SparkSession:
    """The session of the JVM that the environment names, without what a killed driver left running in it."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

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


if __name__ == "__main__":
    main(decoded(sys.argv[1]))
    sys.stdout.flush()
    # The interpreter's own exit would wait for a JVM that goes on.
    os._exit(0)
