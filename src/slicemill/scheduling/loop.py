"""The scheduling loop in virtual time: admit, choose, run, on one processor (P10).

It never idles while a unit has input. Its only result is when each operator finished each tuple, from which
`measures` computes latency and memory. Policies that are numbers per unit run in compiled code, the others
in Python; both take the same steps, and a run is determined by its workload, cut and policy.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np
from numba import njit
from numba.extending import register_jitable

from slicemill.scheduling.compiled import count_priority, next_unit, parameters_of
from slicemill.scheduling.foresight import true_drops, true_times
from slicemill.scheduling.policy import Floats, Policy
from slicemill.scheduling.units import Cut
from slicemill.scheduling.workload import Ints, Workload


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """A simulated run: when each operator was done with each of its tuples, in the order of the workload."""

    work: Workload
    finished: Floats
    decisions: int


def simulate(work: Workload, units: Cut, policy: Policy, *, overhead: float = 0.0) -> Run:
    """Play the workload to its end; `overhead` is the time each decision of the scheduler takes."""
    heads = np.array([work.operator(span.path, span.start) for span in units.spans], dtype=np.int64)
    stops = np.array([work.operator(span.path, span.stop) for span in units.spans], dtype=np.int64)
    at_root = np.zeros(len(work.first_tuple) - 1, dtype=np.bool_)
    at_root[work.first_operator[1:] - 1] = True
    times, leaves = _arrivals(work)
    finished = np.empty(work.steps)
    compiled = parameters_of(policy)
    if compiled is not None:
        decisions = _compiled_loop(
            times, leaves, work.first_tuple, heads, stops, at_root, work.cost, work.outputs, work.arrival,
            *compiled, overhead, finished,
        )  # fmt: skip
        return Run(work, finished, decisions)
    done = [0.0] * work.steps
    state = _State(
        begin=work.first_tuple[:-1].tolist(),
        end=work.first_tuple[:-1].tolist(),
        at_root=at_root.tolist(),
        cost=work.cost.tolist(),
        outputs=work.outputs.tolist(),
        finished=done,
    )
    queues = [_Queue(work, units, state, unit, head) for unit, head in enumerate(heads.tolist())]
    decisions = _loop(times.tolist(), leaves.tolist(), state, queues, stops.tolist(), policy, overhead)
    return Run(work, np.array(done), decisions)


@register_jitable
def _run_one(
    head: int,
    stop: int,
    begin: Any,
    end: Any,
    at_root: Any,
    cost: Any,
    outputs: Any,
    finished: Any,
    now: float,
) -> float:
    """Take one tuple from the unit's head operator and all it becomes to the end of the unit, depth first.

    Operator k's queue is the tuples `begin[k]` to `end[k]`. Runs both compiled and as plain Python.
    """
    operator = head
    while True:
        place = begin[operator]
        begin[operator] = place + 1
        now += cost[place]
        finished[place] = now
        if not at_root[operator]:
            end[operator + 1] += outputs[place]
        # Everything deeper has been drained, so the deepest input is at most one operator further.
        if operator + 1 < stop:
            operator += 1
        while operator > head and begin[operator] == end[operator]:
            operator -= 1
        if operator == head:
            return now


@njit(cache=True)
def _compiled_loop(
    times: Floats,
    leaves: Ints,
    first_tuple: Ints,
    heads: Ints,
    stops: Ints,
    at_root: Any,
    cost: Floats,
    outputs: Ints,
    arrival: Floats,
    kind: int,
    parameters: Floats,
    memory: Floats,
    overhead: float,
    finished: Floats,
) -> int:
    begin = first_tuple[:-1].copy()
    end = first_tuple[:-1].copy()
    unit_at = np.full(len(begin) + 1, -1, dtype=np.int64)
    unit_at[heads] = np.arange(len(heads))
    # What the policy looks at lies side by side per unit: it looks at all of them in every decision.
    pending = np.zeros(len(heads), dtype=np.int64)
    oldest = np.zeros(len(heads))
    by_count = np.zeros(len(heads))
    admitted = 0
    decisions = 0
    now = 0.0
    while True:
        while admitted < len(times) and times[admitted] <= now:
            leaf = leaves[admitted]
            end[leaf] += 1
            unit = unit_at[leaf]
            _look(unit, heads, begin, end, arrival, pending, oldest)
            by_count[unit] = count_priority(kind, parameters, memory, unit, pending[unit])
            admitted += 1
        best = next_unit(kind, parameters, memory, pending, oldest, by_count, now)
        if best < 0:
            if admitted == len(times):
                return decisions
            now = times[admitted]
            continue
        decisions += 1
        now = _run_one(heads[best], stops[best], begin, end, at_root, cost, outputs, finished, now + overhead)
        _look(best, heads, begin, end, arrival, pending, oldest)
        by_count[best] = count_priority(kind, parameters, memory, best, pending[best])
        if not at_root[stops[best] - 1]:
            unit = unit_at[stops[best]]
            _look(unit, heads, begin, end, arrival, pending, oldest)
            by_count[unit] = count_priority(kind, parameters, memory, unit, pending[unit])


@njit(cache=True)
def _look(
    unit: int, heads: Ints, begin: Ints, end: Ints, arrival: Floats, pending: Ints, oldest: Floats
) -> None:
    """Note how much input a unit has, and since when."""
    place = begin[heads[unit]]
    pending[unit] = end[heads[unit]] - place
    if pending[unit]:
        oldest[unit] = arrival[place]


@dataclass(slots=True)
class _State:
    """The queues as Python lists, which plain Python reads faster than arrays."""

    begin: list[int]
    end: list[int]
    at_root: list[bool]
    cost: list[float]
    outputs: list[int]
    finished: list[float]


class _Queue:
    """The input of one unit, as its policy sees it."""

    __slots__ = ("_arrivals", "_begin", "_drops", "_end", "_first", "_slopes", "_times", "operator", "unit")

    def __init__(self, work: Workload, units: Cut, state: _State, unit: int, operator: int) -> None:
        self.unit = unit
        self.operator = operator
        self._begin, self._end = state.begin, state.end
        tuples = work.tuples(operator)
        self._first = int(work.first_tuple[operator])
        self._arrivals: list[float] = work.arrival[tuples].tolist()
        self._times = true_times(work, units.spans[unit])
        self._drops = true_drops(work, units.spans[unit], units.objective)
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


_UNIT = attrgetter("unit")


def _loop(
    times: Sequence[float],
    leaves: Sequence[int],
    state: _State,
    queues: Sequence[_Queue],
    stops: Sequence[int],
    policy: Policy,
    overhead: float,
) -> int:
    begin, end, at_root = state.begin, state.end, state.at_root
    cost, outputs, finished = state.cost, state.outputs, state.finished
    queue_of = {queue.operator: queue for queue in queues}
    # Kept up to date rather than rebuilt: with many units, few of them change between two decisions.
    ready: list[_Queue] = []
    admitted = 0
    decisions = 0
    now = 0.0
    while True:
        while admitted < len(times) and times[admitted] <= now:
            leaf = leaves[admitted]
            if begin[leaf] == end[leaf]:
                insort(ready, queue_of[leaf], key=_UNIT)
            end[leaf] += 1
            admitted += 1
        if not ready:
            if admitted == len(times):
                return decisions
            now = times[admitted]
            continue
        decisions += 1
        unit = policy.choose(ready, now)
        head, stop = queues[unit].operator, stops[unit]
        feeds_idle = not at_root[stop - 1] and begin[stop] == end[stop]
        now = _run_one(head, stop, begin, end, at_root, cost, outputs, finished, now + overhead)
        if begin[head] == end[head]:
            del ready[bisect_left(ready, unit, key=_UNIT)]
        if feeds_idle and begin[stop] != end[stop]:
            insort(ready, queue_of[stop], key=_UNIT)


def _arrivals(work: Workload) -> tuple[Floats, Ints]:
    """All arrivals in order of time, each with the operator it goes to; at one time, in order of path."""
    leaves = work.first_operator[:-1]
    times = np.concatenate([work.arrival[work.tuples(int(leaf))] for leaf in leaves])
    operators = np.repeat(leaves, work.first_tuple[leaves + 1] - work.first_tuple[leaves])
    order = np.argsort(times, kind="stable")
    return times[order], operators[order]
