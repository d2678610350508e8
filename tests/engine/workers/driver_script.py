"""A driver with workers, for tests that interrupt or kill it: says when they are there, then waits."""

from __future__ import annotations

import signal

from engine.workers.pools import driving
from slicemill.runtime.spark_session import local_session
from slicemill.runtime.workers.pool import WorkerPool

HANDLER = "engine.workers.worker_handlers:obedient"


def main() -> None:
    spark = local_session(cores=2)
    cancels_jobs = signal.getsignal(signal.SIGINT)
    pool = WorkerPool(spark.sparkContext, 2, HANDLER)
    with driving(pool) as driver:
        before = dict(driver.joined)
        try:
            print("ready", pool.address, *(joined.pid for joined in before.values()), flush=True)
            driver.until(lambda: False)
        except KeyboardInterrupt:
            answers = [driver.ask(worker, "echo", worker) for worker in (0, 1)]
            print("interrupted", answers, driver.joined == before)
    print("handler is back", signal.getsignal(signal.SIGINT) is cancels_jobs)
    with driving(WorkerPool(spark.sparkContext, 1, HANDLER), 1) as driver:
        spark.stop()
        driver.until(lambda: any(left.reason == "Spark has stopped" for left in driver.lefts()))
    print("told that Spark has stopped")


if __name__ == "__main__":
    main()
