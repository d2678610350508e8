"""Cluster: the Spark session and the worker pool of a running engine."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING

from slicemill.errors import SlicemillError
from slicemill.runtime.spark_session import begin_session, can_grow, configure, most_workers, worker_count
from slicemill.runtime.workers.sharing import Execution, Pool, borrow_pool, return_pool

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Cluster:
    """Spark session and worker pool of a running engine.

    A given `pool` is used instead of Spark's executors, and belongs to the caller. If neither a session nor a
    pool is given, a session is started, and stopped at the end.
    """

    def __init__(
        self,
        spark: SparkSession | Future[SparkSession] | None,
        pool: Pool | None,
        *,
        master: str | None,
        execution: Execution,
        progress: Callable[[str], None] | None,
    ) -> None:
        begun = spark if isinstance(spark, Future) else None
        if spark is None and pool is None:
            begun = begin_session(master)
        if begun is not None and progress is not None:
            progress("starting Spark")
        self.session = spark if begun is None and not isinstance(spark, Future) else None
        if begun is not None:
            self.session = begun.result()
        if self.session is not None:
            configure(self.session)
        self._owns_session = begun is not None
        self._execution: Execution = execution
        self._borrowed = pool is None
        self.pool = borrow_pool(self.spark.sparkContext, execution) if pool is None else pool
        self._grows = self._borrowed and can_grow(self.spark.sparkContext)

    @property
    def spark(self) -> SparkSession:
        if self.session is None:
            raise SlicemillError("this mill works without a Spark session")
        return self.session

    def default_subtasks(self) -> int:
        """Return half the number of workers, as the default number of subtasks.

        The other workers read sources or run tasks that are not partitioned.
        """
        return max(1, worker_count(self.session.sparkContext) // 2) if self.session is not None else 1

    def grow(self) -> None:
        """Add workers on executors that Spark has added, unless the number of workers is fixed."""
        if self._grows and most_workers(self.spark.sparkContext) > len(self.pool.members()):
            self.pool.resize(most_workers(self.spark.sparkContext))

    def fix_workers(self, count: int | None) -> int:
        """Check and return the number of workers, by default all slots. Stop automatic growth."""
        context = self.session.sparkContext if self.session is not None else None
        if count is None:
            count = max(1, worker_count(context)) if context is not None else 1
        most = most_workers(context) if context is not None and self._execution == "workers" else count
        if not 1 <= count <= max(most, 1):
            raise SlicemillError(f"Spark has slots for 1 to {max(most, 1)} workers beside its own tasks")
        self._grows = False
        return count

    def return_workers(self) -> None:
        """Return the borrowed workers to the session."""
        if self._borrowed:
            return_pool(self.spark.sparkContext, self._execution, self.pool)

    def stop_session(self) -> None:
        """Stop the Spark session if this object started it."""
        if self._owns_session:
            self.spark.stop()
