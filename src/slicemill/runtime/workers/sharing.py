"""Sharing of worker pools between the engines (`Mill`) of one Spark session.

A pool is started once. One engine at a time uses the pool.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from slicemill.runtime.spark_session import worker_count
from slicemill.runtime.workers.events import Event, WorkerJoined
from slicemill.runtime.workers.jobs import JobPool
from slicemill.runtime.workers.pool import WorkerPool

if TYPE_CHECKING:
    from pyspark import SparkContext

# With "workers", workers are long-running tasks of Spark.
# With "jobs", messages are ordinary Spark jobs, for clusters where no task may occupy a slot permanently.
Execution: TypeAlias = Literal["workers", "jobs"]

HANDLER = "slicemill.runtime.worker:make"
# Time in seconds within which a worker must answer a message.
# The work is limited, by the rows of a run or by the checkpoint interval of a replay.
_LIMIT_S = 300.0


class Pool(Protocol):
    """Interface of worker pools.

    If `resident` is True, all messages to a worker reach the same process.
    """

    resident: bool

    def start(self) -> None: ...
    def members(self) -> list[WorkerJoined]: ...
    def send(self, worker: int, message: object) -> None: ...
    def wait(self, timeout_s: float | None) -> list[Event]: ...
    def resize(self, count: int) -> None: ...
    def end_stuck(self, worker: int) -> None: ...
    def wake(self) -> None: ...
    def stop(self) -> None: ...


class _IdlePools:
    """Idle worker pools, by Spark context, that are kept for the next engine."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.contexts: set[int] = set()
        self.idle: dict[tuple[int, str], list[Pool]] = {}


_kept = _IdlePools()


def borrow_pool(context: SparkContext, execution: Execution) -> Pool:
    """Return a started worker pool for one engine. The engine gives the pool back by `return_pool`."""
    with _kept.lock:
        idle = _kept.idle.get((id(context), execution), [])
        if idle:
            return idle.pop()
    count = max(1, worker_count(context))
    pool: Pool = (WorkerPool if execution == "workers" else JobPool)(
        context, count, HANDLER, limit_s=_LIMIT_S
    )
    pool.start()
    return pool


def return_pool(context: SparkContext, execution: Execution, pool: Pool) -> None:
    with _kept.lock:
        if id(context) in _kept.contexts:
            # The pool returns to its default size.
            pool.resize(max(1, worker_count(context)))
            _kept.idle.setdefault((id(context), execution), []).append(pool)
            return
    pool.stop()


@contextmanager
def keep_workers(context: SparkContext) -> Iterator[None]:
    """Keep workers alive from one engine to the next, while the context is open."""
    with _kept.lock:
        _kept.contexts.add(id(context))
    try:
        yield
    finally:
        with _kept.lock:
            _kept.contexts.discard(id(context))
        stop_idle(context)


def stop_idle(context: SparkContext) -> None:
    """Stop the idle workers of a Spark context, so that their slots are free."""
    with _kept.lock:
        pools = [pool for key in list(_kept.idle) if key[0] == id(context) for pool in _kept.idle.pop(key)]
    for pool in pools:
        pool.stop()
