"""Workers on executors of a cluster, over TCP: an executor is killed, a worker hangs (`make test-slow`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from slicemill_lab.spark_clusters import local_cluster

SCRIPT = Path(__file__).parent / "cluster_script.py"
TESTS = SCRIPT.parents[2]


def test_workers_survive_the_death_of_their_executor_and_end_themselves_when_they_hang(
    tmp_path: Path,
) -> None:
    with local_cluster(tmp_path, cores=1) as cluster:
        path = os.pathsep.join((str(TESTS), *sys.path[1:], os.environ.get("PYTHONPATH", "")))
        done = subprocess.run(
            [sys.executable, str(SCRIPT), cluster.master],
            env={**os.environ, **cluster.environment, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "tcp": True,
        "executors": 2,
        "large": True,
        "killed": {
            "left": ["its process ended"],
            "answers again": True,
            "the other is the same": True,
        },
        "hung": {"left": "no answer within 5 s", "has ended itself": True, "answers again": True},
        "ended": {"left": "its process ended", "answers again": True},
        "left": 0,
    }
