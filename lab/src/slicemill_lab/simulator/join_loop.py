"""Simulation of window joins of two streams: symmetric hash joins with pairs as results (P3, P22, P23).

A query has a select on each side, a join and a projection. Its two sides are tasks with their own queues. A
tuple that passes its select is stored, and matched with stored tuples of the other side in the window, older
or newer. So any interleaving of the sides gives the same pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from slicemill.kernels.arrays import Floats, Int64s
from slicemill.metrics.quality_of_service import Summary
from slicemill_lab.charts.charts import Piece
from slicemill_lab.charts.composites import Join, Joined, JoinSide, slowdown, virtual_segments
from slicemill_lab.charts.segments import SegmentFigures
from slicemill_lab.policies.policy import SimulatedTask
from slicemill_lab.policies.registry import make
from slicemill_lab.simulator.compiled import Compiled, compiled_form, next_task
from slicemill_lab.testbeds.arrivals import poisson

Bools = npt.NDArray[np.bool_]


class JoinWork(NamedTuple):
    """Two streams and the queries that join them. Outcomes of all predicates are drawn in advance."""

    left: Floats
    right: Floats
    cost: Floats
    """Time of each of a query's operators per tuple."""
    percent: Int64s
    """Selectivity of a query's selects, and of its join for a pair in the window."""
    window: Floats
    draws: npt.NDArray[np.uint8]
    """Value from 1 to 100 for every pair. A query's join accepts values up to its percentage."""
    left_draws: Int64s
    right_draws: Int64s


@dataclass(frozen=True, slots=True)
class PairQueue:
    """Results of a run: query, positions of both tuples in their streams, and departure of the pair."""

    query: Int64s
    left: Int64s
    right: Int64s
    departure: Floats


def window_joins(utilisation: float, seed: int, *, queries: int = 500, tuples: int = 3000) -> JoinWork:
    """Return the testbed of P36 with joins of two Poisson streams, one tuple per second each.

    Join windows are 1 to 10 s.
    """
    random = np.random.default_rng([seed, 23])
    classes = random.integers(0, 5, queries)
    percent = random.integers(10, 101, queries)
    window = random.uniform(1, 10, queries)
    left, right = poisson(tuples, 1.0, random), poisson(tuples, 1.0, random)
    draws = random.integers(1, 101, (tuples, tuples), dtype=np.uint8)
    sides = random.integers(1, 101, (2, tuples))
    work = JoinWork(left, right, np.exp2(classes), percent, window, draws, sides[0], sides[1])
    expected = sum(float(task.segment.cost) for task in join_tasks(work))
    return work._replace(cost=work.cost * utilisation / expected)


def join_tasks(work: JoinWork) -> list[SimulatedTask]:
    """Return the left and right sides of all queries, alternating, as segments of one stream (P23)."""
    tasks = []
    for query, (cost, percent, window) in enumerate(zip(work.cost, work.percent, work.window, strict=True)):
        segments = virtual_segments(_query(cost, percent / 100, window))
        for name, segment in zip(("left", "right"), segments, strict=True):
            tasks.append(SimulatedTask(f"q{query} {name}", Piece(segment.cost, segment.selectivity), segment))
    return tasks


def _query(cost: float, share: float = 1.0, window: float = 0.0) -> Joined:
    side = JoinSide(share, cost, cost, gap=1.0)
    return Joined(side, side, Join(cost, share, window), SegmentFigures(1.0, cost, cost))


def simulate_joins(work: JoinWork, policy: str) -> PairQueue:
    """Simulate both streams to their end, under a policy with a compiled form."""
    tasks = join_tasks(work)
    compiled = compiled_form(make(policy, tasks), len(tasks))
    if compiled is None:
        raise ValueError(f"{policy} has no compiled form")
    size = _count(work)
    pairs = PairQueue(
        np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size)
    )
    _loop(work, compiled, pairs.query, pairs.left, pairs.right, pairs.departure)
    return pairs


def pair_objectives(work: JoinWork, pairs: PairQueue) -> dict[str, float]:
    """Return response times from the later arrival, and slowdowns without the wait for the partner (P22)."""
    cost = work.cost[pairs.query]
    left, right = work.left[pairs.left], work.right[pairs.right]
    responses, slowdowns = Summary(), Summary()
    responses.add(pairs.departure - np.maximum(left, right))
    # Relative to the operator cost of its query, all pairs pass the same tree.
    slowdowns.add(slowdown(_query(1.0), (left / cost, right / cost), pairs.departure / cost))
    return {
        "mean response": responses.mean,
        "mean slowdown": slowdowns.mean,
        "l2 response": responses.l2,
        "l2 slowdown": slowdowns.l2,
    }


@njit(cache=True)
def _count(work: JoinWork) -> int:
    """Count the pairs, which do not depend on the policy."""
    found = 0
    for query in range(len(work.cost)):
        share = work.percent[query]
        for i in range(len(work.left)):
            if work.left_draws[i] <= share:
                for j in range(_first(work.right, work.left[i], work.window[query]), len(work.right)):
                    if work.right[j] - work.left[i] > work.window[query]:
                        break
                    if work.left[i] - work.right[j] <= work.window[query]:
                        found += work.right_draws[j] <= share and work.draws[i, j] <= share
    return found


@njit(cache=True)
def _first(times: Floats, time: float, window: float) -> int:
    """Return a start of the window, one earlier to allow for rounding of the sum."""
    return max(0, int(np.searchsorted(times, time - window)) - 1)


@njit(cache=True)
def _loop(
    work: JoinWork, policy: Compiled, queries: Int64s, lefts: Int64s, rights: Int64s, departures: Floats
) -> None:
    tasks = 2 * len(work.cost)
    place, pending = np.zeros(tasks, np.int64), np.zeros(tasks, np.int64)
    oldest, unused = np.zeros(tasks), np.zeros(tasks)
    sides = (work.left, work.right)
    admitted = np.zeros(2, np.int64)
    upcoming = -np.inf
    found = 0
    now = 0.0
    while True:
        if now >= upcoming:
            upcoming = np.inf
            for side in range(2):
                times = sides[side]
                while admitted[side] < len(times) and times[admitted[side]] <= now:
                    admitted[side] += 1
                if admitted[side] < len(times):
                    upcoming = min(upcoming, times[admitted[side]])
                for task in range(side, tasks, 2):
                    _look(task, place, admitted[side], times, pending, oldest)
        best = next_task(policy, pending, oldest, unused, now)
        if best < 0:
            if upcoming == np.inf:
                return
            now = upcoming
            continue
        now, found = _run(work, best, place, now, queries, lefts, rights, departures, found)
        _look(best, place, admitted[best % 2], sides[best % 2], pending, oldest)


@njit(cache=True)
def _look(task: int, place: Int64s, admitted: int, times: Floats, pending: Int64s, oldest: Floats) -> None:
    pending[task] = admitted - place[task]
    if pending[task]:
        oldest[task] = times[place[task]]


@njit(cache=True)
def _run(
    work: JoinWork,
    task: int,
    place: Int64s,
    now: float,
    queries: Int64s,
    lefts: Int64s,
    rights: Int64s,
    departures: Floats,
    found: int,
) -> Any:
    """Process a tuple through select and join, and each of its pairs through the projection."""
    query, is_right = task // 2, task % 2 == 1
    share, cost, window = work.percent[query], work.cost[query], work.window[query]
    own, other = (work.right, work.left) if is_right else (work.left, work.right)
    passes = work.right_draws if is_right else work.left_draws
    partners = work.left_draws if is_right else work.right_draws
    i = place[task]
    place[task] += 1
    now += cost
    if passes[i] > share:
        return now, found
    now += cost
    stored = place[task - 1 if is_right else task + 1]
    for j in range(_first(other, own[i], window), stored):
        if other[j] - own[i] > window:
            break
        left, right = (j, i) if is_right else (i, j)
        if own[i] - other[j] <= window and partners[j] <= share and work.draws[left, right] <= share:
            now += cost
            queries[found], lefts[found], rights[found] = query, left, right
            departures[found] = now
            found += 1
    return now, found
