"""Generator of RFID readings: each tag is read repeatedly, with noise (M48).

Tags arrive as a Poisson process. Each tag is read `repeats` times, `gap_us` apart. A share `noise` of all
readings has a negative id that belongs to no tag, so that wrong readings can be recognized in results. Time
is divided into blocks. The random numbers of a block depend only on the seed and the number of the block. So
the readings of any time can be generated independently. A block is divided into *slots* (intervals of fixed
length), and all readings of a slot appear at its end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from slicemill.errors import SlicemillError
from slicemill.kernels.arrays import Int64s

SLOT_US = 100_000
SLOTS_PER_SECOND = 1_000_000 // SLOT_US
# Number of slots in a block, which is generated as a whole because of its fixed cost.
_SLOTS_PER_BLOCK = 100
_BLOCK_US = _SLOTS_PER_BLOCK * SLOT_US
# Duration for which new tags appear if the stream must be finite and no duration is given.
FINITE_SECONDS = 60

STREAMS = ("reading",)

# Maximum number of tags in a block, because the id of a tag encodes its block.
_IDS_PER_BLOCK = 100_000_000
_MOST_PER_SECOND = 1_000_000
_NOISE_IDS = 2**40


@dataclass(frozen=True, slots=True)
class Tags:
    """Parameters of the generator of RFID readings.

    New tags appear for `seconds` seconds, or without end if `seconds` is None.
    """

    per_second: float = 5.0
    repeats: int = 10
    gap_us: int = 200_000
    noise: float = 0.05
    readers: int = 1
    seconds: float | None = None
    seed: int = 1
    start_us: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.per_second <= _MOST_PER_SECOND:
            raise SlicemillError(f"rfid:// takes up to a million tags per second, not {self.per_second:g}")
        if not 0 <= self.noise <= 1:
            raise SlicemillError(f"rfid:// takes noise from 0 to 1, not {self.noise:g}")
        if self.repeats < 1 or self.gap_us < 0 or self.readers < 1:
            raise SlicemillError("rfid:// takes repeats and readers from 1 on, and a gap from 0 on")
        if self.seconds is not None and not 0 <= self.seconds < float("inf"):
            raise SlicemillError(f"rfid:// takes seconds from 0 on, not {self.seconds:g}")

    @property
    def tag_slots(self) -> int | None:
        """Return the number of time slots in which new tags appear, or None without an end."""
        return None if self.seconds is None else round(self.seconds * SLOTS_PER_SECOND)

    @property
    def slots(self) -> int | None:
        """Return the number of time slots that have readings, or None without an end."""
        return None if self.tag_slots is None else self.tag_slots + self._slots_of_a_tag

    @property
    def _slots_of_a_tag(self) -> int:
        return (self.repeats - 1) * self.gap_us // SLOT_US + 1

    def readings(self, first_slot: int, last_slot: int) -> Mapping[str, Int64s]:
        """Return the readings of the time slots first <= n < last, ordered by time.

        The columns are `reader`, `tag` and `at` (µs).
        """
        last_tags = last_slot if self.tag_slots is None else min(last_slot, self.tag_slots)
        first_block = max(0, first_slot - self._slots_of_a_tag) // _SLOTS_PER_BLOCK
        blocks = [_block(self, block) for block in range(first_block, -(-last_tags // _SLOTS_PER_BLOCK))]
        if not blocks:
            return dict.fromkeys(("reader", "tag", "at"), np.empty(0, np.int64))
        reader, tag, at = (np.concatenate(column) for column in zip(*blocks, strict=True))
        inside = (at >= first_slot * SLOT_US) & (at < last_slot * SLOT_US)
        reader, tag, at = reader[inside], tag[inside], at[inside]
        order = np.lexsort((tag, at))
        return {"reader": reader[order], "tag": tag[order], "at": self.start_us + at[order]}

    def all_readings(self) -> Mapping[str, Int64s]:
        """Return all readings of a finite generator."""
        if self.slots is None:
            raise SlicemillError("these tags come for ever: say for how many seconds")
        return self.readings(0, self.slots)

    def _block(self, block: int) -> tuple[Int64s, Int64s, Int64s]:
        """Return readers, tags and times of the readings of a block's tags, unsorted."""
        random = np.random.default_rng((self.seed & (2**64 - 1), block))
        # Given the number of arrivals of a Poisson process, arrival times are uniformly distributed.
        tags = int(random.poisson(self.per_second * _BLOCK_US / 1_000_000))
        first_at = block * _BLOCK_US + np.sort(random.integers(0, _BLOCK_US, tags))
        reader = 1 + random.integers(0, self.readers, tags)
        tag = block * _IDS_PER_BLOCK + 1 + np.arange(tags)
        shape = (tags, self.repeats)
        read = np.where(
            random.random(shape) < self.noise, -random.integers(1, _NOISE_IDS, shape), tag[:, np.newaxis]
        )
        at = first_at[:, np.newaxis] + np.arange(self.repeats) * self.gap_us
        coming = np.ones(tags, np.bool_) if self.tag_slots is None else first_at < self.tag_slots * SLOT_US
        return np.repeat(reader[coming], self.repeats), read[coming].ravel(), at[coming].ravel()


# Slots are read one after the other, so blocks are cached.
_block = lru_cache(maxsize=4)(Tags._block)


def tags_of(stream: str, options: Mapping[str, str], ignored: frozenset[str] = frozenset()) -> Tags:
    """Return the generator of a URL such as `rfid://reading?tags=50&noise=0.2`.

    Option names are case-insensitive. `gap` is in milliseconds.
    """
    if stream not in STREAMS:
        raise SlicemillError(f"rfid:// has no stream {stream!r}; it has {', '.join(STREAMS)}")
    given = {name.lower(): text for name, text in options.items()}
    unknown = given.keys() - _OPTIONS - {name.lower() for name in ignored}
    if unknown:
        raise SlicemillError(
            f"rfid:// has no option {', '.join(sorted(unknown))}; it has {', '.join(sorted(_OPTIONS))}"
        )
    try:
        return Tags(**_values(given))
    except ValueError as problem:
        raise SlicemillError(f"rfid:// takes numbers: {problem}") from None


_OPTIONS = frozenset(("tags", "repeats", "gap", "noise", "readers", "seconds", "seed", "start"))


def _values(given: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {
        name: int(given[name]) for name in ("repeats", "readers", "seed") if name in given
    }
    values |= {name: float(given[name]) for name in ("noise", "seconds") if name in given}
    if "tags" in given:
        values["per_second"] = float(given["tags"])
    if "gap" in given:
        values["gap_us"] = round(float(given["gap"]) * 1000)
    if "start" in given:
        values["start_us"] = int(given["start"])
    return values
