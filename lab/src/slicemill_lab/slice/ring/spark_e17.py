"""slice-spark-E17: adaptation of a join on a cluster to a doubled rate, middle join (E17, S41)."""

from __future__ import annotations

from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.slice.ring.adapting_on_cluster import draw_following, follow_on_cluster


def run(seed: int, scale: Scale) -> Result:
    """Raise the rate from 50 tuples per second on each stream."""
    return follow_on_cluster("middle", 0.05, (100,), seed, scale)


EXPERIMENT = Experiment(
    id="slice-spark-E17",
    title="A join on a cluster follows a rate that doubles",
    run=run,
    plot=draw_following,
    substrate="engine",
    repeats=2,
)
