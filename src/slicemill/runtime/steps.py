"""Operators set at a time: a step takes the new rows of its inputs and how far each input is complete.

Stateless steps are kernels on whole tables. A step without a kernel of its own hosts the operator of the
reference engine: it is handed its tuples in order, as far as all inputs are complete.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import pyarrow as pa

from slicemill.esl.expression import Expr
from slicemill.esl.relation import Item
from slicemill.esl.types import Column, Schema
from slicemill.execution.operator import Holding, Operator, Row, Timed
from slicemill.kernels.expressions import compile_many, compile_vector
from slicemill.kernels.lookup import Lookup
from slicemill.kernels.merge import BEGINNING, merge
from slicemill.kernels.stateless import filter_table, project_table
from slicemill.plan import operators as op
from slicemill.runtime.arrow_schema import ARRIVAL, TS, to_arrow, with_system_columns
from slicemill.runtime.rows import timed_rows, to_table

# No timestamp is later: an input that is complete up to here has ended.
END = 2**63 - 1


class Step(Protocol):
    """`complete[i]`: no later row of input i has a timestamp below it. Returns the same of the output."""

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]: ...


class StatefulStep(Step, Protocol):
    """A step that keeps something from run to run: `state` is all of it, and can be pickled."""

    @property
    def state(self) -> State: ...

    def due(self) -> int | None:
        """How far the inputs must be complete for something held back to come out; None if nothing is."""
        ...


class FilterStep:
    def __init__(self, condition: Expr, schema: Schema) -> None:
        self._condition = compile_vector(condition, schema)

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        return filter_table(tables[0], self._condition), complete[0]


class ProjectStep:
    def __init__(self, items: Sequence[Item], schema: Schema) -> None:
        self._names = [item.name for item in items]
        self._columns = compile_many([item.expr for item in items], schema)

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        return project_table(tables[0], self._names, self._columns), complete[0]


class LookupStep:
    """Joins a stream with a table that stays as it is."""

    def __init__(
        self, lookup: op.Lookup, stream: Schema, table: Schema, rows: Sequence[Row], left: bool
    ) -> None:
        self._names = [_qualified(lookup.stream_alias, column.name) for column in stream]
        self._own = [column.name for column in stream]
        qualified = Schema(tuple(Column(n, c.type) for n, c in zip(self._names, stream, strict=True)))
        found = Schema(tuple(Column(_qualified(lookup.alias, c.name), c.type) for c in table))
        stored = to_table([Timed(0, row) for row in rows], found, [0] * len(rows))
        self._join = Lookup(qualified, found, lookup.condition, stored.select(list(found.names)), left).join

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        renamed = dict(zip(self._own, self._names, strict=True))
        stream = tables[0].rename_columns([renamed.get(name, name) for name in tables[0].column_names])
        return self._join(stream), complete[0]


def _qualified(alias: str, name: str) -> str:
    return f"{alias}.{name}" if alias else name


@dataclass(slots=True)
class MergeState:
    """Rows that wait for earlier ones of other inputs, and how far each input is known."""

    waiting: list[pa.Table] = field(default_factory=list)
    registers: list[int] = field(default_factory=list)


class MergeStep:
    """UNION: by (timestamp, input, arrival), whatever the borders between runs."""

    def __init__(self, state: MergeState, inputs: int, output: Schema) -> None:
        self.state = state
        self._schema = with_system_columns(to_arrow(output))
        if not state.registers:
            state.registers = [BEGINNING] * inputs

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        state = self.state
        waited = state.waiting or [None] * len(tables)
        # Branches agree in types; the names are the union's.
        named = [table.rename_columns(self._schema.names).cast(self._schema) for table in tables]
        inputs = [
            new if old is None else pa.concat_tables([old, new])
            for old, new in zip(waited, named, strict=True)
        ]
        registers = [max(known, told) for known, told in zip(state.registers, complete, strict=True)]
        merged = merge(inputs, registers, in_order=True)
        state.waiting, state.registers = list(merged.waiting), list(merged.registers)
        return merged.table, merged.enabling_ts

    def due(self) -> int | None:
        return min(
            (table.column(TS)[0].as_py() + 1 for table in self.state.waiting if table.num_rows), default=None
        )


@dataclass(slots=True)
class RowState:
    """What a hosted operator keeps from run to run: its own state and tuples that have to wait."""

    operator: Operator
    waiting: list[list[tuple[Timed, int]]] = field(default_factory=list)
    finished: bool = False


State: TypeAlias = RowState | MergeState


@dataclass(frozen=True, slots=True)
class Share:
    """The part of the keys that one bucket takes care of."""

    key: Callable[[Row], Row]
    bucket: int
    buckets: int

    def takes(self, row: Row) -> bool:
        # Not Python's hash, which differs from process to process.
        return zlib.crc32(repr(self.key(row)).encode()) % self.buckets == self.bucket


class RowStep:
    """Hosts an operator of the reference engine.

    Tuples of several inputs go in by (timestamp, input, arrival), and only those earlier than what is
    complete on every input: whatever the borders between runs, the operator sees the same sequence.
    """

    def __init__(
        self, state: RowState, schemas: Sequence[Schema], output: Schema, share: Share | None
    ) -> None:
        self.state = state
        self._schemas = schemas
        self._output = output
        self._share = share
        if not state.waiting:
            state.waiting = [[] for _ in schemas]

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        for waiting, table, schema in zip(self.state.waiting, tables, self._schemas, strict=True):
            waiting += self._mine(
                zip(timed_rows(table, schema), table.column(ARRIVAL).to_pylist(), strict=True)
            )
        until = min(complete)
        out: list[Timed] = []
        arrivals: list[int] = []
        last_arrival = 0
        for port, timed, arrival in self._ready(until):
            made = self.state.operator.process(port, timed)
            last_arrival = max(last_arrival, arrival)
            out += made
            arrivals += [arrival] * len(made)
        operator = self.state.operator
        late: list[Timed] = []
        if until == END and not self.state.finished:
            late = list(operator.finish())
            self.state.finished = True
        elif operator.waits_for_time and until > -END:
            late = list(operator.advance(until))
        out += late
        arrivals += [last_arrival] * len(late)
        held = operator.held_from() if isinstance(operator, Holding) else None
        return to_table(out, self._output, arrivals), until if held is None else min(until, held)

    def due(self) -> int | None:
        waiting = [queue[0][0].ts + 1 for queue in self.state.waiting if queue]
        operator = self.state.operator
        held = operator.due() if isinstance(operator, Holding) else None
        return min([*waiting, *([] if held is None else [held])], default=None)

    def _mine(self, rows: object) -> list[tuple[Timed, int]]:
        pairs: list[tuple[Timed, int]] = list(rows)  # type: ignore[call-overload]
        return pairs if self._share is None else [pair for pair in pairs if self._share.takes(pair[0].row)]

    def _ready(self, until: int) -> list[tuple[int, Timed, int]]:
        """Tuples that may go in now, in order; the others wait on."""
        single = len(self.state.waiting) == 1
        ready: list[tuple[int, Timed, int]] = []
        for port, waiting in enumerate(self.state.waiting):
            # One input is in order by itself: nothing can come before what is here.
            count = len(waiting) if single else _count_before(waiting, until)
            ready += [(port, timed, arrival) for timed, arrival in waiting[:count]]
            self.state.waiting[port] = waiting[count:]
        return ready if single else sorted(ready, key=lambda entry: (entry[1].ts, entry[0]))


def _count_before(waiting: list[tuple[Timed, int]], until: int) -> int:
    if until == END:
        return len(waiting)
    return next((i for i, (timed, _) in enumerate(waiting) if timed.ts >= until), len(waiting))
