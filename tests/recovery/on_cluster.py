"""A driver on a cluster: a mill over files, then cases of the corpus. It says how far it has come."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from recovery.child import decoded, run_mill
from slicemill.engine.session import session
from support.corpus import check_rows, prepare, read_cases
from test_corpus_on_spark import run

MILL_DONE = "the mill has drained"

# Then a driver that hangs is ended.
_DEADLINE_S = 1800

if __name__ == "__main__":
    signal.alarm(_DEADLINE_S)
    work = decoded(sys.argv[1])
    spark = session(sys.argv[2])
    wanted = sys.argv[3:]
    run_mill(spark, work)
    print(MILL_DONE, flush=True)
    for case in read_cases():
        if case.name in wanted:
            runnable = prepare(case)
            results = run(runnable, spark, Path(work.folder) / "corpus" / case.name, seed=1)
            for query, expected in runnable.expected.items():
                check_rows(expected, results[query.lower()], query)
            print(case.name, flush=True)
    spark.stop()
