"""Cost of finding the next task: the dispatcher's scan, clusters, Fagin, and a calendar queue.

The sublinear methods inspect few tasks (P18-P20, P35), but their data structures must be maintained: when a
log that all tasks read grows, the heads or lengths of all queues change. Both parts are measured.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np
from numba import njit

from slicemill.kernels.arrays import Floats, Int64s
from slicemill.scheduling.batches import Batches
from slicemill.scheduling.chooser import rank_batches
from slicemill.scheduling.policies import policy_named
from slicemill.scheduling.portions import TaskColumns
from slicemill_lab.simulator.calendar_queue import CalendarQueue, calendar_queue, pop, put
from slicemill_lab.simulator.clusters import logarithmic, scan, top_one

_REPEATED = 200
_CLUSTERS = 12
_NOW = 100.0


def ways_to_choose_us(tasks: int) -> dict[str, float]:
    """Return the median microseconds of a decision by method, after a log that all tasks read has grown."""
    random = np.random.default_rng(3)
    cost = 2.0 ** random.integers(0, 5, tasks)
    figures = TaskColumns.without_readers(random.uniform(0.1, 1, tasks), 0.0, cost, 3 * cost)
    arrivals, one = random.uniform(0, _NOW, tasks), np.ones(tasks)
    positions = np.arange(tasks)

    def batches() -> Batches:
        wait = _NOW - arrivals
        return Batches(positions, figures, one, one, one, wait, np.inf * one, one)

    bsd, fas = policy_named("bsd"), policy_named("fas")
    priorities = bsd.priority(batches()) / (_NOW - arrivals)
    clusters = logarithmic(priorities.tolist(), _CLUSTERS)
    member_of, pseudo = np.array(clusters.member_of), np.array(clusters.pseudo)
    heads = _heads(member_of, arrivals)
    fresh = fas.priority(batches())
    calendar = calendar_queue(tasks, float(fresh.min()), float(fresh.max()), 64)

    ways: dict[str, Callable[[], object]] = {
        "bsd, all tasks: the first": lambda: rank_batches(bsd, batches()),
        "bsd, all tasks: the first 256": lambda: rank_batches(bsd, batches(), 256),
        f"bsd, {_CLUSTERS} clusters": lambda: scan(pseudo, _heads(member_of, arrivals), _NOW),
        f"bsd, {_CLUSTERS} clusters, heads known": lambda: scan(pseudo, heads, _NOW),
        f"bsd, {_CLUSTERS} clusters by Fagin, heads known": lambda: top_one(pseudo, heads, _NOW),
        "bsd, all tasks by Fagin, heads known": lambda: top_one(priorities, arrivals, _NOW),
        "fas, all tasks: the first": lambda: rank_batches(fas, batches()),
        "fas, calendar queue": lambda: _put_all(calendar, fas.priority(batches())),
        "fas, calendar queue, one task changed": lambda: (put(calendar, 0, fresh[0]), pop(calendar)),
    }
    return {name: _median_us(way) for name, way in ways.items()}


@njit(cache=True)
def _put_all(calendar: CalendarQueue, priorities: Floats) -> int:
    for task in range(len(priorities)):
        put(calendar, task, priorities[task])
    return int(pop(calendar))


def _heads(member_of: Int64s, arrivals: Floats) -> Floats:
    """Return the oldest tuple of each cluster."""
    heads = np.full(_CLUSTERS, np.inf)
    np.minimum.at(heads, member_of, arrivals)
    return np.where(np.isinf(heads), np.nan, heads)


def _median_us(way: Callable[[], object]) -> float:
    way()  # compiles
    took = []
    for _ in range(_REPEATED):
        began = time.perf_counter()
        way()
        took.append(time.perf_counter() - began)
    return round(1e6 * statistics.median(took), 1)
