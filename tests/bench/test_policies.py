"""The benchmark of policies, in small: the recording is replayed as it was made, and all rows come out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession

from slicemill.scheduling.policies.policy_registry import POLICIES
from slicemill_lab.bench.inputs.policies import CLASSES, group, queries
from slicemill_lab.bench.measuring.policy_overhead import decision_ms
from slicemill_lab.bench.policies import PolicyBench, PolicySizes


def test_policies_get_the_same_arrivals_and_give_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    bench = PolicyBench(spark, tmp_path, PolicySizes(20, 3), count=CLASSES)
    assert len(set(bench.costs().values())) == CLASSES, "each query is a unit of its own"
    under = [bench.under(name) for name in ("hnr", "fas")]
    for felt, results in under:
        assert felt.staleness.mean > 0
        assert 0 < felt.response.mean <= felt.response.largest
        assert results == under[0][1]
        # The first group wakes the workers up: its results are there, but nobody waited for them.
        waited = sum(
            table.num_rows - np.sum(table.column("epoch").to_numpy() == 0) for table in results.values()
        )
        assert felt.response.count == felt.slowdown.count == waited


def test_classes_are_equally_frequent_and_groups_are_always_the_same() -> None:
    chosen = queries(30, seed=1)
    assert np.bincount([query.cost_class for query in chosen]).tolist() == [6] * CLASSES
    assert all(0.1 <= query.selectivity <= 1 for query in chosen)
    assert group(3, 10, seed=1).equals(group(3, 10, seed=1))


def test_a_decision_is_timed_for_every_policy() -> None:
    found = decision_ms(units=20)
    assert found.keys() == POLICIES.keys()
    assert all(ms > 0 for ms in found.values())
