"""Published algorithms over RFID readings: denoising, cases, door alarms and deduplication.

A reading is the key of a tag and the time at which an antenna saw the tag. A reading is noise unless some
time range of the window's length contains this reading and at least `threshold` readings of its key in
total. `baseline`, `lazy` and `eager` remove noise. They differ in the time of emission, in the order of
emitted readings, and in cost. In all three the window is a range of the input, from the oldest reading that
has not expired to the latest reading.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from slicemill.kernels.arrays import Bools, Int64s
from slicemill.kernels.kernel import kernel


class Denoised(NamedTuple):
    """Result of a denoising algorithm: indexes of emitted readings, when emitted, and work done.

    `by[k]` is the index of the reading whose arrival emitted `readings[k]`. At the end of the stream, all
    readings that are known not to be noise are flushed in order (X8). Their `by` is the number of readings.
    """

    readings: Int64s
    by: Int64s
    visits: Int64s
    """Number of readings in the window that the algorithm visited at each arrival."""
    most_keys: int
    """Largest number of per-key counters in use at the same time, or 0 without counters."""


def number_keys(keys: Int64s) -> tuple[Int64s, int]:
    """Number distinct keys from 0. Return the number of each reading's key, and the count of keys."""
    distinct, numbers = np.unique(keys, return_inverse=True)
    return numbers.astype(np.int64), len(distinct)


def expected_keys(readings: float, repeats: float, noise: float) -> float:
    """Return the expected number of distinct keys among `readings` readings.

    Each tag has one key and is read `repeats` times. Each noise reading has a key of its own.

    >>> round(expected_keys(1000, 10, 0.01))
    110
    """
    return readings * (1 / repeats + noise)


# Baseline denoising (M44)
#
# The cost is Θ(n) per reading, for a window of n readings.


def baseline(at: Int64s, keys: Int64s, window_us: int, threshold: int, *, ordered: bool) -> Denoised:
    """Remove noise from RFID readings by scanning the whole window at each reading (M44).

    `at` has the times and `keys` the keys of the readings. Without `ordered`, readings of a key are emitted
    as soon as the window contains `threshold` of them, possibly before older readings of other keys. With
    `ordered`, they are only marked, and emitted in order when they expire.

    >>> at, keys = np.array([0, 1, 2, 3]), np.array([7, 8, 9, 8])
    >>> baseline(at, keys, 5, 2, ordered=False).readings.tolist()
    [1, 3]
    """
    return Denoised(*_baseline(at, keys, window_us, threshold, ordered), most_keys=0)


@kernel
def _baseline(
    at: Int64s, keys: Int64s, window_us: int, threshold: int, ordered: bool
) -> tuple[Int64s, Int64s, Int64s]:
    n = len(at)
    readings, by, visits = np.empty(n, np.int64), np.empty(n, np.int64), np.zeros(n, np.int64)
    known = np.zeros(n, np.bool_)
    head, out = 0, 0
    for x in range(n):
        while at[head] < at[x] - window_us:
            visits[x] += 1
            if ordered and known[head]:
                readings[out], by[out] = head, x
                out += 1
            head += 1
        same = 0
        for r in range(head, x + 1):
            visits[x] += 1
            if keys[r] == keys[x]:
                same += 1
        if same >= threshold:
            visits[x] += same
            for r in range(head, x + 1):
                if keys[r] == keys[x] and not known[r]:
                    known[r] = True
                    if not ordered:
                        readings[out], by[out] = r, x
                        out += 1
    for r in range(head, n):
        if ordered and known[r]:
            readings[out], by[out] = r, n
            out += 1
    return readings[:out], by[:out], visits


# Eager denoising (M46)
#
# The first noise is the oldest reading in the window that still counts as noise. All readings before the
# first noise have been emitted, and no reading after it. A first noise ends when it expires, or when a later
# reading of its key shows that it is not noise. The search for the next first noise emits all readings that
# it passes. For the keys 7 7 8 7 9 7 and a threshold of 2, the first noise is the reading of 8. The first two
# readings of 7 have been emitted, and the last two readings of 7 wait.


_NONE = -1


def eager(at: Int64s, keys: Int64s, window_us: int, threshold: int) -> Denoised:
    """Remove noise from RFID readings. Emit each reading in order, once no noise precedes it (M46).

    `at` has the times and `keys` the keys of the readings.

    >>> at, keys = np.array([0, 1, 2, 3, 9]), np.array([8, 8, 9, 8, 7])
    >>> result = eager(at, keys, 6, 2)
    >>> result.readings.tolist(), result.by.tolist()
    ([0, 1, 3], [1, 1, 4])
    """
    return Denoised(*_eager(at, *number_keys(keys), window_us, threshold))


@kernel
def _eager(
    at: Int64s, keys: Int64s, n_keys: int, window_us: int, threshold: int
) -> tuple[Int64s, Int64s, Int64s, int]:
    n = len(at)
    readings, by, visits = np.empty(n, np.int64), np.empty(n, np.int64), np.zeros(n, np.int64)
    noise = np.ones(n, np.bool_)
    count = np.zeros(n_keys, np.int64)
    counters, most_counters = 0, 0
    head, out, first_noise = 0, 0, _NONE
    for x in range(n):
        if first_noise == _NONE:
            first_noise = x
        counters += count[keys[x]] == 0
        count[keys[x]] += 1
        searching = False
        while at[head] < at[x] - window_us:
            visits[x] += 1
            if not searching and noise[head]:
                searching, first_noise = True, _NONE
            elif searching and not noise[head]:
                readings[out], by[out] = head, x
                out += 1
            count[keys[head]] -= 1
            counters -= count[keys[head]] == 0
            head += 1
        most_counters = max(most_counters, counters)
        enough = count[keys[x]] >= threshold
        if not (enough or searching):
            continue
        for r in range(head, x + 1):
            visits[x] += 1
            if enough and keys[r] == keys[x] and noise[r]:
                if not searching and r == first_noise:
                    searching, first_noise = True, _NONE
                noise[r] = False
                # Readings may have equal times, so their order decides which of them precede the first noise.
                if searching or r < first_noise:
                    readings[out], by[out] = r, x
                    out += 1
            elif searching and not noise[r]:
                readings[out], by[out] = r, x
                out += 1
            elif searching:
                searching, first_noise = False, r
                if not enough:
                    break
    if first_noise != _NONE:
        for r in range(first_noise, n):
            if not noise[r]:
                readings[out], by[out] = r, n
                out += 1
    return readings[:out], by[:out], visits, most_counters


# Lazy denoising (M45)
#
# A counter per key shows whether the window contains enough readings of the key. Readings are then marked
# from the newest to the oldest. Marking stops at a marked reading of the key, because all older readings of
# the key in the window are marked too.


def lazy(at: Int64s, keys: Int64s, window_us: int, threshold: int) -> Denoised:
    """Remove noise from RFID readings. Emit each reading in order, when it expires (M45).

    `at` has the times and `keys` the keys of the readings.

    >>> at, keys = np.array([0, 1, 2, 3, 9]), np.array([7, 8, 9, 8, 7])
    >>> result = lazy(at, keys, 5, 2)
    >>> result.readings.tolist(), result.by.tolist()
    ([1, 3], [4, 4])
    """
    return Denoised(*_lazy(at, *number_keys(keys), window_us, threshold))


@kernel
def _lazy(
    at: Int64s, keys: Int64s, n_keys: int, window_us: int, threshold: int
) -> tuple[Int64s, Int64s, Int64s, int]:
    n = len(at)
    readings, by, visits = np.empty(n, np.int64), np.empty(n, np.int64), np.zeros(n, np.int64)
    noise = np.ones(n, np.bool_)
    count = np.zeros(n_keys, np.int64)
    counters, most_counters = 0, 0
    head, out = 0, 0
    for x in range(n):
        counters += count[keys[x]] == 0
        count[keys[x]] += 1
        while at[head] < at[x] - window_us:
            visits[x] += 1
            if not noise[head]:
                readings[out], by[out] = head, x
                out += 1
            count[keys[head]] -= 1
            counters -= count[keys[head]] == 0
            head += 1
        most_counters = max(most_counters, counters)
        if count[keys[x]] >= threshold:
            for r in range(x, head - 1, -1):
                visits[x] += 1
                if keys[r] == keys[x]:
                    if not noise[r]:
                        break
                    noise[r] = False
    for r in range(head, n):
        if not noise[r]:
            readings[out], by[out] = r, n
            out += 1
    return readings[:out], by[:out], visits, most_counters


# Rules over readings: cases (M42), door alarms (M43), deduplication (M47)


def case_numbers(at: Int64s, longest_gap_us: int) -> Int64s:
    """Number the packing cases from 1, and return the case number of each reading (M42).

    A new case starts after a gap of more than `longest_gap_us` between two readings.

    >>> case_numbers(np.array([0, 1_000, 2_500, 6_000, 7_000]), 2_000).tolist()
    [1, 1, 1, 2, 2]
    """
    starts = np.diff(at, prepend=at[:1]) > longest_gap_us
    return np.cumsum(starts, dtype=np.int64) + 1


def door_alarms(at: Int64s, authorised: Bools, within_us: int) -> Int64s:
    """Return the indexes of item readings at a door that raise a theft alarm (M43).

    `authorised` is True for readings of authorised persons, False for readings of items. An item raises an
    alarm unless an authorised person is read at most `within_us` before or after the item (X14).

    >>> door_alarms(np.array([0, 3, 20]), np.array([False, True, False]), 5).tolist()
    [2]
    """
    persons, items = at[authorised], np.flatnonzero(~authorised)
    first_near = np.searchsorted(persons, at[items] - within_us, side="left")
    behind_near = np.searchsorted(persons, at[items] + within_us, side="right")
    alone: Int64s = items[first_near == behind_near]
    return alone


def is_new(at: Int64s, keys: Int64s, max_distance_us: int) -> Bools:
    """Return a mask that is True for readings that are not duplicates (M47).

    A reading is a duplicate if the previous reading of its key is at most `max_distance_us` older. The
    previous reading may itself be a duplicate, so only the first of a sequence of close readings remains.

    >>> is_new(np.array([0, 50, 90, 300]), np.array([1, 1, 1, 1]), 60).tolist()
    [True, False, False, True]
    """
    by_key = np.argsort(keys, kind="stable")
    new = np.ones(len(at), np.bool_)
    new[by_key[1:]] = (np.diff(keys[by_key]) != 0) | (np.diff(at[by_key]) > max_distance_us)
    return new
