"""Execution step of DISTINCT, which drops a row if an earlier row has the same values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from slicemill.codec.registry import stored_as
from slicemill.columns.keys import Keys, distinct_keys
from slicemill.operators.changelog.spec import Distinct
from slicemill.operators.step import StepContext


@stored_as("distinct", version=1)
@dataclass(slots=True)
class DistinctState:
    met: Keys = field(default_factory=Keys)


class DistinctStep:
    def __init__(self, state: DistinctState, names: Sequence[str]) -> None:
        self.state = state
        self._names = names

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        table = tables[0]
        known = len(self.state.met)
        columns = [table.column(name) for name in self._names]
        numbered = self.state.met.number(distinct_keys(columns, table.num_rows), columns)
        # Distinct rows are numbered in order of appearance.
        found, rows = np.unique(numbered, return_index=True)
        return table.take(pa.array(np.sort(rows[found >= known]))), complete[0]

    def due(self) -> int | None:
        return None


def distinct(operator: Distinct, context: StepContext) -> DistinctStep:
    state = context.state if isinstance(context.state, DistinctState) else DistinctState()
    return DistinctStep(state, [column.name for column in operator.columns])
