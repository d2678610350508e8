"""Interface between the execution cycle and row operators.

An operator is a pure state machine without access to buffers, schedulers or clocks. The cycle selects the
input whose first row is next (NOS rules, TSM registers: M15-M26) and passes the row to the operator. The
operator returns the rows it produces, in timestamp order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from slicemill.esl.types.expression import Expr
from slicemill.esl.types.relation import SelectItem
from slicemill.esl.types.schema import Schema
from slicemill.rows import Row, Timed
from slicemill.scalar.rows import compile_expression
from slicemill.shedding.report import Report


@runtime_checkable
class RowOperator(Protocol):
    """Operator that processes one row at a time.

    `waits_for_time` marks idle-waiting-prone operators (IWP, M21): unions, window joins, and aggregates whose
    output waits for the end of a slot or an expiry. Only for these operators, the cycle keeps a TSM register
    per input and calls `advance`.
    """

    @property
    def inputs(self) -> int: ...

    @property
    def waits_for_time(self) -> bool: ...

    def process(self, port: int, tuple_: Timed) -> Sequence[Timed]:
        """Process one row of input `port`.

        Rows are in timestamp order over all inputs.
        """
        ...

    def advance(self, ts: int) -> Sequence[Timed]:
        """Release output when no later row of any input is below `ts`."""
        ...

    def finish(self) -> Sequence[Timed]:
        """Release all output at the end of input."""
        ...


@runtime_checkable
class Restorable(Protocol):
    """Row operator with a state that can be stored and restored.

    The state consists of plain values. Compiled code is created again from the plan.
    """

    def state(self) -> Any:
        """Return the whole state, as plain values for `slicemill.storage.codec`."""
        ...

    def restore(self, state: Any) -> None:
        """Load a stored state into a new operator."""
        ...


@runtime_checkable
class Holding(Protocol):
    """Row operator that holds output back, and knows until when.

    Without this interface the cycle assumes that later output is at or after the operator's input time. It
    then also schedules no wake-up, so that held output is emitted with the next row or enabling timestamp.
    """

    def held_from(self) -> int | None:
        """Return the lowest timestamp of held output; None if nothing is held."""
        ...

    def due(self) -> int | None:
        """Return the timestamp at which `advance` releases output; None if nothing is held."""
        ...


@runtime_checkable
class Beginning(Protocol):
    """Row operator that has output without input rows."""

    def begin(self) -> Sequence[Timed]:
        """Return the rows that hold before the first row, at `EARLIEST`.

        A second call returns no rows.
        """
        ...


@runtime_checkable
class Reporting(Protocol):
    """Row operator that may drop rows."""

    @property
    def report(self) -> Report: ...


def predicate(condition: Expr | None, schema: Schema) -> Callable[[Row], bool]:
    """Compile a condition; a row passes only if the condition is TRUE."""
    if condition is None:
        return lambda _: True
    evaluate = compile_expression(condition, schema)
    return lambda row: evaluate(row) is True


def row_of_items(items: Sequence[SelectItem], schema: Schema) -> Callable[[Row], Row]:
    return row_of_expressions([item.expr for item in items], schema)


def row_of_expressions(expressions: Sequence[Expr], schema: Schema) -> Callable[[Row], Row]:
    parts = [compile_expression(expr, schema) for expr in expressions]
    return lambda row: tuple(part(row) for part in parts)
