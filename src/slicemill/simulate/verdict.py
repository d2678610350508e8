"""Textual summary of a simulation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from slicemill.scheduling.capacity import Costs, unit_rate
from slicemill.scheduling.rehearsal import Outcome

_MOST_CORES = 256
# Results later than this after the last row, both as a share of the load and in seconds, are a backlog. Less
# is explained by a last burst and cycle.
_BEHIND, _BEHIND_S = 0.1, 30.0
_BUSY = 0.9


def verdict(
    costs: Costs, rates: Mapping[str, float], cores: int, outcomes: Mapping[str, Outcome]
) -> Iterator[str]:
    """Yield sentences on the load, and on the required number of cores."""
    load = costs.utilisation(rates, cores)
    have = f"{cores} core{'' if cores == 1 else 's'}"
    if load < 1:
        yield f"These rates bring {load:.0%} of the work that {have} can do."
        for policy, outcome in outcomes.items():
            busy = outcome.busy_s / outcome.lasted_s if outcome.lasted_s else 0.0
            if busy > max(_BUSY, load):
                each_ms = 1000 * outcome.busy_s / outcome.jobs
                yield (
                    f"Under {policy} jobs run {busy:.0%} of the time all the same, {each_ms:,.0f} ms each, "
                    "mostly for what a job costs however few its rows: more rows would cost little more."
                )
                break
        for policy, outcome in outcomes.items():
            if outcome.behind_s > max(_BEHIND * outcome.loaded_s, _BEHIND_S):
                yield (
                    f"Under {policy} they do not keep up all the same: the last results came "
                    f"{outcome.behind_s:,.0f} s after the last row. Units of one job end together, and the "
                    "quicker ones leave cores idle."
                )
        return
    yield (
        f"Too much: these rates bring {load:.2f} times the work that {have} can do, so rows wait longer and "
        f"longer, under every policy. {1 / load:.0%} of these rates would just fit; plan for less."
    )
    tied = _tied_to_one_core(costs, rates)
    if tied is not None:
        yield f"{tied} alone needs more than one core, and cannot be split by a key."
        return
    enough = next((n for n in range(cores, _MOST_CORES) if costs.utilisation(rates, n) < 1), None)
    if enough is not None:
        yield f"{enough} cores would just do, as far as the work can be shared out."


def _tied_to_one_core(costs: Costs, rates: Mapping[str, float]) -> str | None:
    everywhere = costs.rates(rates)
    for unit in costs.units:
        if not unit.splits and unit_rate(unit, everywhere) * unit.row_s >= 1:
            return unit.id
    return None
