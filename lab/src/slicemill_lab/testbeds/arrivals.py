"""Arrival times: bursty like wide-area network traffic, Poisson, and grouped into bursts.

The published figures used a packet trace. These arrivals are synthetic, which every plot states.
"""

from __future__ import annotations

import numpy as np

from slicemill.kernels.arrays import Floats


def on_off(count: int, gap: float, random: np.random.Generator, burst_rate: float = 5.0) -> Floats:
    """Return ON/OFF traffic with the mean gap `gap`: Pareto(1.5) runs at `burst_rate` times the mean rate.

    A silence after each run restores the mean rate.
    """
    gaps: list[Floats] = []
    made = 0
    while made < count:
        run = min(int(np.ceil(random.pareto(1.5) + 1)), count)
        within = random.exponential(gap / burst_rate, run)
        within[0] += random.exponential(run * gap * (1 - 1 / burst_rate))
        gaps.append(within)
        made += run
    times = np.cumsum(np.concatenate(gaps)[:count])
    # The sample mean of gaps is heavy-tailed, but the calibration of a load relies on the exact mean.
    scaled: Floats = times * (gap * count / times[-1])
    return scaled


def poisson(count: int, gap: float, random: np.random.Generator) -> Floats:
    times: Floats = np.cumsum(random.exponential(gap, count))
    return times


def in_bursts(times: Floats, size: int = 10) -> Floats:
    """Let each `size` consecutive tuples arrive together, at the time of the first (the burst maker, P37)."""
    return np.repeat(times[::size], size)[: len(times)]
