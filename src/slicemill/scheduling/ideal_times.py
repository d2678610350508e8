"""How long a result would take with nothing else there, through all units on its way (P22).

A run over N rows takes a + b·N. A result of a join is made of several rows: T is all the work on them, as
`scheduling.composites` has it for operators; the last of them to arrive may take a part of it only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from slicemill.metrics.figures import IdealTime
from slicemill.operators.graph import QueryGraph
from slicemill.operators.join.spec import SharedJoin, WindowJoin
from slicemill.scheduling.unit_statistics import UnitStatistics


class Written(NamedTuple):
    """How a log is written: by which node, of rows of which other logs, and what is known of that unit."""

    graph: QueryGraph
    root: str
    inputs: Mapping[str, str]  # node → its log
    statistics: UnitStatistics


def ideal_time(log: str, writers: Mapping[str, Written]) -> IdealTime:
    """From the arrival of the rows of declared streams, which no unit writes, to a row of this log."""
    if log not in writers:
        return IdealTime(0.0, 0.0)
    written = writers[log]
    made, run_s = _made_of(written.root, written, writers), written.statistics.cost.overhead
    return IdealTime(made.whole_s + run_s, made.last_s + run_s)


def _made_of(node_id: str, written: Written, writers: Mapping[str, Written]) -> IdealTime:
    """What the rows take that a row of this node is made of, but for what the run takes in any case."""
    if node_id in written.inputs:
        row, row_s = ideal_time(written.inputs[node_id], writers), written.statistics.cost.per_row
        return IdealTime(row.whole_s + row_s, row.last_s + row_s)
    node = written.graph[node_id]
    sides = [_made_of(given, written, writers) for given in node.inputs]
    # A join puts rows of all its inputs together; a row of anything else comes from one of them.
    together = sum if isinstance(node.operator, (WindowJoin, SharedJoin)) else max
    return IdealTime(
        together([side.whole_s for side in sides] or [0.0]), max((side.last_s for side in sides), default=0.0)
    )
