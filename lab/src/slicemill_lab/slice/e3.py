"""slice-E3: comparisons saved by slicing against split streams (state-slice E3, S15).

Slices and push-down both filter before they probe, so only the work after the joins differs: push-down routes
and merges results, slices apply a selection to some of them. The closed form omits terms that are linear in
the rate. Rates and numbers of queries are compared with the full formulas.
"""

from __future__ import annotations

from functools import partial

from slicemill.operators.join.slices.cuts import mem_opt
from slicemill.operators.join.slices.workload import JoinWorkload, Member, member
from slicemill_lab.claims import Claim, ascending, at_least
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.slice.analysis.savings import cpu_against_push_down
from slicemill_lab.slice.joins import JOIN_SELECTIVITIES, saved
from slicemill_lab.slice.savings import Savings, drawing, over_the_square

RATES = (5, 20, 80)
QUERIES = (2, 3, 4, 6)


def run(seed: int, scale: Scale) -> Result:  # noqa: ARG001
    """Compute savings over the square of rho and Ss by Sj, and by rate and number of queries at one point."""
    by_sj = {f"Sj {sj:g}": partial(cpu_against_push_down, sj=sj) for sj in JOIN_SELECTIVITIES}
    savings = over_the_square(by_sj, scale)
    by_rate = {f"{rate} t/s": _saved(_queries(2), rate) for rate in RATES}
    by_queries = {f"{count} queries": _saved(_queries(count), 50) for count in QUERIES}
    own_predicates = [_saved(_queries(count, own_predicates=True), 50) for count in QUERIES]
    figures = {
        **savings.figures(),
        "by_rate_percent": by_rate,
        "by_queries_percent": by_queries,
        "own_predicates_percent": own_predicates,
    }
    return Result(_claims(savings, by_rate, by_queries, own_predicates), figures)


EXPERIMENT = Experiment(
    id="slice-E3",
    title="Analytic CPU saving of slices against push-down",
    run=run,
    plot=drawing(
        "Against split streams slicing saves what routing and merging of results cost",
        "comparisons saved against push-down [%]",
    ),
)


def _claims(
    savings: Savings,
    by_rate: dict[str, float],
    by_queries: dict[str, float],
    own_predicates: list[float],
) -> tuple[Claim, ...]:
    alone = ", ".join(f"{value:.1f}" for value in own_predicates)
    return (
        at_least("least saving anywhere, %", savings.least, 0),
        ascending("it grows with Sj (mean, %)", savings.means),
        ascending("it grows with the rate (%)", by_rate),
        ascending(
            "it grows with the number of queries (%)",
            by_queries,
            note=f"All but the first behind one selection; with a selection each: {alone} %, no clear trend.",
        ),
    )


def _queries(count: int, own_predicates: bool = False) -> tuple[Member, ...]:
    """Return queries up to 30 s. The first has no selection; the others share one or have their own."""
    ends = [30 * number / count for number in range(1, count + 1)]
    return (
        member("Q1", ends[0]),
        *(
            member(f"Q{number}", end, f"σ{number}" if own_predicates else "σ", 0.5)
            for number, end in enumerate(ends[1:], 2)
        ),
    )


def _saved(members: tuple[Member, ...], rate: float) -> float:
    plan = mem_opt(JoinWorkload(members, (rate, rate), 0.1))
    return saved(plan.expected.cpu, plan.baselines["push-down"].cpu)
