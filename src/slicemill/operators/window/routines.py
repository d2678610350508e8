"""Aggregates with OVER that have no kernel, and run as compiled routines (`aggregates.udf.compiler`).

A routine executes one aggregate call, or several joint calls: calls that are evaluated together, such as
models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from slicemill.aggregates.calls import CallAnswers, Tuples, Uda
from slicemill.aggregates.frames import frame_over
from slicemill.aggregates.joint import JointCall, JointCalls, joint_call
from slicemill.aggregates.udf.compiler.layout import NoCompiledForm
from slicemill.aggregates.udf.compiler.prepare import prepare
from slicemill.aggregates.udf.interpreter import Source
from slicemill.catalog.catalog import Catalog
from slicemill.catalog.expressions import Expr
from slicemill.catalog.queries import FrameUnit, Window, WindowCall
from slicemill.codec.registry import stored_as
from slicemill.columns.arrow_schema import TS, to_arrow, with_system_columns
from slicemill.columns.keys import Keys
from slicemill.columns.order import Numbering
from slicemill.functions.evaluate import compile_many
from slicemill.functions.values import ExpressionError
from slicemill.functions.vectors import Vector, from_arrow, from_values
from slicemill.operators.assembly import Assembly, AssemblyState
from slicemill.operators.step import PartitionNumbers, StepContext
from slicemill.operators.window.spec import WindowAggregate, has_expiries, returns_many
from slicemill.operators.window.step import Emission, WindowOutput
from slicemill.time import END
from slicemill.types import Column, Schema


class RoutineArguments:
    """Evaluator of the arguments of all aggregate calls for new tuples. Each argument is evaluated once."""

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
    """Builder of the output of one query from the results of its routines (compiled aggregate calls)."""

    def __init__(
        self,
        state: RoutineMemberState,
        routines: Mapping[int, Routine],
        schema: pa.Schema,
        numbering: Numbering,
    ) -> None:
        self._state = state
        self.routines = {number: routines[number] for number in dict.fromkeys(n for n, _ in state.answers)}
        self.arguments = tuple(dict.fromkeys(e for call in state.member.calls for e in call.arguments))
        self._indices: dict[int, list[int]] = {number: [] for number in self.routines}
        names: dict[int, list[str]] = {number: [] for number in self.routines}
        for call, (number, asked) in zip(state.member.calls, state.answers, strict=True):
            self._indices[number] += self.routines[number].columns(asked)
            names[number] += [column.name for column in call.columns]
        slides = [_slot_of(routine.state.window) for routine in self.routines.values()]
        self._assembly = Assembly(state.assembly, list(names.values()), slides, numbering)
        returned = {name for own in names.values() for name in own}
        self._passed = [name for name in schema.names if name not in returned]

    def run(self, table: pa.Table, answers: Mapping[int, CallAnswers], until: int) -> tuple[pa.Table, int]:
        mine = [
            replace(answers[number], columns=[answers[number].columns[index] for index in indices])
            for number, indices in self._indices.items()
        ]
        out = self._assembly.run(table.select(self._passed), mine)
        return out, min(until, self._held_from())

    def due(self) -> int | None:
        dues = [routine.uda.due(routine.state.accumulators) for routine in self.routines.values()]
        return min((due for due in dues if due is not None), default=None)

    def _held_from(self) -> int:
        waiting, due = self._state.assembly.held_from, self.due()
        if waiting is not None:
            return waiting
        return END if due is None else due - 1


class RoutineWindows:
    """Window strategy of `agg(args) OVER (…)` for aggregates without a kernel."""

    def __init__(self, members: Mapping[str, RoutineMember], context: StepContext, costs: Any = None) -> None:
        self.state = context.state if isinstance(context.state, CallsState) else CallsState()
        self.state.adopt(members, list(context.newcomers), context.catalog, costs)
        tables = context.rows_of
        self._routines = {
            number: Routine(state, context.catalog, tables) for number, state in self.state.routines.items()
        }
        schema = context.schemas[0]
        self._partitions = {
            routine.partition_by: PartitionNumbers(routine.partition_by, schema)
            for routine in self.state.routines.values()
        }
        self._arguments = RoutineArguments(
            [e for r in self.state.routines.values() for e in r.arguments], schema
        )
        self.outputs = [
            WindowOutput(with_system_columns(to_arrow(Schema(member.columns)))) for member in members.values()
        ]
        self._members = [
            CallsOfMember(
                self.state.members[name],
                self._routines,
                output.schema,
                Numbering(
                    context.seq_bits, has_expiries(member.calls), returns_many(member.calls, context.catalog)
                ),
            )
            for (name, member), output in zip(members.items(), self.outputs, strict=True)
        ]

    def advance(self, rows: pa.Table, watermark: int) -> list[Emission]:
        given = self._arguments.of(rows)
        numbers = {
            key: partitioned.numbers(rows, self.state.keys.setdefault(key, Keys()))
            for key, partitioned in self._partitions.items()
        }
        times = rows.column(TS).to_numpy()
        answers: dict[int, CallAnswers] = {}
        for number, routine in self._routines.items():
            arguments = [_or_null(given[e], e, rows.num_rows) for e in routine.state.arguments]
            tuples = Tuples(arguments, numbers[routine.state.partition_by], times)
            answers[number] = routine.uda.run(routine.state.accumulators, tuples, watermark)
        emissions: list[Emission] = []
        for member in self._members:
            failed = [e for arg in member.arguments if isinstance(e := given[arg], ExpressionError)]
            emissions.append(failed[0] if failed else member.run(rows, answers, watermark))
        return emissions

    def due(self) -> int | None:
        return min((due for member in self._members if (due := member.due()) is not None), default=None)


def routine_windows(operator: WindowAggregate, context: StepContext) -> RoutineWindows:
    """Return the execution strategy of one query's aggregates with OVER that have no kernel."""
    member = RoutineMember(operator.calls, context.node.schema.columns)
    return RoutineWindows({context.node.id: member}, context)


def _slot_of(window: Window) -> int | None:
    """Return the time between two emissions of a time window with SLIDE; None for other windows.

    The time between two emissions is called a slot.
    """
    return window.slide if window.frame is FrameUnit.RANGE else None


def _or_null(found: Vector | ExpressionError, expr: Expr, rows: int) -> Vector:
    """Return the values of an argument, or NULLs if its evaluation failed.

    A failed argument stops the queries that read it.
    """
    return from_values([None] * rows, expr.type) if isinstance(found, ExpressionError) else found


# Routines of aggregate calls with OVER.
#
# A routine is compiled code that executes one call, or several joint calls. Joint calls are calls over the
# same window that are evaluated together, for example models. Joint calls share a routine only if they
# started together, because then their windows always have the same tuples. A joint call that starts later
# gets a new routine, together with other joint calls that start at the same time.


@stored_as("calls.member", version=1)
@dataclass(frozen=True, slots=True)
class RoutineMember:
    """Aggregate calls of one query, and the output columns that consumers read."""

    calls: tuple[WindowCall, ...]
    columns: tuple[Column, ...]


@stored_as(
    "calls.routine",
    version=2,
    upgrade={1: lambda plain: {**plain, "costs": None}},
    stored_names={"accumulators": "kept"},
)
@dataclass(slots=True)
class RoutineState:
    """State of a routine, which executes one call or several joint calls (calls evaluated together).

    `costs` never change, because the layout of the state depends on the costs.
    """

    partition_by: tuple[Expr, ...]
    window: Window
    call: WindowCall | None
    asked: tuple[JointCall, ...] = ()
    arguments: tuple[Expr, ...] = ()
    accumulators: Any = None
    costs: Any = None

    @property
    def joint_calls(self) -> JointCalls:
        """Return the evaluator of all joint calls (calls evaluated together) of the routine."""
        frame = frame_over(self.window)
        return self.asked[0].together(self.asked, frame, self.arguments or None, self.costs)


@stored_as("calls.member_state", version=1)
@dataclass(slots=True)
class RoutineMemberState:
    """State of one query whose calls are executed by routines.

    `answers` has for each call the number of its routine. If several calls are evaluated together in this
    routine, `answers` also has the joint call of the query; otherwise None.
    """

    member: RoutineMember
    answers: list[tuple[int, JointCall | None]]
    assembly: AssemblyState = field(default_factory=AssemblyState)


@stored_as("calls", version=1)
@dataclass(slots=True)
class CallsState:
    """State of all OVER calls without a kernel: partition keys, queries and routines."""

    keys: dict[tuple[Expr, ...], Keys] = field(default_factory=dict)
    members: dict[str, RoutineMemberState] = field(default_factory=dict)
    routines: dict[int, RoutineState] = field(default_factory=dict)
    begun: int = 0  # number of routines started so far

    def adopt(
        self,
        members: Mapping[str, RoutineMember],
        newcomers: Sequence[str],
        catalog: Catalog,
        costs: Any = None,
    ) -> None:
        """Restrict the state to the queries in `members`.

        New queries start together. The state of removed queries is dropped. Consumers may read other output
        columns of a remaining query than before, for example a new column of its stream.
        """
        known = {
            name: replace(state, member=members[name])
            for name, state in self.members.items()
            if name in members and name not in newcomers and members[name].calls == state.member.calls
        }
        first = self.begun
        self.members = {
            name: known.get(name)
            or RoutineMemberState(member, [self._begin(call, first, catalog, costs) for call in member.calls])
            for name, member in members.items()
        }
        wanted: dict[int, list[JointCall]] = {}
        for state in self.members.values():
            for number, asked in state.answers:
                wanted.setdefault(number, []).extend([] if asked is None else [asked])
        self.routines = {number: self.routines[number] for number in sorted(wanted)}
        for number, asked_still in wanted.items():
            _forget(self.routines[number], asked_still)

    def _begin(
        self, call: WindowCall, first: int, catalog: Catalog, costs: Any
    ) -> tuple[int, JointCall | None]:
        """Assign a new call to a routine, and return the number of the routine and the joint call or None.

        Joint calls are evaluated together. They share a routine only if its number is at least `first`,
        because such a routine has just started.
        """
        asked = joint_call(call, catalog)
        if asked is None or not _has_machine_code(asked, call.window):
            number = self._add(RoutineState(call.partition_by, call.window, call, arguments=call.arguments))
            return number, None
        for number, routine in self.routines.items():
            if number >= first and _can_run_model(routine, asked, call):
                break
        else:
            number = self._add(RoutineState(call.partition_by, call.window, None, costs=costs))
        routine = self.routines[number]
        routine.asked = tuple(dict.fromkeys((*routine.asked, asked)))
        return number, asked

    def _add(self, routine: RoutineState) -> int:
        self.routines[self.begun] = routine
        self.begun += 1
        return self.begun - 1


def _can_run_model(routine: RoutineState, asked: JointCall, call: WindowCall) -> bool:
    """Return True if a routine can evaluate one more joint call together with its other calls."""
    if routine.call is not None or (routine.partition_by, routine.window) != (call.partition_by, call.window):
        return False
    return asked.shares_with(routine.asked)


def _has_machine_code(asked: JointCall, window: Window) -> bool:
    try:
        asked.together((asked,), frame_over(window))
    except NoCompiledForm:
        return False
    return True


def _forget(routine: RoutineState, wanted: Sequence[JointCall]) -> None:
    """Drop all joint calls (calls evaluated together) of a routine except those in `wanted`."""
    if routine.accumulators is None or all(asked in wanted for asked in routine.asked):
        return
    routine.asked = routine.joint_calls.only(wanted, routine.accumulators).asked


class Routine:
    """Compiled routine, which executes aggregate calls, with its state."""

    def __init__(self, state: RoutineState, catalog: Catalog, tables: Source) -> None:
        self.state = state
        self.uda: Uda
        if state.call is not None:
            self.uda = prepare(state.call, catalog, tables)
        else:
            calls = state.joint_calls
            state.arguments = calls.arguments
            self.uda = calls.uda
        if state.accumulators is None:
            state.accumulators = self.uda.start()

    def columns(self, asked: JointCall | None) -> list[int]:
        """Return the indexes of the result columns that belong to one joint call of the routine.

        Return the indexes of all columns if `asked` is None.
        """
        return list(range(len(self.uda.returns))) if asked is None else [self.state.asked.index(asked)]
