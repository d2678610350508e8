"""Slots: for workers that stay, and for the tasks of other jobs beside them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import pytest

from slicemill.runtime.spark_session import is_local, listen_address, worker_count

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Settings:
    """What a context says about itself."""

    master: str
    values: dict[str, str]
    defaultParallelism: int = 2  # noqa: N815

    def getConf(self) -> Settings:  # noqa: N802
        return self

    def get(self, key: str, default: str | None = None) -> str | None:
        return self.values.get(key, default)


def context(master: str, **values: str) -> SparkContext:
    settings = {f"spark.{key.replace('_', '.')}": value for key, value in values.items()}
    return cast("SparkContext", Settings(master, settings, 8))


def test_a_local_session_has_slots_for_workers_and_others_but_work_is_cut_by_cores(
    spark: SparkSession,
) -> None:
    running = spark.sparkContext
    assert running.master == "local[4,4]"
    assert running.defaultParallelism == 2
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert worker_count(running) == 2
    assert is_local(running)


@pytest.mark.parametrize(
    ("given", "count"),
    [
        (context("local[4]"), 3),
        (context("local[4,2]"), 3),
        (context("local[1]"), 0),
        (context("local"), 0),
        (context("local-cluster[2, 3, 1024]"), 5),
        (context("spark://here:7077"), 7),
        (context("spark://here:7077", cores_max="4"), 3),
        (context("yarn", executor_instances="3", executor_cores="4"), 11),
        (context("k8s://here", executor_instances="3"), 2),
        (context("local-cluster[2,4,1024]", task_cpus="2"), 3),
        (context("spark://here:7077", slicemill_workers="5"), 5),
    ],
)
def test_one_slot_is_left_for_others_unless_the_number_of_workers_is_set(
    given: SparkContext, count: int
) -> None:
    assert worker_count(given) == count


def test_a_cluster_in_one_machine_is_a_cluster() -> None:
    assert not is_local(context("local-cluster[2,1,1024]"))
    assert not is_local(context("spark://local:7077"))
    assert is_local(context("local[*]")) and is_local(context("local"))


def test_a_driver_listens_where_it_listens_for_executors() -> None:
    assert listen_address(context("yarn", driver_host="outside")) == ("outside", 0)
    bound = context("yarn", driver_host="outside", driver_bindAddress="10.0.0.1", slicemill_port="7099")
    assert listen_address(bound) == ("10.0.0.1", 7099)
