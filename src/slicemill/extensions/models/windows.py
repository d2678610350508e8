"""Checks that a model supports the windows of its calls.

A positional model uses the position i of an element in the window. It needs a fixed number of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlglot import exp

from slicemill.catalog.aggregates import AggregateDefinition
from slicemill.catalog.queries import FrameUnit, Window
from slicemill.extensions.models.model import Model, models_of
from slicemill.sql.errors import StatementError
from slicemill.sql.nodes import span_of


def check_windows(
    definition: AggregateDefinition,
    windows: Sequence[Window | None],
    node: exp.Expression,
    *,
    over: bool,
    grouped: bool,
) -> None:
    """Raise an error if a model does not support the windows of its call."""
    if over and any(window is not None and window.active for window in windows):
        raise StatementError(
            "a model emits results when tuples arrive, not when they expire",
            span_of(node),
            "remove ACTIVE EXPIRATION",
        )
    _check_positions(models_of(definition)[0], windows, grouped=grouped, node=node)


def check_table(definition: AggregateDefinition, node: exp.Expression) -> None:
    """Raise an error if a model that uses positions is called over a table, whose rows have no order."""
    if models_of(definition)[0].uses_position:
        raise StatementError(
            "this model uses position i, and the rows of a table have no order", span_of(node)
        )


def _check_positions(
    model: Model, windows: Iterable[Window | None], *, grouped: bool, node: exp.Expression
) -> None:
    """Raise an error if a model uses row positions and a window has no fixed number of rows (C6).

    Time windows, and groups in a window, have no fixed number of rows.
    """
    if not model.uses_position:
        return
    by_time = any(w is not None and w.extent is not None and w.frame is FrameUnit.RANGE for w in windows)
    if by_time:
        raise StatementError(
            "this model uses position i, and a time window has no fixed number of positions",
            span_of(node),
            "use ROWS … PRECEDING, or weights by age",
        )
    if grouped:
        raise StatementError(
            "this model uses position i, and a group of a window has no fixed number of positions",
            span_of(node),
            "use OVER (PARTITION BY … ROWS … PRECEDING)",
        )
