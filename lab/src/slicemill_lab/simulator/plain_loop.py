"""Scheduling loop in plain Python, for policies without a compiled form."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from slicemill.kernels.arrays import Floats, Int64s
from slicemill_lab.charts.tasks import Cut
from slicemill_lab.policies.policy import TupleChooser
from slicemill_lab.simulator.compiled_loop import run_one
from slicemill_lab.simulator.foresight import true_drops, true_times
from slicemill_lab.simulator.workload import Workload


@dataclass(slots=True)
class _State:
    """Queues as Python lists, which plain Python accesses faster than arrays."""

    begin: list[int]
    end: list[int]
    at_root: list[bool]
    cost: list[float]
    outputs: list[int]
    finished: list[float]


class _TaskQueue:
    """Input of one task, as its policy sees it."""

    __slots__ = ("_arrivals", "_begin", "_drops", "_end", "_first", "_slopes", "_times", "operator", "task")

    def __init__(self, work: Workload, tasks: Cut, state: _State, task: int, operator: int) -> None:
        self.task = task
        self.operator = operator
        self._begin, self._end = state.begin, state.end
        tuples = work.tuples(operator)
        self._first = int(work.first_tuple[operator])
        self._arrivals: list[float] = work.arrival[tuples].tolist()
        self._times = true_times(work, tasks.spans[task])
        self._drops = true_drops(work, tasks.spans[task], tasks.objective)
        self._slopes: list[float] = (self._drops / self._times).tolist()

    def __len__(self) -> int:
        return self._end[self.operator] - self._begin[self.operator]

    @property
    def arrival(self) -> float:
        return self._arrivals[self._begin[self.operator] - self._first]

    @property
    def head_slope(self) -> float:
        return self._slopes[self._begin[self.operator] - self._first]

    @property
    def times(self) -> Floats:
        return self._times[self._pending()]

    @property
    def drops(self) -> Floats:
        return self._drops[self._pending()]

    def _pending(self) -> slice:
        return slice(self._begin[self.operator] - self._first, self._end[self.operator] - self._first)


_TASK = attrgetter("task")


def run_plain(
    work: Workload,
    tasks: Cut,
    policy: TupleChooser,
    overhead: float,
    heads: Int64s,
    stops: Int64s,
    at_root: npt.NDArray[np.bool_],
    times: Floats,
    leaves: Int64s,
) -> tuple[Floats, int]:
    """Simulate the workload. Return when each tuple was finished, and the number of decisions."""
    state = _State(
        begin=work.first_tuple[:-1].tolist(),
        end=work.first_tuple[:-1].tolist(),
        at_root=at_root.tolist(),
        cost=work.cost.tolist(),
        outputs=work.outputs.tolist(),
        finished=[0.0] * work.steps,
    )
    queues = [_TaskQueue(work, tasks, state, task, head) for task, head in enumerate(heads.tolist())]
    decisions = _loop(times.tolist(), leaves.tolist(), state, queues, stops.tolist(), policy, overhead)
    return np.array(state.finished), decisions


def _loop(
    times: Sequence[float],
    leaves: Sequence[int],
    state: _State,
    queues: Sequence[_TaskQueue],
    stops: Sequence[int],
    policy: TupleChooser,
    overhead: float,
) -> int:
    begin, end, at_root = state.begin, state.end, state.at_root
    cost, outputs, finished = state.cost, state.outputs, state.finished
    queue_of = {queue.operator: queue for queue in queues}
    # Updated incrementally, as few tasks change between two decisions.
    ready: list[_TaskQueue] = []
    admitted = 0
    decisions = 0
    now = 0.0
    while True:
        while admitted < len(times) and times[admitted] <= now:
            leaf = leaves[admitted]
            if begin[leaf] == end[leaf]:
                insort(ready, queue_of[leaf], key=_TASK)
            end[leaf] += 1
            admitted += 1
        if not ready:
            if admitted == len(times):
                return decisions
            now = times[admitted]
            continue
        decisions += 1
        task = policy.choose(ready, now)
        head, stop = queues[task].operator, stops[task]
        feeds_idle = not at_root[stop - 1] and begin[stop] == end[stop]
        now = run_one(head, stop, begin, end, at_root, cost, outputs, finished, now + overhead)
        if begin[head] == end[head]:
            del ready[bisect_left(ready, task, key=_TASK)]
        if feeds_idle and begin[stop] != end[stop]:
            insort(ready, queue_of[stop], key=_TASK)
