"""Rescale a multi-way join: build a new cell's state (S41)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import pyarrow as pa

from slicemill.esl.types.expression import Expr
from slicemill.operators.join.block import KEY
from slicemill.operators.join.redistribute import plain_key, redistributed_side
from slicemill.operators.join.state import SideState
from slicemill.operators.join.windows import QueryBits
from slicemill.operators.kind import Keys
from slicemill.operators.multijoin.entry import hash_column, views
from slicemill.operators.multijoin.keys import KeyTable
from slicemill.operators.multijoin.spec import MultiJoinMember, SharedMultiJoin
from slicemill.operators.multijoin.state import MultiJoinState
from slicemill.operators.redistribution import Redistribution
from slicemill.shedding.report import merged


def redistributed(
    operator: SharedMultiJoin, states: Sequence[MultiJoinState | None], change: Redistribution
) -> MultiJoinState:
    """Return the state of a new cell; at least one old state exists."""
    found = next(state for state in states if state is not None)
    whole = MultiJoinState(found.seats, measures=found.measures)
    whole.measures.begin_anew()
    members = cast(Mapping[str, MultiJoinMember], found.seats.members)
    table_of_keys = KeyTable(operator.inputs, operator.members)
    for number, name in enumerate(operator.inputs):
        before = [None if state is None else state.sides.get(name, SideState()) for state in states]
        seats = QueryBits(found.seats.bits, views(members, name))
        keys = table_of_keys.keys[number]

        def value(table: pa.Table, key: Expr, keys: Sequence[Keys] = keys) -> pa.Array:
            return _value(table, key, keys)

        whole.sides[name] = redistributed_side(before, number, seats, change, value, 0)
        for line in {line for state in states if state is not None for line in state.late}:
            late = [
                None if state is None else state.late.get(line, {}).get(name, SideState()) for state in states
            ]
            kept = redistributed_side(late, number, seats, change, value, 0)
            whole.late.setdefault(line, {})[name] = kept
    if change.after.number == 0:  # shed rows so far are reported by one cell only
        told = [state for state in states if state is not None]
        names = {query for state in told for query in state.sheds}
        whole.sheds = {name: merged([s.sheds[name] for s in told if name in s.sheds]) for name in names}
    return whole


def _value(table: pa.Table, key: Expr, keys: Sequence[Keys]) -> pa.Array:
    """Return the values of one part of a key."""
    for number, parts in enumerate(keys):
        if key in parts:
            name = f"{KEY}{number}.{parts.index(key)}"
            return table.column(name) if name in table.column_names else plain_key(table, hash_column(number))
    raise KeyError(key)
