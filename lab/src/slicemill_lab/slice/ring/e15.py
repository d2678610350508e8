"""slice-E15: coordinated routing, response and state over nodes and copies (state-slice E15, S43)."""

from __future__ import annotations

from pathlib import Path

from slicemill_lab.claims import ascending, at_most
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.slice.ring.runs import (
    NODES,
    MeasuredRing,
    RingSetting,
    ctr,
    draw_response,
    figures_of,
    measured_ring,
    most_over_least,
)

SHARES = (0.0, 0.25, 0.5)
"""Copies of a tuple as a share of the nodes, at least one. Published: up to half of them."""


def run(seed: int, scale: Scale) -> Result:
    """Measure response and state over nodes, by the share of nodes that store a tuple."""
    fixed = {f"{copies} copies": coordinated(scale, seed, copies) for copies in (1, 2, 4)}
    by_share = {f"{share:.0%} of nodes": coordinated(scale, seed, None, share) for share in SHARES[1:]}
    longest = NODES[scale][-1]
    two = fixed["2 copies"]
    claims = (
        at_most(f"2 copies: response at {longest} nodes / at 4", two[longest].response / two[4].response, 1),
        ascending(
            f"more copies, more state ({longest} nodes)",
            {name: line[longest].state for name, line in fixed.items()},
        ),
        at_most(
            "state over nodes, most / least, 4 nodes and more",
            most_over_least([one.state for nodes, one in two.items() if nodes >= 4]),
            1.05,
        ),
        ascending(
            f"more copies, longer response ({longest} nodes, ms)",
            {
                name: 1000 * line[longest].response
                for name, line in {"1 copy": fixed["1 copies"], **by_share}.items()
            },
            note="Printed: more copies, larger response. A cover of fewer nodes gives each more to do.",
        ),
    )
    figures = {"nodes": list(NODES[scale]), "lines": figures_of({**fixed, **by_share})}
    return Result(claims, figures)


def plot(result: Result, path: Path) -> None:
    """Response over the number of nodes."""
    draw_response(result, path, "Copies on more nodes make covers smaller, and hops slower", first=1)


EXPERIMENT = Experiment(id="slice-E15", title="Coordinated routing over nodes and copies", run=run, plot=plot)


def coordinated(scale: Scale, seed: int, copies: int | None, share: float = 0.0) -> dict[int, MeasuredRing]:
    """Run coordinated routing at every number of nodes, with a fixed number or share of copies."""
    setting = RingSetting()
    return {
        nodes: measured_ring(
            ctr(setting, nodes, scale, copies or max(1, round(share * nodes)), seed), setting, scale, seed
        )
        for nodes in NODES[scale]
    }
