"""slice-spark-E16: the planner's choice, rounds by time, and replication over nodes (state-slice E16).

The ring forwards partial results and stores no row twice. The engine joins three streams at once, in a cube
in which rows are stored wherever a partner may arrive, or in rounds by time, which store partial results. In
the publication, the ring is ahead of replication. The planner chooses between the engine's forms, and its
choice must not be worse than either.
"""

from __future__ import annotations

from pathlib import Path

from slicemill_lab.claims import at_most, timed
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.slice.ring.cluster_lines import best_nodes, cluster_lines, draw_lines, line_figures
from slicemill_lab.slice.ring.on_cluster import CLUSTER_NODES

CHOSEN, BY_TIME, CUBE = "chosen", "by time, in rounds", "time cube"
WAYS = {CHOSEN: {"placement": "auto"}, BY_TIME: {"placement": "time"}, CUBE: {"placement": "cube"}}


def run(seed: int, scale: Scale) -> Result:
    """Measure the least response of each method over the nodes, and state there and at most nodes."""
    lines = cluster_lines(WAYS, scale, seed)
    least = {name: best_nodes(line) for name, line in lines.items()}
    most = CLUSTER_NODES[scale][-1]
    state = {name: line[most].state for name, line in lines.items()}
    claims = (
        at_most(
            f"state at {most} nodes, by time / replicated",
            state[BY_TIME] / state[CUBE],
            1,
            note="In rounds the engine stores partial results, which the ring only sends round.",
        ),
        timed(at_most("least response, by time / replicated", least[BY_TIME][1] / least[CUBE][1], 1)),
        at_most(
            f"state at {most} nodes, chosen / the least of the others",
            state[CHOSEN] / min(state[BY_TIME], state[CUBE]),
            1,
        ),
        timed(
            at_most(
                "least response, chosen / the best of the others",
                least[CHOSEN][1] / min(least[BY_TIME][1], least[CUBE][1]),
                1.25,
                note="Where two have the same placement, they differ by what the machine does besides.",
            )
        ),
    )
    figures = {
        "nodes": list(CLUSTER_NODES[scale]),
        "lines": line_figures(lines),
        "best": {
            name: {"nodes": nodes, "ms": ms, "state": lines[name][nodes].state}
            for name, (nodes, ms) in least.items()
        },
    }
    return Result(claims, figures)


def plot(result: Result, path: Path) -> None:
    """Response over the number of nodes."""
    draw_lines(result, path, "response_ms", "Chosen, in rounds and replicated, over the nodes of a cluster")


EXPERIMENT = Experiment(
    id="slice-spark-E16",
    title="What the planner chooses, in rounds by time and replicated, on a cluster",
    run=run,
    plot=plot,
    substrate="engine",
)
