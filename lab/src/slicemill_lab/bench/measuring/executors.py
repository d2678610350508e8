"""Wall time of a join on two executors of a standalone cluster, by the number of subtasks.

    python -m slicemill_lab.bench.measuring.executors CASE BATCHES MASTER

This command is the driver. It is a separate process, because a process has only one Spark session.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from slicemill.errors import SlicemillError
from slicemill_lab.bench.inputs.scale import CASES, ScaleCase
from slicemill_lab.on_engine import MovedClock
from slicemill_lab.spark_clusters import EXECUTORS, standalone

WALL_SUBTASKS = (1, 2, 4)
_PATIENCE_S = 1_800
_SECOND_US = 1_000_000


def wall_seconds(case: ScaleCase, batches: int) -> dict[str, float]:
    """Start a cluster, and a driver that runs the case on it."""
    with (
        tempfile.TemporaryDirectory(prefix="slicemill-bench-") as name,
        standalone(Path(name), cores=1, stay=EXECUTORS) as cluster,
    ):
        done = subprocess.run(
            [sys.executable, "-m", __spec__.name, case.name, str(batches), cluster.master],
            env={**os.environ, **cluster.environment},
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
        )
    if done.returncode:
        raise SlicemillError(f"the driver on a cluster failed: {done.stderr.strip()[-500:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main(case_name: str, batches: int, master: str) -> dict[str, float]:
    from slicemill.runtime.spark_session import session
    from slicemill.runtime.workers.sharing import keep_workers
    from slicemill.testing import open_mill

    case = next(case for case in CASES if case.name == case_name)
    spark = session(master)
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="slicemill-bench-") as folder, keep_workers(spark.sparkContext):
        # The first turn compiles the code in both workers.
        for turn, subtasks in enumerate((max(WALL_SUBTASKS), *WALL_SUBTASKS)):
            clock = MovedClock()
            home = Path(folder) / str(turn)
            with open_mill(spark, home, subtasks=subtasks, read_sources=False, clock=clock) as mill:
                mill.execute(case.script((case.window_s,)))
                mill.open()
                began = 0.0
                for number, tables in enumerate(case.batches(batches)):
                    clock.now += _SECOND_US
                    if number == case.warming:
                        began = time.monotonic()
                    for stream, table in tables.items():
                        mill.feed(stream, table)
                    mill.dispatcher.run_all()
                found[str(subtasks)] = round(time.monotonic() - began, 3)
    spark.stop()
    return found


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), sys.argv[3])))
