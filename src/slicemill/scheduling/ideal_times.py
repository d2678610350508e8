"""Ideal time: duration of a result without other load (P22).

A run over N rows takes a + b·N. A result of a join is made from several rows: T is all the work on them,
as `slicemill_lab.charts.composites` defines it for operators. The last of these rows to arrive may account
for only a part of T.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from slicemill.metrics.figures import IdealTime
from slicemill.operators.graph import QueryGraph
from slicemill.operators.join.spec import SharedJoin, WindowJoin
from slicemill.operators.multijoin.spec import SharedMultiJoin
from slicemill.scheduling.unit_statistics import UnitStatistics


class Together(NamedTuple):
    """Origin of a row from several logs.

    A row of a join is made from a row of each part, and a row of a union from a row of one part.
    """

    joined: bool
    parts: tuple[MadeOf, ...]


# A log whose row is read, or a combination of logs.
MadeOf: TypeAlias = str | Together


class Written(NamedTuple):
    """Origin of a log's rows, and the statistics of its writer."""

    made_of: MadeOf
    statistics: UnitStatistics


def made_of(node_id: str, graph: QueryGraph, known: dict[str, MadeOf]) -> MadeOf:
    """Return the logs that a row of a node is made from.

    `known` has the log of each node that is read, and serves as a cache.
    """
    if node_id not in known:
        node = graph[node_id]
        parts = tuple(made_of(given, graph, known) for given in node.inputs)
        joined = isinstance(node.operator, (WindowJoin, SharedJoin, SharedMultiJoin))
        known[node_id] = parts[0] if len(parts) == 1 else Together(joined, parts)
    return known[node_id]


def ideal_time(log: str, writers: Mapping[str, Written]) -> IdealTime:
    """Return the ideal time of a row of this log.

    The time begins with the arrival of the rows of declared streams, which no unit writes.
    """
    if log not in writers:
        return IdealTime(0.0, 0.0)
    written = writers[log]
    rows, run_s = _rows(written.made_of, written, writers), written.statistics.cost.overhead
    return IdealTime(rows.whole_s + run_s, rows.last_s + run_s)


def _rows(made_of: MadeOf, written: Written, writers: Mapping[str, Written]) -> IdealTime:
    """Return the time of these rows, without the run's overhead."""
    if isinstance(made_of, str):
        row, row_s = ideal_time(made_of, writers), written.statistics.cost.per_row
        return IdealTime(row.whole_s + row_s, row.last_s + row_s)
    parts = [_rows(part, written, writers) for part in made_of.parts] or [IdealTime(0.0, 0.0)]
    together = sum if made_of.joined else max
    return IdealTime(together([part.whole_s for part in parts]), max(part.last_s for part in parts))
