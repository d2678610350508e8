"""A mill and some of the corpus on a cluster whose executors are killed."""

from __future__ import annotations

from pathlib import Path

from recovery.clusters import local_cluster
from recovery.executors import check_that_killed_executors_change_nothing

# `make recovery` runs cases of every folder of the corpus.
_CASES = ["joins/base_aggregate_over_a_join", "tables/ad_hoc", "unions/internal", "windows/after_where"]


def test_executors_that_are_killed_change_nothing(database: str, tmp_path: Path) -> None:
    with local_cluster(tmp_path) as cluster:
        check_that_killed_executors_change_nothing(cluster, tmp_path, database, _CASES)
