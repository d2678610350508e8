"""slice-E16: ring, aligned and coordinated routing, each at its best length (state-slice E16)."""

from __future__ import annotations

from pathlib import Path

from slicemill_lab.claims import at_most
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.slice.ring.e14 import aligned
from slicemill_lab.slice.ring.e15 import coordinated
from slicemill_lab.slice.ring.runs import NODES, RingSetting, best, draw_response, figures_of, psp_by_nodes


def run(seed: int, scale: Scale) -> Result:
    """Measure the least response of each method over the number of nodes, and the state there."""
    lines = {
        "PSP": psp_by_nodes(RingSetting(), scale, seed),
        "ATR": aligned(scale, 1, seed),
        "CTR": coordinated(scale, seed, 2),
    }
    least = {name: best(line) for name, line in lines.items()}
    state = {name: lines[name][nodes].state for name, (nodes, _) in least.items()}
    claims = tuple(
        claim
        for rival in ("ATR", "CTR")
        for claim in (
            at_most(f"least response, PSP / {rival}", least["PSP"][1] / least[rival][1], 1),
            at_most(f"state there, PSP / {rival}", state["PSP"] / state[rival], 1),
        )
    )
    figures = {
        "nodes": list(NODES[scale]),
        "lines": figures_of(lines),
        "best": {name: {"nodes": nodes, "ms": ms} for name, (nodes, ms) in least.items()},
    }
    return Result(claims, figures)


def plot(result: Result, path: Path) -> None:
    """Response over the number of nodes."""
    draw_response(result, path, "The ring at its best length is ahead, and stores nothing twice", first=1)


EXPERIMENT = Experiment(id="slice-E16", title="The ring and its rivals at their best", run=run, plot=plot)
