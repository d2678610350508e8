"""sched-E22: staleness of policies (metrics-and-schedulers E22, P30-P32, P37).

Published: freshness-aware scheduling has the lowest staleness everywhere, followed by the highest rate. It is
30 % below the highest rate at a load of
10 %, 40 % below at 95 %, and the gap grows with the load. FAS can also use weights of queries (P33; without
published figures).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from slicemill_lab.charts.charts import Objective
from slicemill_lab.charts.tasks import cut
from slicemill_lab.claims import Claim, ascending
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.policies.registry import asked
from slicemill_lab.published.figure import changes
from slicemill_lab.sched.runs import DATA_LOADS, POISSON, Data, bed_of, by_policy, plot_sweep, sweep
from slicemill_lab.simulator.loop import simulate
from slicemill_lab.simulator.measures import objectives
from slicemill_lab.spread import lower, ordered, seeds

POLICIES = ("fas", "hr", "slices", "fcfs")


def run(seed: int, scale: Scale) -> Result:
    """Staleness by policy over the loads."""
    at = {load: by_policy("staleness", POLICIES, Data(load), seed, scale) for load in (0.1, 0.5, 0.95)}
    gaps = {
        load: lower(f"load {load:g}: FAS below HR", at[load]["FAS"], at[load]["HR"]) for load in (0.1, 0.95)
    }
    measured = {
        f"load {load:g}: FAS against HR": changes(at[load]["FAS"], at[load]["HR"]) for load in (0.1, 0.95)
    }
    for name in ("HR", "FAS"):
        measured[f"load 0.95: staleness under {name}"] = [100 * value for value in at[0.95][name]]
    claims = (
        *(
            ordered(
                f"order at load {load:g}: FAS, HR, then RR and FCFS",
                {
                    "FAS": found["FAS"],
                    "HR": found["HR"],
                    "RR, FCFS": list(map(min, found["RR"], found["FCFS"])),
                },
            )
            for load, found in at.items()
        ),
        *gaps.values(),
        ascending(
            "the gap grows with the load",
            {f"load {load:g}": float(gap.measured) for load, gap in gaps.items()},
        ),
        _by_weight(seed, scale),
    )
    return Result(
        claims,
        sweep("staleness", POLICIES, seed, scale, at=Data, loads=DATA_LOADS, arrivals=POISSON),
        measured,
    )


def _by_weight(seed: int, scale: Scale) -> Claim:
    """Claim that FAS with weights has a lower weighted staleness than FAS without weights."""
    knows: list[float] = []
    does_not: list[float] = []
    for one in seeds(seed):
        bed = bed_of(Data(0.95, weighted=True), one, scale)
        tasks = cut(bed.work.paths, "query", Objective.OUTPUT_RESPONSE)
        policy = asked("fas", tasks.tasks)
        plain = asked("fas", [replace(task, weight=1.0) for task in tasks.tasks])
        for found, one_policy in ((knows, policy), (does_not, plain)):
            found.append(objectives(simulate(bed.work, tasks, one_policy))["weighted staleness"])
    return lower("load 0.95, queries of different weight: weighted FAS below FAS", knows, does_not)


def plot(result: Result, path: Path) -> None:
    """Staleness against utilisation."""
    plot_sweep(result, path, "FAS keeps results freshest")


EXPERIMENT = Experiment(id="sched-E22", title="Staleness by policy and load", run=run, plot=plot)
