"""slice-E13: several tuples in flight on a ring (state-slice E13, S32)."""

from __future__ import annotations

from pathlib import Path

from slicemill_lab.claims import at_least, at_most
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.slice.ring.runs import (
    NODES,
    RingSetting,
    draw_response,
    figures_of,
    most_over_least,
    psp_by_nodes,
)

IN_FLIGHT = (1, 8)


def run(seed: int, scale: Scale) -> Result:
    """Measure response and state over nodes, by the number of tuples in flight."""
    lines = {f"{n} in flight": psp_by_nodes(RingSetting(), scale, seed, n) for n in IN_FLIGHT}
    shared = [nodes for nodes in NODES[scale] if nodes >= 4]
    one, most = lines["1 in flight"], lines[f"{IN_FLIGHT[-1]} in flight"]
    spread = {
        name: most_over_least([line[nodes].response for nodes in shared]) for name, line in lines.items()
    }
    claims = (
        at_least(
            "state with eight in flight / with one: least over lengths of 4 and more",
            min(most[nodes].state / one[nodes].state for nodes in shared),
            1.0001,
            note="With a quarter of a machine's work on four nodes, tuples are seldom under way together.",
        ),
        at_most(
            "how much response differs over lengths of 4 and more, eight in flight / one",
            spread[f"{IN_FLIGHT[-1]} in flight"] / spread["1 in flight"],
            1,
            note="Printed: nearly flat in the number of nodes.",
        ),
    )
    figures = {"nodes": list(NODES[scale]), "lines": figures_of(lines), "response, most / least": spread}
    return Result(claims, figures)


def plot(result: Result, path: Path) -> None:
    """Response over the number of nodes."""
    draw_response(result, path, "With several tuples in flight, the length matters less")


EXPERIMENT = Experiment(id="slice-E13", title="Several tuples in flight on a ring", run=run, plot=plot)
