"""Step for sliding-window aggregates of all queries with the same stream and keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from slicemill.columns.order import Numbering
from slicemill.errors import SlicemillError
from slicemill.esl.types.expression import conjunction
from slicemill.esl.types.schema import Schema
from slicemill.operators.call_values import evaluators, needed_arguments
from slicemill.operators.context import StepContext
from slicemill.operators.over.spec import WindowAggregate
from slicemill.operators.panes.figures import Figure, figure_of
from slicemill.operators.panes.grids import Call, edge_grids
from slicemill.operators.panes.members import Groups, Member, ValueGroups, Yields
from slicemill.operators.panes.partials import Values
from slicemill.operators.panes.selection import PaneInput
from slicemill.operators.panes.spec import SharedWindows, WindowMember
from slicemill.operators.panes.state import PaneState
from slicemill.operators.panes.windows import PaneWindows
from slicemill.operators.step import StepResult
from slicemill.operators.windowed_group.spec import RelationAggregate
from slicemill.storage.arrow_schema import to_arrow, with_system_columns


class SharedWindowsStep:
    """Step that evaluates the windows of all queries that share panes.

    A query that is new in the plan aggregates only tuples that arrive from now on. State that only removed
    queries used is dropped.
    """

    def __init__(self, shared: SharedWindows, state: PaneState, context: StepContext) -> None:
        schema, newcomers, seq_bits = context.schemas[0], context.newcomers.keys(), context.seq_bits
        definitions = _as_kept(shared.members, state, context.successors)
        state.hand_over(definitions, context.successors)
        # A query that is dropped and created again with the same name and definition starts empty.
        state.adopt({name: known for name, known in definitions.items() if name not in newcomers})
        definitions |= {m.name: m for m in shared.members if m.name in newcomers}
        state.adopt(definitions)
        members = {name: _member(member, context) for name, member in definitions.items()}
        self._schemas = [with_system_columns(to_arrow(Schema(m.columns))) for m in shared.members]
        # A user-defined aggregate may return several rows for a window.
        self._numberings = [Numbering(seq_bits, fans=not member.partial) for member in shared.members]
        self._members = tuple(members.values())
        self._windows = PaneWindows(
            PaneInput(schema, shared.keys),
            members,
            {member.name: conjunction(member.conditions) for member in shared.members},
            edge_grids(window for member in shared.members for window in member.windows),
            state,
        )

    @property
    def state(self) -> PaneState:
        return self._windows.state

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> Sequence[StepResult]:
        parts: list[StepResult] = []
        answers = self._windows.run(tables[0], complete[0])
        for answer, schema, numbering in zip(answers, self._schemas, self._numberings, strict=True):
            if isinstance(answer, SlicemillError):
                parts.append(answer)
            else:
                table, until = answer
                made = schema.empty_table() if table is None else numbering.applied(table.cast(schema))
                parts.append((made, until))
        return parts

    def due(self) -> int | None:
        return self._windows.due()


def shared_windows(operator: SharedWindows, context: StepContext) -> SharedWindowsStep:
    state = context.state if isinstance(context.state, PaneState) else PaneState()
    return SharedWindowsStep(operator, state, context)


def _as_kept(
    members: Sequence[WindowMember], state: PaneState, successors: Mapping[str, str]
) -> dict[str, WindowMember]:
    """Return the queries in the form in which their state is stored.

    Earlier versions stored the values of all tuples for means of decimals; this version stores sums.
    """
    found = {}
    for member in members:
        known = state.members.get(successors.get(member.name, member.name))
        kept = known.definition if known is not None else None
        by_value = isinstance(kept, WindowMember) and not kept.partial
        succeeds = member.name in successors or kept == replace(member, partial=False)
        found[member.name] = replace(member, partial=False) if by_value and succeeds else member
    return found


def _member(member: WindowMember, context: StepContext) -> Member:
    operator = member.operator
    if isinstance(operator, WindowAggregate):
        lengths = [length for length, _ in member.windows]
        figures = {
            call.columns[0].name: (length, _figure(call))
            for call, length in zip(operator.calls, lengths, strict=True)
        }
        return Yields(member.windows[0][1], figures, member.columns)
    (length, slide), names = member.windows[0], tuple(item.name for item in operator.group_by)
    grows = operator.windows[0][1].grows
    if not member.partial:
        return _by_value(member, operator, names, context)
    read = {call.columns[0].name: _figure(call) for call in member.calls_read}
    return Groups(length, slide, names, read, member.columns, grows=grows)


def _by_value(
    member: WindowMember, operator: RelationAggregate, names: tuple[str, ...], context: StepContext
) -> ValueGroups:
    (length, slide), catalog = member.windows[0], context.catalog
    arguments = (a for call in operator.calls for a in needed_arguments(call, catalog))
    values = {argument: Values(argument) for argument in arguments}
    columns = {argument: value.name for argument, value in values.items()}
    evaluates = evaluators(operator.calls, columns, context)
    grows = operator.windows[0][1].grows
    return ValueGroups(
        length, slide, names, {}, member.columns, tuple(values.values()), evaluates, grows=grows
    )


def _figure(call: Call) -> Figure:
    figure = figure_of(call)
    assert figure is not None, "the plan says that panes can answer it"
    return figure
