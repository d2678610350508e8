"""Windows that are searched, with memory of their own (C17): slow and plain, one class for each rule.

`ConditionalMaximum` is the paper's remark made precise: for certain new values the maximum can be updated
from the last one alone; for others the window is read again. The others never read it again.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable
from typing import Any


class ConditionalMaximum:
    """Keeps the maximum and nothing else. `rescans` counts how often that was not enough."""

    def __init__(self) -> None:
        self._window: deque[Any] = deque()
        self._maximum: Any = None
        self.rescans = 0

    def slide(self, new: Any, leaving: bool) -> Any:
        """The maximum after an element has come and, if `leaving`, the oldest has left."""
        gone = self._window.popleft() if leaving else None
        self._window.append(new)
        if self._maximum is None or new >= self._maximum:
            self._maximum = new
        elif leaving and gone == self._maximum:
            self._maximum = max(self._window)
            self.rescans += 1
        return self._maximum


class MonotoneDeque:
    """Keeps the elements that no later one outdoes. `longest` is the most it held."""

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
        """The oldest element leaves."""
        self._gone += 1
        if self._candidates and self._candidates[0][1] < self._gone:
            self._candidates.popleft()

    @property
    def maximum(self) -> Any:
        return self._candidates[0][0] if self._candidates else None

    def __len__(self) -> int:
        return len(self._candidates)


class TwoStackWindow:
    """Any associative operator, commutative or not. `combined` counts how often it was applied."""

    def __init__(self, combine: Callable[[Any, Any], Any], identity: Any) -> None:
        self._combine, self._identity = combine, identity
        self._older: list[Any] = []  # what comes of each and all after it, the oldest last
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
    """The elements in the order of their values: any rank can be asked for."""

    def __init__(self) -> None:
        self._window: deque[Any] = deque()
        self._ordered: list[Any] = []

    def push(self, value: Any) -> None:
        self._window.append(value)
        insort(self._ordered, value)

    def expire(self) -> None:
        del self._ordered[bisect_left(self._ordered, self._window.popleft())]

    def rank(self, place: int) -> Any:
        """The element with so many others below it."""
        return self._ordered[place]

    def __len__(self) -> int:
        return len(self._ordered)
