"""sched-E0: two queries, by rate and by normalised rate (metrics-and-schedulers E0, G5).

There are an expensive query that keeps everything and a cheap one that keeps a third, with three tuples
waiting for each. The highest rate runs the expensive query first. The highest normalised rate does not let a
cheap query wait for it.
"""

from __future__ import annotations

from pathlib import Path

from slicemill_lab.charts.charts import Objective, Stage
from slicemill_lab.charts.charts import Path as Plan
from slicemill_lab.charts.tasks import cut
from slicemill_lab.claims import equal
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.plotting import draw_bars
from slicemill_lab.policies.registry import make
from slicemill_lab.simulator.loop import simulate
from slicemill_lab.simulator.measures import objectives
from slicemill_lab.simulator.workload import Load, draw

QUERIES = (Plan("Q1", (Stage("keep all", 5.0, 1.0),)), Plan("Q2", (Stage("keep a third", 2.0, 1 / 3),)))
PUBLISHED = {
    "hr": {"mean response": 12.25, "mean slowdown": 3.875},
    "hnr": {"mean response": 13.0, "mean slowdown": 2.9},
}


def run(seed: int, scale: Scale) -> Result:  # noqa: ARG001
    """Mean response time and slowdown of the four results."""
    work = draw([Load(QUERIES[0], [0, 0, 0]), Load(QUERIES[1], [0, 0, 0], outputs=[[0, 1, 0]])], seed)
    tasks = cut(QUERIES, "query", Objective.OUTPUT_RESPONSE)
    figures = {name: objectives(simulate(work, tasks, make(name, tasks.tasks))) for name in PUBLISHED}
    claims = tuple(
        equal(f"{name.upper()}: {what}", figures[name][what], value)
        for name, published in PUBLISHED.items()
        for what, value in published.items()
    )
    return Result(claims, figures, {claim.what: [float(claim.measured)] for claim in claims})


def plot(result: Result, path: Path) -> None:
    """The mean slowdown of both policies."""
    bars = {name.upper(): result.figures[name]["mean slowdown"] for name in PUBLISHED}
    draw_bars(path, bars, title="A cheap query need not wait for a dear one", y_label="mean slowdown")


EXPERIMENT = Experiment(
    id="sched-E0", title="Two queries, by rate and by normalised rate", run=run, plot=plot
)
