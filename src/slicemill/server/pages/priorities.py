"""Scheduling for people: the priority of each unit and why, and what another load would do."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from slicemill.engine.mill import Mill
from slicemill.errors import SlicemillError
from slicemill.scheduling.batches import QUANTUM_S
from slicemill.scheduling.capacity import Costs
from slicemill.scheduling.chooser import Chooser
from slicemill.scheduling.policies.policy_registry import policy_named
from slicemill.scheduling.rehearsal import rehearse
from slicemill.scheduling.traffic import Traffic, polls
from slicemill.server.pages.new_costs import costs_of_text
from slicemill.server.sampling import MillSample, announced_watermark
from slicemill.simulate.tables import plain
from slicemill.simulate.trial_home import unit_cost
from slicemill.simulate.verdict import verdict
from slicemill.time import wall_clock_us

_EVERY_S = 0.25


@dataclass(frozen=True, slots=True)
class PriorityLine:
    """A unit with its place among those that could run now, if it is one of them, and the reason."""

    unit: str
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
    """All units: those that could run now, in the order of the policy, then the others by what they use."""
    running, policy = mill.dispatcher.running, mill.dispatcher.chooser.policy
    positions, batches = running.ready(partial(announced_watermark, mill), wall_clock_us(), QUANTUM_S)
    priorities = policy.priority(batches) if len(positions) else np.array([])
    order = np.argsort(-priorities, kind="stable")
    places = {int(positions[entry]): (place, float(priorities[entry])) for place, entry in enumerate(order)}
    found = []
    for position, unit in enumerate(list(running.units)):
        known = sample.units.get(unit.id)
        statistics = unit.statistics
        logs = [log for _, log in unit.plan.unit.outputs]
        per_row = sum(statistics.selectivity(log) for log in logs)
        place, priority = places.get(position, (None, None))
        wait_s = known.longest_wait_s if known is not None else 0.0
        rows = known.rows_waiting if known is not None else 0
        found.append(
            PriorityLine(
                unit.id,
                [log for log in logs if log in mill.queries],
                None if place is None else place + 1,
                priority if priority is not None and math.isfinite(priority) else None,
                _why(place, rows, wait_s),
                rows,
                wait_s,
                1000 * statistics.cost.overhead,
                1e6 * statistics.cost.per_row,
                per_row,
                known.cpu if known is not None else 0.0,
            )
        )
    return sorted(found, key=lambda one: (one.place or math.inf, -one.cpu, one.unit))


def _why(place: int | None, rows: int, wait_s: float) -> str:
    if place is None:
        return "nothing to do now" if not rows else "waits for time or for a run under way"
    return f"{rows:,} rows, the oldest for {wait_s:.2f} s" if rows else "time has come for its windows"


def rehearsed(
    mill: Mill,
    rates: Mapping[str, float],
    policies: Sequence[str],
    cores: int,
    seconds: float,
    text: str = "",
) -> tuple[list[str], list[dict[str, Any]]]:
    """What these rates would do under each policy, in words and figures, by the costs measured so far.

    With a text, as if the queries that it declares ran too.
    """
    names = list(dict.fromkeys(policy_named(name).name for name in policies))
    fresh = costs_of_text(mill, text, rates) if text.strip() else None
    costs = _together(costs_of_mill(mill), fresh)
    streams = costs.streams()
    if unknown := sorted(rates.keys() - set(streams) - mill.streams.keys()):
        raise SlicemillError(f"no query reads a stream {unknown[0]}; they read {', '.join(streams)}")
    asked = {stream: max(0.0, rates.get(stream, 0.0)) for stream in streams}
    if not any(asked.values()):
        raise SlicemillError("give at least one stream some rows a second")
    traffic = {stream: Traffic(rate) for stream, rate in asked.items()}
    arrivals = polls(traffic, _EVERY_S, seconds, 1)
    outcomes = {name: rehearse(costs, cores, Chooser(policy_named(name)), arrivals) for name in names}
    found = list(verdict(costs, asked, cores, outcomes))
    if fresh is not None:
        part = Costs(0.0, fresh.units).utilisation(asked, cores)
        found.append(
            f"{part:.1%} of that work is new: measured just now over recent rows, for the new queries alone. "
            "What they share with others makes it less."
        )
    return found, plain(outcomes)


def _together(running: Costs, fresh: Costs | None) -> Costs:
    return running if fresh is None else Costs(running.job_s, (*running.units, *fresh.units))


def costs_of_mill(mill: Mill) -> Costs:
    """The units of a mill that runs, at the costs that they have had so far."""
    units = [unit for unit in mill.dispatcher.running.units if unit.statistics.runs > 1]
    if not units:
        raise SlicemillError("nothing has run yet, so costs are not known; wait for some rows")
    job_s = min(unit.statistics.cost.overhead for unit in units)
    return Costs(
        job_s,
        tuple(
            unit_cost(unit.plan.unit, unit.statistics, unit.cells, job_s, mill.graph, mill.catalog)
            for unit in units
        ),
    )
