"""Readings, denoising methods and their delays for mill-E14 and mill-E15 (M44-M46, M48, X18).

Work is counted, not timed: in virtual time, a visit to a reading of the window costs 30 ns, and all other
work of an arrival 1 µs. The published machine is not available. With 30 ns, as published, the baselines are
overloaded at the highest rate and Eager is not. mill-E14 shows the order for other costs. Arrivals are
processed one after the other, so an overloaded method falls behind. The delay of a reading is the time from
its timestamp to its output.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from slicemill.connectors.generators.rfid import Tags
from slicemill.extensions.rfid import Denoised, baseline, eager, lazy
from slicemill.kernels.arrays import Int64s

WINDOW_US = 2_000_000
THRESHOLD = 6
VISIT_NS = 30
ARRIVAL_US = 1.0

UNORDERED, ORDERED, LAZY, EAGER = "Baseline (unordered)", "Baseline (ordered)", "Lazy", "Eager"
WAYS: Mapping[str, Callable[[Int64s, Int64s], Denoised]] = {
    UNORDERED: lambda at, keys: baseline(at, keys, WINDOW_US, THRESHOLD, ordered=False),
    ORDERED: lambda at, keys: baseline(at, keys, WINDOW_US, THRESHOLD, ordered=True),
    LAZY: lambda at, keys: lazy(at, keys, WINDOW_US, THRESHOLD),
    EAGER: lambda at, keys: eager(at, keys, WINDOW_US, THRESHOLD),
}


def readings(tags: Tags) -> tuple[Int64s, Int64s]:
    """Return times and keys. There is one reader, so a tag's id is its key."""
    columns = tags.all_readings()
    return columns["at"], columns["tag"]


def mean_delay_ms(at: Int64s, found: Denoised, visit_ns: float = VISIT_NS) -> float:
    """Return the mean over readings released by an arrival. Readings flushed at the end do not count."""
    out = found.by < len(at)
    cost_us: npt.NDArray[np.float64] = ARRIVAL_US + visit_ns / 1000 * found.visits.astype(np.float64)
    done_us = _done(at, cost_us)
    delays_us = done_us[found.by[out]] - at[found.readings[out]]
    return float(delays_us.mean()) / 1000


def load(at: Int64s, found: Denoised) -> float:
    """Return the virtual time of the work relative to the available time."""
    work_us = ARRIVAL_US * len(at) + VISIT_NS / 1000 * found.visits.sum()
    return float(work_us / (at[-1] - at[0]))


def overloading_visit_ns(at: Int64s, found: Denoised) -> float:
    """Return the cost of a visit at which the work takes all of the available time."""
    spare_us = float(at[-1] - at[0]) - ARRIVAL_US * len(at)
    return 1000 * spare_us / float(found.visits.sum())


def _done(at: Int64s, cost_us: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return when a single server finishes each arrival, in order of arrival."""
    before = np.concatenate([[0.0], np.cumsum(cost_us)[:-1]])
    # The server is busy since the arrival with the greatest difference of time and previous work.
    busy_since = np.maximum.accumulate(at - before)
    done: npt.NDArray[np.float64] = busy_since + before + cost_us
    return done
