"""Aggregates with OVER by compiled routines (`slicemill.aggregate.compiler`), for one query or several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from slicemill.aggregate.calls import CallAnswers, Tuples
from slicemill.columns.keys import Keys
from slicemill.columns.order import Numbering
from slicemill.errors import SlicemillError
from slicemill.esl.types.expression import Expr
from slicemill.esl.types.query import FrameUnit, Window
from slicemill.esl.types.schema import Schema
from slicemill.model.core_costs import CoreCosts
from slicemill.operators.assembly import Assembly
from slicemill.operators.context import StepContext
from slicemill.operators.models.spec import SharedModels
from slicemill.operators.over.routines import CallsState, Routine, RoutineMember, RoutineMemberState
from slicemill.operators.over.spec import WindowAggregate, has_expiries, returns_many
from slicemill.operators.partitioned import Partitioned
from slicemill.operators.step import StepResult
from slicemill.scalar.columns import compile_many
from slicemill.scalar.values import ExpressionError
from slicemill.scalar.vectors import Vector, from_arrow, from_values
from slicemill.storage.arrow_schema import TS, to_arrow, with_system_columns
from slicemill.time import END


class Arguments:
    """Arguments of all routines for new tuples, each evaluated once."""

    def __init__(self, exprs: Sequence[Expr], schema: Schema) -> None:
        self._exprs = tuple(dict.fromkeys(exprs))
        self._compute = compile_many(self._exprs, schema)

    def of(self, table: pa.Table) -> dict[Expr, Vector | ExpressionError]:
        return {
            expr: found
            if isinstance(found, ExpressionError)
            else from_arrow(found.combine_chunks(), expr.type)
            for expr, found in zip(self._exprs, self._compute(table), strict=True)
        }


class CallsOfMember:
    """Output of one query, combined from the results of its routines."""

    def __init__(
        self,
        state: RoutineMemberState,
        routines: Mapping[int, Routine],
        schema: pa.Schema,
        numbering: Numbering,
    ) -> None:
        self._state = state
        self._schema = schema
        self.routines = {number: routines[number] for number in dict.fromkeys(n for n, _ in state.answers)}
        self.arguments = tuple(dict.fromkeys(e for call in state.member.calls for e in call.arguments))
        self._places: dict[int, list[int]] = {number: [] for number in self.routines}
        names: dict[int, list[str]] = {number: [] for number in self.routines}
        for call, (number, asked) in zip(state.member.calls, state.answers, strict=True):
            self._places[number] += self.routines[number].columns(asked)
            names[number] += [column.name for column in call.columns]
        slides = [_slot_of(routine.state.window) for routine in self.routines.values()]
        self._assembly = Assembly(state.assembly, list(names.values()), slides, numbering)
        returned = {name for own in names.values() for name in own}
        self._passed = [name for name in schema.names if name not in returned]

    def run(self, table: pa.Table, answers: Mapping[int, CallAnswers], until: int) -> tuple[pa.Table, int]:
        mine = [
            replace(answers[number], columns=[answers[number].columns[place] for place in places])
            for number, places in self._places.items()
        ]
        out = self._assembly.run(table.select(self._passed), mine)
        return out.select(self._schema.names).cast(self._schema), min(until, self._held_from())

    def due(self) -> int | None:
        dues = [routine.uda.due(routine.state.kept) for routine in self.routines.values()]
        return min((due for due in dues if due is not None), default=None)

    def _held_from(self) -> int:
        waiting, due = self._state.assembly.held_from, self.due()
        if waiting is not None:
            return waiting
        return END if due is None else due - 1


class SharedCallsStep:
    """`agg(args) OVER (…)` for several queries, with one output per query."""

    def __init__(
        self, members: Mapping[str, RoutineMember], context: StepContext, costs: CoreCosts | None = None
    ) -> None:
        self.state = context.state if isinstance(context.state, CallsState) else CallsState()
        self.state.adopt(members, list(context.newcomers), context.catalog, costs)
        tables = context.rows_of
        self._routines = {
            number: Routine(state, context.catalog, tables) for number, state in self.state.routines.items()
        }
        schema = context.schemas[0]
        self._partitions = {
            routine.partition_by: Partitioned(routine.partition_by, schema)
            for routine in self.state.routines.values()
        }
        self._arguments = Arguments([e for r in self.state.routines.values() for e in r.arguments], schema)
        self._members = [
            CallsOfMember(
                self.state.members[name],
                self._routines,
                with_system_columns(to_arrow(Schema(member.columns))),
                Numbering(
                    context.seq_bits, has_expiries(member.calls), returns_many(member.calls, context.catalog)
                ),
            )
            for name, member in members.items()
        ]

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> Sequence[StepResult]:
        table, until = tables[0], complete[0]
        given = self._arguments.of(table)
        numbers = {
            key: partitioned.numbers(table, self._keys(key)) for key, partitioned in self._partitions.items()
        }
        answers: dict[int, CallAnswers] = {}
        for number, routine in self._routines.items():
            arguments = [_or_null(given[e], e, table.num_rows) for e in routine.state.arguments]
            tuples = Tuples(arguments, numbers[routine.state.partition_by], table.column(TS).to_numpy())
            answers[number] = routine.uda.run(routine.state.kept, tuples, until)
        return [self._part(member, table, given, answers, until) for member in self._members]

    def due(self) -> int | None:
        return min((due for member in self._members if (due := member.due()) is not None), default=None)

    def _keys(self, partition_by: tuple[Expr, ...]) -> Keys:
        return self.state.keys.setdefault(partition_by, Keys())

    def _part(
        self,
        member: CallsOfMember,
        table: pa.Table,
        given: Mapping[Expr, Vector | ExpressionError],
        answers: Mapping[int, CallAnswers],
        until: int,
    ) -> StepResult:
        for argument in member.arguments:
            found = given[argument]
            if isinstance(found, ExpressionError):
                return found
        return member.run(table, answers, until)


class WindowCallsStep:
    """Like `SharedCallsStep`, for a node of one query."""

    def __init__(self, context: StepContext, operator: WindowAggregate) -> None:
        member = RoutineMember(operator.calls, context.node.schema.columns)
        self._shared = SharedCallsStep({context.node.id: member}, context)

    @property
    def state(self) -> CallsState:
        return self._shared.state

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        (part,) = self._shared.run(tables, complete)
        if isinstance(part, SlicemillError):
            raise part
        return part

    def due(self) -> int | None:
        return self._shared.due()


def _slot_of(window: Window) -> int | None:
    """Return the length of the time slots of a window, or None.

    Results are emitted at the end of each slot.
    """
    return window.slide if window.frame is FrameUnit.RANGE else None


def _or_null(found: Vector | ExpressionError, expr: Expr, rows: int) -> Vector:
    """Return the argument, or NULLs if it failed.

    Queries that read a failed argument are stopped.
    """
    return from_values([None] * rows, expr.type) if isinstance(found, ExpressionError) else found


def shared_models(operator: SharedModels, context: StepContext) -> SharedCallsStep:
    members = {
        member.name: RoutineMember(member.operator.calls, member.columns) for member in operator.members
    }
    return SharedCallsStep(members, context, operator.costs)
