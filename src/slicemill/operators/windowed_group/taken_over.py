"""State of windows of FROM that a replaced definition hands to its successor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from slicemill.operators.over.calls import WindowState
from slicemill.operators.over.taken_over import not_taken_over, with_columns
from slicemill.operators.windowed_group.count_windows import CountWindowState
from slicemill.operators.windowed_group.living_windows import LivingState, argument_column
from slicemill.operators.windowed_group.spec import RelationAggregate
from slicemill.storage.slice import Slice


def taken_over(_: RelationAggregate, state: object, columns: Sequence[int]) -> CountWindowState | LivingState:
    """Return the state of other calls over the same windows, given the former index of each column."""
    if isinstance(state, CountWindowState) and isinstance(state.calls, WindowState):
        names = {str(former): str(place) for place, former in enumerate(columns)}
        groups = [with_columns(group, names) for group in state.calls.groups]
        return replace(state, calls=replace(state.calls, groups=groups))
    if isinstance(state, LivingState):
        slices = [Slice(_with_arguments(piece.table, columns)) for piece in state.lives.slices]
        return replace(state, lives=replace(state.lives, slices=slices))
    raise not_taken_over()


def _with_arguments(rows: pa.Table, columns: Sequence[int]) -> pa.Table:
    given = [name for name in rows.column_names if not name.startswith(argument_column(""))]
    chosen = [*given, *map(argument_column, columns)]
    return rows.select(chosen).rename_columns([*given, *map(argument_column, range(len(columns)))])
