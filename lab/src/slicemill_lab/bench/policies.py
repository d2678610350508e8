"""Benchmark of scheduling policies on Spark: seven policies, each at its own metric, on one worker.

The queries are those of the testbeds of quality of service (P36), where all policies are compared by all
metrics, and of quality of data (P37), where staleness is compared; see `inputs.testbeds`. Rows arrive one by
one, or in bursts, and cost some milliseconds each, so that a policy has a choice.

First the capacity of the worker is measured: the time from feeding single arrivals to the last of their
results. Then arrivals are recorded for 70 % and 90 % of the capacity and replayed for each policy. As waiting
rows are processed in larger runs with less overhead, the actual load is lower; it is reported. Response time
counts from feeding a row until a subscriber has its result. A slowdown is the response time over T = a + b,
the cost of a run over one row as measured before; no result depends on rows of several streams. The maximum
is the 99.9th percentile.

Every run has its own recording, and policies take turns on it, starting with a different policy in each run.
In each run a figure is taken relative to the mean of all policies on that recording. The median over the runs
counts, and is compared with the lowest median. (A comparison with the lowest value of each run would select
lucky turns, because response times follow the speed of the machine, more so at high load.) A few turns in
which the same work took longer, because the machine was disturbed, are repeated.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, geometric_mean, median
from typing import Any

from rich.table import Table

from slicemill.runtime.spark_session import local_session
from slicemill_lab.bench.benchmark import Benchmark
from slicemill_lab.bench.inputs.testbeds import QueryBed, quality_of_data, quality_of_service
from slicemill_lab.bench.measuring.policy_overhead import decision_ms
from slicemill_lab.bench.measuring.policy_turns import METRICS, PolicyTurn, PolicyTurns, TaskCosts
from slicemill_lab.bench.measuring.ways_to_choose import ways_to_choose_us
from slicemill_lab.claims import Claim, at_most, timed
from slicemill_lab.experiment import Result, Scale
from slicemill_lab.policies.registry import OBJECTIVES

LOADS = (0.7, 0.9)
NEAR = 1.1
"""Bar: best, or within ten percent of the best."""
SLOW = 1.05
"""A turn that took so many times as long as others was disturbed."""
SERVICE_POLICIES = tuple(OBJECTIVES[metric] for metric in METRICS)
DATA_POLICIES = ("fas", "hr", "rr", "fcfs")
_SHORT = {
    "longest response": "p99.9 R",
    "greatest slowdown": "p99.9 H",
    "mean response": "mean R",
    "mean slowdown": "mean H",
    "l2 response": "l2 R",
    "l2 slowdown": "l2 H",
    "staleness": "stale",
}


@dataclass(frozen=True, slots=True)
class PolicySizes:
    runs: int
    replays: int
    """Maximum number of repeated turns per load."""
    service_rows: int
    """Rows of a recording of P36."""
    data_rows: int
    """Rows of each stream of P37."""
    service: QueryBed
    data: QueryBed


SIZES: Mapping[Scale, PolicySizes] = {
    "small": PolicySizes(3, 2, 20, 10, quality_of_service(15), quality_of_data(30, 10)),
    "full": PolicySizes(5, 3, 26, 20, quality_of_service(15), quality_of_data(30, 10)),
}

Turns = Mapping[str, Sequence[PolicyTurn]]
"""By policy, one turn for each run."""


def run(scale: Scale) -> Result:
    sizes = SIZES[scale]
    claims: list[Claim] = []
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="slicemill-bench-") as folder:
        spark = local_session(cores=1)
        try:
            for bed, policies, rows in (
                (sizes.service, SERVICE_POLICIES, sizes.service_rows),
                (sizes.data, DATA_POLICIES, sizes.data_rows),
            ):
                with PolicyTurns(spark, Path(folder), bed) as bench:
                    measured = {load: _turns(bench, load, policies, sizes, rows) for load in LOADS}
                    figures[bed.id] = _bed_figures(bench, measured)
                claims += _bed_claims(bed.id, measured)
        finally:
            spark.stop()
    overhead = decision_ms(tasks=1_000)
    slowest = max(overhead, key=lambda name: overhead[name])
    claims.append(
        timed(
            at_most("ms to decide between 1 000 tasks, median", overhead[slowest], 1, f"{slowest} is slowest")
        )
    )
    figures["median ms to decide between 1 000 units"] = overhead
    figures["median us to find the next of 1 000 tasks, by way"] = ways_to_choose_us(tasks=1_000)
    return Result(tuple(claims), figures)


def _turns(bench: PolicyTurns, load: float, policies: Sequence[str], sizes: PolicySizes, rows: int) -> Turns:
    found: dict[str, list[PolicyTurn]] = {policy: [] for policy in policies}
    recordings = [bench.bed.recorded(bench.gap_s(load), rows, seed) for seed in range(1, sizes.runs + 1)]
    for number, arrivals in enumerate(recordings):
        for policy in (*policies[number % len(policies) :], *policies[: number % len(policies)]):
            found[policy].append(bench.under(policy, arrivals))
    for policy, number in disturbed(found)[: sizes.replays]:
        again = bench.under(policy, recordings[number])
        if again.pace < found[policy][number].pace:
            found[policy][number] = again
    return found


def disturbed(turns: Turns) -> list[tuple[str, int]]:
    """Return policy and run of disturbed turns, the slowest first.

    The normal time of a turn depends on how many rows a run of a task finds, and so on the policy and the
    recording.
    """
    runs = list(zip(*turns.values(), strict=True))
    of_all = median(turn.pace for run in runs for turn in run)
    slowness = {
        (policy, number): turn.pace
        * of_all
        / median(one.pace for one in own)
        / median(one.pace for one in run)
        for policy, own in turns.items()
        for number, (turn, run) in enumerate(zip(own, runs, strict=True))
    }
    return sorted((at for at in slowness if slowness[at] > SLOW), key=lambda at: -slowness[at])


def relative(turns: Turns, metric: str) -> dict[str, list[float]]:
    """Return each policy's figures per run, relative to the mean of all policies in that run."""
    means = [geometric_mean(turn.felt[metric] for turn in run) for run in zip(*turns.values(), strict=True)]
    return {
        policy: [turn.felt[metric] / mean for turn, mean in zip(own, means, strict=True)]
        for policy, own in turns.items()
    }


def ratios(turns: Turns, metric: str) -> dict[str, float]:
    """Return each policy's median figure, relative to the lowest median."""
    medians = {policy: median(own) for policy, own in relative(turns, metric).items()}
    return {policy: own / min(medians.values()) for policy, own in medians.items()}


def different(turns: Turns) -> set[str]:
    """Return the queries whose rows differ between policies in some run."""
    return {
        query
        for run in zip(*turns.values(), strict=True)
        for turn in run
        for query in turn.results.keys() | run[0].results.keys()
        if turn.results.get(query) != run[0].results.get(query)
    }


def _bed_claims(bed: str, measured: Mapping[float, Turns]) -> list[Claim]:
    wrong = {query for turns in measured.values() for query in different(turns)}
    claims = [
        at_most(f"{bed}: queries whose rows differ between policies", len(wrong), 0, ", ".join(sorted(wrong)))
    ]
    for load, turns in measured.items():
        for metric in METRICS if len(turns) == len(METRICS) else ("staleness",):
            own, found = OBJECTIVES[metric], ratios(turns, metric)
            others = min((name for name in found if name != own), key=lambda name: found[name])
            note = f"the best of the others is {others} with {found[others]:.2f}"
            what = f"{bed} at {load:.0%}: {own} by {metric} / the lowest"
            claims.append(timed(at_most(what, found[own], NEAR, note)))
    return claims


def _bed_figures(bench: PolicyTurns, measured: Mapping[float, Turns]) -> dict[str, Any]:
    bed, costs = bench.bed, bench.costs()
    return {
        "how": f"{len(bed.queries)} queries over {len(bed.streams)} streams on one worker; a row of each "
        f"stream takes {1000 * bench.service_s:.0f} ms, all together",
        "queries": {
            query.name: {
                "cost class": query.cost_class,
                "percent": query.percent,
                "a ms": round(1000 * costs[query.name][0], 3),
                "b ms": round(1000 * costs[query.name][1], 3),
                "selectivity": round(bench.selectivity(query.name), 4),
            }
            for query in bed.queries
        },
        **{f"at {load:.0%}": _load_figures(bed, turns) for load, turns in measured.items()},
    }


def _load_figures(bed: QueryBed, turns: Turns) -> dict[str, Any]:
    by_metric = {metric: ratios(turns, metric) for metric in METRICS}
    return {
        "ratios": {policy: {m: round(by_metric[m][policy], 3) for m in METRICS} for policy in turns},
        "medians": {
            policy: {metric: _rounded(median(turn.felt[metric] for turn in own)) for metric in METRICS}
            for policy, own in turns.items()
        },
        "own metric, relative to the mean of its run": {
            own: [round(value, 3) for value in relative(turns, metric)[own]]
            for metric in METRICS
            if (own := OBJECTIVES[metric]) in turns
        },
        "seconds of work over what they should take, by run": {
            policy: [round(turn.pace, 3) for turn in own] for policy, own in turns.items()
        },
        "results of a run": {
            policy: [sum(map(len, turn.results.values())) for turn in own] for policy, own in turns.items()
        },
        "busy": {policy: round(fmean(turn.busy for turn in own), 3) for policy, own in turns.items()},
        "mean decision ms": {
            policy: round(fmean(turn.decision_ms for turn in own), 3) for policy, own in turns.items()
        },
        "estimated / real seconds of tasks, by cost class": _estimates(bed, turns),
    }


def _estimates(bed: QueryBed, turns: Turns) -> dict[str, float]:
    by_class: dict[int, list[TaskCosts]] = {query.cost_class: [] for query in bed.queries}
    for own in turns.values():
        for turn in own:
            for query in bed.queries:
                by_class[query.cost_class].append(turn.costs[query.name])
    return {
        str(number): _rounded(sum(cost.estimated_s for cost in found) / sum(cost.real_s for cost in found))
        for number, found in sorted(by_class.items())
    }


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def tables(result: Result) -> list[Table]:
    """Return a table per testbed and load with ratios to the lowest. A star marks a policy's own metric."""
    found = []
    for bed in ("P36", "P37"):
        for name, load in result.figures[bed].items():
            if not name.startswith("at "):
                continue
            table = Table("", *(_SHORT[metric] for metric in METRICS), "busy", "ms")
            table.title = f"{bed} {name} of what one worker bears: over the lowest, median of the runs"
            table.caption = "* its own metric; R response, H slowdown; ms to decide, on average"
            for policy, row in load["ratios"].items():
                marks = ("*" if OBJECTIVES[metric] == policy else " " for metric in METRICS)
                shown = (f"{row[metric]:.2f}{mark}" for metric, mark in zip(METRICS, marks, strict=True))
                decided = f"{load['mean decision ms'][policy]:.2f}"
                table.add_row(policy, *shown, f"{load['busy'][policy]:.0%}", decided)
            found.append(table)
    return found


BENCHMARK = Benchmark("Seven policies on Spark, each at its own metric", run, tables)
