"""slice-E1: state memory saved by slicing for two queries (state-slice E1, S15).

The closed forms of Eq 5.2 over window ratios and selectivities from 0 to 1. The publication states 20 to 30 %
on average. Its own formulas give less against one shared join, and this value is claimed here.
"""

from __future__ import annotations

from slicemill_lab.claims import Claim, at_least, near
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.slice.analysis.savings import memory_against_pull_up, memory_against_push_down
from slicemill_lab.slice.savings import Savings, drawing, over_the_square

PULL_UP, PUSH_DOWN = "against pull-up", "against push-down"


def run(seed: int, scale: Scale) -> Result:  # noqa: ARG001
    """Compute savings over the whole square of rho and Ss."""
    rivals = {PULL_UP: memory_against_pull_up, PUSH_DOWN: memory_against_push_down}
    savings = over_the_square(rivals, scale)
    greatest = {name: max(values) for name, values in savings.values.items()}
    figures = {**savings.figures(), "greatest_percent": greatest}
    measured = {
        **{f"mean saving {name}": [savings.means[name]] for name in rivals},
        "greatest saving against pull-up": [greatest[PULL_UP]],
    }
    return Result(_claims(savings, greatest), figures, measured)


EXPERIMENT = Experiment(
    id="slice-E1",
    title="Analytic memory saving of slices, two queries",
    run=run,
    plot=drawing(
        "Slicing saves most state where the other way holds what only one query needs",
        "state memory saved [%]",
    ),
    substrate="formula",
)


def _claims(savings: Savings, greatest: dict[str, float]) -> tuple[Claim, ...]:
    means = savings.means
    printed = "Printed: about 20-30 % on average; its own formula averages"
    return (
        at_least("least saving anywhere, %", savings.least, 0),
        near("mean saving against pull-up, %", means[PULL_UP], 12.5, note=f"{printed} one eighth."),
        near("mean saving against push-down, %", means[PUSH_DOWN], 20, note=f"{printed} about a fifth."),
        near("at the extremes it saves half against pull-up, %", greatest[PULL_UP], 50),
        near("and a third against push-down, %", greatest[PUSH_DOWN], 100 / 3),
    )
