"""slice-spark-E14: a join that replicates its streams, over the nodes of a cluster (state-slice E14, S42).

Aligned routing gives each node all possible partners of a segment of one stream, so that nodes do not
communicate. The engine's form of it is the time cube, in which a row is stored on every node where a partner
may arrive.
"""

from __future__ import annotations

from pathlib import Path

from slicemill_lab.claims import ascending, at_least, timed
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.slice.ring.cluster_lines import cluster_lines, draw_lines, line_figures
from slicemill_lab.slice.ring.on_cluster import CLUSTER_NODES


def run(seed: int, scale: Scale) -> Result:
    """Mean response and state by number of nodes."""
    nodes = CLUSTER_NODES[scale]
    lines = cluster_lines({"time cube": {"placement": "cube"}}, scale, seed)
    line = lines["time cube"]
    claims = (
        ascending("state grows with nodes", {f"{n} nodes": line[n].state for n in nodes}),
        timed(
            at_least(
                f"response at {nodes[-1]} nodes / at {nodes[1]}",
                line[nodes[-1]].response_ms / line[nodes[1]].response_ms,
                0.9,
            )
        ),
    )
    return Result(claims, {"nodes": list(nodes), "lines": line_figures(lines)})


def plot(result: Result, path: Path) -> None:
    """State over the number of nodes."""
    draw_lines(result, path, "state", "What is stored wherever it may be needed grows with the nodes")


EXPERIMENT = Experiment(
    id="slice-spark-E14",
    title="A join that replicates, over the nodes of a cluster",
    run=run,
    plot=plot,
    substrate="engine",
)
