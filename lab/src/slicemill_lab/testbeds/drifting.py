"""Testbed of adaptivity: the data distribution drifts while the predicates stay the same (P21, P36).

Both attributes are Gaussian around a mean that rises by one per interval, wrapped into 1 to 100 (A18). A
predicate accepts a range of values whose width is its selectivity under uniform data, which is the estimate
of a static policy. The ranges are spread evenly over the queries of a cost class. With few queries, random
ranges would overload the system for long stretches of the data, which does not happen with hundreds of
queries.
"""

from __future__ import annotations

import numpy as np

from slicemill.kernels.arrays import Int64s
from slicemill_lab.charts.charts import Path, Stage
from slicemill_lab.simulator.workload import Load, Workload, draw
from slicemill_lab.testbeds.arrivals import on_off


def drifting(
    utilisation: float,
    seed: int,
    deviation: float,
    *,
    queries: int = 500,
    intervals: int = 100,
    tuples_per_interval: int = 100,
) -> Workload:
    """Return the workload of one ON/OFF stream.

    Costs are scaled so that the true work gives the utilisation.
    """
    random = np.random.default_rng([seed, 21])
    tuples = intervals * tuples_per_interval
    classes = random.integers(0, 5, queries)
    percent = random.integers(10, 101, queries)
    starts = _spread(classes, random)
    times = on_off(tuples, 1.0, random)
    means = 50 + np.repeat(np.arange(intervals), tuples_per_interval)
    values = np.rint(random.normal(means, deviation, (2, tuples))).astype(np.int64) % 100
    passes = (values[None] - starts[:, :, None]) % 100 < percent[:, None, None]
    kept = [passes[:, 0].sum(axis=1), (passes[:, 0] & passes[:, 1]).sum(axis=1)]
    task_cost = utilisation * times[-1] / float((2.0**classes * (tuples + kept[0] + kept[1])).sum())
    loads = []
    for query in range(queries):
        cost, believed = task_cost * 2.0 ** classes[query], percent[query] / 100
        stages = (Stage("select", cost, believed), Stage("join", cost, believed), Stage("project", cost, 1.0))
        first = passes[query, 0]
        second = passes[query, 1, first]
        outputs = [first.astype(np.int64), second.astype(np.int64), np.ones(int(second.sum()), np.int64)]
        loads.append(Load(Path(f"q{query}", stages), times, outputs=outputs))
    return draw(loads, seed)


def _spread(classes: Int64s, random: np.random.Generator) -> Int64s:
    """Draw where the ranges of both predicates begin: at random, but evenly over the queries of a class."""
    starts = np.empty((len(classes), 2), np.int64)
    for number in range(int(classes.max()) + 1):
        members = np.flatnonzero(classes == number)
        for predicate in range(2):
            places = random.permutation(len(members)) + random.uniform()
            starts[members, predicate] = places * 100 / len(members)
    return starts
