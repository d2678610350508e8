"""Placements of a unit: the cells that read and store a row (S33-S38).

| placement | cells | a row is read by | a row is stored by |
|---|---|---|---|
| one | 1 | the cell | the cell |
| key | N | the cell of its key | the same cell |
| time | N | all cells | one cell, round-robin; a pair is found where its older row is stored |
| hybrid | N | the cell of its key; all cells if the key is heavy | the same; one, round-robin, if heavy |
| hypercube | n1 × n2 × … | cells with the row's coordinates, hashed or round-robin | the same cells |
| cube | n1 × n2 × … | cells with the row's round-robin coordinate for its stream | the same cells |

Each placement finds each result exactly once. In a hypercube, the rows of a result have one coordinate in
common along each dimension: that of a key on which they agree, or the round-robin coordinate of one row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations
from math import prod
from typing import Any, TypeAlias

from slicemill.errors import SlicemillError
from slicemill.functions.render import render
from slicemill.operators.graph import QueryGraph
from slicemill.operators.join.spec import SharedJoin
from slicemill.operators.protocol import Keys
from slicemill.plan.join_inputs import JoinedInputs, join_inputs_of
from slicemill.plan.partitioning import (
    MOST_CELLS,
    Along,
    Exchange,
    FormerCells,
    by_key,
    by_time,
    may_spread_keys,
)
from slicemill.plan.placement_cost import ASSUMED, CellsByTime, PlacementCost, PlacementStatistics, cost_of
from slicemill.plan.units import Unit

# Limit on dimensions by number of cells, since planning time grows with both.
_MOST_DIMENSIONS = ((64, 4), (1024, 3), (MOST_CELLS, 2))

AUTO = "auto"

# By log, the rule for a row's coordinate along a dimension. Rows of unlisted logs go to all cells.
_Dimension: TypeAlias = Mapping[str, Keys | Along]


class PlacementKind(StrEnum):
    ONE = "one"
    KEY = "key"
    TIME = "time"
    HYBRID = "hybrid"
    HYPERCUBE = "hypercube"
    CUBE = "cube"


@dataclass(frozen=True, slots=True)
class Placement:
    """Grid of cells, and the exchange by which each log is partitioned."""

    kind: PlacementKind
    exchanges: Mapping[str, Exchange]

    @staticmethod
    def of(exchanges: Mapping[str, Exchange]) -> Placement:
        """Return the placement with these exchanges."""
        if not exchanges:
            return ONE_CELL
        found = exchanges.values()
        along = [by for exchange in found for by in exchange.by]
        if all(exchange.by_key for exchange in found):
            kind = PlacementKind.KEY
        elif all(exchange.parts == 1 for exchange in found):
            kind = PlacementKind.TIME
        else:
            in_turn = all(isinstance(by, Along) for by in along)
            kind = PlacementKind.CUBE if in_turn else PlacementKind.HYPERCUBE
        return Placement(kind, exchanges)

    @property
    def shape(self) -> tuple[int, ...]:
        return next((exchange.shape for exchange in self.exchanges.values()), (1,))

    @property
    def cells(self) -> int:
        return prod(self.shape)

    def spreads_like(self, other: Placement) -> bool:
        """Return True if both placements partition their common logs equally."""
        common = self.exchanges.keys() & other.exchanges.keys()
        same = all(self.exchanges[log] == other.exchanges[log] for log in common)
        return (self.kind, self.shape) == (other.kind, other.shape) and same

    def __str__(self) -> str:
        if self.kind is PlacementKind.ONE:
            return "one cell"
        words = {PlacementKind.KEY: "by key", PlacementKind.TIME: "by time"}
        return f"{words.get(self.kind, self.kind.value)}, {' × '.join(map(str, self.shape))} cells"

    def plain(self) -> dict[str, Any]:
        """Return the placement as a JSON object for the journal."""
        by = {log: [_describe_rule(one) for one in exchange.by] for log, exchange in self.exchanges.items()}
        return {"kind": self.kind.value, "shape": list(self.shape), "by": by}


@dataclass(frozen=True, slots=True)
class Candidate:
    """Placement with its cost."""

    placement: Placement
    cost: PlacementCost


ONE_CELL = Placement(PlacementKind.ONE, {})


def parse_placement_kind(name: str) -> PlacementKind | None:
    """Return the placement kind of that name, None for `auto` (the cheapest)."""
    if name == AUTO:
        return None
    known = {kind.value: kind for kind in PlacementKind}
    if name not in known:
        raise SlicemillError(f"there is no placement {name!r}; known are {', '.join((AUTO, *known))}")
    return known[name]


def placements_of(unit: Unit, graph: QueryGraph, cells: int) -> list[Placement]:
    """Return the valid placements of a unit, including a single cell.

    A grid may use fewer cells than given, for example four of five cells as a square. If a join depends on
    whether rows have matched, all possible matches of a row must reach the cell that stores it. Only
    placements with this property are then returned.
    """
    found = _placements(unit, graph, cells)
    if needs_match_flags(unit, graph):
        return [one for one in found if one.kind in (PlacementKind.ONE, PlacementKind.KEY)]
    return found


def needs_match_flags(unit: Unit, graph: QueryGraph) -> bool:
    """Return True if a join must know whether a row has matched."""
    joins = (graph[node_id].operator for node_id in unit.nodes)
    return any(isinstance(join, SharedJoin) and join.tracks_matches for join in joins)


def _placements(unit: Unit, graph: QueryGraph, cells: int) -> list[Placement]:
    found = [ONE_CELL]
    if cells == 1 or not unit.stateful:
        return found
    keyed = by_key(unit, graph, cells)
    if keyed:
        found.append(Placement(PlacementKind.KEY, keyed))
    joined = join_inputs_of(unit, graph)
    if joined is None:
        return found
    if len(joined.inputs) == 2:
        in_turn = by_time(unit, graph, cells)
        if in_turn:
            found.append(Placement(PlacementKind.TIME, in_turn))
        if in_turn and may_spread_keys(unit, graph, keyed):
            found.append(Placement(PlacementKind.HYBRID, keyed))
    elif not joined.counts_rows:
        counts = sorted({cells, _divisible(cells)}, reverse=True)
        found += (_grid(unit, used) for count in counts for used in _grids(joined, count))
    return found


def candidates(
    unit: Unit, graph: QueryGraph, cells: int, statistics: PlacementStatistics = ASSUMED
) -> list[Candidate]:
    """Return the placements of a unit with their costs, cheapest first.

    Placement by time is also tried with fewer cells, because each of its cells reads all rows.
    """
    joined = join_inputs_of(unit, graph)
    possible = placements_of(unit, graph, cells)
    if any(placement.kind is PlacementKind.TIME for placement in possible):
        best = best_by_time(unit, graph, cells, statistics).best()
        if 1 < best < cells:
            possible.append(Placement(PlacementKind.TIME, by_time(unit, graph, best)))
    found = [Candidate(placement, _cost(placement, unit, joined, statistics)) for placement in possible]
    return sorted(found, key=lambda candidate: candidate.cost.price(cells))


def best_by_time(
    unit: Unit, graph: QueryGraph, cores: int, statistics: PlacementStatistics = ASSUMED
) -> CellsByTime:
    """Return the cost model of placement by time for a unit."""
    joined = join_inputs_of(unit, graph)
    one, two = (
        cost_of(by_time(unit, graph, cells), unit.inputs, joined, statistics).cpu_s for cells in (1, 2)
    )
    return CellsByTime(one - (two - one), two - one, cores)


def _cost(
    placement: Placement, unit: Unit, joined: JoinedInputs | None, statistics: PlacementStatistics
) -> PlacementCost:
    hybrid = placement.kind is PlacementKind.HYBRID
    return cost_of(placement.exchanges, unit.inputs, joined, statistics, hybrid=hybrid)


def price_of(
    placement: Placement, unit: Unit, graph: QueryGraph, statistics: PlacementStatistics, cores: int
) -> float:
    """Return the price of a placement on `cores` cores, for comparison."""
    return _cost(placement, unit, join_inputs_of(unit, graph), statistics).price(cores)


def choose_placement(
    unit: Unit,
    graph: QueryGraph,
    cells: int,
    statistics: PlacementStatistics = ASSUMED,
    kind: PlacementKind | None = None,
) -> Placement:
    """Return the cheapest placement of a unit, optionally of a given kind.

    A unit without state always has one cell.
    """
    if not unit.stateful or cells == 1:
        return ONE_CELL
    known = candidates(unit, graph, cells, statistics)
    if kind is PlacementKind.TIME:  # an explicit request for this kind uses all cells
        known = [one for one in known if one.placement.cells == cells]
    found = next((one.placement for one in known if kind in (None, one.placement.kind)), None)
    if found is None:
        assert kind is not None, "one is the cheapest"
        kinds = ", ".join(dict.fromkeys(one.placement.kind.value for one in known))
        raise SlicemillError(
            f"{unit.id} cannot be placed as {kind.value} in {cells} cells; it can be placed as: {kinds}"
        )
    return found


def restore_placement(unit: Unit, graph: QueryGraph, plain: Mapping[str, Any]) -> Placement | None:
    """Return the placement stored in the journal, or None.

    The result is None if the unit's queries have changed so that the placement is no longer valid.
    """
    cells = prod(plain["shape"])
    if cells == 1:
        return ONE_CELL
    # Fast path: most placements are by key, and placements are restored for each statement.
    if plain["kind"] == PlacementKind.KEY.value:
        keyed = Placement(PlacementKind.KEY, by_key(unit, graph, cells))
        by, known = _unquoted(keyed.plain()["by"]), _unquoted(plain["by"])
        if by and all(known.get(log, own) == own for log, own in by.items()):
            return keyed
    else:
        known = _unquoted(plain["by"])
        for placement in _placements(unit, graph, cells):
            own = placement.plain()
            if {**own, "by": _unquoted(own["by"])} == {**plain, "by": known}:
                return placement
    return None


def kept_placement(unit: Unit, graph: QueryGraph, plain: Mapping[str, Any]) -> Placement | None:
    """Return the journal's placement if the unit still allows it."""
    before = restore_placement(unit, graph, plain)
    if before is None or before == ONE_CELL or before in placements_of(unit, graph, before.cells):
        return before
    return None


def replacement(
    unit: Unit, graph: QueryGraph, cells: int, reachable: Callable[[Placement], bool]
) -> Placement:
    """Return the cheapest placement with `cells` cells that is `reachable`.

    A placement is reachable if it can take over the state. A single cell is always reachable.
    """
    if not unit.stateful:
        return ONE_CELL
    found = (one.placement for one in candidates(unit, graph, cells))
    return next((one for one in found if reachable(one)), ONE_CELL)


def former_cells(plain: Mapping[str, Any]) -> FormerCells:
    """Return the cells of a placement that the journal stores."""
    kind, by = PlacementKind(plain["kind"]), plain["by"]
    divided = kind in (PlacementKind.KEY, PlacementKind.HYBRID)
    every = Along.EVERY.name.lower()
    spread = {log: tuple(divided or words != every for words in along) for log, along in by.items()}
    return FormerCells(tuple(plain["shape"]), spread)


# -- hypercubes and cubes ------------------------------------------------------------------------------


def _grids(joined: JoinedInputs, cells: int) -> Iterator[list[tuple[int, _Dimension]]]:
    """Yield the ways to divide cells among dimensions.

    A dimension is a key that inputs have in common, or round-robin over one input.
    """
    dimensions: list[_Dimension] = [
        by_log for one in joined.classes if (by_log := one.of_logs(joined.inputs))
    ]
    logs = [log for one in joined.inputs for log in one.logs]
    keyed = [one for one in dimensions if len(one) == len(set(logs))]
    dealt = [one.logs[0] for one in joined.inputs if not one.computed]
    dimensions += [{log: Along.STRIPE} for log in dealt if logs.count(log) == 1]
    most = next(most for up_to, most in _MOST_DIMENSIONS if cells <= up_to)
    for number in range(1, min(most, len(dimensions)) + 1):
        for used in combinations(dimensions, number):
            # a single dimension with keys for all logs is the placement by key
            if number > 1 or used[0] not in keyed:
                yield from (list(zip(counts, used, strict=True)) for counts in _factors(cells, number))


def _factors(number: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Yield the factorizations of a number into `parts` factors greater than 1.

    >>> list(_factors(8, 2))
    [(2, 4), (4, 2)]
    """
    if parts == 1 and number > 1:
        yield (number,)
    for first in range(2, number // 2 + 1) if parts > 1 else ():
        if number % first == 0:
            yield from ((first, *rest) for rest in _factors(number // first, parts - 1))


def _divisible(number: int) -> int:
    """Return the greatest number up to `number` of the form 2^a·3^b."""
    while (rest := number) > 1:
        for factor in (2, 3):
            while rest % factor == 0:
                rest //= factor
        if rest == 1:
            break
        number -= 1
    return number


def _grid(unit: Unit, dimensions: Sequence[tuple[int, _Dimension]]) -> Placement:
    shape = tuple(count for count, _ in dimensions)
    by = {log: tuple(one.get(log, Along.EVERY) for _, one in dimensions) for log in unit.inputs}
    return Placement.of({log: Exchange(shape, own) for log, own in by.items()})


def _describe_rule(by: Keys | Along) -> str:
    """Return a rule as text.

    A column with the name of an `Along` rule is quoted.
    """
    if isinstance(by, Along):
        return by.name.lower()
    text = ", ".join(render(key) for key in by)
    return f'"{text}"' if text.upper() in Along.__members__ else text


def _unquoted(by: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return rules without quotes, as journals of earlier versions store them."""
    return {log: [words.strip('"') for words in along] for log, along in by.items()}
