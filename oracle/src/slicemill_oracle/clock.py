"""Clocks of the engine: virtual time or machine time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """Monotonic time in microseconds."""

    def now(self) -> int: ...

    def spend(self, cost_us: int) -> None:
        """Account for a step with this cost."""
        ...

    def wait_until(self, ts: int) -> None:
        """Wait until `ts`."""
        ...


class VirtualClock:
    """Virtual time, advanced only by costs of steps and by waiting."""

    __slots__ = ("_now",)

    def __init__(self, now: int = 0) -> None:
        self._now = now

    def now(self) -> int:
        return self._now

    def spend(self, cost_us: int) -> None:
        self._now += cost_us

    def wait_until(self, ts: int) -> None:
        if ts > self._now:
            self._now = ts


class RealClock:
    """Monotonic machine time since creation. Costs of steps are ignored."""

    __slots__ = ("_read_ns", "_sleep", "_start_ns")

    def __init__(
        self,
        read_ns: Callable[[], int] = time.monotonic_ns,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._read_ns = read_ns
        self._sleep = sleep
        self._start_ns = read_ns()

    def now(self) -> int:
        return (self._read_ns() - self._start_ns) // 1000

    def spend(self, cost_us: int) -> None:
        """Do nothing: the step has already taken its time."""

    def wait_until(self, ts: int) -> None:
        while (left_us := ts - self.now()) > 0:
            self._sleep(left_us / 1_000_000)
