"""What a temporal query with a budget keeps from run to run."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from slicemill.columns.intervals import Mask
from slicemill.operators.coalesce.coalescing import CoalescingState
from slicemill.operators.coalesce.shedding import layout as m
from slicemill.operators.coalesce.shedding.heap import Ints
from slicemill.operators.panes.state import StoredKeys
from slicemill.shedding.report import MemoryReport
from slicemill.storage.codec import register

FEW = 1000


@dataclass(slots=True)
class BudgetState(CoalescingState):
    """The memory and its partitions, in numbers; `values` has what the codes stand for.

    What is stored of the memory are its tuples; whoever goes on with the state unpacks it.
    """

    memory: m.Arrays | m.Packed | None = None
    partitions: Ints = field(default_factory=lambda: m.new_partitions(0))
    values: StoredKeys = field(default_factory=StoredKeys)
    next_end: int | None = None
    until: deque[tuple[int, int]] = field(default_factory=deque)
    report: MemoryReport = field(default_factory=MemoryReport)
    next_seq: int = 0

    def plain(self) -> dict[str, Any]:
        stored = {one.name: getattr(self, one.name) for one in fields(self)}
        if isinstance(self.memory, m.Arrays):
            stored["memory"] = m.packed(self.memory)
        return stored

    def forget(self) -> None:
        """Let go of partitions and values that nothing has, when they are many."""
        a = self.memory
        assert isinstance(a, m.Arrays)
        held = a.slots[:, m.PART] != m.NONE
        shadow = a.shadow[: a.counts[m.SHADOW]]
        alive = self.partitions[:, m.ALIVE] == 1
        if len(self.keys) > 2 * int(alive.sum()) + FEW:
            used = alive.copy()
            used[shadow[:, m.S_PART]] = True
            moved = self.keys.keep(used).astype(np.int64)
            self.partitions = self.partitions[used]
            a.slots[held, m.PART] = moved[a.slots[held, m.PART]]
            shadow[:, m.S_PART] = moved[shadow[:, m.S_PART]]
        if len(self.values) > 2 * (len(a.slots) + len(a.shadow) + 2 * len(self.partitions)) + FEW:
            self._forget_values(held, shadow)

    def _forget_values(self, held: Mask, shadow: Ints) -> None:
        a = self.memory
        assert isinstance(a, m.Arrays)
        used = np.zeros(len(self.values) + 1, np.bool_)
        codes = [a.slots[held, m.CODE], shadow[:, m.S_CODE], *self.partitions[:, [m.NEW_CODE, m.RUN_CODE]].T]
        used[np.concatenate(codes)] = True
        moved = np.append(self.values.keep(used[:-1]), m.NONE).astype(np.int64)
        a.slots[held, m.CODE] = moved[a.slots[held, m.CODE]]
        shadow[:, m.S_CODE] = moved[shadow[:, m.S_CODE]]
        for column in (m.NEW_CODE, m.RUN_CODE):
            self.partitions[:, column] = moved[self.partitions[:, column]]


register("coalesce.budgeted", 1, BudgetState, BudgetState.plain, lambda plain: BudgetState(**plain))
