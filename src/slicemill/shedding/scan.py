"""CALS by its definition: the cost of every tuple at every decision (L15-L17). Slow, and easy to trust."""

from __future__ import annotations

from slicemill.shedding.chains import ChainMemory, Tuple
from slicemill.shedding.costs import cost
from slicemill.shedding.methods import Method


class ScanMemory(ChainMemory):
    """Drops a tuple of the least cost; of several one at the end of a run where splits
    count, then by the method's ties."""

    def __init__(self, capacity: int, method: Method) -> None:
        super().__init__(capacity)
        self.method = method

    def _victim(self) -> Tuple:
        best: tuple[tuple[float, bool, int], Tuple] | None = None
        for chain in self.chains.values():
            kept = list(chain)
            for place, tuple_ in enumerate(kept):
                found, splits = cost(kept, place, chain.follower, self.method)
                key = (found, splits and self.method.split > 0, self.method.tie(tuple_.serial))
                if best is None or key < best[0]:
                    best = key, tuple_
        assert best is not None, "the newest tuple is a candidate"
        return best[1]
