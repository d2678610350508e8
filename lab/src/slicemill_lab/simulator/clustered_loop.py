"""Simulation of scheduling over clusters of queries, with the cost of decisions (P18-P20).

For policies of the form Φ·W, and queries that read one stream. A cluster has one queue. Its head tuple is
processed by the members one by one, by descending Φ, and is then removed. In clustered processing, all
members process it in one decision.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit

from slicemill.kernels.arrays import Floats, Int64s
from slicemill_lab.simulator.clusters import Clusters, scan, top_one
from slicemill_lab.simulator.compiled_loop import run_one
from slicemill_lab.simulator.loop import SimulatedRun
from slicemill_lab.simulator.workload import Workload


def simulate_clusters(
    work: Workload,
    growth: Sequence[float],
    clusters: Clusters,
    *,
    operation: float = 0.0,
    pruned: bool = True,
    together: bool = True,
) -> SimulatedRun:
    """Simulate the workload with whole queries as tasks, whose priorities grow by `growth` (Φ) with the wait.

    `operation` is the time to compute a priority or to compare two. With `pruned` the best cluster is found
    by Fagin's algorithm, otherwise by a scan. `together` enables clustered processing.
    """
    leaves = work.first_operator[:-1]
    streams = [work.arrival[work.tuples(int(leaf))] for leaf in leaves]
    if any(not np.array_equal(streams[0], other) for other in streams[1:]):
        raise ValueError("clusters are for queries that read one stream")
    cluster = np.array(clusters.member_of)
    order = np.lexsort((-np.array(growth), cluster))
    used, first = np.unique(cluster[order], return_index=True)
    finished = np.empty(work.steps)
    decisions = _loop(
        streams[0],
        np.asarray(clusters.pseudo, dtype=np.float64)[used],
        np.append(first, len(order)).astype(np.int64),
        leaves[order],
        work.first_operator[1:][order],
        work.first_tuple,
        work.cost,
        work.outputs,
        operation,
        pruned,
        together,
        finished,
    )
    return SimulatedRun(work, finished, decisions)


@njit(cache=True)
def _loop(
    times: Floats,
    pseudo: Floats,
    first_member: Int64s,
    leaves: Int64s,
    stops: Int64s,
    first_tuple: Int64s,
    cost: Floats,
    outputs: Int64s,
    operation: float,
    pruned: bool,
    together: bool,
    finished: Floats,
) -> int:
    begin, end = first_tuple[:-1].copy(), first_tuple[:-1].copy()
    at_root = np.zeros(len(begin), np.bool_)
    at_root[stops - 1] = True
    clusters = len(pseudo)
    place = np.zeros(clusters, np.int64)
    member = first_member[:-1].copy()
    heads = np.full(clusters, np.nan)
    admitted = decisions = 0
    now = 0.0
    while True:
        while admitted < len(times) and times[admitted] <= now:
            for cluster in range(clusters):
                if place[cluster] == admitted:
                    heads[cluster] = times[admitted]
            admitted += 1
        found = top_one(pseudo, heads, now) if pruned else scan(pseudo, heads, now)
        if found.cluster < 0:
            if admitted == len(times):
                return decisions
            now = times[admitted]
            continue
        decisions += 1
        # Charge a priority and a comparison for each inspected pair, and for each bound.
        now += 2 * (found.looked_at + found.rounds) * operation
        best = found.cluster
        while True:
            task = member[best]
            now = run_one(leaves[task], stops[task], begin, end, at_root, cost, outputs, finished, now)
            member[best] += 1
            if member[best] == first_member[best + 1] or not together:
                break
        if member[best] == first_member[best + 1]:
            member[best] = first_member[best]
            place[best] += 1
            heads[best] = times[place[best]] if place[best] < admitted else np.nan
