"""slice-spark-E16: by time and replicated, each at its best number of nodes (state-slice E16)."""

from __future__ import annotations

from pathlib import Path

from slicemill_lab.claims import at_most, timed
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.slice.ring.cluster_lines import best_nodes, cluster_lines, draw_lines, line_figures
from slicemill_lab.slice.ring.on_cluster import CLUSTER_NODES

WAYS = {"by time": {"placement": "time"}, "time cube": {"placement": "cube"}}


def run(seed: int, scale: Scale) -> Result:
    """The least response of both over the number of nodes, and the state at the most nodes."""
    lines = cluster_lines(WAYS, scale, seed)
    least = {name: best_nodes(line) for name, line in lines.items()}
    most = CLUSTER_NODES[scale][-1]
    claims = (
        at_most(
            f"state at {most} nodes, by time / replicated",
            lines["by time"][most].state / lines["time cube"][most].state,
            1,
            note="In rounds the engine stores partial results, which the ring only sends round.",
        ),
        timed(
            at_most("least response, by time / replicated", least["by time"][1] / least["time cube"][1], 1)
        ),
    )
    figures = {
        "nodes": list(CLUSTER_NODES[scale]),
        "lines": line_figures(lines),
        "best": {name: {"nodes": nodes, "ms": ms} for name, (nodes, ms) in least.items()},
    }
    return Result(claims, figures)


def plot(result: Result, path: Path) -> None:
    """Response over the number of nodes."""
    draw_lines(result, path, "response_ms", "By time and replicated, over the nodes of a cluster")


EXPERIMENT = Experiment(
    id="slice-spark-E16",
    title="By time and replicated at their best, on a cluster",
    run=run,
    plot=plot,
    substrate="engine",
)
