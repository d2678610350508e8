"""Portions: the queries and downstream tasks from which the priority of a task is computed.

A task may serve many queries: its own queries, which get results in the same run, and queries of downstream
tasks that read its logs. A run of the task has a value, for example the number of results. Each query has its
own ideal time T (response time without other load), so the value of a run is a sum over queries (P26):

    V = Σ w_i / (work of the task and of downstream tasks)    w_i = α·S (rates), α·S/T (slowdown), α·S/T²

Here α is the weight of a result, and S the number of results per input row. The downstream tasks of a derived
stream need not run together with the task that writes it. So only the part of the tree of readers that
maximises V counts. This part is the priority-defining tree (P27). The tree is found greedily (M6, M9). The
slope of a tree is its value per second of work. Readers are added in order of descending slope, while they
increase the slope of the tree. If rows that no longer wait count instead of results, the same rule gives the
tasks of the policy Chain (M7).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from slicemill.kernels.arrays import Floats


class Aim(IntEnum):
    """Unit in which the value of a run is measured, for example results or processed rows.

    α is the weight of a result, S the results per input row, and T the ideal time of a query.
    """

    RESPONSE = 0
    """Weighted results: Σ α·S."""
    SLOWDOWN = 1
    """Weighted results divided by ideal time: Σ α·S/T."""
    BALANCE = 2
    """Weighted results divided by the squared ideal time: Σ α·S/T²."""
    MEMORY = 3
    """Rows that are no longer pending after the run."""
    PATH = 4
    """Results of the query with the highest rate."""
    ALL = 5
    """Results as for `RESPONSE`, with the work of all downstream tasks."""


@dataclass(frozen=True, slots=True)
class QueryGroup:
    """Queries of a task that have the same ideal time (response time without other load)."""

    shares: tuple[float, ...]
    """S of each query: results per input row."""
    weights: tuple[float, ...]
    """α of each query: weight of a result."""
    ideal_s: float
    within_s: float = math.inf
    """Strictest bound on the response time of these queries, in seconds."""

    @property
    def value(self) -> float:
        """Return the expected results per input row, multiplied by the weights of their queries."""
        return sum(share * weight for share, weight in zip(self.shares, self.weights, strict=True))


@dataclass(frozen=True, slots=True)
class WorkTree:
    """Costs of a task, with a subtree for each downstream task that reads its logs.

    `readers` has, for each reader, the number of rows that the reader gets per input row of this task.
    """

    overhead: float
    per_row: float
    served: tuple[QueryGroup, ...] = ()
    readers: tuple[tuple[float, WorkTree], ...] = ()

    def query_groups(self) -> Iterator[tuple[float, QueryGroup]]:
        """Yield the query groups of this task and all downstream tasks, each with a ratio of rows.

        The ratio is the number of rows that the query gets per input row of this task.
        """
        for served in self.served:
            yield 1.0, served
        for share, reader in self.readers:
            for below, served in reader.query_groups():
                yield share * below, served


class Portion(NamedTuple):
    """Value and cost of a task, together with the downstream tasks that count for its priority.

    A run over N input rows takes overhead + per_row · N.
    """

    value: float
    overhead: float
    per_row: float

    def rate(self, rows: float) -> float:
        """Return the value of a run over `rows` rows, per second of work; 0 if the run takes no time."""
        time_s = self.overhead + self.per_row * rows
        return self.value * rows / time_s if time_s else 0.0

    def plus(self, other: Portion) -> Portion:
        return Portion(self.value + other.value, self.overhead + other.overhead, self.per_row + other.per_row)

    def behind(self, share: float, rows: float) -> Portion:
        """Return this portion with value and cost per input row of the upstream task, not per own input row.

        `share` is the number of rows that the upstream task emits per input row. With few rows the reader may
        get none, so its overhead is multiplied by the probability of a row.
        """
        return Portion(self.value * share, self.overhead * min(1.0, share * rows), self.per_row * share)


def portion(tree: WorkTree, aim: Aim, rows: float) -> Portion:
    """Return the part of a work tree that counts for the priority, if about `rows` rows are pending."""
    if aim is Aim.PATH:
        return _best_path(tree, rows)
    if aim is Aim.ALL:
        return _whole_tree_portion(tree, rows)
    return _cut(tree, aim, rows)[0]


def _cut(tree: WorkTree, aim: Aim, rows: float) -> list[Portion]:
    """Cut a work tree into portions, of which the first contains the task itself.

    The other portions are ordered by descending value per second of work.
    """
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


def _whole_tree_portion(tree: WorkTree, rows: float) -> Portion:
    whole = Portion(_own_value(tree, Aim.RESPONSE), tree.overhead, tree.per_row)
    for share, reader in tree.readers:
        whole = whole.plus(_whole_tree_portion(reader, max(share * rows, 1.0)).behind(share, rows))
    return whole


def _best_path(tree: WorkTree, rows: float) -> Portion:
    own = max((share for served in tree.served for share in served.shares), default=0.0)
    ends = [Portion(own, tree.overhead, tree.per_row)]
    for share, reader in tree.readers:
        end = _best_path(reader, max(share * rows, 1.0)).behind(share, rows)
        ends.append(Portion(end.value, tree.overhead + end.overhead, tree.per_row + end.per_row))
    return max(ends, key=lambda end: end.rate(rows))


class TaskColumns:
    """Statistics of all tasks that do not depend on pending rows, as columns.

    Each task has a position in the columns.
    """

    __slots__ = ("ideal_time", "portions", "queries", "selectivity", "weight", "within")

    def __init__(self, count: int) -> None:
        self.portions = np.zeros((len(Aim), 3, count))
        """For each `Aim`: value, overhead and cost per row of the portion."""
        self.queries = np.ones(count)
        """Number of queries of each task and of its downstream tasks."""
        self.weight = np.ones(count)
        """α: mean weight of a result of the queries of each task and of its downstream tasks."""
        self.selectivity = np.zeros(count)
        """S: selectivity with which equal queries would be stale as often as those of the task (P32)."""
        self.ideal_time = np.ones(count)
        """T: minimum ideal time of the queries of each task and of its downstream tasks.

        Waiting increases the slowdown of the query with the smallest T most.
        """
        self.within = np.full(count, np.inf)
        """Strictest bound on the response times of the queries of each task and of its downstream tasks."""

    def set(self, position: int, tree: WorkTree, rows: float) -> None:
        """Store the statistics of a task whose runs read about `rows` rows."""
        self.portions[:, :, position] = [portion(tree, aim, rows) for aim in Aim]
        shares: list[float] = []
        weights: list[float] = []
        ideal_s = within_s = math.inf
        for share, served in tree.query_groups():
            shares += [share * one for one in served.shares]
            weights += served.weights
            ideal_s, within_s = min(ideal_s, served.ideal_s), min(within_s, served.within_s)
        self.queries[position] = max(len(shares), 1)
        self.weight[position] = sum(weights) / len(weights) if weights else 1.0
        self.selectivity[position] = _equal_selectivity(shares, weights, rows)
        self.ideal_time[position] = tree.overhead + tree.per_row if math.isinf(ideal_s) else ideal_s
        self.within[position] = within_s

    @staticmethod
    def without_readers(
        results: npt.ArrayLike,
        overhead: npt.ArrayLike,
        per_row: npt.ArrayLike,
        ideal_time: npt.ArrayLike,
        weight: npt.ArrayLike = 1.0,
        queries: npt.ArrayLike = 1.0,
    ) -> TaskColumns:
        """Return the statistics of tasks of which none has downstream tasks.

        All queries of a task have one ideal time.
        """
        columns: list[Floats] = [
            np.asarray(column, np.float64)
            for column in np.broadcast_arrays(results, overhead, per_row, ideal_time, weight, queries)
        ]
        figures = TaskColumns(len(columns[0]))
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
    """Return the selectivity S at which equal queries would be stale as often as the given queries.

    After N = `rows` rows, a query is stale with probability 1 - (1 - S)^N. This probability is not linear in
    S, so the mean selectivity would give another probability.
    """
    if not shares:
        return 0.0
    if len(shares) == 1:
        return shares[0]
    fresh = (1 - np.minimum(shares, 1.0)) ** rows
    return float(1 - np.average(fresh, weights=weights) ** (1 / rows))


# Positions of tasks or batches in columns.


Positions: TypeAlias = npt.NDArray[np.intp]
