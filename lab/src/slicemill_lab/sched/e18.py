"""sched-E18: operators shared by queries (metrics-and-schedulers E18, P26, P27, A5).

Groups of ten queries share their select. Its priority is that of the best query (Max), of all queries (Sum),
or of the subset with the greatest priority (PDT). Published, PDT below Max and Sum: mean response 21 and 12
%, mean slowdown 24 and 18 %, norm of slowdowns 10 and 8 %.
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

from slicemill_lab.claims import Claim
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.plotting import draw_bars
from slicemill_lab.published.figure import changes
from slicemill_lab.sched.runs import SYNTHETIC, shown
from slicemill_lab.simulator.measures import objectives
from slicemill_lab.spread import lower, lowest, seeds
from slicemill_lab.testbeds.shared_selects import Rate, Strategy, shared_selects, simulate_shared

LOAD = 0.95
STRATEGIES: dict[Strategy, str] = {"max": "Max", "sum": "Sum", "pdt": "PDT"}
OBJECTIVES: dict[Rate, str] = {"hr": "mean response", "hnr": "mean slowdown", "bsd": "l2 slowdown"}


def run(seed: int, scale: Scale) -> Result:
    """Each policy's own objective under the three strategies."""
    queries, tuples = (250, 600) if scale == "small" else (500, 3000)
    beds = [shared_selects(LOAD, one, queries=queries, tuples=tuples) for one in seeds(seed)]
    claims: list[Claim] = []
    measured: dict[str, list[float]] = {}
    relative: dict[str, float] = {}
    for policy, objective in OBJECTIVES.items():
        found = {
            name: [
                objectives(simulate_shared(bed, policy, strategy), bed.ideal_times)[objective] for bed in beds
            ]
            for strategy, name in STRATEGIES.items()
        }
        claims.append(lowest(f"{shown(policy)}, {objective}: the lowest", "PDT", found))
        for other in ("Max", "Sum"):
            own = f"{shown(policy)}, {objective}: PDT"
            claims.append(lower(f"{own} below {other}", found["PDT"], found[other]))
            measured[f"{own} against {other}"] = changes(found["PDT"], found[other])
        for name in ("Sum", "PDT"):
            relative[f"{shown(policy)} {name}"] = fmean(found[name]) / fmean(found["Max"])
    return Result(tuple(claims), {"arrivals": SYNTHETIC, "relative to Max": relative}, measured)


def plot(result: Result, path: Path) -> None:
    """A bar for each policy and strategy."""
    draw_bars(
        path,
        {name: 100 * value for name, value in result.figures["relative to Max"].items()},
        title=f"Priorities of shared operators (load {LOAD:g}; {SYNTHETIC})",
        y_label="the policy's own objective, in % of Max",
    )


EXPERIMENT = Experiment(id="sched-E18", title="Max, Sum and PDT for shared operators", run=run, plot=plot)
