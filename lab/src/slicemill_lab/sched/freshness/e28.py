"""sched-E28: staleness under ON/OFF traffic (metrics-and-schedulers E28, P32, P37).

Two streams represent the TCP and the UDP packets of the published trace. Published order: FAS, HR, RR, FCFS;
staleness is high for all.
"""

from __future__ import annotations

from pathlib import Path

from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.sched.runs import DATA_LOADS, SYNTHETIC, Data, by_policy, plot_sweep, sweep
from slicemill_lab.spread import lower, ordered

POLICIES = ("fas", "hr", "slices", "fcfs")


def run(seed: int, scale: Scale) -> Result:
    """Staleness by policy over the loads."""
    at = {load: by_policy("staleness", POLICIES, _traces(load), seed, scale) for load in (0.5, 0.95)}
    steady = by_policy("staleness", POLICIES, Data(0.95, bursty=0), seed, scale)
    claims = (
        *(ordered(f"order at load {load:g}", found) for load, found in at.items()),
        *(
            lower(f"{name}: Poisson arrivals are less stale than ON/OFF ones", steady[name], at[0.95][name])
            for name in steady
        ),
    )
    return Result(
        claims,
        sweep("staleness", POLICIES, seed, scale, at=_traces, loads=DATA_LOADS, arrivals=SYNTHETIC),
    )


def _traces(load: float) -> Data:
    return Data(load, traces=True)


def plot(result: Result, path: Path) -> None:
    """Staleness against utilisation."""
    plot_sweep(result, path, "FAS keeps results freshest under ON/OFF traffic, too")


EXPERIMENT = Experiment(id="sched-E28", title="Staleness under ON/OFF traffic", run=run, plot=plot)
