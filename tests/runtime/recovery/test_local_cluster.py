"""A mill and some of the corpus on a cluster whose executors are killed."""

from __future__ import annotations

from pathlib import Path

from runtime.recovery.clusters import local_cluster
from runtime.recovery.executors import cases, check_that_killed_executors_change_nothing


def test_executors_that_are_killed_change_nothing(database: str, tmp_path: Path) -> None:
    with local_cluster(tmp_path) as cluster:
        check_that_killed_executors_change_nothing(cluster, tmp_path, database, cases(1))
