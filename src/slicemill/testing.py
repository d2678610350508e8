"""Engines for tests and simulations, in which the test controls clock, workers and input.

clock = Clock()
with open_mill(home=tmp_path, pool=inline_pool(), clock=clock, read_sources=False) as mill:
    mill.execute("CREATE STREAM bid (item int); CREATE QUERY dear AS SELECT item FROM bid")
    mill.open()
    mill.feed("bid", pa.table({"item": pa.array([1], pa.int32())}))
    run_pending(mill)
    assert [row["item"] for row in mill.queries["dear"].rows()] == [1]
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack

from slicemill.api.mill import Environment, Mill
from slicemill.runtime.workers.inline import InlinePool
from slicemill.runtime.workers.sharing import HANDLER, Execution, Pool
from slicemill.time import wall_clock_us

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class MillOptions(TypedDict, total=False):
    """Optional arguments of the constructor of `Mill`."""

    master: str | None
    folder: str | Path
    policy: str
    subtasks: int | None
    placement: str
    poll_ms: int
    keep_s: float
    durability: Literal["process", "machine"]
    execution: Execution
    progress: Callable[[str], None] | None


class Clock:
    """Clock that stands still until a test sets `now`, in microseconds."""

    def __init__(self, now: int = 0) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


def inline_pool(workers: int = 2) -> InlinePool:
    """Return workers that run in this thread, without Spark."""
    return InlinePool(workers, HANDLER)


def open_mill(
    spark: SparkSession | Future[SparkSession] | None = None,
    home: str | Path | None = None,
    *,
    clock: Callable[[], int] = wall_clock_us,
    pool: Pool | None = None,
    read_sources: bool = True,
    **options: Unpack[MillOptions],
) -> Mill:
    """Return an engine (`Mill`) with its own clock, worker pool and input.

    - `clock`: returns the current time in microseconds
    - `pool`: workers in place of Spark's executors, which the caller stops
    - `read_sources`: if False, rows arrive only through `Mill.feed`
    """

    class SimulatedMill(Mill):
        _environment = Environment(clock, pool, read_sources)

    return SimulatedMill(spark, home, **options)


def run_pending(mill: Mill) -> None:
    """Write the fed rows to their streams, and run all tasks until no task has new rows."""
    mill.dispatcher.admit_handed()
    mill.dispatcher.run_all()
