"""Testbed of shared operators: groups of queries over one select, under Max, Sum or PDT (P26, P27, P36).

The select of a group has its own cost and selectivity. Each query of the group continues with a join and a
projection, as on the testbed of P36. The workload contains first the selects, as paths of one operator, and
then the rest of each query, as a path that reads from its select.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from slicemill_lab.charts.charts import Objective, Path, Stage
from slicemill_lab.charts.sharing import SharedSegment, best_single, defining_tree, set_priority
from slicemill_lab.charts.tasks import cut
from slicemill_lab.policies.policy import growing_priority, static_priority
from slicemill_lab.simulator.loop import Shared, SimulatedRun, simulate
from slicemill_lab.simulator.workload import Load, Workload, draw
from slicemill_lab.testbeds.arrivals import on_off

Strategy = Literal["max", "sum", "pdt"]
Rate = Literal["hr", "hnr", "brt", "bsd"]
# For each policy: the power of the ideal time that divides the rate, and whether the wait is a factor.
_FORMS: dict[Rate, tuple[int, bool]] = {
    "hr": (0, False),
    "hnr": (1, False),
    "brt": (0, True),
    "bsd": (2, True),
}


@dataclass(frozen=True, slots=True)
class SharedBed:
    """Workload with the paths behind each select (`readers`), and the ideal times of the queries by path."""

    work: Workload
    readers: dict[int, tuple[int, ...]]
    ideal_times: dict[int, float]


def shared_selects(
    utilisation: float, seed: int, *, queries: int = 500, group: int = 10, tuples: int = 3000
) -> SharedBed:
    """Return queries in random groups on one ON/OFF stream, with predicates on shared attributes (A4)."""
    random = np.random.default_rng([seed, 26])
    groups = queries // group
    classes = random.integers(0, 5, groups + queries)
    percent = random.integers(10, 101, groups + queries)
    share = percent / 100
    # Classes are drawn independently, so that any grouping is a random one.
    select = [number for number in range(groups) for _ in range(group)]
    costs = 2.0**classes
    expected = (
        costs[:groups].sum() + (share[:groups].repeat(group) * costs[groups:] * (1 + share[groups:])).sum()
    )
    costs *= utilisation / float(expected)
    times = on_off(tuples, 1.0, random)
    attributes = random.integers(1, 101, (2, tuples))
    loads = []
    for number in range(groups):
        alone = Path(f"s{number}", (Stage("select", costs[number], share[number]),))
        loads.append(Load(alone, times, outputs=[(attributes[0] <= percent[number]).astype(np.int64)]))
    for query, number in enumerate(select, start=groups):
        passed = attributes[0] <= percent[number]
        kept = (attributes[1, passed] <= percent[query]).astype(np.int64)
        stages = (Stage("join", costs[query], share[query]), Stage("project", costs[query], 1.0))
        outputs = [kept, np.ones(int(kept.sum()), np.int64)]
        loads.append(Load(Path(f"q{query}", stages), times[passed], outputs=outputs))
    return SharedBed(
        draw(loads, seed),
        {
            number: tuple(range(groups + number * group, groups + (number + 1) * group))
            for number in range(groups)
        },
        {query: float(costs[number] + 2 * costs[query]) for query, number in enumerate(select, start=groups)},
    )


def simulate_shared(bed: SharedBed, policy: Rate, strategy: Strategy) -> SimulatedRun:
    """Simulate with priorities of the selects by one of three strategies.

    PDT runs some of the queries together with their select. Under the other strategies, tuples behind a
    select wait for their turn by their own priority (A5).
    """
    tasks = cut(bed.work.paths, "query", Objective.OUTPUT_RESPONSE)
    power, grows = _FORMS[policy]
    priorities = [0.0] * len(tasks.tasks)
    at_once: set[int] = set()
    for select, readers in bed.readers.items():
        own = tasks.tasks[select].segment
        segments = []
        for reader in readers:
            rest = tasks.tasks[reader].segment
            weight = float(rest.selectivity) / bed.ideal_times[reader] ** power
            priorities[reader] = weight / float(rest.cost)
            passed = float(own.selectivity)
            segments.append(SharedSegment(passed * weight, float(own.cost) + passed * float(rest.cost)))
        match strategy:
            case "max":
                priorities[select] = best_single(segments)
            case "sum":
                priorities[select] = set_priority(segments, float(own.cost))
            case "pdt":
                tree = defining_tree(segments, float(own.cost))
                priorities[select] = tree.priority
                at_once.update(readers[member] for member in tree.members)
    ranked = (growing_priority if grows else static_priority)(priorities)
    return simulate(bed.work, tasks, ranked, shared=Shared(bed.readers, frozenset(at_once)))
