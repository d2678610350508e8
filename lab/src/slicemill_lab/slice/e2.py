"""slice-E2: comparisons saved by slicing against one shared join (state-slice E2, S15).

The closed form of Eq 5.2 over window ratios and selectivities from 0 to 1, for several join selectivities.
One join with the longer window and selections above it has more to probe, and must route its results.
"""

from __future__ import annotations

from functools import partial

from slicemill_lab.claims import Claim, ascending, at_least, near
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.slice.analysis.savings import cpu_against_pull_up
from slicemill_lab.slice.joins import JOIN_SELECTIVITIES, mean
from slicemill_lab.slice.savings import Savings, drawing, over_the_square


def run(seed: int, scale: Scale) -> Result:  # noqa: ARG001
    """Compute savings over the whole square of rho and Ss, by Sj."""
    by_sj = {f"Sj {sj:g}": partial(cpu_against_pull_up, sj=sj) for sj in JOIN_SELECTIVITIES}
    savings = over_the_square(by_sj, scale)
    greatest = max(max(values) for values in savings.values.values())
    measured = {
        "mean saving against pull-up, over all Sj": [mean(list(savings.means.values()))],
        "greatest saving against pull-up": [greatest],
    }
    return Result(_claims(savings, greatest), savings.figures(), measured)


EXPERIMENT = Experiment(
    id="slice-E2",
    title="Analytic CPU saving of slices against pull-up",
    run=run,
    plot=drawing(
        "The less the windows and the selection have in common, the more comparisons slicing saves",
        "comparisons saved against pull-up [%]",
    ),
    substrate="formula",
)


def _claims(savings: Savings, greatest: float) -> tuple[Claim, ...]:
    means = savings.means
    return (
        at_least("least saving anywhere, %", savings.least, 0),
        near("at the extremes nearly everything, %", greatest, 100),
        ascending(
            "the mean rises with Sj, as routing does",
            means,
            note="Printed: 10-40 % on average; at Sj 0.4 the mean of the printed formula is 47 %.",
        ),
    )
