"""What counts together when the turn of a unit is decided: the queries it serves, and the work up to them.

A unit may serve many queries: its own, which all get their results in the same run, and those of units that
read what it writes. Each has an ideal time T of its own, so the value of a run is a sum over queries (P26):

    V = Σ w_i / (work of the unit and of those behind it)      w_i = α·S (rates), α·S/T (slowdown), α·S/T²

What lies behind a derived stream need not run with the unit that writes it: it waits for a turn of its own.
So of the tree behind a unit only that part counts which makes V greatest, the priority-defining tree (P27).
It is where the slope chart of a fork is cut (M6, M9): those behind are added steepest first, while they raise
the slope. The same cut with rows that no longer wait in place of results gives the units of Chain (M7).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from slicemill.scheduling.arrays import Floats


class Aim(IntEnum):
    """What the value of a portion counts."""

    RESPONSE = 0
    """Results, each as much as it matters: Σ α·S."""
    SLOWDOWN = 1
    """Σ α·S/T."""
    BALANCE = 2
    """Σ α·S/T²."""
    MEMORY = 3
    """Rows that no longer wait."""
    PATH = 4
    """Results of the one query that gets most of them by its own work."""
    ALL = 5
    """Results as for `RESPONSE`, with all work behind the unit."""


@dataclass(frozen=True, slots=True)
class Served:
    """Queries that get results of a unit's own runs and have the same ideal time."""

    shares: tuple[float, ...]
    """S of each: its results per row."""
    weights: tuple[float, ...]
    """α of each: how much a result matters."""
    ideal_s: float
    within_s: float = math.inf
    """How late the strictest of them may be."""

    @property
    def value(self) -> float:
        """Results per row, each as much as it matters."""
        return sum(share * weight for share, weight in zip(self.shares, self.weights, strict=True))


@dataclass(frozen=True, slots=True)
class WorkTree:
    """A unit with what reads its logs, each with the rows that it gets of one row of the unit's input."""

    overhead: float
    per_row: float
    served: tuple[Served, ...] = ()
    readers: tuple[tuple[float, WorkTree], ...] = ()

    def all_served(self) -> Iterator[tuple[float, Served]]:
        """All queries behind the unit, with the rows that come to theirs of one row of its input."""
        for served in self.served:
            yield 1.0, served
        for share, reader in self.readers:
            for below, served in reader.all_served():
                yield share * below, served


class Portion(NamedTuple):
    """A unit with those behind it that count with it; a run over N rows takes overhead + per_row · N."""

    value: float
    overhead: float
    per_row: float

    def rate(self, rows: float) -> float:
        """Value by time; what gets nothing takes no time and gives nothing."""
        time_s = self.overhead + self.per_row * rows
        return self.value * rows / time_s if time_s else 0.0

    def plus(self, other: Portion) -> Portion:
        return Portion(self.value + other.value, self.overhead + other.overhead, self.per_row + other.per_row)

    def behind(self, share: float, rows: float) -> Portion:
        """The same for whoever feeds it `share` rows of each of so many: of few rows it may get none."""
        return Portion(self.value * share, self.overhead * min(1.0, share * rows), self.per_row * share)


def portion(tree: WorkTree, aim: Aim, rows: float) -> Portion:
    """What counts with a unit that runs over about so many rows."""
    if aim is Aim.PATH:
        return _best_path(tree, rows)
    if aim is Aim.ALL:
        return _everything(tree, rows)
    return _cut(tree, aim, rows)[0]


def _cut(tree: WorkTree, aim: Aim, rows: float) -> list[Portion]:
    """The tree cut into portions, steepest first but for the first, which has the unit itself."""
    below = [
        part.behind(share, rows)
        for share, reader in tree.readers
        for part in _cut(reader, aim, max(share * rows, 1.0))
    ]
    below.sort(key=lambda part: part.rate(rows), reverse=True)
    first = Portion(_own_value(tree, aim), tree.overhead, tree.per_row)
    taken = 0
    while taken < len(below) and below[taken].rate(rows) >= first.rate(rows):
        first = first.plus(below[taken])
        taken += 1
    return [first, *below[taken:]]


def _own_value(tree: WorkTree, aim: Aim) -> float:
    if aim is Aim.MEMORY:
        return 1.0 - sum(share for share, _ in tree.readers)
    return sum(served.value / served.ideal_s ** int(aim) for served in tree.served)


def _everything(tree: WorkTree, rows: float) -> Portion:
    whole = Portion(_own_value(tree, Aim.RESPONSE), tree.overhead, tree.per_row)
    for share, reader in tree.readers:
        whole = whole.plus(_everything(reader, max(share * rows, 1.0)).behind(share, rows))
    return whole


def _best_path(tree: WorkTree, rows: float) -> Portion:
    own = max((share for served in tree.served for share in served.shares), default=0.0)
    ends = [Portion(own, tree.overhead, tree.per_row)]
    for share, reader in tree.readers:
        end = _best_path(reader, max(share * rows, 1.0)).behind(share, rows)
        ends.append(Portion(end.value, tree.overhead + end.overhead, tree.per_row + end.per_row))
    return max(ends, key=lambda end: end.rate(rows))


class UnitFigures:
    """What policies know of units before they look at what waits for them: columns, a position for each."""

    __slots__ = ("ideal_time", "portions", "queries", "selectivity", "weight", "within")

    def __init__(self, count: int) -> None:
        self.portions = np.zeros((len(Aim), 3, count))
        """By aim: value, overhead and cost per row of the portion that counts."""
        self.queries = np.ones(count)
        """How many queries get results of the unit and of those behind it."""
        self.weight = np.ones(count)
        """α: how much a result of one of them matters, on average."""
        self.selectivity = np.zeros(count)
        """S: results per row of one of so many equal queries that would miss as many results (P32)."""
        self.ideal_time = np.ones(count)
        """T: the least of these queries, which is slowed down most by the same wait."""
        self.within = np.full(count, np.inf)
        """How late the results of the strictest of these queries may be."""

    def set(self, position: int, tree: WorkTree, rows: float) -> None:
        """Work out what is known of a unit whose runs are about so long."""
        self.portions[:, :, position] = [portion(tree, aim, rows) for aim in Aim]
        shares: list[float] = []
        weights: list[float] = []
        ideal_s = within_s = math.inf
        for share, served in tree.all_served():
            shares += [share * one for one in served.shares]
            weights += served.weights
            ideal_s, within_s = min(ideal_s, served.ideal_s), min(within_s, served.within_s)
        self.queries[position] = max(len(shares), 1)
        self.weight[position] = sum(weights) / len(weights) if weights else 1.0
        self.selectivity[position] = _equal_selectivity(shares, weights, rows)
        self.ideal_time[position] = tree.overhead + tree.per_row if math.isinf(ideal_s) else ideal_s
        self.within[position] = within_s

    @staticmethod
    def unshared(
        results: npt.ArrayLike,
        overhead: npt.ArrayLike,
        per_row: npt.ArrayLike,
        ideal_time: npt.ArrayLike,
        weight: npt.ArrayLike = 1.0,
        queries: npt.ArrayLike = 1.0,
    ) -> UnitFigures:
        """Of units that feed no others and whose queries have one ideal time."""
        columns: list[Floats] = [
            np.asarray(column, np.float64)
            for column in np.broadcast_arrays(results, overhead, per_row, ideal_time, weight, queries)
        ]
        figures = UnitFigures(len(columns[0]))
        given, overhead_s, per_row_s, figures.ideal_time, figures.weight, figures.queries = columns
        figures.selectivity = given / figures.queries
        value = figures.weight * given
        for aim in Aim:
            power = int(aim) if aim in (Aim.SLOWDOWN, Aim.BALANCE) else 0
            counted = value / figures.ideal_time**power
            if aim is Aim.MEMORY:
                counted = np.ones(len(value))
            elif aim is Aim.PATH:
                counted = figures.selectivity
            figures.portions[aim] = counted, overhead_s, per_row_s
        return figures


def _equal_selectivity(shares: Sequence[float], weights: Sequence[float], rows: float) -> float:
    """The selectivity of equal queries that are stale as often as these are, after so many rows.

    The probability that one is stale, 1 - (1 - S)^N, is not linear in S, so it is not that of the mean.
    """
    if not shares:
        return 0.0
    if len(shares) == 1:
        return shares[0]
    fresh = (1 - np.minimum(shares, 1.0)) ** rows
    return float(1 - np.average(fresh, weights=weights) ** (1 / rows))
