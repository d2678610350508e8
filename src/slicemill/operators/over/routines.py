"""Routines of window calls, shared by models that started together.

Each call has a routine, except that models over the same window share one. Models share a routine only if
they started together, because then their windows always contain the same tuples. A model that starts later
gets a new routine, shared with models that started with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from slicemill.aggregate.calls import Uda
from slicemill.aggregate.compiler.prepare import prepare
from slicemill.aggregate.compiler.source import NoCompiledForm
from slicemill.aggregate.compiler.together import ModelCalls, model_calls
from slicemill.aggregate.frame import frame_over
from slicemill.aggregate.interpreter.relations import Source
from slicemill.aggregate.model_calls import Asked, asked_by, go_together
from slicemill.columns.keys import Keys
from slicemill.esl.types.catalog import Catalog
from slicemill.esl.types.expression import Expr
from slicemill.esl.types.query import Window, WindowCall
from slicemill.esl.types.schema import Column
from slicemill.model.core_costs import CoreCosts
from slicemill.operators.assembly import AssemblyState
from slicemill.storage.codec import stored_as


@stored_as("calls.member", version=1)
@dataclass(frozen=True, slots=True)
class RoutineMember:
    """Calls of one query, and the output columns that are read."""

    calls: tuple[WindowCall, ...]
    columns: tuple[Column, ...]


@stored_as("calls.routine", version=2, upgrade={1: lambda plain: {**plain, "costs": None}})
@dataclass(slots=True)
class RoutineState:
    """State of a routine for one call, or for the models in `asked`.

    A routine keeps the `costs` that it started with, because its state layout depends on them.
    """

    partition_by: tuple[Expr, ...]
    window: Window
    call: WindowCall | None
    asked: tuple[Asked, ...] = ()
    arguments: tuple[Expr, ...] = ()
    kept: Any = None
    costs: CoreCosts | None = None

    @property
    def model_calls(self) -> ModelCalls:
        """Return the evaluation of these models."""
        frame = frame_over(self.window)
        return model_calls(self.asked, frame, self.arguments or None, self.costs)


@stored_as("calls.member_state", version=1)
@dataclass(slots=True)
class RoutineMemberState:
    """State of one query.

    `answers` has for each call the number of its routine, and its model there.
    """

    member: RoutineMember
    answers: list[tuple[int, Asked | None]]
    assembly: AssemblyState = field(default_factory=AssemblyState)


@stored_as("calls", version=1)
@dataclass(slots=True)
class CallsState:
    """State of all window calls, by query and by routine.

    Partitions are numbered by their keys.
    """

    keys: dict[tuple[Expr, ...], Keys] = field(default_factory=dict)
    members: dict[str, RoutineMemberState] = field(default_factory=dict)
    routines: dict[int, RoutineState] = field(default_factory=dict)
    begun: int = 0  # number of routines started so far

    def adopt(
        self,
        members: Mapping[str, RoutineMember],
        newcomers: Sequence[str],
        catalog: Catalog,
        costs: CoreCosts | None = None,
    ) -> None:
        """Restore state for these queries.

        New ones start together; state of removed ones is dropped. The output columns that are read of a
        kept query may have changed, for example by a new stream column.
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
        wanted: dict[int, list[Asked]] = {}
        for state in self.members.values():
            for number, asked in state.answers:
                wanted.setdefault(number, []).extend([] if asked is None else [asked])
        self.routines = {number: self.routines[number] for number in sorted(wanted)}
        for number, asked_still in wanted.items():
            _forget(self.routines[number], asked_still)

    def _begin(
        self, call: WindowCall, first: int, catalog: Catalog, costs: CoreCosts | None
    ) -> tuple[int, Asked | None]:
        """Return the routine for a new call.

        Models may join a routine with a number from `first` on.
        """
        asked = asked_by(call, catalog)
        if asked is None or not _has_machine_code(asked, call.window):
            number = self._add(RoutineState(call.partition_by, call.window, call, arguments=call.arguments))
            return number, None
        for number, routine in self.routines.items():
            if number >= first and _takes(routine, asked, call):
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


def _takes(routine: RoutineState, asked: Asked, call: WindowCall) -> bool:
    """Return True if a routine of models can also run this model."""
    if routine.call is not None or (routine.partition_by, routine.window) != (call.partition_by, call.window):
        return False
    return go_together(routine.asked, asked)


def _has_machine_code(asked: Asked, window: Window) -> bool:
    try:
        model_calls((asked,), frame_over(window))
    except NoCompiledForm:
        return False
    return True


def _forget(routine: RoutineState, wanted: Sequence[Asked]) -> None:
    """Drop models that no query uses any more."""
    if routine.kept is None or all(asked in wanted for asked in routine.asked):
        return
    routine.asked = routine.model_calls.only(wanted, routine.kept).asked


class Routine:
    """A prepared routine with its state."""

    def __init__(self, state: RoutineState, catalog: Catalog, tables: Source) -> None:
        self.state = state
        self.uda: Uda
        if state.call is not None:
            self.uda = prepare(state.call, catalog, tables)
        else:
            calls = state.model_calls
            state.arguments = calls.arguments
            self.uda = calls.uda
        if state.kept is None:
            state.kept = self.uda.start()

    def columns(self, asked: Asked | None) -> list[int]:
        """Return the indexes of the routine's result columns for a call."""
        return list(range(len(self.uda.returns))) if asked is None else [self.state.asked.index(asked)]
