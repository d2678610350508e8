"""slice-E2: how many comparisons does slicing save against one shared join? (state-slice E2, S15)

The closed form of Eq 5.2 over window ratios and selectivities from 0 to 1, for several join selectivities.
Against one join with the longer window and selections above it there is less to probe, and nothing to route.
"""

from __future__ import annotations

from pathlib import Path

from slicemill.lab.claims import Claim, ascending, at_least, within
from slicemill.lab.experiment import Experiment, Result, Scale
from slicemill.lab.plotting import curve, draw_curves
from slicemill.lab.slice_joins import JOIN_SELECTIVITIES, mean, open_interval
from slicemill.plan.slices.savings import cpu_against_pull_up

STEPS: dict[Scale, int] = {"small": 49, "full": 499}
DRAWN = (0.1, 0.5, 0.9)


def run(seed: int, scale: Scale) -> Result:  # noqa: ARG001
    """Savings over the whole square of rho and Ss, by Sj."""
    grid = open_interval(STEPS[scale])
    savings = {
        sj: [100 * cpu_against_pull_up(rho, ss, sj) for rho in grid for ss in grid]
        for sj in JOIN_SELECTIVITIES
    }
    lines = {
        f"Sj {sj:g}, Ss {ss:g}": [100 * cpu_against_pull_up(rho, ss, sj) for rho in grid]
        for sj in JOIN_SELECTIVITIES
        for ss in DRAWN
    }
    figures = {
        "rho": grid,
        "saved_percent": lines,
        "mean_percent": {str(sj): mean(values) for sj, values in savings.items()},
    }
    return Result(_claims(savings), figures)


def plot(result: Result, path: Path) -> None:
    """Savings against the ratio of the windows."""
    draw_curves(
        path,
        {
            name: curve(result.figures["rho"], [line])
            for name, line in result.figures["saved_percent"].items()
        },
        title="The less the windows and the selection have in common, the more comparisons slicing saves",
        x_label="W1 / W2",
        y_label="comparisons saved against pull-up [%]",
    )


EXPERIMENT = Experiment(
    id="slice-E2", title="Analytic CPU saving of slices against pull-up", run=run, plot=plot
)


def _claims(savings: dict[float, list[float]]) -> tuple[Claim, ...]:
    means = {f"Sj {sj:g}": mean(values) for sj, values in savings.items()}
    return (
        at_least("least saving anywhere, %", min(min(values) for values in savings.values()), 0),
        at_least("at the extremes nearly everything, %", max(max(values) for values in savings.values()), 95),
        within(
            "mean saving, the highest of all Sj, %",
            max(means.values()),
            40,
            50,
            note="Printed: 10-40 % on average; at Sj 0.4 the mean of the printed formula is 47 %.",
        ),
        within("mean saving, the lowest of all Sj, %", min(means.values()), 25, 40),
        ascending("the mean rises with Sj, as routing does", means),
    )
