"""slice-E12: response and state of a ring over its length (state-slice E12, S31, S36).

Published: the best length is about 14 for the small join at a selectivity of 0.5, and it shrinks as the
selectivity grows. The cost model says the opposite. The figures show the result here.
"""

from __future__ import annotations

from pathlib import Path

from slicemill_lab.claims import at_least, at_most, within
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.slice.ring.runs import (
    NODES,
    SELECTIVITIES,
    RingSetting,
    best,
    draw_response,
    figures_of,
    most_over_least,
    psp_by_nodes,
)


def run(seed: int, scale: Scale) -> Result:
    """Mean response and largest state, by selectivity and number of nodes."""
    lines = {f"Sj {sj:g}": psp_by_nodes(RingSetting(selectivity=sj), scale, seed) for sj in SELECTIVITIES}
    least = {name: best(line) for name, line in lines.items()}
    inside = [NODES[scale][0] < nodes < NODES[scale][-1] for nodes, _ in least.values()]
    by_response = [least[name][1] for name in lines]
    claims = (
        within(
            "state, most / least over the number of nodes",
            max(most_over_least([one.state for one in line.values()]) for line in lines.values()),
            1,
            1.01,
        ),
        at_least("selectivities whose best length is neither the shortest nor the longest", sum(inside), 3),
        at_most("best response, Sj 0.05 / Sj 0.5", by_response[0] / by_response[-1], 1),
    )
    figures = {
        "nodes": list(NODES[scale]),
        "lines": figures_of(lines),
        "best length": {name: nodes for name, (nodes, _) in least.items()},
        "best length by the model": {
            f"Sj {sj:g}": RingSetting(selectivity=sj).model(scale).best_length() for sj in SELECTIVITIES
        },
    }
    return Result(claims, figures)


def plot(result: Result, path: Path) -> None:
    """Response over the number of nodes."""
    draw_response(
        result, path, "A longer ring answers sooner, until the way round takes longer than the work"
    )


EXPERIMENT = Experiment(
    id="slice-E12", title="A ring's response and state over its length", run=run, plot=plot
)
