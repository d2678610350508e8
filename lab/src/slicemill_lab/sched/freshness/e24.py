"""sched-E24: parameter between freshness and response time (metrics-and-schedulers E24, P34).

FAS(β) counts the pending tuples as N^β. As β falls, response times fall and staleness rises. FAS(0) is HR,
with a small overhead if decisions are charged (P35).
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

from slicemill_lab.charts.charts import Objective
from slicemill_lab.charts.tasks import cut
from slicemill_lab.claims import ascending, at_least, equal
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.plotting import curve, draw_curves
from slicemill_lab.policies.registry import asked
from slicemill_lab.sched.runs import POISSON, Data, bed_of, samples
from slicemill_lab.simulator.calendar_loop import simulate_calendar
from slicemill_lab.simulator.measures import objectives
from slicemill_lab.spread import SEEDS, seeds

BETAS = (0.0, 0.25, 0.5, 1.0)
LOAD = 0.95


def run(seed: int, scale: Scale) -> Result:
    """Measure response time and staleness by β at one load, and under HR."""
    found = {
        objective: [fmean(samples(objective, "fas", Data(LOAD), seed, scale, beta=beta)) for beta in BETAS]
        for objective in ("mean response", "staleness")
    }
    rate = {objective: fmean(samples(objective, "hr", Data(LOAD), seed, scale)) for objective in found}
    response = dict(zip((f"β {beta:g}" for beta in BETAS), found["mean response"], strict=True))
    stale = dict(zip((f"β {beta:g}" for beta in BETAS), found["staleness"], strict=True))
    paid = [
        _with_calendar(one, scale) / rate_
        for one, rate_ in zip(
            seeds(seed), samples("mean response", "hr", Data(0.5), seed, scale), strict=True
        )
    ]
    claims = (
        ascending("response time rises with β", response),
        ascending("staleness falls with β", dict(reversed(stale.items()))),
        *(
            equal(f"{objective}: FAS(0) over HR", found[objective][0] / rate[objective], 1.0)
            for objective in found
        ),
        at_least(
            "load 0.5: response time of FAS(0) that pays for a calendar queue, over HR",
            fmean(paid),
            1.0,
            note=f"published: a little more; {min(paid):.2f} to {max(paid):.2f} over {SEEDS} seeds. A "
            "tuple of a query takes two or three operations of the queue, each as dear as the cheapest "
            "operator, beside about five such operators: at a load of 0.95 that is too much",
        ),
    )
    return Result(claims, {"arrivals": POISSON, "betas": list(BETAS), "fas": found, "hr": rate})


def _with_calendar(seed: int, scale: Scale) -> float:
    bed = bed_of(Data(0.5), seed, scale)
    policy = asked("fas", cut(bed.work.paths, "query", Objective.OUTPUT_RESPONSE).tasks, beta=0.0)
    return objectives(simulate_calendar(bed.work, policy, operation=bed.task_cost))["mean response"]


def plot(result: Result, path: Path) -> None:
    """Both figures, relative to HR, against β."""
    draw_curves(
        path,
        {
            objective: curve(BETAS, [[value / result.figures["hr"][objective] for value in values]])
            for objective, values in result.figures["fas"].items()
        },
        title=f"One knob between response time and freshness (load {LOAD:g}; {POISSON})",
        x_label="β",
        y_label="relative to HR",
    )


EXPERIMENT = Experiment(
    id="sched-E24", title="FAS(β) between response time and freshness", run=run, plot=plot
)
