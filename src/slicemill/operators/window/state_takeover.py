"""Takeover of the state of window aggregates when a new query replaces a running query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace

import pyarrow as pa

from slicemill.columns.pieces import Slice
from slicemill.errors import SlicemillError
from slicemill.operators.window.accumulators import stored, stored_columns
from slicemill.operators.window.expiring_rows import CountWindowState, RelationAggregateState, argument_column
from slicemill.operators.window.over import WindowState
from slicemill.operators.window.over_groups import OverGroupState
from slicemill.operators.window.spec import RelationAggregate, WindowAggregate


def windows_taken_over(operator: WindowAggregate, state: object, calls: Sequence[int]) -> WindowState:
    """Build the state of a query's OVER calls from the state of the query that it replaces.

    All windows are unbounded. `calls` has for each new call the index of the former call whose state it
    takes.
    """
    if not isinstance(state, WindowState):
        raise not_taken_over()
    columns = stored_columns(operator.calls)
    groups = []
    for call, former in zip(operator.calls, calls, strict=True):
        name = next((str(columns.index(expr)) for expr in stored(call)), "")
        kept = state.groups[former]
        names = dict.fromkeys(_columns_of(kept), name)
        groups.append(replace(with_columns(kept, names), running=deepcopy(kept.running)))
    return replace(state, groups=groups)


def with_columns(group: OverGroupState, names: Mapping[str, str]) -> OverGroupState:
    """Rename the stored argument columns of a group of OVER calls.

    Argument columns that `names` does not contain are dropped.
    """

    def renamed(table: pa.Table) -> pa.Table:
        chosen = {name: names.get(name, name) for name in table.column_names if _is_kept(name, names)}
        return table.select(list(chosen)).rename_columns(list(chosen.values()))

    last = None if group.last is None else group.last.changed(renamed)
    if last is not None:
        last.starts, last.lengths = last.starts.copy(), last.lengths.copy()
    slices = [Slice(renamed(piece.table)) for piece in group.slices]
    past = None if group.past is None else renamed(group.past)
    return replace(group, slices=slices, past=past, last=last)


def not_taken_over() -> SlicemillError:
    return SlicemillError(
        "its state cannot be taken over, because another version of slicemill wrote it, or an aggregate of "
        "the same name; DROP the query and CREATE it again"
    )


def _is_kept(name: str, names: Mapping[str, str]) -> bool:
    return name in names or not name.isdigit()


def _columns_of(group: OverGroupState) -> list[str]:
    """Return the names of the argument columns that a group of OVER calls stores."""
    tables = [piece.table for piece in group.slices]
    tables += [piece.table for piece in group.last.added.pieces] if group.last is not None else []
    tables += [group.past] if group.past is not None else []
    return sorted({name for table in tables for name in table.column_names if name.isdigit()})


# Takeover of the state of GROUP BY over windows in FROM.


def taken_over(
    _: RelationAggregate, state: object, columns: Sequence[int]
) -> CountWindowState | RelationAggregateState:
    """Build the state of GROUP BY over windows from the state of a replaced query with the same windows.

    `columns` has for each stored argument its index among the stored arguments of the replaced query.
    """
    if isinstance(state, CountWindowState) and isinstance(state.calls, WindowState):
        names = {str(former): str(index) for index, former in enumerate(columns)}
        groups = [with_columns(group, names) for group in state.calls.groups]
        return replace(state, calls=replace(state.calls, groups=groups))
    if isinstance(state, RelationAggregateState):
        slices = [Slice(_with_arguments(piece.table, columns)) for piece in state.lives.slices]
        return replace(state, lives=replace(state.lives, slices=slices))
    raise not_taken_over()


def _with_arguments(rows: pa.Table, columns: Sequence[int]) -> pa.Table:
    given = [name for name in rows.column_names if not name.startswith(argument_column(""))]
    chosen = [*given, *map(argument_column, columns)]
    return rows.select(chosen).rename_columns([*given, *map(argument_column, range(len(columns)))])
