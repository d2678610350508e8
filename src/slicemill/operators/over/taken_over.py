"""State of OVER calls that a replaced definition hands to its successor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace

import pyarrow as pa

from slicemill.errors import SlicemillError
from slicemill.operators.over.accumulators import stored, stored_columns
from slicemill.operators.over.calls import WindowState
from slicemill.operators.over.groups import OverGroupState
from slicemill.operators.over.spec import WindowAggregate
from slicemill.storage.slice import Slice


def windows_taken_over(operator: WindowAggregate, state: object, calls: Sequence[int]) -> WindowState:
    """Return the state of unbounded calls, given the former call of each."""
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
    """Rename the stored arguments of a group, and drop those without a new name."""

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
    """Return the names of a group's stored arguments."""
    tables = [piece.table for piece in group.slices]
    tables += [piece.table for piece in group.last.added.pieces] if group.last is not None else []
    tables += [group.past] if group.past is not None else []
    return sorted({name for table in tables for name in table.column_names if name.isdigit()})
