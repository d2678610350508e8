"""Cost model of placements: CPU time and stored rows of each subtask (parallel instance).

A row finds results by probing the windows of all other inputs in sequence. In each window, a
partial result matches this number of rows (S35; rates are those after selections):

    rate × window × share of pairs that match        with an equality
    rate × window                                    without one: all rows are compared

A subtask has a share of the rows of each input. The share is a product with a factor of 1/n for each
dimension that partitions the input. A heavy key makes the factor greater, because the slowest subtask
decides (S38).

In a subtask, a partial result also finds only that share of its matches. The exception is a dimension by a
key that both rows have in common: along it, a subtask finds all matches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, floor, prod, sqrt

from slicemill.catalog.queries import FrameUnit
from slicemill.operators.graph import QueryGraph
from slicemill.operators.join.multiway_spec import SharedMultiJoin
from slicemill.operators.join.spec import SharedJoin
from slicemill.operators.protocol import Keys
from slicemill.plan.join_inputs import JoinedInput, JoinedInputs, join_inputs_of
from slicemill.plan.partitioning import Along, Exchange
from slicemill.plan.tasks import Task

_US = 1e-6
# length in seconds that is assumed for an unbounded window
_FOREVER_S = 3600.0
# Cost of storing a row in its window, as a multiple of the cost of writing it. Join slices assume it too.
_KEEPING = 8.0


@dataclass(frozen=True, slots=True)
class RowCosts:
    """CPU microseconds per row, pair or subtask.

    `read`, `store` and `probe` are per row. `compare` is per comparison of two rows without an equality,
    `pair` per matching pair, `sift` per row checked for a heavy key. `subtask` is per second and subtask,
    for ten runs.

    Measured in one process on an AMD EPYC core, with joins of two and three streams and 40 000 to 80 000 rows
    in a window, of which each matches none, two, four or twenty rows. Placements were one subtask, by key, by
    time in eight subtasks (which costs 8 × read + 8 × probe + store) and a 4 × 4 hypercube. Joins of two
    streams take slightly less per row than joins of three. A run without rows takes 1.4 ms. Only ratios
    affect the choice.
    """

    read: float = 0.2
    store: float = 0.15
    probe: float = 0.1
    compare: float = 0.04
    pair: float = 0.08
    sift: float = 0.05
    subtask: float = 14_000.0


@dataclass(frozen=True, slots=True)
class PlacementStatistics:
    """Input statistics of the cost model: arrival rates, match shares and heavy keys.

    `rates` has the rows per second of each log, after selections. `matching` is the share of pairs with equal
    keys, by join. By default each row matches one row per window. `selected` is the share of pairs that
    satisfy a condition without an equality. `heavy` maps a log and its keys to the row shares of the heavy
    keys, in descending order.
    """

    rates: Mapping[str, float] = field(default_factory=dict)
    matching: Mapping[str, float] = field(default_factory=dict)
    selected: float = 0.01
    heavy: Mapping[tuple[str, Keys], tuple[float, ...]] = field(default_factory=dict)
    assumed_rate: float = 100_000.0
    costs: RowCosts = RowCosts()

    @property
    def measured(self) -> bool:
        return bool(self.rates)

    def rate(self, *logs: str) -> float:
        return sum(self.rates.get(log, self.assumed_rate) for log in logs)

    def kept(self, joined: JoinedInput) -> float:
        """Return the number of rows in the window of a join input."""
        window = joined.window
        if window.frame is FrameUnit.ROWS and window.extent is not None:
            return float(window.extent)
        seconds = _FOREVER_S if window.extent is None else window.extent * _US
        return self.rate(*joined.logs) * seconds

    def heaviest(self, log: str, keys: Keys) -> float:
        return max(self.heavy.get((log, keys), ()), default=0.0)


# A user who requests several subtasks expects a high rate, so assume a high rate until it is measured.
ASSUMED = PlacementStatistics()


@dataclass(frozen=True, slots=True)
class PlacementCost:
    """Cost of a placement per second of running time, and its rows in state.

    `cpu_s` is the CPU time of all subtasks, `slowest_s` that of the slowest. `rows_kept` are the rows in
    state of all subtasks, `most_kept` those of the fullest subtask.
    """

    cpu_s: float
    slowest_s: float
    rows_read: float
    rows_stored: float
    rows_kept: float
    most_kept: float
    keeping_s: float

    def price(self, subtasks: int) -> float:
        """Return the cost as one number: time of the slowest subtask plus total time per core.

        A row that several subtasks store costs memory in each of them.
        """
        return self.slowest_s + (self.cpu_s + self.keeping_s) / subtasks


@dataclass(frozen=True, slots=True)
class SubtasksByTime:
    """Cost of a placement by time as a function of the number of subtasks.

    In a placement by time each subtask reads all rows and stores every n-th row. Of the task's CPU seconds
    per second, `divided_s` is divided among the subtasks, and each subtask repeats `repeated_s`, because each
    subtask reads and probes with all rows. This differs from the publication (S35, S36), where a longer ring
    makes the path of a tuple longer. So the price of N subtasks and its minimum are

        divided / N + repeated + (divided + N repeated) / cores        at N = sqrt(divided cores / repeated)
    """

    divided_s: float
    repeated_s: float
    cores: int

    def price(self, subtasks: float) -> float:
        all_s = self.divided_s + subtasks * self.repeated_s
        return self.divided_s / subtasks + self.repeated_s + all_s / self.cores

    def best(self) -> int:
        """Return the cheapest number of subtasks, at most the number of cores."""
        exact = sqrt(self.divided_s * self.cores / self.repeated_s)
        near = {min(max(1, round_(exact)), self.cores) for round_ in (floor, ceil)}
        return min(sorted(near), key=self.price)


def cost_of(
    exchanges: Mapping[str, Exchange],
    logs: Sequence[str],
    joined: JoinedInputs | None,
    statistics: PlacementStatistics,
    *,
    hybrid: bool = False,
) -> PlacementCost:
    """Return the cost of a task whose rows are partitioned by these exchanges.

    `joined` is None for aggregates. In a hybrid placement, rows with heavy keys go to all subtasks and are
    stored round-robin.
    """
    shape = next((exchange.shape for exchange in exchanges.values()), (1,))
    even = _work(exchanges, logs, joined, statistics, None, hybrid)
    along = range(len(shape)) if statistics.heavy and not hybrid else ()
    slow = [_work(exchanges, logs, joined, statistics, one, hybrid) for one in along]
    subtasks = prod(shape)
    return PlacementCost(
        subtasks * even.cpu_s(statistics.costs),
        max(work.cpu_s(statistics.costs) for work in (even, *slow)),
        subtasks * even.read,
        subtasks * even.stored,
        subtasks * even.kept,
        max(work.kept for work in (even, *slow)),
        subtasks * even.stored * _KEEPING * statistics.costs.store * _US,
    )


@dataclass(slots=True)
class _SubtaskWork:
    """Work of one subtask per second: numbers of rows, probes, comparisons and pairs."""

    read: float = 0.0
    stored: float = 0.0
    kept: float = 0.0
    probes: float = 0.0
    compared: float = 0.0
    pairs: float = 0.0
    sifted: float = 0.0

    def cpu_s(self, costs: RowCosts) -> float:
        rows = self.read * costs.read + self.stored * costs.store + self.probes * costs.probe
        rows += self.sifted * costs.sift
        return (rows + self.compared * costs.compare + self.pairs * costs.pair + costs.subtask) * _US


def _work(
    exchanges: Mapping[str, Exchange],
    logs: Sequence[str],
    joined: JoinedInputs | None,
    statistics: PlacementStatistics,
    slow: int | None,
    hybrid: bool,
) -> _SubtaskWork:
    """Return the work of a subtask per second.

    Along dimension `slow`, it is the subtask of the heaviest key.
    """
    if joined is None:
        return _work_by_key(exchanges, logs, statistics, slow)
    subtask = _Subtask(exchanges, joined, statistics, slow, hybrid)
    work = _SubtaskWork()
    for number, one in enumerate(joined.inputs):
        read, stored = subtask.share(number), subtask.stored(number)
        work.read += statistics.rate(*one.logs) * read
        work.stored += statistics.rate(*one.logs) * stored
        work.kept += statistics.kept(one) * stored
        subtask.probe_from(number, work)
    work.sifted = work.read if hybrid else 0.0
    return work


def _work_by_key(
    exchanges: Mapping[str, Exchange],
    logs: Sequence[str],
    statistics: PlacementStatistics,
    slow: int | None,
) -> _SubtaskWork:
    """Return the work of a subtask per second if the task aggregates, which processes each row once."""
    work = _SubtaskWork()
    for log in logs:
        rows = statistics.rate(log)
        if log in exchanges:
            rows *= prod(_shares(exchanges[log], log, statistics, slow))
        work.read += rows
        work.stored += rows
        work.kept += rows
        work.probes += rows
    return work


def _shares(exchange: Exchange, log: str, statistics: PlacementStatistics, slow: int | None) -> list[float]:
    """Return the share of a log's rows that a subtask reads, for each dimension of the grid."""
    found = []
    for along, (count, by) in enumerate(zip(exchange.shape, exchange.by, strict=True)):
        if by is Along.EVERY:
            found.append(1.0)
        else:
            heavy = statistics.heaviest(log, by) if along == slow and not isinstance(by, Along) else 0.0
            found.append(heavy + (1 - heavy) / count)
    return found


class _Subtask:
    """Share of each join input that one subtask reads, and the pairs that the subtask finds."""

    def __init__(
        self,
        exchanges: Mapping[str, Exchange],
        joined: JoinedInputs,
        statistics: PlacementStatistics,
        slow: int | None,
        hybrid: bool,
    ) -> None:
        self._inputs, self._classes = joined.inputs, joined.classes
        self._statistics, self._slow = statistics, slow
        # All logs of an input that the task computes are partitioned alike, so the first log stands for all.
        firsts = [one.logs[0] for one in joined.inputs]
        self._by = [exchanges[log].by if exchanges else () for log in firsts]
        self._shares = [_shares(exchanges[log], log, statistics, slow) if exchanges else [] for log in firsts]
        self._by_key = all(exchange.by_key for exchange in exchanges.values())
        self._shape = next((exchange.shape for exchange in exchanges.values()), ())
        by_time = bool(exchanges) and all(exchange.parts == 1 for exchange in exchanges.values())
        self._in_turn = by_time or hybrid
        if hybrid:
            self._shares = [[self._everywhere(number)] for number in range(len(joined.inputs))]

    def _everywhere(self, number: int) -> float:
        """Return a subtask's share of an input's rows if heavy keys go to all subtasks (hybrid placement).

        The subtask reads all rows of heavy keys, and an equal part of the other rows.
        """
        (by,) = self._by[number]
        assert not isinstance(by, Along)
        heavy = sum(self._statistics.heavy.get((self._inputs[number].logs[0], by), ()))
        return heavy + (1 - heavy) / prod(self._shape)

    def share(self, number: int) -> float:
        """Return the share of an input's rows that the subtask reads."""
        return prod(self._shares[number])

    def stored(self, number: int) -> float:
        return 1 / prod(self._shape) if self._in_turn else self.share(number)

    def probe_from(self, first: int, work: _SubtaskWork) -> None:
        """Add the work of probing all other inputs with the rows of one input.

        Inputs that an equality links to earlier inputs are probed first.
        """
        partial = self._statistics.rate(*self._inputs[first].logs) * self.share(first)
        seen, left = [first], [number for number in range(len(self._inputs)) if number != first]
        while left:
            number = next((n for n in left if self._links(n, seen)), left[0])
            links = self._links(number, seen)
            met = self._statistics.kept(self._inputs[number]) * self._met(number, seen, links)
            work.probes += partial
            if not links:
                work.compared += partial * met
                met *= self._statistics.selected
            partial *= met
            work.pairs += partial
            seen.append(number)
            left.remove(number)

    def _links(self, number: int, seen: Sequence[int]) -> list[Mapping[int, Keys | None]]:
        return [
            one.keys
            for one in self._classes
            if number in one.keys and any(other in one.keys for other in seen)
        ]

    def _met(self, number: int, seen: Sequence[int], links: Sequence[Mapping[int, Keys | None]]) -> float:
        """Return the share of an input's window that a probing row matches in this subtask."""
        met = matching = self._matching(number, links)
        if self._in_turn:
            return matching / (prod(self._shape) * self.share(seen[0]))
        for along, (by, share) in enumerate(zip(self._by[number], self._shares[number], strict=True)):
            if by is Along.EVERY:
                continue
            agreeing = [
                other
                for keys in links
                for other in seen
                if other in keys
                and (self._by_key or (keys[number] == by and self._by[other][along] == keys[other]))
            ]
            if not agreeing:
                met *= share
            elif along == self._slow:
                met *= self._heavy_key_factor(number, agreeing[0], along, matching)
        return met

    def _matching(self, number: int, links: Sequence[Mapping[int, Keys | None]]) -> float:
        """Return the share of row pairs with equal keys, including heavy keys."""
        if not links:
            return 1.0
        joined = self._inputs[number]
        kept = max(self._statistics.kept(joined), 1.0)
        least = max((self._heavy_pairs(keys) for keys in links), default=0.0)
        return max(self._statistics.matching.get(joined.join, 1 / kept), least)

    def _heavy_pairs(self, keys: Mapping[int, Keys | None]) -> float:
        shares = [
            self._statistics.heavy.get((self._inputs[number].logs[0], own), ())
            for number, own in keys.items()
            if own is not None
        ]
        return max((left * right for left, right in zip(*shares[:2], strict=False)), default=0.0)

    def _heavy_key_factor(self, number: int, other: int, along: int, matching: float) -> float:
        """Return the matches in the subtask of the heaviest key, relative to the mean subtask."""
        by, others = self._by[number][along], self._by[other][along]
        assert not isinstance(by, Along) and not isinstance(others, Along)
        statistics, count = self._statistics, self._shape[along]
        own = statistics.heaviest(self._inputs[number].logs[0], by)
        its = statistics.heaviest(self._inputs[other].logs[0], others)
        pairs = own * its + max(matching - own * its, 0.0) / count
        return pairs / (matching * self._shares[other][along]) if matching else 1.0


# Measured rates and match shares, for choosing a placement


def statistics_of_task(
    task: Task, graph: QueryGraph, exchanges: Mapping[str, Exchange] | None = None
) -> PlacementStatistics:
    """Return measured statistics of a task's joins, or assumed statistics before any measurement.

    `exchanges` are the exchanges during the measurement. With them, a row stored in several subtasks is
    counted once.
    """
    joined = join_inputs_of(task, graph)
    rates: dict[str, float] = {}
    matching: dict[str, float] = {}
    for one in joined.inputs if joined is not None else ():
        join = graph[one.join].operator
        if not isinstance(join, (SharedJoin, SharedMultiJoin)) or join.measured is None:
            continue
        copies = _copies((exchanges or {}).get(one.logs[0]))
        # The share of each log in an input that the task computes is unknown, so equal shares are assumed.
        rates |= dict.fromkeys(one.logs, join.measured.rates[one.port] / copies / len(one.logs))
        # Each pair is found once, regardless of how many subtasks store its rows.
        matching[one.join] = matching.get(one.join, join.measured.matching) * copies
    return PlacementStatistics(rates=rates, matching=matching) if rates else ASSUMED


def _copies(exchange: Exchange | None) -> int:
    """Return the number of subtasks that store a row.

    With a placement by time one subtask stores the row, although all subtasks read it.
    """
    return 1 if exchange is None or exchange.parts == 1 else exchange.subtasks // exchange.parts
