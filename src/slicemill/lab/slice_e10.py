"""slice-E10: is it worth merging slices? (state-slice E10, S18)

Many queries without selections, so that all chains hold the same state. The Mem-Opt chain cuts at every
window, the CPU-Opt chain where the planner finds it pays: every operator costs a fixed overhead per tuple,
every merged slice a comparison per result. Both run tuple at a time and are charged what they compare and
whom they visit.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from slicemill.execution.slices.chain import Chain
from slicemill.lab.claims import Claim, ascending, at_least, at_most
from slicemill.lab.experiment import Experiment, Result, Scale
from slicemill.lab.plotting import curve, draw_curves
from slicemill.lab.slice_joins import SECOND_US, matching, measure, more
from slicemill.plan.slices.chain import PlannedChain, cpu_opt, mem_opt
from slicemill.plan.slices.members import Member, member
from slicemill.plan.slices.workload import Workload

JOIN_SELECTIVITY = 0.025
OVERHEAD = 8.0
"""Comparisons' worth of queueing and scheduling per tuple and operator, in the runs."""
LOW_OVERHEAD = 1.0
"""The overhead at which evenly spread windows are not worth merging at any published rate."""
RATES: Mapping[Scale, tuple[int, ...]] = {"small": (20, 40), "full": (20, 40, 80)}
SHRUNK: Mapping[Scale, float] = {"small": 1 / 10, "full": 1.0}


def run(seed: int, scale: Scale) -> Result:
    """Service rates of both chains by distribution of windows and rate; slice counts at published sizes."""
    shrunk, rates = SHRUNK[scale], RATES[scale]
    ahead: dict[str, list[float]] = {}
    state: list[float] = []
    slices: dict[str, list[int]] = {}
    for name, windows in WINDOWS_S.items():
        ahead[name], slices[name] = [], []
        for rate in rates:
            workload = _workload(windows, rate, OVERHEAD, shrunk)
            quick, lean = cpu_opt(workload), mem_opt(workload)
            one, other = (_measure(plan, rate, windows[-1] * shrunk, seed) for plan in (quick, lean))
            ahead[name].append(more(one[0], other[0]))
            slices[name].append(len(quick.slices))
            state.append(abs(one[1] - other[1]))
    counts = {
        name: {f"{rate} t/s": len(_published(windows, rate).slices) for rate in RATES["full"]}
        for name, windows in WINDOWS_S.items()
    }
    figures = {
        "rates": list(rates),
        "cpu_opt_ahead_percent": ahead,
        "slices_of_cpu_opt": slices,
        "slices_at_published_sizes_low_overhead": counts,
    }
    return Result(_claims(ahead, counts, state), figures)


def plot(result: Result, path: Path) -> None:
    """How far the CPU-Opt chain is ahead, against rate."""
    draw_curves(
        path,
        {
            name: curve(result.figures["rates"], [line])
            for name, line in result.figures["cpu_opt_ahead_percent"].items()
        },
        title="The more queries and the closer their windows, the more merging slices pays",
        x_label="rate of each stream [tuples/s]",
        y_label="service rate of CPU-Opt above Mem-Opt [%]",
    )


EXPERIMENT = Experiment(id="slice-E10", title="Mem-Opt against CPU-Opt chains", run=run, plot=plot)


def _small_and_large(count: int) -> tuple[float, ...]:
    """Half of the windows up to 6 s, half from 24 to 30 s."""
    half = count // 2
    steps = [6 * step / half for step in range(1, half + 1)]
    return (*steps, *(24 + step for step in steps))


WINDOWS_S: Mapping[str, tuple[float, ...]] = {
    "uniform": tuple(2.5 * step for step in range(1, 13)),
    "mostly small": (*range(1, 11), 20, 30),
    "small and large": _small_and_large(12),
    "24 small and large": _small_and_large(24),
    "36 small and large": _small_and_large(36),
}


SKEWED = ("mostly small", "small and large")


def _claims(
    ahead: Mapping[str, list[float]], counts: Mapping[str, Mapping[str, int]], state: list[float]
) -> tuple[Claim, ...]:
    by_count = {
        f"{count} queries": ahead[name][0]
        for count, name in ((12, "small and large"), (24, "24 small and large"), (36, "36 small and large"))
    }
    no_such_overhead = (
        "Printed: all small windows merged, and two slices left where windows are small and large. No "
        "overhead gives all three published shapes at these rates; the order of merging is compared instead."
    )
    leads = [lead for line in ahead.values() for lead in line]
    return (
        at_least("the CPU-Opt chain is never slower: least lead, %", min(leads), 0),
        at_most("both hold the same state: greatest difference, tuples", max(state), 0),
        at_least(
            "with little overhead, evenly spread windows stay a slice each: slices, any rate",
            min(counts["uniform"].values()),
            12,
        ),
        ascending(
            "windows that lie close together are merged first: slices (20 t/s, little overhead)",
            {
                "skewed, the most": max(counts[name]["20 t/s"] for name in SKEWED),
                "uniform": counts["uniform"]["20 t/s"],
            },
            note=no_such_overhead,
        ),
        ascending("the lead grows with the number of queries (20 t/s, %)", by_count),
    )


def _workload(windows: tuple[float, ...], rate: float, overhead: float, shrunk: float) -> Workload:
    members: tuple[Member, ...] = tuple(
        member(f"Q{number}", round(window * shrunk * SECOND_US)) for number, window in enumerate(windows, 1)
    )
    per_us = rate / SECOND_US
    return Workload(members, (per_us, per_us), JOIN_SELECTIVITY, overhead)


def _published(windows: tuple[float, ...], rate: float) -> PlannedChain:
    return cpu_opt(_workload(windows, rate, LOW_OVERHEAD, 1.0))


def _measure(plan: PlannedChain, rate: float, longest_s: float, seed: int) -> tuple[float, float]:
    """Service rate and mean state of a planned chain."""
    chain = Chain(plan.members, plan.ends, matching(JOIN_SELECTIVITY))
    found = measure(chain, rate, longest_s, seed, OVERHEAD)
    return found.service_rate, found.state
