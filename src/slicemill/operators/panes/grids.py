"""Panes (M35): where time is cut, and which partial aggregates a pane stores.

RANGE w SLIDE s has windows that end at the multiples of s and begin w earlier. Panes are cut at all these
edges, for all windows that share them, and nowhere else. These panes are never finer than the grid of the
greatest common divisor, and often much coarser:

    RANGE 7 SLIDE 10     ends    0         10        20
                         begins     3         13        23          4 edges in 20, where the gcd, 1, has 20

`KEPT` lists the partials that panes store for each aggregate. For aggregates that are not listed they
store the values. The kernels are in `slicemill.operators.panes.figures`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from slicemill.esl.types.catalog import Catalog
from slicemill.esl.types.expression import Expr
from slicemill.esl.types.query import WindowCall
from slicemill.esl.types.relation import AggregateCall
from slicemill.esl.types.schema import Kind

Call: TypeAlias = AggregateCall | WindowCall

MEANS = ("avg", "mean")
_SQUARES = ("variance", "var_samp", "var_pop", "stddev", "stddev_samp", "stddev_pop")
KEPT: dict[str, tuple[str, ...]] = {
    "count": ("count",),
    "sum": ("count", "sum"),
    "avg": ("count", "sum"),
    "mean": ("count", "sum"),
    "min": ("least",),
    "max": ("greatest",),
    "first": ("first",),
    "last": ("last",),
    **dict.fromkeys(_SQUARES, ("count", "sum", "sum of squares")),
}
_NO_ORDER = (Kind.PERIOD, Kind.MONTHS, Kind.NULL, Kind.ANY)


def edge_grids(windows: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return (step, offset) of the edges of windows (length, slide), without redundant grids.

    >>> edge_grids([(60, 10), (40, 20)]), edge_grids([(7, 10)])
    (((10, 0),), ((10, 0), (10, 3)))
    """
    found = sorted({(slide, offset) for length, slide in windows for offset in (0, -length % slide)})
    return tuple(
        grid
        for grid in found
        if not any(
            finer != grid and grid[0] % finer[0] == 0 and (grid[1] - finer[1]) % finer[0] == 0
            for finer in found
        )
    )


def kept_for(calls: Sequence[Call]) -> set[tuple[str, Expr]]:
    """Return the partials that panes store for some calls.

    The tuple count for `count(*)` is always stored.

    >>> from slicemill.esl.types.expression import ColumnRef
    >>> from slicemill.esl.types.schema import BIGINT, DOUBLE, Column
    >>> v = ColumnRef("v", BIGINT)
    >>> total = AggregateCall("sum", (v,), False, (Column("a", BIGINT),))
    >>> mean = AggregateCall("avg", (v,), False, (Column("m", DOUBLE),))
    >>> kept_for([mean]) == kept_for([total])
    True
    """
    return {(kept, argument) for call in calls for argument in call.arguments for kept in KEPT[call.name]}


def kept_in_panes(call: Call, catalog: Catalog) -> bool:
    """Return True if results can be combined from partial aggregates of panes."""
    if call.name not in KEPT or call.distinct or catalog.aggregates(call.name) != (None, None):
        return False
    kinds = [argument.type.kind for argument in call.arguments]
    if call.name == "count":
        return True
    if call.name in MEANS:
        # With OVER, means of decimals keep rows for compatibility with stored state of earlier versions.
        decimal = isinstance(call, WindowCall) and kinds[0] is Kind.DECIMAL
        return not decimal and kinds[0] not in (Kind.NULL, Kind.ANY)
    return kinds[0] not in _NO_ORDER
