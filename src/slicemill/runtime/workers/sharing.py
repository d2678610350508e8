"""Sharing of worker pools between the mills of a Spark session.

A pool is started once. One mill at a time uses it.
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

# "workers": long-running tasks. "jobs": ordinary Spark jobs, where tasks must not occupy slots permanently.
Execution: TypeAlias = Literal["workers", "jobs"]

HANDLER = "slicemill.runtime.worker:make"
# Time-out of a message. Its work is limited: a run by its rows, a replay by the checkpoint interval.
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
    """Idle pools of the Spark contexts whose workers stay alive."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.contexts: set[int] = set()
        self.idle: dict[tuple[int, str], list[Pool]] = {}


_kept = _IdlePools()


def borrow_pool(context: SparkContext, execution: Execution) -> Pool:
    """Return a started pool for one mill. `return_pool` gives it back."""
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
            pool.resize(max(1, worker_count(context)))  # back to the default size
            _kept.idle.setdefault((id(context), execution), []).append(pool)
            return
    pool.stop()


@contextmanager
def keep_workers(context: SparkContext) -> Iterator[None]:
    """Inside the context, keep workers alive between mills."""
    with _kept.lock:
        _kept.contexts.add(id(context))
    try:
        yield
    finally:
        with _kept.lock:
            _kept.contexts.discard(id(context))
        stop_idle(context)


def stop_idle(context: SparkContext) -> None:
    """Stop the idle workers of a Spark context, which frees their slots."""
    with _kept.lock:
        pools = [pool for key in list(_kept.idle) if key[0] == id(context) for pool in _kept.idle.pop(key)]
    for pool in pools:
        pool.stop()
