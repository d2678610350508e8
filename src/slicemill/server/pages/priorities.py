"""Scheduling page: priority of each task with its reason, and simulation of other loads."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slicemill.api.mill import Mill
from slicemill.capacity.simulate import verdict
from slicemill.capacity.tables import outcomes_as_json
from slicemill.capacity.trial import task_cost
from slicemill.errors import SlicemillError
from slicemill.scheduling.batches import QUANTUM_S
from slicemill.scheduling.capacity import Costs
from slicemill.scheduling.chooser import Chooser
from slicemill.scheduling.policies import policy_named
from slicemill.scheduling.rehearsal import Traffic, polls, simulate_arrivals
from slicemill.server.pages.preview import costs_of_text
from slicemill.server.sampling import MillSample, announced_watermark
from slicemill.time import wall_clock_us

_EVERY_S = 0.25
RULES = {
    "fcfs": "the task with the oldest pending row runs first",
    "rr": "the task that has not run for the longest time runs first",
    "srpt": "the task that can process all its rows soonest runs first",
    "rb": "the task on the path with most results per second for one query runs first",
    "ml": "the task with the least work until its next result runs first",
    "hr": "the task with most results per second, weighted by query, runs first",
    "hnr": "the task with most results per second runs first, where each result is divided by its ideal time",
    "lsf": "the task with the greatest slowdown so far runs first",
    "brt": "the task with the greatest (results per second) × wait runs first",
    "bsd": "the task with the greatest (results per second / ideal time) × slowdown so far runs first",
    "fas": "the task that makes most stale results fresh per second of work runs first",
    "chain": "the task that removes most pending rows per second of work runs first",
    "edf": "the task with the earliest deadline runs first",
    "hybrid": "tasks that can meet their deadline run first, then the task with most results per second",
}
"""Rule of each policy, as shown to users."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityLine:
    """Task with its position in the scheduling order and the reason for the position.

    The position is None if none of its rows wait.
    """

    task: str
    queries: list[str]
    place: int | None
    priority: float | None
    why: str
    rows_waiting: int
    longest_wait_s: float
    overhead_ms: float
    row_us: float
    per_row: float
    cpu: float


def priorities_of(mill: Mill, sample: MillSample) -> list[PriorityLine]:
    """Return ready tasks in the order of the policy, then other tasks by CPU use."""
    running, policy = mill.dispatcher.running, mill.dispatcher.chooser.policy
    tasks, now_us = list(running.tasks), wall_clock_us()
    announced = {log: announced_watermark(mill, log) for log in running.logs_to_check()}
    ready, _ = running.ready(announced, now_us, QUANTUM_S)
    # Tasks that wait for a watermark or for a run in progress have a priority for their next run as well.
    waiting = [place for place, task in enumerate(tasks) if running.rows_waiting(task.id)[0] > 0]
    positions = np.union1d(ready, np.array(waiting, ready.dtype))
    batches = running.batches(positions, now_us, QUANTUM_S)
    priorities = policy.priority(batches) if len(positions) else np.array([])
    order = np.argsort(-priorities, kind="stable")
    places = {int(positions[entry]): (place, float(priorities[entry])) for place, entry in enumerate(order)}
    found, can_run = [], set(ready.tolist())
    for position, task in enumerate(tasks):
        known = sample.tasks.get(task.id)
        statistics = task.statistics
        logs = [log for _, log in task.plan.task.outputs]
        per_row = sum(statistics.selectivity(log) for log in logs)
        place, priority = places.get(position, (None, None))
        rows = running.rows_waiting(task.id)[0]
        wait_s = running.longest_wait_s(task.id, now_us) if rows else 0.0
        run_s = statistics.cost.overhead + statistics.cost.per_row * rows
        found.append(
            PriorityLine(
                task=task.id,
                queries=[log for log in logs if log in mill.queries],
                place=None if place is None else place + 1,
                priority=priority if priority is not None and math.isfinite(priority) else None,
                why=_priority_reason(place, position in can_run, rows, wait_s, run_s, rows * per_row),
                rows_waiting=rows,
                longest_wait_s=wait_s,
                overhead_ms=1000 * statistics.cost.overhead,
                row_us=1e6 * statistics.cost.per_row,
                per_row=per_row,
                cpu=known.cpu if known is not None else 0.0,
            )
        )
    return sorted(found, key=lambda one: (one.place or math.inf, -one.cpu, one.task))


def _priority_reason(
    place: int | None, ready: bool, rows: int, wait_s: float, run_s: float, results: float
) -> str:
    """Return the reason for a task's position as text.

    The text has the waiting rows, their age, and the cost and results of a run.
    """
    if place is None:
        return "no pending rows"
    if not rows:
        return "the watermark has passed the end of its windows"
    when = "" if ready else "; it waits for a watermark or for a run in progress"
    number = f"{results:,.0f}" if results >= 10 else f"{results:.2g}"
    gives = f"takes {1000 * run_s:,.1f} ms and emits {number} results"
    waiting = f"{rows:,} pending rows, the oldest" if rows > 1 else "1 pending row,"
    return f"{waiting} for {wait_s:.2f} s; a run {gives}{when}"


def simulate_policies(
    mill: Mill,
    rates: Mapping[str, float],
    policies: Sequence[str],
    cores: int,
    seconds: float,
    text: str = "",
) -> tuple[list[str], list[dict[str, Any]]]:
    """Simulate a load under each policy, with measured costs. Return a verdict and metrics.

    Queries that `text` declares are included in the simulation.
    """
    names = list(dict.fromkeys(policy_named(name).name for name in policies))
    fresh = costs_of_text(mill, text, rates) if text.strip() else None
    costs = _merge_costs(costs_of_mill(mill), fresh)
    streams = costs.streams()
    if unknown := sorted(rates.keys() - set(streams) - mill.running.streams.keys()):
        raise SlicemillError(f"no query reads a stream {unknown[0]}; queries read {', '.join(streams)}")
    asked = {stream: max(0.0, rates.get(stream, 0.0)) for stream in streams}
    if not any(asked.values()):
        raise SlicemillError("all rates are 0; give at least one stream a rate above 0 rows per second")
    traffic = {stream: Traffic(rate) for stream, rate in asked.items()}
    arrivals = polls(traffic, _EVERY_S, seconds, 1)
    outcomes = {
        name: simulate_arrivals(costs, cores, Chooser(policy_named(name)), arrivals) for name in names
    }
    found = list(verdict(costs, asked, cores, outcomes))
    if fresh is not None:
        part = Costs(0.0, fresh.tasks).utilisation(asked, cores)
        found.append(
            f"{part:.1%} of that work is new, as measured for the new queries alone over recent rows. "
            "Operators that they share with other queries reduce it."
        )
    return found, outcomes_as_json(outcomes)


def _merge_costs(running: Costs, fresh: Costs | None) -> Costs:
    return running if fresh is None else Costs(running.job_s, (*running.tasks, *fresh.tasks))


def costs_of_mill(mill: Mill) -> Costs:
    """Return the costs of a running engine's tasks, as measured."""
    tasks = [task for task in mill.dispatcher.running.tasks if task.statistics.runs > 1]
    if not tasks:
        raise SlicemillError(
            "no task has run yet, so costs are not known; try again after some rows have arrived"
        )
    job_s = min(task.statistics.cost.overhead for task in tasks)
    return Costs(
        job_s,
        tuple(
            task_cost(
                task.plan.task, task.statistics, task.subtasks, job_s, mill.running.plan.graph, mill.catalog
            )
            for task in tasks
        ),
    )
