"""Compiled loops that find pairs of rows.

They group rows by key, look up keys, and test masks and ages. Rows of a block are sorted by (hash, time). Its
directory has an entry per row: `first[b]` is the first row whose hash is in the b-th of `rows` equal ranges
of hashes. A key is found with one lookup, whatever the block's size.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from slicemill.columns.sorting import sort_by
from slicemill.machine_code.kernel import kernel
from slicemill.operators.join.arrays import (
    Hashes,
    Places,
    Times,
    Word,
    Words,
    hashes_in,
    places_in,
    places_out,
    times_in,
    word_in,
    words_in,
    words_out,
)
from slicemill.operators.join.loops import loop

_SHORT = 16  # larger groups are not sorted by insertion


@kernel(inline="always")
def _part(hash_: Any, parts: Any) -> Any:
    """Return the index of the hash's range, of `parts` equal ranges."""
    return np.int64(((hash_ >> np.uint64(32)) * np.uint64(parts)) >> np.uint64(32))


@loop(types.void(hashes_in, places_out, places_out))
def group(hashes: Hashes, order: Places, first: Places) -> None:
    """Sort rows by hash, stable, and build the directory of that order."""
    rows = len(hashes)
    first[:] = 0
    for row in range(rows):
        first[_part(hashes[row], rows)] += 1
    total = 0
    for part in range(rows):
        count = first[part]
        first[part] = total
        total += count
    for row in range(rows):
        part = _part(hashes[row], rows)
        order[first[part]] = row
        first[part] += 1
    for part in range(rows - 1, 0, -1):
        first[part] = first[part - 1]
    if rows:
        first[0] = 0
    for part in range(rows):
        start = first[part]
        end = first[part + 1] if part + 1 < rows else rows
        if end - start <= _SHORT:
            for place in range(start + 1, end):
                row = order[place]
                hash_ = hashes[row]
                before = place - 1
                while before >= start and hashes[order[before]] > hash_:
                    order[before + 1] = order[before]
                    before -= 1
                order[before + 1] = row
        else:
            same = True
            for place in range(start + 1, end):
                same = same and hashes[order[place]] == hashes[order[start]]
            if not same:
                sort_by(order, hashes, start, end)


@kernel(inline="always")
def _first_at(hashes: Any, numbers: Any, start: Any, end: Any, hash_: Any, bound: Any) -> Any:
    """Return the first row in start … end at or after (hash, bound)."""
    while end - start > 8:
        middle = (start + end) >> 1
        if hashes[middle] < hash_ or (hashes[middle] == hash_ and numbers[middle] < bound):
            start = middle + 1
        else:
            end = middle
    while start < end and (hashes[start] < hash_ or (hashes[start] == hash_ and numbers[start] < bound)):
        start += 1
    return start


@loop(
    types.int64(
        hashes_in, times_in, times_in, types.int64, types.int64,
        hashes_in, places_in, times_in, times_in, types.int64, types.int64,
        types.int64, places_out, places_out,
    )
)  # fmt: skip
def find_spans(
    probe_hashes: Hashes,
    probe_times: Times,
    probe_seen: Times,
    reach_us: int,
    reach_rows: int,
    hashes: Hashes,
    first: Places,
    times: Times,
    numbers: Times,
    latest: int,
    earliest: int,
    at_same_time: int,
    starts: Places,
    ends: Places,
) -> int:
    """Find for each probe the earlier rows of its key within reach.

    Returns the total number of candidates. A reach is negative if no query has a window of that kind.
    `latest` and `earliest` are the last and first time of the block. A row of the probe's own time is earlier
    if `at_same_time` is 1.
    """
    rows = len(hashes)
    total = 0
    forever = np.int64(2**63 - 1)
    for probe in range(len(probe_hashes)):
        starts[probe] = 0
        ends[probe] = 0
        now = probe_times[probe]
        before = now + at_same_time
        if before <= earliest:
            continue
        bound = -forever if reach_us == forever else now - reach_us + 1
        if reach_rows < 0 and bound > latest:
            continue
        hash_ = probe_hashes[probe]
        part = _part(hash_, rows)
        start = np.int64(first[part])
        end = np.int64(first[part + 1]) if part + 1 < rows else rows
        if start == end:
            continue
        if reach_rows < 0:
            begin = _first_at(hashes, times, start, end, hash_, bound)
        else:
            begin = _first_at(hashes, numbers, start, end, hash_, probe_seen[probe] - reach_rows)
            if reach_us >= 0:
                begin = min(begin, _first_at(hashes, times, start, end, hash_, bound))
        stop = _first_at(hashes, times, begin, end, hash_, before)
        starts[probe] = begin
        ends[probe] = stop
        total += stop - begin
    return total


@loop(
    types.int64(
        places_in, places_in, places_in, types.int64, types.int64,
        times_in, times_in, words_in, times_in, times_in, words_in, word_in,
        times_in, words_in, times_in, words_in, places_out, places_out, words_out,
    )
)  # fmt: skip
def find_pairs(
    starts: Places,
    ends: Places,
    ranks: Places,
    first_rank: int,
    end_rank: int,
    probe_times: Times,
    probe_seen: Times,
    probe_words: Words,
    times: Times,
    numbers: Times,
    words: Words,
    live: Word,
    ends_us: Times,
    bits_us: Words,
    ends_rows: Times,
    bits_rows: Words,
    probes: Places,
    rows: Places,
    wanted: Words,
) -> int:
    """Find the pairs that are results of some query.

    Only probes with ranks from `first_rank` to `end_rank` are considered. Returns the number of pairs;
    `wanted` gets the mask of each pair. `ends_us` are the ends of windows, ascending, and `bits_us` the
    queries that reach beyond the end before (S49); likewise for windows that count rows. `live` is the mask
    of the queries that may get rows of this block.
    """
    found = 0
    width = words.shape[1]
    for probe in range(len(starts)):
        if starts[probe] == ends[probe] or not first_rank <= ranks[probe] < end_rank:
            continue
        now = probe_times[probe]
        at_us = len(ends_us)
        at_rows = len(ends_rows)
        for row in range(starts[probe], ends[probe]):
            # Later rows are younger, so the index of their age slice only decreases.
            while at_us > 0 and ends_us[at_us - 1] > now - times[row]:
                at_us -= 1
            if len(ends_rows):
                while at_rows > 0 and ends_rows[at_rows - 1] > probe_seen[probe] - numbers[row] - 1:
                    at_rows -= 1
            some = np.uint64(0)
            for word in range(width):
                reached = bits_us[at_us, word] | bits_rows[at_rows, word]
                bits = probe_words[probe, word] & words[row, word] & live[word] & reached
                wanted[found, word] = bits
                some |= bits
            if some:
                probes[found] = probe
                rows[found] = row
                found += 1
    return found
