"""kill -9 at every step of every commit (`make test-slow`): too slow to be run before each commit.

The chains share a JVM, which stands for the driver's own: what a killed driver left running there is stopped
when the next one starts. One chain is run with a JVM for each driver, killed at the same instant.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from recovery.chain import Chain
from recovery.drivers import Drivers, drivers_with_a_jvm_each
from recovery.points import CHAINS, READ_BY_SPARK, WITH_JVM


@pytest.mark.parametrize("name", CHAINS)
def test_whatever_step_is_killed_results_are_those_of_an_uninterrupted_run(
    name: str, drivers: Drivers, database: str, tmp_path: Path
) -> None:
    chain = Chain(tmp_path, database, CHAINS[name])
    chain.kill_at(CHAINS[name], drivers)
    chain.finish(drivers)


def test_a_stream_that_spark_reads_is_read_once(drivers: Drivers, database: str, tmp_path: Path) -> None:
    chain = Chain(tmp_path, database, READ_BY_SPARK, by_spark=True)
    chain.kill_at(READ_BY_SPARK, drivers)
    chain.finish(drivers)


def test_a_jvm_that_dies_with_its_driver_changes_nothing(database: str, tmp_path: Path) -> None:
    chain = Chain(tmp_path, database, WITH_JVM)
    with drivers_with_a_jvm_each() as drivers:
        chain.kill_at(WITH_JVM, drivers)
        chain.finish(drivers)
