"""Plain built-in aggregates with OVER for all queries of one stream and key.

Rows are stored once. Queries that started together form a cohort, which keeps the rows of its longest
window. A query that starts later has seen fewer tuples, so it gets a cohort of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from slicemill.aggregate.functions import stored_arguments
from slicemill.esl.types.expression import Expr
from slicemill.esl.types.query import FrameUnit, WindowCall
from slicemill.esl.types.schema import Schema
from slicemill.operators.context import StepContext
from slicemill.operators.over.calls import WindowCalls, WindowState
from slicemill.operators.over.groups import KEY, SEQUENCE, TIME, OverGroupState
from slicemill.operators.over.spec import SharedOver, WindowAggregate
from slicemill.operators.step import StepResult
from slicemill.storage.arrow_schema import to_arrow, with_system_columns
from slicemill.storage.codec import stored_as
from slicemill.storage.slice import Slice

_SYSTEM = 3  # number of system columns of each tuple


@stored_as("over.cohort", version=1)
@dataclass(slots=True)
class Cohort:
    """Queries that started together, by name, and their shared state."""

    members: dict[str, WindowAggregate]
    kept: WindowState | None = None

    @property
    def calls(self) -> tuple[WindowCall, ...]:
        return _calls(self.members)

    def leave(self, staying: dict[str, WindowAggregate]) -> None:
        """Drop removed queries, and the rows and columns that only they read."""
        if self.kept is not None and staying != self.members:
            before, after = _columns(self.calls), _columns(_calls(staying))
            old = dict(zip(_frames(self.calls), self.kept.groups, strict=True))
            names = {str(before.index(expr)): str(place) for place, expr in enumerate(after)}
            groups = [
                _narrowed(old[frame], _used(staying, frame), names, after)
                for frame in _frames(_calls(staying))
            ]
            self.kept = replace(self.kept, groups=groups)
        self.members = staying


@stored_as("over.shared", version=1)
@dataclass(slots=True)
class SharedOverState:
    cohorts: list[Cohort] = field(default_factory=list)

    def adopt(
        self,
        members: Mapping[str, WindowAggregate],
        newcomers: Collection[str],
        successors: Mapping[str, str],
    ) -> None:
        """Restore state for these queries.

        New queries form a new cohort. A query that replaces another takes over the other's state.
        """
        known: set[str] = set()
        heirs = {before: name for name, before in successors.items() if name in members}
        for cohort in self.cohorts:
            staying = {}
            for name, own in cohort.members.items():
                if name in heirs:
                    staying[heirs[name]] = members[heirs[name]]
                elif name not in newcomers and members.get(name) == own:
                    staying[name] = own
            cohort.leave(staying)
            known |= staying.keys()
        new = {name: own for name, own in members.items() if name not in known}
        self.cohorts = [cohort for cohort in self.cohorts if cohort.members] + ([Cohort(new)] if new else [])


class SharedOverStep:
    """Step that evaluates the cohorts, with one output per query."""

    def __init__(self, operator: SharedOver, context: StepContext) -> None:
        self.state = context.state if isinstance(context.state, SharedOverState) else SharedOverState()
        members = {m.name: m.operator for m in operator.members}
        self.state.adopt(members, context.newcomers.keys(), context.successors)
        self._members = operator.members
        self._inputs = len(context.schemas[0].names) + _SYSTEM
        self._schemas = {m.name: with_system_columns(to_arrow(Schema(m.columns))) for m in operator.members}
        self._runs = [
            WindowCalls(cohort.calls, context.schemas[0], cohort.kept, context.seq_bits, apart=True)
            for cohort in self.state.cohorts
        ]
        for cohort, calls in zip(self.state.cohorts, self._runs, strict=True):
            cohort.kept = calls.state

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> Sequence[StepResult]:
        parts: dict[str, StepResult] = {}
        for cohort, calls in zip(self.state.cohorts, self._runs, strict=True):
            table, until = calls.run(tables[0], complete[0])
            place = self._inputs
            for name, own in cohort.members.items():
                values = table.columns[place : place + len(own.calls)]
                place += len(own.calls)
                failed = [calls.failed[e] for call in own.calls for e in call.arguments if e in calls.failed]
                parts[name] = failed[0] if failed else (self._part(name, own, table, values), until)
        return [parts[member.name] for member in self._members]

    def due(self) -> int | None:
        return None  # output of each tuple is emitted at once

    def _part(
        self, name: str, own: WindowAggregate, table: pa.Table, values: Sequence[pa.ChunkedArray]
    ) -> pa.Table:
        columns = dict(zip(table.column_names[: self._inputs], table.columns, strict=False))
        columns |= {call.columns[0].name: value for call, value in zip(own.calls, values, strict=True)}
        schema = self._schemas[name]
        return pa.table([columns[column] for column in schema.names], names=schema.names).cast(schema)


def _calls(members: Mapping[str, WindowAggregate]) -> tuple[WindowCall, ...]:
    return tuple(call for member in members.values() for call in member.calls)


def _columns(calls: Sequence[WindowCall]) -> list[Expr]:
    """Return the stored arguments in the order of their column numbers (`calls.WindowCalls`)."""
    return list(dict.fromkeys(e for call in calls for e in call.arguments[: stored_arguments(call)]))


def _frames(calls: Sequence[WindowCall]) -> list[FrameUnit]:
    """Return the frame units of the groups, in order."""
    return list(dict.fromkeys(call.window.frame for call in calls))


def _used(members: Mapping[str, WindowAggregate], frame: FrameUnit) -> list[Expr]:
    return _columns([call for call in _calls(members) if call.window.frame is frame])


def _narrowed(
    kept: OverGroupState, used: Sequence[Expr], names: Mapping[str, str], after: Sequence[Expr]
) -> OverGroupState:
    """Rename the columns of a group and drop arguments no longer used."""
    wanted = {str(after.index(expr)) for expr in used}
    old = {name: new for name, new in names.items() if new in wanted}
    system = (TIME, SEQUENCE)

    def narrow(table: pa.Table, own: Sequence[str]) -> pa.Table:
        return table.select([*own, *old]).rename_columns([*own, *old.values()])

    slices = [Slice(narrow(piece.table, (KEY, *system))) for piece in kept.slices]
    last = None if kept.last is None else kept.last.changed(lambda table: narrow(table, system))
    return replace(kept, slices=slices, last=last)


def shared_over(operator: SharedOver, context: StepContext) -> SharedOverStep:
    return SharedOverStep(operator, context)
