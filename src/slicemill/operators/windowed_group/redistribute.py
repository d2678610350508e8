"""Rescale of GROUP BY over windows (S41).

The state consists of unexpired rows with their group keys. A new cell gets the rows of its groups, in the
order in which a single cell would have them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from slicemill.esl.types.expression import Expr
from slicemill.operators.redistribution import KeptRows, Redistribution
from slicemill.operators.windowed_group.lives import TIME, LivesState
from slicemill.operators.windowed_group.living_windows import LivingState, key_column
from slicemill.operators.windowed_group.spec import RelationAggregate
from slicemill.storage.arrow_schema import SEQ
from slicemill.storage.slice import Slice


def redistributed(
    operator: RelationAggregate, states: Sequence[LivingState | None], change: Redistribution
) -> LivingState:
    """Return the state of a new cell.

    At least one old cell has state.
    """
    found = [state for state in states if state is not None]
    now = max(state.lives.now for state in found)
    keys = [item.expr for item in operator.group_by]
    pieces = [piece.table for state in change.waiting_in(0, states) for piece in state.lives.slices]
    if not pieces:
        return LivingState(LivesState(now=now))
    rows = pa.concat_tables(pieces).combine_chunks()
    order = np.lexsort([rows.column(name).to_numpy() for name in (SEQ, TIME)])
    rows = rows.take(pa.array(order))

    def value(key: Expr) -> pa.Array:
        return rows.column(key_column(keys.index(key)))

    mine = change.is_read(0, KeptRows(rows.column(SEQ).to_numpy(), value))
    kept = rows.filter(pa.array(mine)).combine_chunks()
    return LivingState(LivesState([Slice(kept)] if kept.num_rows else [], now))
