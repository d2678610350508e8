"""BSD with charged decisions compared with BSD with free decisions (sched-E16, sched-E17)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

from slicemill_lab.charts.charts import Objective
from slicemill_lab.charts.tasks import cut
from slicemill_lab.experiment import Scale
from slicemill_lab.policies.registry import asked
from slicemill_lab.sched.runs import Service, bed_of, play
from slicemill_lab.simulator.clustered_loop import simulate_clusters
from slicemill_lab.simulator.clusters import Clusters
from slicemill_lab.simulator.measures import objectives

LOAD = 0.95
# The relative cost of a decision depends on the number of queries, which is the published one.
SETTINGS: Mapping[Scale, Service] = {
    "small": Service(LOAD, queries=500, tuples=300),
    "full": Service(LOAD, queries=500),
}


def relative(seed: int, scale: Scale, policy: str) -> float:
    """Return the norm of slowdowns under a policy without overhead, relative to BSD."""
    return _norm(seed, scale, policy) / _norm(seed, scale, "bsd")


def charged(
    seed: int,
    scale: Scale,
    clusters: Callable[[tuple[float, ...]], Clusters],
    *,
    pruned: bool = True,
    together: bool = True,
    operation: float = 1.0,
) -> float:
    """Return the norm with clusters of priority growth rates, relative to BSD without overhead.

    `operation` is the cost of an operation of a decision relative to the cheapest operator.
    """
    bed = bed_of(SETTINGS[scale], seed, scale)
    tasks = cut(bed.work.paths, "query", Objective.OUTPUT_RESPONSE).tasks
    growth = tuple(asked("bsd", tasks).by_wait()[1].tolist())
    run = simulate_clusters(
        bed.work,
        growth,
        clusters(growth),
        operation=operation * bed.task_cost,
        pruned=pruned,
        together=together,
    )
    return objectives(run)["l2 slowdown"] / _norm(seed, scale, "bsd")


@lru_cache(maxsize=100)
def _norm(seed: int, scale: Scale, policy: str) -> float:
    return objectives(play(bed_of(SETTINGS[scale], seed, scale), policy))["l2 slowdown"]
