"""Searches over sliding windows with auxiliary memory (C17): slow reference versions.

`ConditionalMaximum` makes a remark of the paper precise: for some new values, the maximum follows from
the previous maximum alone, for others the window is read again. The other classes never read the window
again.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable
from typing import Any


class ConditionalMaximum:
    """Keeps only the maximum; `rescans` counts reads of the whole window."""

    def __init__(self) -> None:
        self._window: deque[Any] = deque()
        self._maximum: Any = None
        self.rescans = 0

    def slide(self, new: Any, leaving: bool) -> Any:
        """Add an element, remove the oldest if `leaving`, and return the maximum."""
        gone = self._window.popleft() if leaving else None
        self._window.append(new)
        if self._maximum is None or new >= self._maximum:
            self._maximum = new
        elif leaving and gone == self._maximum:
            self._maximum = max(self._window)
            self.rescans += 1
        return self._maximum


class MonotoneDeque:
    """Keeps elements that no later one exceeds; `longest` is its greatest length."""

    def __init__(self) -> None:
        self._candidates: deque[tuple[Any, int]] = deque()
        self._arrived = self._gone = 0
        self.longest = 0

    def push(self, value: Any) -> None:
        while self._candidates and self._candidates[-1][0] <= value:
            self._candidates.pop()
        self._candidates.append((value, self._arrived))
        self._arrived += 1
        self.longest = max(self.longest, len(self._candidates))

    def expire(self) -> None:
        """Remove the oldest element."""
        self._gone += 1
        if self._candidates and self._candidates[0][1] < self._gone:
            self._candidates.popleft()

    @property
    def maximum(self) -> Any:
        return self._candidates[0][0] if self._candidates else None

    def __len__(self) -> int:
        return len(self._candidates)


class TwoStackWindow:
    """Aggregates by an associative operator; `combined` counts its applications."""

    def __init__(self, combine: Callable[[Any, Any], Any], identity: Any) -> None:
        self._combine, self._identity = combine, identity
        self._older: list[Any] = []  # suffix aggregates of the older elements, that of the oldest last
        self._newer: list[Any] = []
        self._sum = identity
        self.combined = 0

    def _both(self, left: Any, right: Any) -> Any:
        self.combined += 1
        return self._combine(left, right)

    def push(self, value: Any) -> None:
        self._newer.append(value)
        self._sum = self._both(self._sum, value)

    def expire(self) -> None:
        if not self._older:
            total = self._identity
            while self._newer:
                total = self._both(self._newer.pop(), total)
                self._older.append(total)
            self._sum = self._identity
        self._older.pop()

    @property
    def value(self) -> Any:
        return self._both(self._older[-1] if self._older else self._identity, self._sum)


class OrderedWindow:
    """Keeps the elements sorted, to find the element of any rank."""

    def __init__(self) -> None:
        self._window: deque[Any] = deque()
        self._ordered: list[Any] = []

    def push(self, value: Any) -> None:
        self._window.append(value)
        insort(self._ordered, value)

    def expire(self) -> None:
        del self._ordered[bisect_left(self._ordered, self._window.popleft())]

    def rank(self, place: int) -> Any:
        """Return the element of a rank, starting at 0."""
        return self._ordered[place]

    def __len__(self) -> int:
        return len(self._ordered)
