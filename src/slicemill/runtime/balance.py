"""Rebalancing: moves subtasks from busy workers to idle workers.

    look, every second ──► Balancer.decide ──► a subtask is due to move ──► its task is checkpointed
                                                                                   │
          the next run of the subtask goes to the new worker, which restores ◄────────┘

A subtask moves right after a checkpoint of its task, so that the new worker has nothing to replay. A regular
move waits for the next regular checkpoint (S40). For an urgent move, the task is checkpointed before its next
run (S41). A regular move becomes urgent if it waits too long, because a checkpoint waits for idle workers.

The assignment of subtasks is only in the memory of the driver. After a restart the driver creates a new
one: all subtasks must be restored anyway, and uneven loads are detected within seconds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from slicemill.runtime.assignments import Assignments
from slicemill.runtime.streams import RunningStream
from slicemill.runtime.tasks import RunningTask
from slicemill.scheduling.balance import Balancer, Move, SubtaskId
from slicemill.time import SECOND_US

# Interval between two measurements of the load of workers.
_LOOK_US = 1 * SECOND_US
# A subtask's move to another worker is urgent if no checkpoint has allowed the move for this long.
# A regular checkpoint is due after ten seconds, and then waits for idle workers.
_PATIENT_US = 15 * SECOND_US


class Rebalancer:
    """Component that moves subtasks from busy workers to idle workers."""

    def __init__(self, assignments: Assignments, now_us: int) -> None:
        self.moved = 0
        self._assignments = assignments
        self._balancer = Balancer()
        self._due: dict[SubtaskId, Move] = {}
        self._decided_us = now_us
        self._looked_us = now_us
        self._subtasks_s: dict[SubtaskId, float] = {}  # processor time by subtask, at the last measurement
        self._reads_s: dict[str, float] = {}

    def look(self, tasks: Collection[RunningTask], streams: Iterable[RunningStream], now_us: int) -> None:
        """Measure the load of all workers, and decide whether a subtask moves to another worker."""
        elapsed_s = (now_us - self._looked_us) / SECOND_US
        if now_us - self._looked_us < _LOOK_US:
            return
        self._looked_us = now_us
        fixed = dict.fromkeys(self._assignments, 0.0)
        reads_s, self._reads_s = self._reads_s, {}
        for stream in streams:
            self._reads_s[stream.name] = stream.cpu_s
            if stream.loaded is not None and stream.loaded[0] in fixed:
                fixed[stream.loaded[0]] += (stream.cpu_s - reads_s.get(stream.name, stream.cpu_s)) / elapsed_s
        subtasks_s, self._subtasks_s = self._subtasks_s, {}
        at: dict[SubtaskId, int] = {}
        loads: dict[SubtaskId, float] = {}
        for task in tasks:
            for subtask, statistics in task.statistics.subtasks.items():
                key = (task.id, subtask)
                self._subtasks_s[key] = statistics.cpu_s
                worker = self._assignments.pin_of(key)
                if worker is not None and key in subtasks_s:
                    at[key], loads[key] = worker, max(0.0, statistics.cpu_s - subtasks_s[key]) / elapsed_s
        if not self._due:
            move = self._balancer.decide(loads, at, fixed)
            self._decided_us = now_us
            if move is not None:
                self.request(move)
        elif now_us - self._decided_us >= _PATIENT_US:
            self._due = {subtask: replace(move, at_once=True) for subtask, move in self._due.items()}

    def request(self, move: Move) -> None:
        """Request that a subtask moves to another worker after its task's next checkpoint."""
        self._due[move.subtask] = move

    def is_urgent(self, task: RunningTask) -> bool:
        """Return True if the task must be checkpointed now, because a subtask moves urgently."""
        return any(move.at_once for subtask, move in self._due.items() if subtask[0] == task.id)

    def settle(self, task: RunningTask) -> None:
        """Carry out the requested moves of subtasks, if their task was just checkpointed."""
        if not self._due or task.dirty:
            return
        for key in [subtask for subtask in self._due if subtask[0] == task.id]:
            move = self._due.pop(key)
            if key[1] < task.subtasks and self._assignments.move(key, move.worker):
                self.moved += 1

    def forget(self, gone: Collection[str]) -> None:
        """Cancel the moves of subtasks whose tasks were removed or changed."""
        self._due = {subtask: move for subtask, move in self._due.items() if subtask[0] not in gone}
