"""Specification of drop boxes, and of filters for complete windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slicemill.esl.render.expressions import render
from slicemill.esl.types.expression import Expr
from slicemill.esl.types.load_budget import METHODS, LoadBudget
from slicemill.operators.description import Description
from slicemill.operators.kind import ColumnsRead, OperatorKind, same_keys
from slicemill.operators.operator import Operator
from slicemill.time import format_us

if TYPE_CHECKING:
    from slicemill.operators.graph import Node, QueryGraph


@dataclass(frozen=True, slots=True)
class Drop(Operator):
    """Drop box: under load, passes only a share of the rows (S54).

    `weight` is the weight of the queries that read the box. `utility` ranks rows by their importance.
    `range_us` is the length of the queries' windows, if whole windows are dropped.
    """

    budget: LoadBudget
    weight: float
    utility: Expr | None = None
    range_us: int | None = None


@dataclass(frozen=True, slots=True)
class WholeWindows(Operator):
    """Passes results only of windows of which `box` has dropped no row."""

    box: str


def _drop_words(drop: Drop) -> Description:
    budget = drop.budget
    facts = [("under load", METHODS[budget.method])]
    if drop.utility is not None:
        facts.append(("utility", render(drop.utility)))
    if budget.lag_us is not None:
        facts.append(("lag", f"at most {format_us(budget.lag_us).lower()}"))
    if budget.memory is not None:
        facts.append(("state", f"at most {budget.memory:,} bytes"))
    if budget.least:
        facts.append(("keeps", f"{budget.least:.0%} at least"))
    return Description("", "Drop box", tuple(facts))


def _whole_words(whole: WholeWindows, _: Node, graph: QueryGraph) -> Description:
    return Description("", "Whole windows", (("of which nothing was dropped by", graph[whole.box].name),))


KINDS = (
    OperatorKind(
        spec=Drop,
        words=lambda drop, *_: _drop_words(drop),
        label=lambda _: "drop box",
        # Queries with the same budget share a drop box, and can therefore share the operators that read it.
        for_all=lambda *_: True,
        columns_read=lambda drop, _, wanted: ColumnsRead(
            [] if drop.utility is None else [drop.utility], wanted
        ),
        computes=False,
        keys_below=same_keys,
        step="slicemill.operators.drop.step:drop",
    ),
    OperatorKind(
        spec=WholeWindows,
        words=_whole_words,
        label=lambda _: "whole windows",
        refer=lambda whole, renamed: WholeWindows(renamed(whole.box)),
        keeps_state=False,
        step="slicemill.operators.drop.step:whole_windows",
    ),
)
