"""The contract between the execution cycle and an operator.

An operator is a pure state machine: it knows nothing of buffers, schedulers or clocks. The cycle decides
which input's head tuple is next (NOS rules, TSM registers: M15-M26) and hands it over; the operator answers
with the rows it produces, in timestamp order.
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
    """What the cycle asks of every operator.

    `waits_for_time` marks idle-waiting-prone operators (IWP, M21): union, window join, aggregates whose
    output waits for a slot end or an expiry. The cycle keeps a TSM register per input of those and calls
    `advance`; it never calls `advance` on the others.
    """

    @property
    def inputs(self) -> int: ...

    @property
    def waits_for_time(self) -> bool: ...

    def process(self, port: int, tuple_: Timed) -> Sequence[Timed]:
        """Consume one tuple of input `port`; tuples come in timestamp order over all inputs."""
        ...

    def advance(self, ts: int) -> Sequence[Timed]:
        """No later tuple on any input has a timestamp below `ts`: release what was waiting for that."""
        ...

    def finish(self) -> Sequence[Timed]:
        """The input has ended for good: release everything still held back."""
        ...


@runtime_checkable
class Restorable(Protocol):
    """What an operator with a state adds, so that another one in its place can go on.

    What is stored are plain values: code is made again from the plan, by whoever makes the other one.
    """

    def state(self) -> Any:
        """All that it keeps, as the codec of checkpoints takes it (`slicemill.storage.codec`)."""
        ...

    def restore(self, state: Any) -> None:
        """Go on, in place of a fresh one, from what was stored."""
        ...


@runtime_checkable
class Holding(Protocol):
    """What an operator that holds results back may add, so that time is promised and asked for exactly.

    Without it the cycle takes every output still to come to be at or after the operator's input time, and
    nobody is woken to release what is held: it then comes out with the next tuple or enabling timestamp.
    """

    def held_from(self) -> int | None:
        """The lowest timestamp a held-back output may still carry; None when nothing is held."""
        ...

    def due(self) -> int | None:
        """The timestamp `advance` must reach to release something; None when nothing is held."""
        ...


@runtime_checkable
class Beginning(Protocol):
    """What an operator adds that has a result over no tuples."""

    def begin(self) -> Sequence[Timed]:
        """Return the rows that hold before the first tuple, at `EARLIEST`; none when called again."""
        ...


@runtime_checkable
class Reporting(Protocol):
    """What an operator that drops tuples adds."""

    @property
    def report(self) -> Report: ...


def predicate(condition: Expr | None, schema: Schema) -> Callable[[Row], bool]:
    """A condition as a function of a row: neither FALSE nor NULL selects it."""
    if condition is None:
        return lambda _: True
    evaluate = compile_expression(condition, schema)
    return lambda row: evaluate(row) is True


def row_of_items(items: Sequence[SelectItem], schema: Schema) -> Callable[[Row], Row]:
    return row_of_expressions([item.expr for item in items], schema)


def row_of_expressions(expressions: Sequence[Expr], schema: Schema) -> Callable[[Row], Row]:
    parts = [compile_expression(expr, schema) for expr in expressions]
    return lambda row: tuple(part(row) for part in parts)
