"""slice-spark-E11: cost of a tuple on four nodes of a cluster, by network and probing (E11, S35).

The network of the engine consists of reading, writing and forwarding of results, as rows pass through logs
that all nodes read.
"""

from __future__ import annotations

from pathlib import Path

from slicemill_lab.claims import ascending, equal, near, timed
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.plotting import curve, draw_curves
from slicemill_lab.slice.ring.on_cluster import (
    CLUSTER_WINDOW_S,
    FEATURES,
    MeasuredNodes,
    NodesRun,
    measured_nodes,
    steady,
)

NODES = 4
PROBING = "run: kernels"


def run(seed: int, scale: Scale) -> Result:
    """Measure seconds of workers per tuple, by class of join."""
    runs = [NodesRun(NODES, "time", CLUSTER_WINDOW_S[scale], steady(scale), cost=cost) for cost in FEATURES]
    found = dict(zip(FEATURES, measured_nodes(runs, seed), strict=True))
    figures = {
        cost: {"network": _ms(one, probing=False), "probing": _ms(one, probing=True)}
        for cost, one in found.items()
    }
    claims = (
        equal("results, large / small", found["large"].results / found["small"].results, 1),
        timed(
            near("network cost, large / small", figures["large"]["network"] / figures["small"]["network"], 1)
        ),
        timed(
            ascending(
                "probing cost grows with the class (ms)",
                {cost: one["probing"] for cost, one in figures.items()},
            )
        ),
    )
    return Result(claims, {"nodes": NODES, "ms per tuple": figures})


def _ms(one: MeasuredNodes, *, probing: bool) -> float:
    seconds = sum(s for stage, s in one.stages_s.items() if (stage == PROBING) == probing)
    return 1000 * seconds / one.tuples


def plot(result: Result, path: Path) -> None:
    """Plot both parts by class."""
    classes = result.figures["ms per tuple"]
    numbers = list(range(1, len(classes) + 1))
    draw_curves(
        path,
        {part: curve(numbers, [[one[part] for one in classes.values()]]) for part in ("network", "probing")},
        title="On a cluster, too, only probing grows with the cost of a comparison",
        x_label="class of join: " + ", ".join(classes),
        y_label="time per tuple [ms]",
    )


EXPERIMENT = Experiment(
    id="slice-spark-E11",
    title="What a tuple costs on four nodes of a cluster",
    run=run,
    plot=plot,
    substrate="engine",
)
