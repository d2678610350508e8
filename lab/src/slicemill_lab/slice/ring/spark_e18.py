"""slice-spark-E18: adaptation of a join on a cluster to doubled and tripled rates (E18, S41).

The small join.
"""

from __future__ import annotations

from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.slice.ring.adapting_on_cluster import draw_following, follow_on_cluster


def run(seed: int, scale: Scale) -> Result:
    """Raise the rate from 50 tuples per second on each stream."""
    return follow_on_cluster("small", 0.2, (100, 150), seed, scale)


EXPERIMENT = Experiment(
    id="slice-spark-E18",
    title="A join on a cluster follows rates that double and triple",
    run=run,
    plot=draw_following,
    substrate="engine",
    repeats=2,
)
