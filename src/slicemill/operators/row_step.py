"""Fallback step that executes an operator row by row, without kernels.

Rows are processed in order, up to the watermarks of all inputs. A row operator (state machine that processes
one row at a time) does not return which input row caused an output row. An operator without keys has a single
subtask, and its output rows are renumbered. For an operator with keys, the output rows of an input row get
the sequence number of the input row. Output rows that the watermark releases follow these rows. Released rows
are ordered by timestamp, then by a hash of their values, so that the order is the same for any number of
subtasks.

Joins of three or more streams over row counts run row by row (`join.rows`). Coalescing runs row by row under
a budget of runs, or over row counts under any budget (`temporal.rows`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import pyarrow as pa

from slicemill.catalog.expressions import Expr
from slicemill.catalog.queries import SelectItem
from slicemill.codec.registry import stored_as
from slicemill.columns.arrow_schema import ARRIVAL, SEQ
from slicemill.columns.order import Numbering
from slicemill.columns.rows import timed_rows, to_table
from slicemill.functions.rows import compile_expression
from slicemill.operators.alignment import Due, borders, due_in_turn
from slicemill.operators.registry import partition_keys
from slicemill.operators.step import MemoryReporter, StepContext
from slicemill.shedding.accuracy import AccuracyReport
from slicemill.storage.state_size import state_bytes
from slicemill.time import END
from slicemill.types import Row, Schema, Timed

# Row with the sequence number and arrival time of its input row: an input row, or an output row, whose
# sequence number may be None.
Arrived: TypeAlias = tuple[Timed, int, int]
Caused: TypeAlias = tuple[Timed, int | None, int]


@stored_as("rows", version=1)
@dataclass(slots=True)
class RowState:
    """State of a row operator, and rows that wait for other inputs.

    The operator is created from the plan, not from the state.
    """

    operator: Any
    waiting: list[list[Arrived]] = field(default_factory=list)
    next_seq: int = 0
    finished: bool = False


class RowStep:
    """Step that executes an operator row by row.

    `numbering` is set if the operator has keys. Rows of several inputs are processed by (timestamp, input,
    sequence number), so that the order does not depend on the division of the input into micro-batches.
    """

    def __init__(
        self,
        operator: RowOperator,
        schemas: Sequence[Schema],
        output: Schema,
        numbering: Numbering | None = None,
        known: RowState | None = None,
    ) -> None:
        assert isinstance(operator, RestorableOperator), (
            f"{type(operator).__name__} does not say what it keeps"
        )
        self._operator = operator
        self._schemas = schemas
        self._output = output
        self._numbering = numbering
        self._waiting: list[list[Arrived]] = [[] for _ in schemas]
        self._next_seq = 0
        self._finished = False
        self.emits_first_row = False
        if known is not None:
            operator.restore(known.operator)
            self._waiting, self._next_seq, self._finished = known.waiting, known.next_seq, known.finished

    @property
    def state(self) -> RowState:
        assert isinstance(self._operator, RestorableOperator), "it was when the step was made"
        return RowState(self._operator.state(), self._waiting, self._next_seq, self._finished)

    def bytes_kept(self) -> int:
        if not isinstance(self._operator, MemoryReporter):
            return state_bytes({"rows": self.state})
        return self._operator.bytes_kept() + state_bytes({"waiting": self._waiting})

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        for waiting, table, schema in zip(self._waiting, tables, self._schemas, strict=True):
            waiting += _arriving_rows(table, schema)
        until = min(complete)
        operator = self._operator
        out: list[Caused] = []
        if self.emits_first_row and isinstance(operator, InitialOutput):
            out += [(made, None, 0) for made in operator.begin()]
        for port, (timed, seq, arrival) in self._ready(complete):
            if operator.waits_for_time:
                out += [(made, None, 0) for made in operator.advance(timed.ts)]
            out += [(made, seq, arrival) for made in operator.process(port, timed)]
        if until == END and not self._finished:
            out += [(made, None, 0) for made in operator.finish()]
            self._finished = True
        elif operator.waits_for_time and until > -END:
            out += [(made, None, 0) for made in operator.advance(until)]
        held = operator.held_from() if isinstance(operator, DelayedOutput) else None
        return self._table(out), until if held is None else min(until, held)

    def _table(self, out: list[Caused]) -> pa.Table:
        """Return output rows as a table, in order.

        Rows that the watermark released have no arrival time.
        """
        if self._numbering is None:
            first, self._next_seq = self._next_seq, self._next_seq + len(out)
            return self._stored(out, range(first, self._next_seq))
        ranks = [int(cause is None) for _, cause, _ in out]
        seqs = [_by_values(timed.row) if cause is None else cause for timed, cause, _ in out]
        order = sorted(range(len(out)), key=lambda index: (out[index][0].ts, ranks[index], seqs[index]))
        table = self._stored([out[index] for index in order], [seqs[index] for index in order])
        return self._numbering.apply(table, np.array([ranks[index] for index in order], np.int64))

    def _stored(self, out: list[Caused], seqs: Sequence[int]) -> pa.Table:
        return to_table([timed for timed, _, _ in out], self._output, [a for _, _, a in out], seqs)

    def sheds(self, node_id: str) -> Mapping[str, AccuracyReport]:
        """Return the report of rows that were dropped for lack of memory.

        The report is empty if the operator drops no rows.
        """
        return {node_id: self._operator.report} if isinstance(self._operator, LossReporter) else {}

    def due(self) -> Due | None:
        operator = self._operator
        held = operator.due() if isinstance(operator, DelayedOutput) else None
        return due_in_turn([queue[0][0].ts if queue else None for queue in self._waiting]) or held

    def _ready(self, complete: Sequence[int]) -> list[tuple[int, Arrived]]:
        """Remove and return the waiting rows to process, in order."""
        ready: list[tuple[int, Arrived]] = []
        known = [
            max([told, *(timed.ts for timed, _, _ in queue[-1:])])
            for told, queue in zip(complete, self._waiting, strict=True)
        ]
        for port, (waiting, border) in enumerate(zip(self._waiting, borders(known), strict=True)):
            count = _count_before(waiting, border)
            ready += [(port, arrived) for arrived in waiting[:count]]
            self._waiting[port] = waiting[count:]
        return sorted(ready, key=lambda entry: (entry[1][0].ts, entry[0]))


def row_step(operator: RowOperator, context: StepContext) -> RowStep:
    known = context.state if isinstance(context.state, RowState) else None
    keyed = partition_keys(context.node.operator) is not None
    numbering = Numbering(context.seq_bits, ranks=True, fans=True) if keyed else None
    return RowStep(operator, context.schemas, context.node.schema, numbering, known)


def _arriving_rows(table: pa.Table, schema: Schema) -> list[Arrived]:
    seqs, arrivals = (table.column(name).to_pylist() for name in (SEQ, ARRIVAL))
    return list(zip(timed_rows(table, schema), seqs, arrivals, strict=True))


def _count_before(waiting: list[Arrived], until: int) -> int:
    if until == END:
        return len(waiting)
    return next((i for i, (timed, _, _) in enumerate(waiting) if timed.ts >= until), len(waiting))


def _by_values(row: Row) -> int:
    """Return a 40-bit hash of a row's values."""
    return int.from_bytes(blake2b(repr(row).encode(), digest_size=5).digest())


# Interface between the loop that executes row operators and these operators
#
# A row operator is a pure state machine without access to buffers, schedulers or clocks. The executing loop
# selects the input whose first row is next by (timestamp, input), according to the watermarks of the inputs
# (M15-M26). It passes the row to the operator. The operator returns its output rows in timestamp order.


@runtime_checkable
class RowOperator(Protocol):
    """Operator that processes one row at a time.

    `waits_for_time` is True for operators that wait for a silent input (idle waiting, M21): unions, window
    joins, and aggregates whose output waits for the end of a slot or an expiry. Only for these operators, the
    executing loop tracks the watermark of each input and calls `advance`.
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
        """Release output up to `ts`, the watermark of all inputs."""
        ...

    def finish(self) -> Sequence[Timed]:
        """Release all output at the end of input."""
        ...


@runtime_checkable
class RestorableOperator(Protocol):
    """Row operator whose state can be stored and restored.

    The state has plain values. Compiled code is created from the plan.
    """

    def state(self) -> Any:
        """Return the whole state of the operator, as plain values for `slicemill.codec`."""
        ...

    def restore(self, state: Any) -> None:
        """Load a stored state into a new operator."""
        ...


@runtime_checkable
class DelayedOutput(Protocol):
    """Row operator that holds output back until a known time.

    Without this interface, the executing loop assumes that later output is not before the last input time.
    The loop then sets no timer, so that held output is emitted with the next row or watermark.
    """

    def held_from(self) -> int | None:
        """Return the lowest timestamp of held output, or None without held output."""
        ...

    def due(self) -> int | None:
        """Return the timestamp at which `advance` releases output.

        Return None without held output.
        """
        ...


@runtime_checkable
class InitialOutput(Protocol):
    """Row operator that has output without input rows."""

    def begin(self) -> Sequence[Timed]:
        """Return the output rows that precede the first input row, at `EARLIEST`.

        A second call returns no rows.
        """
        ...


@runtime_checkable
class LossReporter(Protocol):
    """Row operator that may drop rows, and reports them."""

    @property
    def report(self) -> AccuracyReport: ...


def predicate(condition: Expr | None, schema: Schema) -> Callable[[Row], bool]:
    """Compile a condition to a function of a row.

    A row passes only if the condition is TRUE, and not NULL.
    """
    if condition is None:
        return lambda _: True
    evaluate = compile_expression(condition, schema)
    return lambda row: evaluate(row) is True


def row_of_items(items: Sequence[SelectItem], schema: Schema) -> Callable[[Row], Row]:
    return row_of_expressions([item.expr for item in items], schema)


def row_of_expressions(expressions: Sequence[Expr], schema: Schema) -> Callable[[Row], Row]:
    parts = [compile_expression(expr, schema) for expr in expressions]
    return lambda row: tuple(part(row) for part in parts)
