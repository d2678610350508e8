"""sched-E12: joins of two streams (metrics-and-schedulers E12, P3, P22, P23).

Window joins of 1 to 10 s over two Poisson streams. The response of a pair excludes the wait for its partner.
Published: BSD has the lowest norm of slowdowns, up to
14 % below HNR. At 90 % load it is 17 times better than RR and 15 times better than FCFS. The number of tuples
in a window is not published; here it is 1 to 10.
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

from slicemill_lab.claims import Claim
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.plotting import curve
from slicemill_lab.published.figure import changes, ratios
from slicemill_lab.sched.runs import plot_sweep, shown
from slicemill_lab.simulator.join_loop import pair_objectives, simulate_joins, window_joins
from slicemill_lab.spread import lower, lowest, seeds

ARRIVALS = "Poisson arrivals"
POLICIES = ("bsd", "hnr", "hr", "slices", "fcfs")
OTHERS = ("HNR", "RR", "FCFS")


def run(seed: int, scale: Scale) -> Result:
    """The norm of slowdowns by policy over the loads."""
    loads = (0.7, 0.9) if scale == "small" else (0.7, 0.9, 0.95)
    found = {
        load: {shown(policy): _samples(policy, load, seed, scale) for policy in POLICIES} for load in loads
    }
    claims: list[Claim] = [
        lowest(f"load {load:g}: the lowest norm", "BSD", policies) for load, policies in found.items()
    ]
    high = found[0.9]
    claims += [lower(f"load 0.9: BSD below {other}", high["BSD"], high[other]) for other in OTHERS]
    measured = {f"load 0.9: {other} over BSD": ratios(high[other], high["BSD"]) for other in OTHERS[1:]}
    measured["BSD against HNR"] = min(
        (changes(policies["BSD"], policies["HNR"]) for policies in found.values()), key=fmean
    )
    curves = {
        shown(policy): curve(loads, list(zip(*(found[load][shown(policy)] for load in loads), strict=True)))
        for policy in POLICIES
    }
    return Result(
        tuple(claims),
        {"arrivals": ARRIVALS, "objective": "l2 slowdown", "loads": list(loads), "curves": curves},
        measured,
    )


def _samples(policy: str, load: float, seed: int, scale: Scale) -> list[float]:
    queries, tuples = (100, 300) if scale == "small" else (500, 1500)
    found = []
    for one in seeds(seed):
        work = window_joins(load, one, queries=queries, tuples=tuples)
        found.append(pair_objectives(work, simulate_joins(work, policy))["l2 slowdown"])
    return found


def plot(result: Result, path: Path) -> None:
    """The norm of slowdowns against utilisation."""
    plot_sweep(result, path, "BSD has the lowest norm of slowdowns for joins, too")


EXPERIMENT = Experiment(id="sched-E12", title="Window joins by policy and load", run=run, plot=plot)
