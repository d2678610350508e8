"""EXPLAIN of placements: distribution of rows, and costs of alternatives.

The JSON is a list of units. Each unit has these keys:

- `id`; `nodes`; `inputs` and `outputs`: names of logs
- `cells`: maximum number of cells
- `placement`: `kind`, `shape`, and `by`, which has keys, `every` or `stripe` for each log and dimension
- `why`: reason for the placement
- `measured`: false if rates are assumed; `rates`: rows per second of each log
- `candidates`: the cheapest placement of each kind, in order of cost. Each has `kind`, `shape`, `cpu_s` and
  `slowest_s` (CPU seconds per second of all cells and of the slowest cell), `rows_kept`, `most_kept` (in one
  cell) and `rows_read` (per second).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from slicemill.operators.graph import QueryGraph
from slicemill.operators.protocol import Fact
from slicemill.plan.placement import (
    Candidate,
    Placement,
    PlacementKind,
    candidates,
    choose_placement,
    restore_placement,
)
from slicemill.plan.placement_cost import PlacementCost, PlacementStatistics, statistics_of_unit
from slicemill.plan.units import Unit, split_into_units

_WHY = {
    PlacementKind.KEY: "rows that meet have equal keys, so a row is read and kept by one cell",
    PlacementKind.TIME: "rows meet whatever their keys are: all cells read a row, and one keeps it",
    PlacementKind.HYBRID: "a few keys have much of the work: their rows are read by all cells, others by one",
    PlacementKind.HYPERCUBE: "rows that meet have equal keys, but not all inputs have all keys: along those "
    "that it has not, an input's rows go everywhere",
    PlacementKind.CUBE: "rows meet whatever their keys are: each input is dealt out along one dimension and "
    "goes everywhere along the others",
}


@dataclass(frozen=True, slots=True)
class PlacedUnit:
    """Unit with its placement and all candidates, cheapest first."""

    unit: Unit
    cells: int
    placement: Placement
    found: tuple[Candidate, ...]
    statistics: PlacementStatistics

    @property
    def why(self) -> str:
        kind = self.placement.kind
        if kind is not PlacementKind.ONE:
            return _WHY[kind]
        if self.cells == 1:
            return "there is one cell"
        if len(self.found) == 1:
            return "what it keeps has no key that the rows of all its inputs have"
        return "that little work is done soonest by one cell"

    @property
    def cost(self) -> PlacementCost:
        return next(one.cost for one in self.found if one.placement == self.placement)

    @property
    def cheapest(self) -> list[Candidate]:
        """Return the cheapest candidate of each kind."""
        by_kind: dict[PlacementKind, Candidate] = {}
        for one in self.found:
            by_kind.setdefault(one.placement.kind, one)
        return list(by_kind.values())


def place_units(
    graph: QueryGraph, cells: int, kept: Mapping[str, Mapping[str, Any]] | None = None
) -> list[PlacedUnit]:
    """Return the stateful units of a graph with their placements.

    `kept` maps unit ids to current placements, in the form of the journal. All other units get the cheapest
    placement with at most `cells` cells.
    """
    found = []
    for unit in split_into_units(graph):
        if not unit.stateful:
            continue
        known = (kept or {}).get(unit.id)
        placement = None if known is None else restore_placement(unit, graph, known)
        statistics = statistics_of_unit(unit, graph, placement.exchanges if placement is not None else None)
        placement = placement or choose_placement(unit, graph, cells, statistics)
        own = placement.cells if placement.cells > 1 else cells
        listed = tuple(candidates(unit, graph, own, statistics))
        found.append(PlacedUnit(unit, own, placement, listed, statistics))
    return found


def placement_facts(placed: PlacedUnit) -> tuple[Fact, ...]:
    """Return the facts that EXPLAIN prints about a unit's placement."""
    facts: list[Fact] = [("placement", _describe_placement(placed.placement)), ("why", placed.why)]
    others = [one for one in placed.cheapest if one.placement.kind is not placed.placement.kind]
    if placed.cells > 1 and others:
        rates = ", ".join(f"{placed.statistics.rate(log):,.0f} rows/s of {log}" for log in placed.unit.inputs)
        facts.append(("measured" if placed.statistics.measured else "assuming", rates))
        facts.append(("costs", _costs(placed.cost)))
        facts += [("instead", f"{one.placement}: {_costs(one.cost)}") for one in others]
    return tuple(facts)


def placements_data(units: Iterable[PlacedUnit]) -> list[dict[str, Any]]:
    """Return the units as plain lists, dicts, strings and numbers."""
    return [
        {
            "id": placed.unit.id,
            "nodes": list(placed.unit.nodes),
            "inputs": list(placed.unit.inputs),
            "outputs": [log for _, log in placed.unit.outputs],
            "cells": placed.cells,
            "placement": placed.placement.plain(),
            "why": placed.why,
            "measured": placed.statistics.measured,
            "rates": {log: placed.statistics.rate(log) for log in placed.unit.inputs},
            "candidates": [_candidate(one) for one in placed.cheapest],
        }
        for placed in units
    ]


def _describe_placement(placement: Placement) -> str:
    """Return the placement and the distribution of each log."""
    spread = []
    for log, along in placement.plain()["by"].items():
        words = [{"every": "everywhere", "stripe": "in turn"}.get(by, f"by {by}") for by in along]
        spread.append(f"{log} {' and '.join(words)}")
    return f"{placement}: {', '.join(spread)}" if spread else str(placement)


def _costs(cost: PlacementCost) -> str:
    return (
        f"{cost.cpu_s:.3g} processor s/s, {cost.slowest_s:.3g} in the slowest cell; {cost.rows_kept:,.0f} "
        f"rows kept, {cost.most_kept:,.0f} in the fullest; {cost.rows_read:,.0f} rows read/s"
    )


def _candidate(one: Candidate) -> dict[str, Any]:
    cost = one.cost
    return {
        "kind": one.placement.kind.value,
        "shape": list(one.placement.shape),
        "cpu_s": cost.cpu_s,
        "slowest_s": cost.slowest_s,
        "rows_kept": cost.rows_kept,
        "most_kept": cost.most_kept,
        "rows_read": cost.rows_read,
    }
