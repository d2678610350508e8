"""Symmetric hash join over a sliding window, for scheduling experiments (P3).

The experiments on metrics and schedulers use this join. Schedulers may run the two sides in any order, so a
tuple may match newer partners. The window is closed: |difference of timestamps| <= V. Each side alone must
be in timestamp order.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Sequence

from slicemill.errors import SlicemillError
from slicemill.types import Row, Timed

Key = Callable[[Row], Hashable]


class SymmetricHashJoin:
    """Joins rows with equal keys and timestamps within `window_us`."""

    inputs = 2
    waits_for_time = False

    def __init__(self, window_us: int, left_key: Key, right_key: Key) -> None:
        self._window_us = window_us
        self._keys = (left_key, right_key)
        self._stored: tuple[deque[Timed], deque[Timed]] = (deque(), deque())
        self._buckets: list[defaultdict[Hashable, deque[Timed]]] = [defaultdict(deque), defaultdict(deque)]

    @property
    def state_size(self) -> int:
        return sum(len(stored) for stored in self._stored)

    def process(self, port: int, tuple_: Timed) -> Sequence[Timed]:
        own = self._stored[port]
        if own and tuple_.ts < own[-1].ts:
            raise SlicemillError(f"side {port} is not in order: {tuple_.ts} after {own[-1].ts}")
        other = 1 - port
        key = self._keys[port](tuple_.row)
        own.append(tuple_)
        self._buckets[port][key].append(tuple_)
        out = [
            Timed(
                max(tuple_.ts, partner.ts),
                tuple_.row + partner.row if port == 0 else partner.row + tuple_.row,
            )
            for partner in self._buckets[other].get(key, ())
            if abs(tuple_.ts - partner.ts) <= self._window_us
        ]
        self._expire(other, tuple_.ts - self._window_us)
        return out

    def advance(self, ts: int) -> Sequence[Timed]:  # noqa: ARG002
        return ()

    def finish(self) -> Sequence[Timed]:
        return ()

    def _expire(self, port: int, before: int) -> None:
        """Remove tuples that the other side, being ordered, can no longer match."""
        stored, buckets = self._stored[port], self._buckets[port]
        while stored and stored[0].ts < before:
            key = self._keys[port](stored.popleft().row)
            buckets[key].popleft()
            if not buckets[key]:
                del buckets[key]
