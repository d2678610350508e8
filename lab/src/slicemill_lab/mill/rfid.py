"""Readings, ways to denoise them and their delays: what mill-E14 and mill-E15 share (M44-M46, M48, X18).

Work is counted, not timed: looking at a reading of the window costs 30 ns, anything else about an arrival
1 µs, in virtual time. The published machine is gone; 30 ns is chosen so that, as published, the baselines are
overloaded at the highest rate and Eager is not; mill-E14 shows the order at other costs. An arrival waits
until the one before it is done, so a way that does more than the machine can falls behind. The delay of a
reading is the time from its timestamp to when it is let out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from slicemill.aggregate.rfid.baseline import baseline
from slicemill.aggregate.rfid.denoising import Denoised, Ints
from slicemill.aggregate.rfid.eager import eager
from slicemill.aggregate.rfid.lazy import lazy
from slicemill.connectors.generators.rfid import Tags

WINDOW_US = 2_000_000
THRESHOLD = 6
VISIT_NS = 30
ARRIVAL_US = 1.0

UNORDERED, ORDERED, LAZY, EAGER = "Baseline (unordered)", "Baseline (ordered)", "Lazy", "Eager"
WAYS: Mapping[str, Callable[[Ints, Ints], Denoised]] = {
    UNORDERED: lambda at, keys: baseline(at, keys, WINDOW_US, THRESHOLD, ordered=False),
    ORDERED: lambda at, keys: baseline(at, keys, WINDOW_US, THRESHOLD, ordered=True),
    LAZY: lambda at, keys: lazy(at, keys, WINDOW_US, THRESHOLD),
    EAGER: lambda at, keys: eager(at, keys, WINDOW_US, THRESHOLD),
}


def readings(tags: Tags) -> tuple[Ints, Ints]:
    """Times and keys: one reader, so a tag's id is its key."""
    columns = tags.all_readings()
    return columns["at"], columns["tag"]


def mean_delay_ms(at: Ints, found: Denoised, visit_ns: float = VISIT_NS) -> float:
    """Over the readings that an arrival let out: those flushed at the end waited for no arrival."""
    out = found.by < len(at)
    cost_us: npt.NDArray[np.float64] = ARRIVAL_US + visit_ns / 1000 * found.visits.astype(np.float64)
    done_us = _done(at, cost_us)
    delays_us = done_us[found.by[out]] - at[found.readings[out]]
    return float(delays_us.mean()) / 1000


def load(at: Ints, found: Denoised) -> float:
    """Virtual time that the work takes over the time that there is."""
    work_us = ARRIVAL_US * len(at) + VISIT_NS / 1000 * found.visits.sum()
    return float(work_us / (at[-1] - at[0]))


def overloading_visit_ns(at: Ints, found: Denoised) -> float:
    """The cost of a visit at which the work takes all the time that there is."""
    spare_us = float(at[-1] - at[0]) - ARRIVAL_US * len(at)
    return 1000 * spare_us / float(found.visits.sum())


def _done(at: Ints, cost_us: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """When one server is done with each arrival: it starts when the arrival is there and the last is done."""
    before = np.concatenate([[0.0], np.cumsum(cost_us)[:-1]])
    # The server has been busy since the arrival for which time less the work before it is greatest.
    busy_since = np.maximum.accumulate(at - before)
    done: npt.NDArray[np.float64] = busy_since + before + cost_us
    return done
