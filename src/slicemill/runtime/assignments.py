"""Assignments: connected workers, the state in their memory, and their current messages.

The state of subtasks and readers is in the memory of workers. So each subtask and each stream stays on its
worker until rebalancing moves it (`runtime.balance`). When a worker leaves, its subtasks and streams are
assigned to other workers, which restore their state.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from slicemill.runtime.messages import (
    CheckpointDone,
    CheckpointTask,
    Forget,
    Item,
    Message,
    ReadDone,
    ReadStream,
    RunDone,
    RunTask,
)
from slicemill.runtime.step_limit import (
    StepPosition,
    cancel_steps,
    current_step,
    remove_record,
    remove_records,
)
from slicemill.runtime.streams import RunningStream
from slicemill.runtime.tasks import RunningTask
from slicemill.runtime.workers.events import Notice, WorkerAnswer, WorkerJoined, WorkerLeft
from slicemill.runtime.workers.sharing import Pool
from slicemill.scheduling.balance import SubtaskId
from slicemill.storage.segments import parse_segment
from slicemill.time import wall_clock_us

# Number of a worker, and number of its current process (incarnation).
At: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class CurrentStep:
    """Step that a worker executes, or executed last: the run, and the index of the step."""

    item: RunTask
    step: int
    stuck: bool  # True if the process was killed because of this step


@dataclass(slots=True)
class AssignedWorker:
    """Connected worker: its process, its plans, and its current message."""

    incarnation: int
    plans: set[str] = field(default_factory=set)
    # Names of the worker's writers of segments (files of a log).
    writers: set[str] = field(default_factory=set)
    asked: tuple[Item, ...] = ()
    asked_s: float = 0.0  # time at which the current message was sent
    messages: int = 0
    cancelled: bool = False  # True if steps of dropped queries in this message are cancelled
    # Moved subtasks that are still in the worker's memory.
    left: list[SubtaskId] = field(default_factory=list)
    # Subtask -> checkpoint that the worker is writing, possibly after its answer to the message.
    writing: dict[SubtaskId, CheckpointTask] = field(default_factory=dict)
    writing_s: float = 0.0  # time at which the last message with a checkpoint was sent

    @property
    def idle(self) -> bool:
        return not self.asked


class Assignments:
    """Workers of a pool, as used by one running engine.

    If `sync` is True, files of workers must survive a power failure. `records` is the folder in which workers
    record their current step.
    """

    def __init__(self, pool: Pool, mill: str, records: Path, *, sync: bool) -> None:
        self.resident = pool.resident
        self._pool = pool
        self._mill = mill
        self._records = records
        self._sync = sync
        self._workers: dict[int, AssignedWorker] = {}
        self._pinned: dict[SubtaskId, int] = {}  # subtask -> worker to which the subtask is assigned
        self._loaded: dict[SubtaskId, At] = {}  # subtask -> worker process with its state in memory
        for joined in pool.members():
            self.join(joined)

    def __len__(self) -> int:
        return len(self._workers)

    def __iter__(self) -> Iterator[int]:
        return iter(self._workers)

    @property
    def busy(self) -> bool:
        """Return True while any worker processes a message or writes a checkpoint."""
        return any(assigned.asked or assigned.writing for assigned in self._workers.values())

    @property
    def idle(self) -> list[int]:
        return [worker for worker, assigned in self._workers.items() if assigned.idle]

    def busy_since(self) -> dict[int, tuple[float, tuple[Item, ...]]]:
        """Map each busy worker to the start time and the items of its current message."""
        return {
            worker: (assigned.asked_s, assigned.asked)
            for worker, assigned in list(self._workers.items())
            if not assigned.idle
        }

    def writing_since(self) -> dict[int, float]:
        """Map each worker that is writing a checkpoint to the time at which it was requested."""
        return {
            worker: assigned.writing_s for worker, assigned in list(self._workers.items()) if assigned.writing
        }

    def is_idle(self, worker: int) -> bool:
        return self._workers[worker].idle

    def is_writing(self, worker: int) -> bool:
        """Return True if a worker is writing a checkpoint."""
        return bool(self._workers[worker].writing)

    @property
    def writers(self) -> set[str]:
        """Return the names of the writers that may still append rows to segments (files of a log)."""
        return {name for assigned in self._workers.values() for name in assigned.writers}

    # -- joining and leaving ---------------------------------------------------------------------------

    def join(self, joined: WorkerJoined) -> None:
        self._workers[joined.worker] = AssignedWorker(joined.incarnation)

    def leave(self, left: WorkerLeft, streams: Iterable[RunningStream]) -> tuple[Item, ...]:
        """Remove a lost worker, and return the work items that it did not finish."""
        assigned = self._workers.get(left.worker)
        if assigned is None or assigned.incarnation != left.incarnation:
            return ()
        del self._workers[left.worker]
        remove_record(self._record(left.worker, left.incarnation))
        self._pinned = {subtask: worker for subtask, worker in self._pinned.items() if worker != left.worker}
        self._loaded = {subtask: at for subtask, at in self._loaded.items() if at[0] != left.worker}
        for stream in streams:
            if stream.loaded is not None and stream.loaded[0] == left.worker:
                stream.lost()
        # A checkpoint is in both lists if its message is not answered yet.
        return (*assigned.asked, *(one for one in assigned.writing.values() if one not in assigned.asked))

    def answered(self, answer: WorkerAnswer) -> tuple[Item, ...] | None:
        """Return the work items of a message that a worker has answered.

        Return None if the worker was replaced meanwhile.
        """
        assigned = self._workers.get(answer.worker)
        if assigned is None or assigned.incarnation != answer.incarnation:
            return None
        asked, assigned.asked = assigned.asked, ()
        return asked

    def written(self, by: WorkerAnswer | Notice, done: CheckpointDone) -> bool:
        """Record that a worker no longer writes the checkpoint of a subtask.

        Return False if this engine does not expect the checkpoint.
        """
        assigned = self._workers.get(by.worker)
        if assigned is None or (assigned.incarnation, self._mill) != (by.incarnation, done.mill):
            return False
        return assigned.writing.pop((done.task, done.subtask), None) is not None

    def discard_checkpoint(self, worker: int, task_id: str) -> None:
        """Record that a worker could not checkpoint its subtasks of a task."""
        writing = self._workers[worker].writing
        for subtask in [subtask for subtask in writing if subtask[0] == task_id]:
            del writing[subtask]

    def note_writers(self, worker: int, done: ReadDone | RunDone) -> None:
        assigned = self._workers[worker]
        for appended in done.written.values():
            for extent in appended.extents:
                parsed = parse_segment(extent.segment)
                if parsed is not None:
                    assigned.writers.add(parsed[0])

    # -- current steps of workers ----------------------------------------------------------------------

    def _record(self, worker: int, incarnation: int) -> Path:
        return self._records / f"{self._mill}-{worker}-{incarnation}"

    def current_position(self, worker: int) -> StepPosition | None:
        """Return the position of a worker's current step in its message, or None if no step runs."""
        found = current_step(self._record(worker, self._workers[worker].incarnation))
        return None if found is None else found[0]

    def current_step(self, worker: int, incarnation: int | None = None) -> CurrentStep | None:
        """Return the current or last step of a worker.

        Only workers with their own process record steps.
        """
        assigned = self._workers.get(worker)
        if assigned is None or incarnation not in (None, assigned.incarnation):
            return None
        found = current_step(self._record(worker, assigned.incarnation))
        if found is None or found[0].item >= len(assigned.asked):
            return None
        item = assigned.asked[found[0].item]
        return CurrentStep(item, found[0].step, found[1]) if isinstance(item, RunTask) else None

    def cancel(self, worker: int, indices: Collection[StepPosition]) -> None:
        """Cancel the steps at the given positions in a worker's current message."""
        assigned = self._workers[worker]
        if indices and not assigned.cancelled:
            assigned.cancelled = True
            cancel_steps(self._record(worker, assigned.incarnation), assigned.messages, indices)

    def end(self, worker: int) -> None:
        """Kill a stuck worker. `Pool.wait` reports the end of the worker."""
        self._pool.end_stuck(worker)

    def close(self) -> None:
        """Remove the files in which workers recorded their steps."""
        remove_records(self._records, self._mill)

    # -- assignment of subtasks and streams ---------------------------------------------------------------

    def worker_of(self, task: RunningTask, subtask: int) -> int:
        """Return the worker to which a subtask is assigned.

        Assign a new subtask to the worker with the fewest subtasks.
        """
        worker = self._pinned.get((task.id, subtask))
        if worker is None:
            counts = dict.fromkeys(self._workers, 0)
            for other in self._pinned.values():
                counts[other] += 1
            worker = min(counts, key=lambda candidate: (counts[candidate], candidate))
            self._pinned[task.id, subtask] = worker
        return worker

    def pin_of(self, subtask: SubtaskId) -> int | None:
        """Return the worker to which a subtask is assigned, or None."""
        return self._pinned.get(subtask)

    def move(self, subtask: SubtaskId, worker: int) -> bool:
        """Assign a subtask to another worker, which restores the state of the subtask.

        Return False if that worker has left, or already has the subtask.
        """
        if worker not in self._workers or self._pinned.get(subtask) == worker:
            return False
        self._pinned[subtask] = worker
        before = self._loaded.pop(subtask, None)
        if before is not None:
            self._workers[before[0]].left.append(subtask)
        return True

    def take_up(self, task: RunningTask, subtask: int, worker: int) -> bool:
        """Record that a worker runs a subtask from now on.

        Return True if the worker has the subtask's state in memory.
        """
        at = (worker, self._workers[worker].incarnation)
        known = self._loaded.get((task.id, subtask)) == at
        self._loaded[task.id, subtask] = at
        return known and self.resident

    def holder_of(self, task: RunningTask, subtask: int) -> int | None:
        """Return the worker that holds a subtask's state in memory, or None."""
        at = self._loaded.get((task.id, subtask))
        return None if at is None else at[0]

    def unload(self, task_id: str) -> None:
        """Mark the state of a task in the memory of workers as invalid, so that it is restored."""
        for subtask in [subtask for subtask in self._loaded if subtask[0] == task_id]:
            del self._loaded[subtask]

    def release(self, task_id: str) -> None:
        """Remove the assignments of all subtasks of a task that is removed or rescaled."""
        self.unload(task_id)
        for subtask in [subtask for subtask in self._pinned if subtask[0] == task_id]:
            del self._pinned[subtask]

    def reader_of(self, stream: RunningStream, streams: Iterable[RunningStream]) -> int:
        """Return the worker that reads a stream.

        A stream keeps its worker as long as possible.
        """
        if stream.loaded is not None and stream.loaded[0] in self._workers:
            return stream.loaded[0]
        busy = [other.loaded[0] for other in streams if other.loaded is not None]
        return min(self._workers, key=lambda worker: (busy.count(worker), -worker))

    def readable(self, streams: Iterable[RunningStream]) -> list[RunningStream]:
        """Return the streams that can be read now: their worker is idle, or they have no worker."""
        loaded = [(stream, stream.loaded) for stream in streams]
        return [
            stream for stream, at in loaded if at is None or at[0] not in self._workers or self.is_idle(at[0])
        ]

    def begin_reading(self, stream: RunningStream, worker: int) -> bool:
        """Record that a worker reads a stream.

        Return True if the worker has not read the stream before.
        """
        at = (worker, self._workers[worker].incarnation)
        first, stream.loaded = stream.loaded != at or not self.resident, at
        return first

    # -- messages --------------------------------------------------------------------------------------

    def send(self, queues: Mapping[int, list[Item]], plans: Mapping[str, bytes]) -> None:
        """Send each worker its items in one message, with the plans that the worker lacks."""
        for worker, queue in queues.items():
            assigned, items = self._workers[worker], list(queue)
            if assigned.left:
                items.insert(0, Forget(self._mill, subtasks=tuple(assigned.left)))
                assigned.left = []
            needed = {item.plan for item in items if isinstance(item, RunTask | ReadStream)}
            missing = {plan: plans[plan] for plan in needed - assigned.plans}
            if self.resident:
                assigned.plans.update(missing)
            assigned.asked, assigned.asked_s = tuple(items), time.monotonic()
            for item in items:
                if isinstance(item, CheckpointTask):
                    assigned.writing[item.task, item.subtask] = item
                    assigned.writing_s = assigned.asked_s
            assigned.messages, assigned.cancelled = assigned.messages + 1, False
            record = self._record(worker, assigned.incarnation)
            message = Message(
                items=assigned.asked,
                plans=missing,
                sync=self._sync,
                now_us=wall_clock_us(),
                number=assigned.messages,
                record=record,
            )
            self._pool.send(worker, message)
