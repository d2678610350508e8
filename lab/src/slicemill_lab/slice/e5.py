"""slice-E5: state of a shared tree of joins over all window ratios (state-slice E5, S16).

m = W1_AB / W2_AB and n = W2_BC / W1_BC from 0 to 1, dominant terms (Eq 6.4), on a 20 x 20 grid.
"""

from __future__ import annotations

from pathlib import Path

from slicemill_lab.claims import Claim, ascending, at_least
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.plotting import curve, draw_curves
from slicemill_lab.slice.analysis.join_tree import memory_over_isolated, memory_over_pull_up
from slicemill_lab.slice.joins import mean

STEPS = 20
DRAWN = (0.1, 0.5, 1.0)
RIVALS = {"isolated": memory_over_isolated, "pull-up": memory_over_pull_up}


def run(seed: int, scale: Scale) -> Result:  # noqa: ARG001
    """Compute savings over the whole square."""
    grid = [step / STEPS for step in range(1, STEPS + 1)]
    savings = {name: [100 * (1 - ratio(m, n)) for m in grid for n in grid] for name, ratio in RIVALS.items()}
    lines = {
        f"against {name}, n {n:g}": [100 * (1 - ratio(m, n)) for m in grid]
        for name, ratio in RIVALS.items()
        for n in DRAWN
    }
    figures = {
        "m": grid,
        "saved_percent": lines,
        "mean_percent": {name: mean(values) for name, values in savings.items()},
    }
    measured = {f"mean saving against {name}": [mean(values)] for name, values in savings.items()}
    return Result(_claims(savings), figures, measured)


def plot(result: Result, path: Path) -> None:
    """Savings against m."""
    draw_curves(
        path,
        {name: curve(result.figures["m"], [line]) for name, line in result.figures["saved_percent"].items()},
        title="The more queries overlap, the more slices save against isolation, the less against pull-up",
        x_label="m = W1_AB / W2_AB",
        y_label="state memory saved [%]",
    )


EXPERIMENT = Experiment(
    id="slice-E5",
    title="Memory of a shared join tree over window ratios",
    run=run,
    plot=plot,
    substrate="formula",
)


def _claims(savings: dict[str, list[float]]) -> tuple[Claim, ...]:
    isolated, above = savings["isolated"], savings["pull-up"]
    return (
        # With equal windows, slices are one join: nothing is saved against pull-up, up to rounding.
        at_least("least saving anywhere, %", min(isolated + above), -1e-9),
        ascending(
            "mean saving against isolated trees and against pull-up, %",
            {"isolated": mean(isolated), "pull-up": mean(above)},
            note="Printed: 20-30 % on average; the printed formula averages 12 % and 38 %.",
        ),
    )
