"""Metrics of a run: latency per sink, idle-waiting per operator (M2, E5-E9)."""

from __future__ import annotations

from collections.abc import Sequence

from slicemill_oracle.buffers import Reader


class LatencyMeter:
    """Latency of one sink's outputs, from last input to delivery."""

    __slots__ = ("count", "max_us", "total_us")

    def __init__(self) -> None:
        self.count = 0
        self.total_us = 0
        self.max_us = 0

    def add(self, latency_us: int) -> None:
        self.count += 1
        self.total_us += latency_us
        if latency_us > self.max_us:
            self.max_us = latency_us

    @property
    def mean_us(self) -> float:
        return self.total_us / self.count if self.count else 0.0


class IdleMeter:
    """Time in which an operator held data while another input was empty.

    Waiting punctuation does not count.
    """

    __slots__ = ("_readers", "_since", "_total_us")

    def __init__(self, readers: Sequence[Reader]) -> None:
        self._readers = readers
        self._since = -1
        self._total_us = 0

    def update(self, now: int) -> None:
        """Update the meter after a change of an input."""
        empty = data = False
        for reader in self._readers:
            if not reader.unread:
                empty = True
            elif reader.data:
                data = True
        if empty and data:
            if self._since < 0:
                self._since = now
        elif self._since >= 0:
            self._total_us += now - self._since
            self._since = -1

    def total_us(self, now: int) -> int:
        return self._total_us + (now - self._since if self._since >= 0 else 0)


def burstiness(counts: Sequence[int]) -> float:
    """Return (max - min) / mean of outputs per interval (E9)."""
    total = sum(counts)
    return (max(counts) - min(counts)) * len(counts) / total if total else 0.0


def outputs_per_interval(delivered_at: Sequence[int], start: int, stop: int, step_us: int) -> list[int]:
    """Count the delivery times in each whole interval of [start, stop)."""
    counts = [0] * ((stop - start) // step_us)
    for at in delivered_at:
        index = (at - start) // step_us
        if 0 <= index < len(counts):
            counts[index] += 1
    return counts
