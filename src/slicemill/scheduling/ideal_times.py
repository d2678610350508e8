"""How long a result would take with nothing else there, through all units on its way (P22).

A run over N rows takes a + b·N. A result of a join is made of several rows: T is all the work on them, as
`slicemill_lab.charts.composites` has it for operators; the last of them to arrive may take a part of it only.
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
    """A row of a join is made of a row of each part; a row of a union comes from one of them."""

    joined: bool
    parts: tuple[MadeOf, ...]


# A log of which a row is read, or several of them.
MadeOf: TypeAlias = str | Together


class Written(NamedTuple):
    """How a log is written: of rows of which other logs, and what is known of the unit that does so."""

    made_of: MadeOf
    statistics: UnitStatistics


def made_of(node_id: str, graph: QueryGraph, known: dict[str, MadeOf]) -> MadeOf:
    """What a row of a node is made of; `known` has the log of each node that is read, and remembers."""
    if node_id not in known:
        node = graph[node_id]
        parts = tuple(made_of(given, graph, known) for given in node.inputs)
        joined = isinstance(node.operator, (WindowJoin, SharedJoin, SharedMultiJoin))
        known[node_id] = parts[0] if len(parts) == 1 else Together(joined, parts)
    return known[node_id]


def ideal_time(log: str, writers: Mapping[str, Written]) -> IdealTime:
    """From the arrival of the rows of declared streams, which no unit writes, to a row of this log."""
    if log not in writers:
        return IdealTime(0.0, 0.0)
    written = writers[log]
    rows, run_s = _rows(written.made_of, written, writers), written.statistics.cost.overhead
    return IdealTime(rows.whole_s + run_s, rows.last_s + run_s)


def _rows(made_of: MadeOf, written: Written, writers: Mapping[str, Written]) -> IdealTime:
    """What the rows take that something is made of, but for what the run takes in any case."""
    if isinstance(made_of, str):
        row, row_s = ideal_time(made_of, writers), written.statistics.cost.per_row
        return IdealTime(row.whole_s + row_s, row.last_s + row_s)
    parts = [_rows(part, written, writers) for part in made_of.parts] or [IdealTime(0.0, 0.0)]
    together = sum if made_of.joined else max
    return IdealTime(together([part.whole_s for part in parts]), max(part.last_s for part in parts))
