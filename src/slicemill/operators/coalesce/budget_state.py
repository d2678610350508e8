"""State of temporal queries with a budget."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from slicemill.columns.keys import Keys
from slicemill.operators.coalesce.coalescing import CoalescingState
from slicemill.operators.coalesce.shedding import layout as m
from slicemill.operators.coalesce.shedding.heap import Ints
from slicemill.shedding.report import MemoryReport
from slicemill.storage.codec import register

FEW = 100


@dataclass(slots=True)
class BudgetState(CoalescingState):
    """Packed memory with its partitions. `values` has the columns of value codes.

    During a run the memory is unpacked, and values are looked up by number.
    """

    memory: m.Packed | None = None
    partitions: Ints = field(default_factory=lambda: m.new_partitions(0))
    values: dict[str, Any] = field(default_factory=lambda: Keys().in_columns())
    next_end: int | None = None
    until: deque[tuple[int, int]] = field(default_factory=deque)
    report: MemoryReport = field(default_factory=MemoryReport)
    next_seq: int = 0

    def plain(self) -> dict[str, Any]:
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def rest(self, memory: m.Packed, values: Keys) -> None:
        """Store the memory after a run. Drop unused partitions and values."""
        self.memory = memory
        alive = self.partitions[:, m.ALIVE] == 1
        if len(self.keys) > 2 * int(alive.sum()) + FEW:
            used = alive.copy()
            used[memory.shadow["part"]] = True
            moved = self.keys.keep(used)
            self.partitions = self.partitions[used]
            for records in (memory.tuples, memory.shadow):
                records["part"] = moved[records["part"]]
        self._keep_values(memory, values)

    def _keep_values(self, memory: m.Packed, values: Keys) -> None:
        newest = self.partitions[:, [m.NEW_CODE, m.RUN_CODE]]
        used = np.zeros(len(values) + 1, np.bool_)
        used[np.concatenate([memory.tuples["code"], memory.shadow["code"], *newest.T])] = True
        moved = np.append(values.keep(used[:-1]), m.NONE)
        for records in (memory.tuples, memory.shadow):
            records["code"] = moved[records["code"]]
        for column in (m.NEW_CODE, m.RUN_CODE):
            self.partitions[:, column] = moved[self.partitions[:, column]]
        kept = values.in_columns()
        if kept["columns"] is not None:
            kept["columns"] = [column.combine_chunks() for column in kept["columns"]]
        self.values = kept


register("coalesce.budgeted", 2, BudgetState, BudgetState.plain, lambda plain: BudgetState(**plain))
