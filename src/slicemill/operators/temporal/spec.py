"""Specification of temporal coalescing, which merges adjacent periods of equal values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slicemill.catalog.catalog import Catalog, TimestampKind
from slicemill.catalog.expressions import Expr
from slicemill.catalog.queries import Budget, LateTuples, SelectItem, Window
from slicemill.columns.sequence_bits import fan_out_bits
from slicemill.functions.render import render
from slicemill.operators.protocol import (
    Description,
    Keys,
    Operator,
    OperatorKind,
    Role,
    TaskOf,
    longest_us,
    partition,
)
from slicemill.time import format_us

if TYPE_CHECKING:
    from slicemill.operators.graph import Node, QueryGraph


@dataclass(frozen=True, slots=True)
class Coalesce(Operator):
    """Temporal coalescing: rows of equal attributes with their valid periods (L4-L8).

    A *run* (value run) is a sequence of tuples with equal attributes and adjacent periods. Each slide of the
    window emits the runs in the window. `where` selects the tuples that form runs. The condition must not be
    pushed down as a filter, because a tuple that is not selected still ends the period of its predecessor
    (L3). With a `budget`, tuples may be shed, and the accuracy is measured for the runs that `wanted`
    selects. `tells_open` adds a column that is true while a run continues (L3). With `changes`, a run is
    emitted only when it begins and when it ends (L8). With `late`, the input also has late tuples, at the
    time of their arrival. Late tuples change runs from the next slide on (L5).
    """

    attributes: tuple[str, ...]
    partition_by: tuple[SelectItem, ...]
    window: Window
    where: Expr | None = None
    budget: Budget | None = None
    wanted: Expr | None = None
    tells_open: bool = False
    changes: bool = False
    late: LateTuples | None = None


def _late_fact(late: LateTuples) -> tuple[str, str]:
    return "late", f"up to {format_us(late.within_us)}: splits runs"


class CoalesceKind(OperatorKind[Coalesce]):
    spec = Coalesce
    role = Role.STATEFUL
    task = TaskOf.KEYS
    last_words = True
    over_windows = True
    step = "slicemill.operators.temporal.step:coalesce"

    def words(self, coalesce: Coalesce, node: Node, graph: QueryGraph) -> Description:
        facts = (
            ("runs of", ", ".join(coalesce.attributes)),
            *partition([item.expr for item in coalesce.partition_by]),
            *((("where", render(coalesce.where)),) if coalesce.where is not None else ()),
            *((("memory", str(coalesce.budget)),) if coalesce.budget is not None else ()),
        )
        facts_of_report = [("report", "changes only")] if coalesce.changes else []
        facts_of_report += [_late_fact(coalesce.late)] if coalesce.late is not None else []
        return Description("", "Coalesce", (*facts, ("window", str(coalesce.window)), *facts_of_report))

    def label(self, coalesce: Coalesce) -> str:
        return "coalesce"

    def by_position(self, coalesce: Coalesce) -> bool:
        return coalesce.budget is not None

    def waits_for_time(self, coalesce: Coalesce, kind: TimestampKind) -> bool:
        return True

    def keys(self, coalesce: Coalesce) -> tuple[Keys, ...] | None:
        """Return the partitioning keys.

        None with a budget, because all partitions share one tuple store.
        """
        return None if coalesce.budget else (tuple(item.expr for item in coalesce.partition_by),)

    def history_us(self, coalesce: Coalesce, node: Node, graph: QueryGraph) -> int | None:
        # With a budget, the choice of shed tuples depends on all earlier tuples.
        return None if coalesce.budget else longest_us([coalesce.window])

    def seq_bits(self, coalesce: Coalesce, bits: int, catalog: Catalog, node: Node, graph: QueryGraph) -> int:
        return fan_out_bits(bits)


KINDS = (CoalesceKind(),)
