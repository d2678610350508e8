"""Aggregates written in Python, for tests."""

from __future__ import annotations


class Spread:
    """Aggregate of numbers only, which Numba can compile."""

    low: float
    high: float
    seen: int = 0

    def initialize(self, x: float) -> float | None:
        self.low = self.high = 0.0 if x is None else x
        self.seen += 1
        return None

    def iterate(self, x: float) -> float | None:
        self.seen += 1
        if x is not None and x < self.low:
            self.low = x
            return self.low
        if x is not None and x > self.high:
            self.high = x
        return None

    def terminate(self) -> float:
        return self.high - self.low + self.seen


class Balance:
    """Window version with EXPIRE and two result columns."""

    total: float
    count: int

    def initialize(self, x: float) -> tuple[float, int]:
        self.total = 0.0
        self.count = 0
        if x is not None:
            self.total += x
        self.count += 1
        return self.total, self.count

    def iterate(self, x: float) -> tuple[float, int]:
        if x is not None:
            self.total += x
        self.count += 1
        return self.total, self.count

    def expire(self, x: float) -> None:
        if x is not None:
            self.total -= x
        self.count -= 1


class Words:
    """Aggregate that Numba cannot compile."""

    def initialize(self, x: float) -> list[float]:
        self.words = [x]
        return [x, x]

    def iterate(self, x: float) -> list[float]:
        self.words.append(x)
        return self.words[-2:]
