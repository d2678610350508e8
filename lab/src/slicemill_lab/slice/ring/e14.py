"""slice-E14: aligned routing, response and state over nodes (state-slice E14, S42)."""

from __future__ import annotations

from pathlib import Path

from slicemill_lab.claims import Claim, ascending, at_least
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.plotting import curve, draw_curves
from slicemill_lab.slice.ring.runs import (
    NODES,
    WINDOW_S,
    MeasuredRing,
    RingSetting,
    atr,
    figures_of,
    measured_ring,
)

SEGMENTS = {"small": (1, 2), "full": (1, 2, 5)}
"""Length of a segment in windows. Published: one to five."""


def run(seed: int, scale: Scale) -> Result:
    """Response and state over nodes, by the length of a segment."""
    lines = {f"T {windows} W": aligned(scale, windows, seed) for windows in SEGMENTS[scale]}
    claims = tuple(claim for name, line in lines.items() for claim in _claims(name, line))
    return Result(claims, {"nodes": list(NODES[scale]), "lines": figures_of(lines)})


def plot(result: Result, path: Path) -> None:
    """State over the number of nodes."""
    draw_curves(
        path,
        {
            name: curve(result.figures["nodes"], [line["state"]])
            for name, line in result.figures["lines"].items()
        },
        title="Segments that wait on their nodes cost state, and bring no speed",
        x_label="nodes",
        y_label="tuples stored",
    )


EXPERIMENT = Experiment(id="slice-E14", title="Aligned routing over the number of nodes", run=run, plot=plot)


def aligned(scale: Scale, windows: float, seed: int) -> dict[int, MeasuredRing]:
    """Run aligned routing at every number of nodes, until all nodes have had a segment."""
    setting = RingSetting()
    return {
        nodes: measured_ring(
            atr(setting, nodes, scale, windows), setting, scale, seed, (nodes + 2) * windows * WINDOW_S[scale]
        )
        for nodes in NODES[scale]
    }


def _claims(name: str, line: dict[int, MeasuredRing]) -> tuple[Claim, ...]:
    published = {nodes: one for nodes, one in line.items() if nodes >= 4}
    first, *_, last = published
    return (
        at_least(
            f"{name}: response at {last} nodes / at {first}", line[last].response / line[first].response, 0.9
        ),
        ascending(
            f"{name}: state grows with nodes",
            {f"{nodes} nodes": one.state for nodes, one in published.items()},
        ),
    )
