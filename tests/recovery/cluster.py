"""A mill and some of the corpus on a standalone cluster whose executors are killed (`make test-slow`)."""

from __future__ import annotations

from pathlib import Path

from recovery.executors import CORES, cases, check_that_killed_executors_change_nothing
from slicemill_lab.spark_clusters import standalone


def test_executors_of_a_standalone_cluster_that_are_killed_change_nothing(
    database: str, tmp_path: Path
) -> None:
    with standalone(tmp_path, CORES) as cluster:
        check_that_killed_executors_change_nothing(cluster, tmp_path, database, cases(2))
