"""A driver on a cluster whose executor is killed and whose worker hangs; says what it has seen, as JSON."""

from __future__ import annotations

import json
import sys

import psutil

from engine.workers.pools import PATIENCE_S, Driver, driving
from slicemill.runtime.spark_session import session
from slicemill.runtime.workers.pool import WorkerPool


def executor(pid: int) -> psutil.Process:
    """The JVM that a worker's process belongs to."""
    above = psutil.Process(pid).parents()
    return next(process for process in above if "CoarseGrainedExecutorBackend" in " ".join(process.cmdline()))


def kill_an_executor(driver: Driver) -> dict[str, object]:
    before, other = driver.there(0), driver.ask(1, "who")
    executor(before.pid).kill()
    driver.until(lambda: driver.joined.get(0, before).incarnation > before.incarnation)
    return {
        "left": [left.reason for left in driver.lefts(0)],
        "answers again": driver.ask(0, "echo", 1) == 1,
        "the other is the same": driver.ask(1, "who") == other,
    }


def hang(driver: Driver) -> dict[str, object]:
    before = driver.there(0)
    process, lefts = psutil.Process(before.pid), len(driver.lefts(0))
    driver.pool.send(0, ("hang",))
    driver.until(lambda: len(driver.lefts(0)) > lefts)
    # Nobody but itself can end it: the driver of a cluster is elsewhere.
    psutil.wait_procs([process], PATIENCE_S)
    driver.until(lambda: driver.joined.get(0, before).incarnation > before.incarnation)
    return {
        "left": driver.lefts(0)[-1].reason,
        "has ended itself": not process.is_running(),
        "answers again": driver.ask(0, "echo", 1) == 1,
    }


def end_a_stuck_worker(driver: Driver) -> dict[str, object]:
    """End a worker that hangs, long before its time-out."""
    before, lefts = driver.there(1), len(driver.lefts(1))
    driver.pool.send(1, ("hang",))
    driver.pool.end_stuck(1)
    driver.until(lambda: len(driver.lefts(1)) > lefts)
    driver.until(lambda: driver.joined.get(1, before).incarnation > before.incarnation)
    return {"left": driver.lefts(1)[-1].reason, "answers again": driver.ask(1, "echo", 1) == 1}


def main(master: str) -> None:
    spark = session(master)
    pool = WorkerPool(spark.sparkContext, 2, "engine.workers.worker_handlers:obedient", limit_s=5)
    with driving(pool) as driver:
        pids = {joined.pid for joined in driver.joined.values()}
        large = bytes(range(256)) * (4 << 12)
        told = {
            "tcp": not isinstance(pool.address, str),
            "executors": len({executor(pid).pid for pid in pids}),
            "large": driver.ask(0, "echo", large) == large,
            "killed": kill_an_executor(driver),
            "hung": hang(driver),
            "ended": end_a_stuck_worker(driver),
        }
    processes = [
        psutil.Process(joined.pid) for joined in driver.joined.values() if psutil.pid_exists(joined.pid)
    ]
    told["left"] = len(psutil.wait_procs(processes, PATIENCE_S)[1])
    spark.stop()
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1])
