"""One pool of each kind for the tests that leave it as it was, and Spark that can import the handlers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from engine.workers.pools import Driver, driving
from slicemill.runtime.workers.jobs import JobPool
from slicemill.runtime.workers.pool import WorkerPool
from slicemill.runtime.workers.sharing import stop_idle

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

OBEDIENT = "worker_handlers:obedient"


@pytest.fixture(scope="module")
def context(spark: SparkSession) -> SparkContext:
    # With those of other tests there would be no slot left for anything else.
    stop_idle(spark.sparkContext)
    spark.sparkContext.addPyFile(str(Path(__file__).parent / "worker_handlers.py"))
    return spark.sparkContext


@pytest.fixture(scope="module", params=[WorkerPool, JobPool])
def either(request: pytest.FixtureRequest, context: SparkContext) -> Iterator[Driver]:
    """Both gears: what holds for messages to workers holds for messages in jobs."""
    with driving(request.param(context, 2, OBEDIENT, limit_s=60)) as driver:
        yield driver


@pytest.fixture
def resident(context: SparkContext) -> Iterator[Driver]:
    with driving(WorkerPool(context, 2, OBEDIENT, limit_s=60)) as driver:
        yield driver
