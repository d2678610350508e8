"""Cost of each subtask of a mill's tasks, measured with workers in this process.

Each worker has one subtask of a task, and reads, maps and shuffles rows like a separate process. As in a
worker process, freed memory is kept (`runtime.spark_session.WORKER_MEMORY`). Page faults of newly allocated
memory would otherwise dominate the measurement."""

from __future__ import annotations

import ctypes
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pyarrow as pa

from slicemill.plan.placement import AUTO, Placement
from slicemill.runtime.messages import RunDone
from slicemill.runtime.spark_session import WORKER_MEMORY
from slicemill.runtime.worker import Worker
from slicemill.runtime.workers.events import WorkerAnswer
from slicemill.runtime.workers.inline import InlinePool
from slicemill.runtime.workers.sharing import HANDLER
from slicemill.testing import open_mill
from slicemill_lab.on_engine import MovedClock

_SECOND_US = 1_000_000
# Parameter numbers of mallopt in the C library.
_MALLOC = {"MALLOC_TRIM_THRESHOLD_": -1, "MALLOC_TOP_PAD_": -2, "MALLOC_MMAP_THRESHOLD_": -3}


class NotingPool(InlinePool):
    """Pool that records CPU seconds and bytes read of runs by task and subtask, since the last `forget`."""

    def __init__(self, workers: int) -> None:
        super().__init__(workers, HANDLER)
        self.cpu_s: dict[tuple[str, int], float] = defaultdict(float)
        self.bytes_read: dict[tuple[str, int], int] = defaultdict(int)

    def forget(self) -> None:
        self.cpu_s.clear()
        self.bytes_read.clear()

    def answered(self, answer: WorkerAnswer, message: object) -> WorkerAnswer | None:
        if isinstance(answer.message, tuple):
            for done in answer.message:
                if isinstance(done, RunDone):
                    self.cpu_s[done.task, done.subtask] += done.cpu_s
                    self.bytes_read[done.task, done.subtask] += done.bytes_read
        return super().answered(answer, message)

    def state_bytes(self) -> dict[tuple[str, int], int]:
        """Return the current size of each cell's state."""
        return {
            (task, subtask): loaded.program.state_bytes()
            for handler in self._handlers
            for (_, task, subtask), loaded in cast(Worker, handler).subtasks.items()
        }


@dataclass(frozen=True, slots=True)
class SubtaskFigures:
    """Cost of all subtasks of a mill, and of the most expensive one."""

    placement: str
    subtasks: int
    cpu_s: float
    slowest_cpu_s: float
    state_bytes: int
    largest_state_bytes: int
    bytes_read: int
    most_bytes_read: int
    rows: Mapping[str, int]

    def better(self, other: SubtaskFigures | None) -> SubtaskFigures:
        """Return the figures with the faster slowest subtask, because disturbances only slow a run down."""
        return self if other is None or self.slowest_cpu_s <= other.slowest_cpu_s else other


def measured_subtasks(
    script: str,
    batches: Iterable[Mapping[str, pa.Table]],
    warming: int,
    subtasks: int,
    placement: str = AUTO,
) -> SubtaskFigures:
    """Feed batches one by one and run each to its end. The first batches are not measured."""
    _keep_freed_memory()
    pool, clock = NotingPool(subtasks), MovedClock()
    with tempfile.TemporaryDirectory(prefix="slicemill-bench-") as home:
        mill = open_mill(
            home=Path(home),
            pool=pool,
            subtasks=subtasks,
            placement=placement,
            read_sources=False,
            clock=clock,
        )
        try:
            mill.execute(script)
            mill.open()
            for number, tables in enumerate(batches):
                clock.now += _SECOND_US
                if number == warming:
                    pool.forget()
                for stream, table in tables.items():
                    mill.feed(stream, table)
                mill.dispatcher.run_all()
            kept = pool.state_bytes()
            (widest,) = sorted(mill.dispatcher.tasks.values(), key=lambda task: task.subtasks)[-1:]
            return SubtaskFigures(
                _words(Placement.of(widest.plan.exchanges)),
                widest.subtasks,
                sum(pool.cpu_s.values()),
                max(pool.cpu_s.values()),
                sum(kept.values()),
                max(kept.values()),
                sum(pool.bytes_read.values()),
                max(pool.bytes_read.values()),
                {name: query.log.rows for name, query in mill.queries.items()},
            )
        finally:
            mill.close(checkpoint=False)


def _keep_freed_memory() -> None:
    """Configure malloc like workers do, if the C library supports it."""
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        for name, number in _MALLOC.items():
            library.mallopt(number, WORKER_MEMORY[name])


def _words(placement: Placement) -> str:
    """Return the kind of a placement, and its shape if it has several dimensions."""
    shape = " × ".join(map(str, placement.shape))
    return f"{placement.kind.value} {shape}" if len(placement.shape) > 1 else placement.kind.value
