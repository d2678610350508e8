"""Simulated traffic: rows per poll of a source (P36, P37).

The traffic is steady, Poisson, bursty, or recorded. Sources are read in polls. All rows since the previous
poll become visible at once, with the poll as their arrival time. Bursts are synthetic: their durations are
Pareto distributed, so that some are long, and their rate is five times the mean rate. The silence after
each burst restores the mean.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from slicemill.errors import SlicemillError
from slicemill.scheduling.arrays import Floats

Shape = Callable[[Floats, np.random.Generator], Floats]
"""Function from times to the amount of the stream that has arrived, in seconds at the mean rate."""

_BURST_RATE = 5.0
_BURST_S = 1.0
_LONGEST_BURST_S = 30.0


class Poll(NamedTuple):
    """A number of rows of a stream that become visible at a time."""

    at: float
    stream: str
    rows: int


@dataclass(frozen=True, slots=True)
class Traffic:
    """Rate and shape of a stream's traffic, or recorded polls."""

    rate: float
    shape: str = "steady"
    recorded: tuple[tuple[float, int], ...] = ()


def _steady(times: Floats, random: np.random.Generator) -> Floats:
    del random
    return times


def _bursty(times: Floats, random: np.random.Generator) -> Floats:
    edges, come = [0.0], [0.0]
    while edges[-1] < times[-1]:
        burst = min(_BURST_S * (random.pareto(1.5) + 1) / 3, _LONGEST_BURST_S)
        silence = random.exponential(burst * (_BURST_RATE - 1))
        edges += [edges[-1] + silence, edges[-1] + silence + burst]
        come += [come[-1], come[-1] + burst * _BURST_RATE]
    so_far = np.interp(times, edges, come)
    # The sample mean is heavy-tailed, so scale the sample to the requested rate.
    scaled: Floats = so_far * (times[-1] / so_far[-1]) if so_far[-1] > 0 else times
    return scaled


SHAPES: Mapping[str, Shape] = MappingProxyType({"steady": _steady, "poisson": _steady, "bursty": _bursty})


def polls(traffic: Mapping[str, Traffic], every_s: float, duration_s: float, seed: int = 1) -> list[Poll]:
    """Return all polls in order of time.

    Each stream has its own random generator.
    """
    times: Floats = every_s * np.arange(1, max(1, round(duration_s / every_s)) + 1, dtype=np.float64)
    found: list[Poll] = []
    for number, (stream, asked) in enumerate(sorted(traffic.items())):
        if asked.recorded:
            found += [Poll(at, stream, rows) for at, rows in asked.recorded if at <= duration_s and rows]
            continue
        random = np.random.default_rng([seed, number])
        expected = asked.rate * SHAPES[asked.shape](times, random)
        if asked.shape == "poisson":
            rows = random.poisson(np.diff(expected, prepend=0.0))
        else:
            rows = np.diff(np.floor(expected + 1e-9), prepend=0.0).astype(np.int64)
        found += [Poll(float(at), stream, int(count)) for at, count in zip(times, rows, strict=True) if count]
    return sorted(found)


def read_recorded(path: Path) -> Traffic:
    """Read lines of `seconds,rows` in order of time.

    The mean rate is that of all lines.
    """
    try:
        with path.open(newline="", encoding="utf-8") as lines:
            recorded = tuple((float(at), int(rows)) for at, rows in csv.reader(lines))
    except OSError as problem:
        raise SlicemillError(f"cannot read {path}: {problem.strerror}") from None
    except ValueError:
        raise SlicemillError(f"{path}: every line is a time in seconds, a comma, a number of rows") from None
    times = [at for at, _ in recorded]
    if not recorded or times != sorted(times) or times[0] < 0 or min(rows for _, rows in recorded) < 0:
        raise SlicemillError(f"{path}: times and rows count up from 0, and the times are in order")
    return Traffic(sum(rows for _, rows in recorded) / max(times[-1], 1e-9), "recorded", recorded)


def mean_rates(traffic: Mapping[str, Traffic]) -> dict[str, float]:
    return {stream: asked.rate for stream, asked in traffic.items()}


def total_rows(arrivals: Sequence[Poll]) -> int:
    return sum(poll.rows for poll in arrivals)
