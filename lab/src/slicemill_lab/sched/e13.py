"""sched-E13: tardiness of results with deadlines (metrics-and-schedulers E13, P24, P25, A19).

Tardiness of sliding-window aggregates with random ranges and slides. Published: the hybrid is never above EDF
or the highest rate. EDF is better than the rate at low loads, and the rate better than EDF at high loads.
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

from slicemill_lab.claims import Claim, at_most
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.plotting import curve
from slicemill_lab.sched.runs import SYNTHETIC, plot_sweep
from slicemill_lab.simulator.aggregate_loop import simulate_aggregates, sliding_aggregates
from slicemill_lab.simulator.deadlines import DeadlineRule
from slicemill_lab.spread import ordered, seeds

NAMES = {DeadlineRule.EDF: "EDF", DeadlineRule.HIGHEST_RATE: "HR", DeadlineRule.HYBRID: "hybrid"}
LOADS = (0.5, 0.7, 0.9, 0.95, 0.99)


def run(seed: int, scale: Scale) -> Result:
    """Mean tardiness by rule over the loads."""
    found = {load: _tardiness(load, seed, scale) for load in LOADS}
    claims: list[Claim] = [
        at_most(
            f"load {load:g}: the hybrid over the better of the two",
            fmean(rules["hybrid"]) / min(fmean(rules["EDF"]), fmean(rules["HR"])),
            1.0,
        )
        for load, rules in found.items()
    ]
    for load, first, second in ((LOADS[0], "EDF", "HR"), (LOADS[-1], "HR", "EDF")):
        better = {name: found[load][name] for name in (first, second)}
        claims.append(ordered(f"load {load:g}: {first} is better than {second}", better))
    curves = {
        name: curve(LOADS, list(zip(*(found[load][name] for load in LOADS), strict=True)))
        for name in NAMES.values()
    }
    return Result(
        tuple(claims),
        {"arrivals": SYNTHETIC, "objective": "mean tardiness [s]", "loads": list(LOADS), "curves": curves},
    )


def _tardiness(load: float, seed: int, scale: Scale) -> dict[str, list[float]]:
    queries, tuples = (50, 3000) if scale == "small" else (250, 20_000)
    found: dict[str, list[float]] = {name: [] for name in NAMES.values()}
    for one in seeds(seed):
        work = sliding_aggregates(load, one, queries=queries, tuples=tuples)
        for rule, name in NAMES.items():
            found[name].append(float(simulate_aggregates(work, rule).mean()))
    return found


def plot(result: Result, path: Path) -> None:
    """Mean tardiness against utilisation."""
    plot_sweep(result, path, "The hybrid of EDF and highest rate is below both")


EXPERIMENT = Experiment(id="sched-E13", title="Tardiness of window aggregates", run=run, plot=plot)
