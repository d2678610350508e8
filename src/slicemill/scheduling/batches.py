"""The policies for a dispatcher that runs a whole batch of pending rows at once (§4.3).

A batch of N rows costs B(N) = a + b·N. With a = 0 and one row these are the tuple-wise priorities; with a > 0
larger batches are relatively cheaper, and policies that count the wait bound how long a small one waits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from slicemill.scheduling.adaptive import BatchCost
from slicemill.scheduling.fas import staleness_probability


@dataclass(frozen=True, slots=True)
class Batch:
    """The pending input of a unit: rows (N), wait of the oldest (W), results per row (S), weight (α)."""

    rows: int
    wait: float
    selectivity: float
    cost: BatchCost
    weight: float = 1.0

    @property
    def results(self) -> float:
        return self.selectivity * self.rows

    @property
    def time(self) -> float:
        return self.cost.of(self.rows)

    @property
    def ideal_time(self) -> float:
        return self.cost.ideal_time


Priority: TypeAlias = Callable[[Batch], float]


def _freshness(batch: Batch, beta: float = 1.0) -> float:
    counted = math.pow(batch.rows, beta)
    return batch.weight * staleness_probability(min(batch.selectivity, 1.0), counted) / batch.cost.of(counted)


PRIORITIES: Mapping[str, Priority] = MappingProxyType(
    {
        "fcfs": lambda batch: batch.wait,
        "srpt": lambda batch: 1 / batch.time,
        "hr": lambda batch: batch.weight * batch.results / batch.time,
        "hnr": lambda batch: batch.weight * batch.results / (batch.ideal_time * batch.time),
        "lsf": lambda batch: batch.wait / batch.ideal_time,
        "brt": lambda batch: batch.weight * batch.wait * batch.results / batch.time,
        "bsd": lambda batch: batch.weight * batch.wait * batch.results / (batch.ideal_time**2 * batch.time),
        "fas": _freshness,
    }
)
