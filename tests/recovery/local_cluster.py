"""A mill on a cluster in one process tree, one of whose executors is killed (`make test-slow`)."""

from __future__ import annotations

from pathlib import Path

from recovery.executors import CORES, check_that_killed_executors_change_nothing
from slicemill_lab.spark_clusters import local_cluster


def test_an_executor_that_is_killed_changes_nothing(database: str, tmp_path: Path) -> None:
    with local_cluster(tmp_path, CORES) as cluster:
        check_that_killed_executors_change_nothing(cluster, tmp_path, database, corpus=[])
