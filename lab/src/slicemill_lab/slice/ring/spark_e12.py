"""slice-spark-E12: response and state by time over the number of nodes of a cluster (E12, S33).

By time, a join of three streams runs in two rounds, and the engine stores the partial results of the first
round. They are included in the state here, unlike in that of the ring.
"""

from __future__ import annotations

from pathlib import Path

from slicemill_lab.claims import ascending, at_least, near, timed
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.slice.ring.cluster_lines import best_nodes, cluster_lines, draw_lines, line_figures
from slicemill_lab.slice.ring.on_cluster import CLUSTER_NODES
from slicemill_lab.slice.ring.runs import SELECTIVITIES, most_over_least


def run(seed: int, scale: Scale) -> Result:
    """Mean response and state, by selectivity and number of nodes."""
    lines = cluster_lines(
        {f"Sj {sj:g}": {"placement": "time", "selectivity": sj} for sj in SELECTIVITIES}, scale, seed
    )
    least = {name: best_nodes(line) for name, line in lines.items()}
    nodes = CLUSTER_NODES[scale]
    inside = [nodes[0] < best < nodes[-1] for best, _ in least.values()]
    spread = max(most_over_least([one.state for one in line.values()]) for line in lines.values())
    claims = (
        near("state, most / least over the number of nodes", spread, 1),
        timed(
            at_least(
                "selectivities whose best number of nodes is neither the least nor the most", sum(inside), 3
            )
        ),
        timed(
            ascending("the best response rises with Sj (ms)", {name: ms for name, (_, ms) in least.items()})
        ),
    )
    measured: dict[str, list[float]] = {
        "state at the most nodes over that of one": [
            max(line[nodes[-1]].state / line[nodes[0]].state for line in lines.values())
        ],
        "the best number of nodes, Sj 0.5": [least["Sj 0.5"][0]],
    }
    return Result(claims, {"nodes": list(nodes), "lines": line_figures(lines)}, measured)


def plot(result: Result, path: Path) -> None:
    """Response over the number of nodes."""
    draw_lines(result, path, "response_ms", "On two cores, more than two nodes only have further to go")


EXPERIMENT = Experiment(
    id="slice-spark-E12",
    title="Response and state by time over the nodes of a cluster",
    run=run,
    plot=plot,
    substrate="engine",
    repeats=2,
)
