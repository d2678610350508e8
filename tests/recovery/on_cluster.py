"""A driver on a cluster: a mill over files, then cases of the corpus. It says how far it has come."""

from __future__ import annotations

import signal
import sys
from collections.abc import Collection
from pathlib import Path

from pyspark.sql import SparkSession

from recovery.child import decoded, run_mill
from slicemill.runtime.spark_session import session
from slicemill.runtime.workers.sharing import keep_workers
from support.corpus import read_cases
from test_corpus_on_spark import check

MILL_DONE = "the mill has drained"

# Then a driver that hangs is ended.
_DEADLINE_S = 1800


def run_cases(spark: SparkSession, folder: Path, wanted: Collection[str]) -> None:
    for case in read_cases():
        if case.name in wanted:
            check(case, spark, folder / "corpus" / case.name, "workers", seed=len(case.name))
            print(case.name, flush=True)


if __name__ == "__main__":
    signal.alarm(_DEADLINE_S)
    work = decoded(sys.argv[1])
    spark = session(sys.argv[2])
    run_mill(spark, work)
    print(MILL_DONE, flush=True)
    with keep_workers(spark.sparkContext):
        run_cases(spark, Path(work.folder), sys.argv[3:])
    spark.stop()
