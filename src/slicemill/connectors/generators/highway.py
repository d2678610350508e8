"""Generator of a synthetic highway: sensor measurements every five minutes (M57).

The data replaces the measurements of the published study, which are not available. It has the relevant
properties of a real highway: rush hours, random incidents, noise, and jams that grow slowly and spread to the
segment behind. Each day is generated from the seed and the number of the day, independently of other days. A
*slot* is an interval of five minutes.

A *long jam* is a mean speed under 15 mph for at least 30 consecutive minutes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from slicemill.errors import SlicemillError
from slicemill.kernels.arrays import Bools, Floats

SLOT_US = 300_000_000
SLOTS_PER_DAY = 288
# Number of days if the stream must be finite and no number is given.
FINITE_DAYS = 7
# Additional segments before the first and after the last segment, so that each segment has neighbours.
MARGIN = 2
STREAMS = ("road",)

JAM_MPH = 15.0
JAM_SLOTS = 6
_MOST_SEGMENTS = 1000


@dataclass(frozen=True, slots=True)
class Day:
    """Measurements and long jams of one day, as two-dimensional arrays.

    The rows are slots of five minutes. The columns are road segments, including those in the margins.
    """

    speed: Floats
    volume: Floats
    occupancy: Floats
    jam: Bools


@dataclass(frozen=True, slots=True)
class Highway:
    """Highway with `segments` segments; the stream is endless if `days` is None."""

    segments: int = 4
    days: int | None = None
    first_day: int = 0
    seed: int = 1
    start_us: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.segments <= _MOST_SEGMENTS:
            raise SlicemillError(f"highway:// takes 1 to {_MOST_SEGMENTS} segments, not {self.segments}")
        if (self.days is not None and self.days < 0) or self.first_day < 0:
            raise SlicemillError("highway:// takes days and first from 0 on")

    @property
    def slots(self) -> int | None:
        return None if self.days is None else self.days * SLOTS_PER_DAY

    def day(self, number: int) -> Day:
        """Return the measurements of a day, counted from `first_day`."""
        number += self.first_day
        random = np.random.default_rng((self.seed & (2**64 - 1), number))
        count = self.segments + 2 * MARGIN
        pressure = self._pressure(random, number % 7 >= 5, count)
        congestion = np.zeros((SLOTS_PER_DAY, count))
        now = np.zeros(count)
        for slot in range(SLOTS_PER_DAY):
            # A segment is congested if demand exceeds capacity, or if it is behind a congested segment.
            ahead = np.append(now[1:], 0.0)
            wanted = 1 / (1 + np.exp(-14 * (pressure[slot] + 0.15 * ahead - 1.0)))
            now = now + 0.4 * (wanted - now)
            congestion[slot] = now
        true_speed = 66 - 60 * congestion
        # The measurements of sensors have noise.
        shape = congestion.shape
        speed = np.clip(true_speed + random.normal(0, 6, shape), 1.0, 80.0)
        flow = 1900 * pressure * (1 - 0.6 * congestion)
        volume = np.clip(flow + random.normal(0, 200, shape), 0.0, None)
        occupancy = np.clip(6 + 46 * congestion + random.normal(0, 8, shape), 0.0, 100.0)
        return Day(speed, volume, occupancy, long_jams(true_speed))

    def rows(self, first_slot: int, last_slot: int) -> Mapping[str, npt.NDArray[Any]]:
        """Return the rows of the five-minute slots first <= n < last, ordered by time.

        There is one row for each segment and slot.
        """
        parts = []
        for number in range(first_slot // SLOTS_PER_DAY, -(-last_slot // SLOTS_PER_DAY)):
            begin = number * SLOTS_PER_DAY
            within = slice(max(first_slot - begin, 0), min(last_slot - begin, SLOTS_PER_DAY))
            parts.append(self._rows_of(_day(self, number), begin, within))
        if not parts:
            parts = [self._rows_of(_day(self, 0), 0, slice(0, 0))]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def _rows_of(self, day: Day, begin: int, within: slice) -> Mapping[str, npt.NDArray[Any]]:
        inner = slice(MARGIN, MARGIN + self.segments)
        behind, ahead = slice(MARGIN - 1, MARGIN - 1 + self.segments), slice(MARGIN + 1, None)
        slots = begin + np.arange(SLOTS_PER_DAY)[within]
        at = self.start_us + self.first_day * SLOTS_PER_DAY * SLOT_US + slots * SLOT_US
        return {
            "segment": np.tile(np.arange(1, self.segments + 1), len(slots)),
            "at": np.repeat(at, self.segments),
            "hour": np.repeat(slots % SLOTS_PER_DAY / 12.0, self.segments),
            "speed": day.speed[within, inner].ravel(),
            "volume": day.volume[within, inner].ravel(),
            "occupancy": day.occupancy[within, inner].ravel(),
            "speed_behind": day.speed[within, behind].ravel(),
            "speed_ahead": day.speed[within, ahead][:, : self.segments].ravel(),
            "jam": day.jam[within, inner].ravel(),
        }

    @staticmethod
    def _pressure(random: np.random.Generator, weekend: bool, segments: int) -> Floats:
        """Return demand divided by capacity, for each slot (row) and segment (column)."""
        hour = np.arange(SLOTS_PER_DAY) / 12.0
        day = np.full(SLOTS_PER_DAY, 0.3) + 0.2 * np.exp(-(((hour - 13) / 5) ** 2))
        for middle, height, width in ((8.0, 0.95, 1.8), (17.3, 1.05, 2.2)):
            height *= (0.45 if weekend else 1.0) * random.normal(1.0, 0.15)
            day += height * np.exp(-0.5 * ((hour - middle - random.normal(0, 0.4)) / width) ** 2)
        # Some segments are narrower on all days, and demand fluctuates.
        narrow = 1.0 + 0.12 * np.sin(2.1 * np.arange(segments))
        whim = np.zeros(segments)
        pressure = np.outer(day, narrow)
        for slot in range(SLOTS_PER_DAY):
            whim = 0.9 * whim + random.normal(0, 0.04, segments)
            pressure[slot] *= np.exp(whim)
        for segment in range(segments):
            for _ in range(random.poisson(0.3)):
                begin, length = int(random.integers(0, SLOTS_PER_DAY)), int(random.integers(6, 30))
                pressure[begin : begin + length, segment] *= random.uniform(1.4, 2.5)
        return pressure


# Slots are read one after the other, so days are cached.
_day = lru_cache(maxsize=8)(Highway.day)


def long_jams(speed: Floats) -> Bools:
    """Return a mask of slots in jams under 15 mph that last at least 30 minutes.

    >>> long_jams(np.array([[9.0]] * 5 + [[60.0]] + [[9.0]] * 6)).ravel().astype(int).tolist()
    [0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1]
    """
    slow = speed < JAM_MPH
    jam = np.zeros_like(slow)
    for segment in range(slow.shape[1]):
        edges = np.flatnonzero(np.diff(np.concatenate([[False], slow[:, segment], [False]]).astype(np.int8)))
        for begin, end in edges.reshape(-1, 2):
            jam[begin:end, segment] = end - begin >= JAM_SLOTS
    return jam


# Field of `Highway` for each option name.
_OPTIONS = {
    "segments": "segments",
    "days": "days",
    "first": "first_day",
    "seed": "seed",
    "start": "start_us",
}


def highway_of(stream: str, options: Mapping[str, str], ignored: frozenset[str] = frozenset()) -> Highway:
    """Return the generator of a URL such as `highway://road?segments=4&days=7`.

    Option names are case-insensitive. `first` is the first day.
    """
    if stream not in STREAMS:
        raise SlicemillError(f"highway:// has no stream {stream!r}; it has {', '.join(STREAMS)}")
    given = {name.lower(): text for name, text in options.items()}
    unknown = given.keys() - _OPTIONS.keys() - {name.lower() for name in ignored}
    if unknown:
        raise SlicemillError(
            f"highway:// has no option {', '.join(sorted(unknown))}; it has {', '.join(sorted(_OPTIONS))}"
        )
    try:
        return Highway(**{_OPTIONS[name]: int(text) for name, text in given.items() if name in _OPTIONS})
    except ValueError as problem:
        raise SlicemillError(f"highway:// takes integers: {problem}") from None
