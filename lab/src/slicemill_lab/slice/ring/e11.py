"""slice-E11: cost of a tuple on a ring, by network and probing (state-slice E11, S35)."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean, pstdev

from slicemill_lab.claims import ascending, within
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.plotting import curve, draw_curves
from slicemill_lab.slice.joins import SECOND_US
from slicemill_lab.slice.ring.runs import CLASSES, RUN_S, WINDOW_S, RingSetting, psp, ring_arrivals

NODES = 4


def run(seed: int, scale: Scale) -> Result:
    """Measure time for messages and comparisons per tuple, mean and deviation, by class of join."""
    figures = {}
    for cost in CLASSES:
        setting = RingSetting(cost)
        ring, costs = psp(setting, NODES, scale), setting.costs(scale)
        network, probing = [], []
        for arrival in ring_arrivals(setting, RUN_S[scale], seed):
            messages, compared = ring.messages, sum(ring.compared)
            ring.run([arrival])
            if arrival[1].ts >= WINDOW_S[scale] * SECOND_US:
                network.append(1000 * (ring.messages - messages) * costs.send)
                probing.append(1000 * (sum(ring.compared) - compared) * costs.join)
        figures[cost] = {
            name: {"mean ms": fmean(values), "deviation ms": pstdev(values)}
            for name, values in (("network", network), ("probing", probing))
        }
    network_means = [one["network"]["mean ms"] for one in figures.values()]
    claims = (
        within(
            "network cost, most / least of the three classes",
            max(network_means) / min(network_means),
            1,
            1.01,
        ),
        ascending(
            "probing cost grows with the class (ms)",
            {cost: one["probing"]["mean ms"] for cost, one in figures.items()},
        ),
    )
    return Result(claims, {"nodes": NODES, "classes": figures})


def plot(result: Result, path: Path) -> None:
    """Plot both parts by class."""
    classes = result.figures["classes"]
    numbers = list(range(1, len(classes) + 1))
    draw_curves(
        path,
        {
            part: curve(numbers, [[one[part]["mean ms"] for one in classes.values()]])
            for part in ("network", "probing")
        },
        title="Only probing grows with the cost of a comparison",
        x_label="class of join: " + ", ".join(classes),
        y_label="time per tuple [ms]",
    )


EXPERIMENT = Experiment(id="slice-E11", title="What a tuple costs on a ring of four", run=run, plot=plot)
