"""Placement of a task: the subtasks that read and that store each row.

| placement | subtasks | a row is read by | a row is stored by |
|---|---|---|---|
| one | 1 | the subtask | the subtask |
| key | N | the subtask of its key | the same subtask |
| time | N | all subtasks | one subtask, round-robin; a pair is found where its older row is stored |
| hybrid | N | the subtask of its key; all if the key is heavy | the same; one, round-robin, if heavy |
| hypercube | n1 × n2 × … | subtasks with the row's coordinates, hashed or round-robin | the same subtasks |
| cube | n1 × n2 × … | subtasks with the row's round-robin coordinate for its stream | the same subtasks |

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
    MOST_SUBTASKS,
    Along,
    Exchange,
    FormerSubtasks,
    by_key,
    by_time,
    may_spread_keys,
)
from slicemill.plan.placement_cost import ASSUMED, PlacementCost, PlacementStatistics, SubtasksByTime, cost_of
from slicemill.plan.tasks import Task

# Maximum number of grid dimensions, by number of subtasks: planning time grows with both.
_MOST_DIMENSIONS = ((64, 4), (1024, 3), (MOST_SUBTASKS, 2))

AUTO = "auto"

# Distribution of each log along one grid dimension. Rows of unlisted logs go to all subtasks.
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
    """Grid of subtasks (parallel instances), and the exchange that partitions each log."""

    kind: PlacementKind
    exchanges: Mapping[str, Exchange]

    @staticmethod
    def of(exchanges: Mapping[str, Exchange]) -> Placement:
        """Return the placement that has these exchanges, with its kind."""
        if not exchanges:
            return ONE_SUBTASK
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
    def subtasks(self) -> int:
        return prod(self.shape)

    def spreads_like(self, other: Placement) -> bool:
        """Return True if both placements partition their common logs equally."""
        common = self.exchanges.keys() & other.exchanges.keys()
        same = all(self.exchanges[log] == other.exchanges[log] for log in common)
        return (self.kind, self.shape) == (other.kind, other.shape) and same

    def __str__(self) -> str:
        if self.kind is PlacementKind.ONE:
            return "one subtask"
        words = {PlacementKind.KEY: "by key", PlacementKind.TIME: "by time"}
        return f"{words.get(self.kind, self.kind.value)}, {' × '.join(map(str, self.shape))} subtasks"

    def plain(self) -> dict[str, Any]:
        """Return the placement as a JSON object for the journal."""
        by = {log: [_describe_rule(one) for one in exchange.by] for log, exchange in self.exchanges.items()}
        return {"kind": self.kind.value, "shape": list(self.shape), "by": by}


@dataclass(frozen=True, slots=True)
class Candidate:
    """Possible placement of a task, with its cost."""

    placement: Placement
    cost: PlacementCost


ONE_SUBTASK = Placement(PlacementKind.ONE, {})


def parse_placement_kind(name: str) -> PlacementKind | None:
    """Return the placement kind of that name. `auto` means the cheapest kind and returns None."""
    if name == AUTO:
        return None
    known = {kind.value: kind for kind in PlacementKind}
    if name not in known:
        raise SlicemillError(f"there is no placement {name!r}; use one of {', '.join((AUTO, *known))}")
    return known[name]


def placements_of(task: Task, graph: QueryGraph, subtasks: int) -> list[Placement]:
    """Return the valid placements of a task, including a single subtask.

    A grid may use fewer subtasks than given, for example four of five subtasks as a square. If a join
    depends on whether rows have matched, all possible matches of a row must reach the subtask that stores
    it. Only placements with this property are then returned.
    """
    found = _placements(task, graph, subtasks)
    if needs_match_flags(task, graph):
        return [one for one in found if one.kind in (PlacementKind.ONE, PlacementKind.KEY)]
    return found


def needs_match_flags(task: Task, graph: QueryGraph) -> bool:
    """Return True if a join must record whether a row has matched, as an outer join does."""
    joins = (graph[node_id].operator for node_id in task.nodes)
    return any(isinstance(join, SharedJoin) and join.tracks_matches for join in joins)


def _placements(task: Task, graph: QueryGraph, subtasks: int) -> list[Placement]:
    found = [ONE_SUBTASK]
    if subtasks == 1 or not task.stateful:
        return found
    keyed = by_key(task, graph, subtasks)
    if keyed:
        found.append(Placement(PlacementKind.KEY, keyed))
    joined = join_inputs_of(task, graph)
    if joined is None:
        return found
    if len(joined.inputs) == 2:
        in_turn = by_time(task, graph, subtasks)
        if in_turn:
            found.append(Placement(PlacementKind.TIME, in_turn))
        if in_turn and may_spread_keys(task, graph, keyed):
            found.append(Placement(PlacementKind.HYBRID, keyed))
    elif not joined.counts_rows:
        counts = sorted({subtasks, _divisible(subtasks)}, reverse=True)
        found += (_grid(task, used) for count in counts for used in _grids(joined, count))
    return found


def candidates(
    task: Task, graph: QueryGraph, subtasks: int, statistics: PlacementStatistics = ASSUMED
) -> list[Candidate]:
    """Return the placements of a task with their costs, cheapest first.

    Placement by time is also tried with fewer subtasks, because each of its subtasks reads all rows.
    """
    joined = join_inputs_of(task, graph)
    possible = placements_of(task, graph, subtasks)
    if any(placement.kind is PlacementKind.TIME for placement in possible):
        best = best_by_time(task, graph, subtasks, statistics).best()
        if 1 < best < subtasks:
            possible.append(Placement(PlacementKind.TIME, by_time(task, graph, best)))
    found = [Candidate(placement, _cost(placement, task, joined, statistics)) for placement in possible]
    return sorted(found, key=lambda candidate: candidate.cost.price(subtasks))


def best_by_time(
    task: Task, graph: QueryGraph, cores: int, statistics: PlacementStatistics = ASSUMED
) -> SubtasksByTime:
    """Return the model that finds the best number of subtasks for a placement by time."""
    joined = join_inputs_of(task, graph)
    one, two = (
        cost_of(by_time(task, graph, subtasks), task.inputs, joined, statistics).cpu_s for subtasks in (1, 2)
    )
    return SubtasksByTime(one - (two - one), two - one, cores)


def _cost(
    placement: Placement, task: Task, joined: JoinedInputs | None, statistics: PlacementStatistics
) -> PlacementCost:
    hybrid = placement.kind is PlacementKind.HYBRID
    return cost_of(placement.exchanges, task.inputs, joined, statistics, hybrid=hybrid)


def price_of(
    placement: Placement, task: Task, graph: QueryGraph, statistics: PlacementStatistics, cores: int
) -> float:
    """Return the cost of a placement on `cores` cores as one number, for comparison."""
    return _cost(placement, task, join_inputs_of(task, graph), statistics).price(cores)


def choose_placement(
    task: Task,
    graph: QueryGraph,
    subtasks: int,
    statistics: PlacementStatistics = ASSUMED,
    kind: PlacementKind | None = None,
) -> Placement:
    """Return the cheapest placement of a task, optionally of a given kind.

    A task without state always has one subtask.
    """
    if not task.stateful or subtasks == 1:
        return ONE_SUBTASK
    known = candidates(task, graph, subtasks, statistics)
    if kind is PlacementKind.TIME:  # a placement by time that the user requests uses all subtasks
        known = [one for one in known if one.placement.subtasks == subtasks]
    found = next((one.placement for one in known if kind in (None, one.placement.kind)), None)
    if found is None:
        assert kind is not None, "there is always the placement in one subtask"
        kinds = ", ".join(dict.fromkeys(one.placement.kind.value for one in known))
        raise SlicemillError(
            f"{task.id} cannot be placed as {kind.value} in {subtasks} subtasks; use one of: {kinds}"
        )
    return found


def restore_placement(task: Task, graph: QueryGraph, plain: Mapping[str, Any]) -> Placement | None:
    """Return the placement that the journal stores, or None if the task no longer allows it.

    The result is None if the task's queries have changed so that the placement is no longer valid.
    """
    subtasks = prod(plain["shape"])
    if subtasks == 1:
        return ONE_SUBTASK
    # Each statement restores the placements, and most are by key. So a placement by key is restored faster.
    if plain["kind"] == PlacementKind.KEY.value:
        keyed = Placement(PlacementKind.KEY, by_key(task, graph, subtasks))
        by, known = _unquoted(keyed.plain()["by"]), _unquoted(plain["by"])
        if by and all(known.get(log, own) == own for log, own in by.items()):
            return keyed
    else:
        known = _unquoted(plain["by"])
        for placement in _placements(task, graph, subtasks):
            own = placement.plain()
            if {**own, "by": _unquoted(own["by"])} == {**plain, "by": known}:
                return placement
    return None


def kept_placement(task: Task, graph: QueryGraph, plain: Mapping[str, Any]) -> Placement | None:
    """Return the placement that the journal stores, if it is still valid for the task."""
    before = restore_placement(task, graph, plain)
    if before is None or before == ONE_SUBTASK or before in placements_of(task, graph, before.subtasks):
        return before
    return None


def replacement(
    task: Task, graph: QueryGraph, subtasks: int, reachable: Callable[[Placement], bool]
) -> Placement:
    """Return the cheapest placement that can take over the stored state.

    `reachable` returns True for such placements. A single subtask can always take over the state.
    """
    if not task.stateful:
        return ONE_SUBTASK
    found = (one.placement for one in candidates(task, graph, subtasks))
    return next((one for one in found if reachable(one)), ONE_SUBTASK)


def former_subtasks(plain: Mapping[str, Any]) -> FormerSubtasks:
    """Return the grid of subtasks of a placement that the journal stores."""
    kind, by = PlacementKind(plain["kind"]), plain["by"]
    divided = kind in (PlacementKind.KEY, PlacementKind.HYBRID)
    every = Along.EVERY.name.lower()
    spread = {log: tuple(divided or words != every for words in along) for log, along in by.items()}
    return FormerSubtasks(tuple(plain["shape"]), spread)


# -- Hypercubes and cubes ------------------------------------------------------------------------------


def _grids(joined: JoinedInputs, subtasks: int) -> Iterator[list[tuple[int, _Dimension]]]:
    """Yield all grids: products of dimensions with `subtasks` subtasks.

    A dimension is a key that inputs have in common, or round-robin over one input.
    """
    dimensions: list[_Dimension] = [
        by_log for one in joined.classes if (by_log := one.of_logs(joined.inputs))
    ]
    logs = [log for one in joined.inputs for log in one.logs]
    keyed = [one for one in dimensions if len(one) == len(set(logs))]
    dealt = [one.logs[0] for one in joined.inputs if not one.computed]
    dimensions += [{log: Along.STRIPE} for log in dealt if logs.count(log) == 1]
    most = next(most for up_to, most in _MOST_DIMENSIONS if subtasks <= up_to)
    for number in range(1, min(most, len(dimensions)) + 1):
        for used in combinations(dimensions, number):
            # a grid with one dimension, whose key all logs have, equals the placement by key
            if number > 1 or used[0] not in keyed:
                yield from (list(zip(counts, used, strict=True)) for counts in _factors(subtasks, number))


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


def _grid(task: Task, dimensions: Sequence[tuple[int, _Dimension]]) -> Placement:
    shape = tuple(count for count, _ in dimensions)
    by = {log: tuple(one.get(log, Along.EVERY) for _, one in dimensions) for log in task.inputs}
    return Placement.of({log: Exchange(shape, own) for log, own in by.items()})


def _describe_rule(by: Keys | Along) -> str:
    """Return the rule of a grid dimension as text: key expressions, or `every` or `stripe`.

    A column with the name of an `Along` rule is quoted.
    """
    if isinstance(by, Along):
        return by.name.lower()
    text = ", ".join(render(key) for key in by)
    return f'"{text}"' if text.upper() in Along.__members__ else text


def _unquoted(by: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Remove the quotes around key expressions, which journals of earlier versions store without."""
    return {log: [words.strip('"') for words in along] for log, along in by.items()}
