"""Compiled loops of joins, which group rows by join key and find matching rows.

A block has rows of one join input, sorted by (hash of the key, time). The block's directory `first` has one
element per row. It divides the hash values into as many equal ranges as the block has rows: `first[b]` is the
index of the first row in range b. A key is therefore found with one lookup, whatever the size of the block.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeAlias

import numpy as np
from numba import types
from numpy.typing import NDArray

from slicemill.columns.order import sort_by
from slicemill.kernels.arrays import Int32s, Int64s
from slicemill.kernels.kernel import KernelFunction, Signature, kernel

# The decorator `typed_kernel` declares the argument types of a compiled loop:
#
#     @typed_kernel(types.void(hashes_in, places_out))
#     def group(hashes, order): ...
#
# Without declared types, Numba would compile a loop for every combination of read-only and writable arrays.
# The arrays of state slices are memory-mapped files and read-only, and other arrays are writable.


_GIVEN: Signature = ("the types that are given",)


class TypedKernel(KernelFunction):
    """Numba loop that is compiled only for the argument types that its decorator declares."""

    def __init__(self, function: FunctionType, signatures: tuple[Any, ...]) -> None:
        super().__init__(function, {}, None)
        self._signatures = signatures

    def signature(self, arguments: tuple[Any, ...]) -> Signature:
        del arguments
        return _GIVEN

    def compile(self, signature: Signature = _GIVEN) -> None:
        """Compile the loop, or load the machine code that another process has compiled."""
        from slicemill.kernels.numba_kernels import compile_for

        if not self.is_compiled:
            for given in self._signatures:
                compile_for(self, given.args)
            self.dispatcher.disable_compile()
            self._code[signature] = self.dispatcher

    def is_stored(self, signature: Signature) -> bool:
        from slicemill.kernels.numba_kernels import is_stored

        del signature
        return all(is_stored(self, given.args) for given in self._signatures)

    @property
    def is_compiled(self) -> bool:
        return _GIVEN in self._code


def typed_kernel(*signatures: Any) -> Callable[[Any], TypedKernel]:
    """Return a decorator that compiles a loop for the declared argument types only."""
    return lambda function: TypedKernel(function, signatures)


# types of the arrays that compiled loops read and write, for type checkers and for Numba
#
# Input arrays are declared read-only, because the arrays of state slices are memory-mapped files.


Hashes: TypeAlias = NDArray[np.uint64]
# one mask of queries, as an array of 64-bit words
Word: TypeAlias = NDArray[np.uint64]
# masks of queries of several rows, as 64-bit words indexed by [row, word]
Words: TypeAlias = NDArray[np.uint64]

times_in = types.Array(types.int64, 1, "C", readonly=True)
hashes_in = types.Array(types.uint64, 1, "C", readonly=True)
word_in = types.Array(types.uint64, 1, "C", readonly=True)
words_in = types.Array(types.uint64, 2, "C", readonly=True)
indices_in = types.Array(types.int32, 1, "C", readonly=True)
times_out = types.Array(types.int64, 1, "C")
hashes_out = types.Array(types.uint64, 1, "C")
words_out = types.Array(types.uint64, 2, "C")
indices_out = types.Array(types.int32, 1, "C")
flags_out = types.Array(types.boolean, 1, "C")


# Up to 16 rows with hashes in one range are sorted by insertion sort.
_SHORT = 16


@kernel(inline="always")
def _part(hash_: Any, parts: Any) -> Any:
    """Return the number of the hash range that contains a hash, out of `parts` equal ranges."""
    return np.int64(((hash_ >> np.uint64(32)) * np.uint64(parts)) >> np.uint64(32))


@typed_kernel(types.void(hashes_in, indices_out, indices_out))
def group(hashes: Hashes, order: Int32s, first: Int32s) -> None:
    """Sort rows by the hash of their key, and store the index of the first row of each hash range.

    `order` receives the sorted positions, and `first` the indexes. The sort is stable.
    """
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
            for index in range(start + 1, end):
                row = order[index]
                hash_ = hashes[row]
                before = index - 1
                while before >= start and hashes[order[before]] > hash_:
                    order[before + 1] = order[before]
                    before -= 1
                order[before + 1] = row
        else:
            same = True
            for index in range(start + 1, end):
                same = same and hashes[order[index]] == hashes[order[start]]
            if not same:
                sort_by(order, hashes, start, end)


@kernel(inline="always")
def _first_at(hashes: Any, numbers: Any, start: Any, end: Any, hash_: Any, bound: Any) -> Any:
    """Return the index of the first row in [start, end) that is not before (hash, bound) in sort order."""
    while end - start > 8:
        middle = (start + end) >> 1
        if hashes[middle] < hash_ or (hashes[middle] == hash_ and numbers[middle] < bound):
            start = middle + 1
        else:
            end = middle
    while start < end and (hashes[start] < hash_ or (hashes[start] == hash_ and numbers[start] < bound)):
        start += 1
    return start


@typed_kernel(
    types.int64(
        hashes_in, times_in, times_in, types.int64, types.int64,
        hashes_in, indices_in, times_in, times_in, types.int64, types.int64,
        types.int64, indices_out, indices_out,
    )
)  # fmt: skip
def find_spans(
    probe_hashes: Hashes,
    probe_times: Int64s,
    probe_seen: Int64s,
    reach_us: int,
    reach_rows: int,
    hashes: Hashes,
    first: Int32s,
    times: Int64s,
    numbers: Int64s,
    latest: int,
    earliest: int,
    at_same_time: int,
    starts: Int32s,
    ends: Int32s,
) -> int:
    """Find the earlier rows that have the hash of each probing row and are in the longest window.

    `starts` and `ends` receive the range of these candidates in the block. Returns the total number of
    candidates. `reach_us` and `reach_rows` are the longest windows in time and in rows, or negative if no
    query has such a window. `earliest` and `latest` are the first and last time of the block. Rows with the
    same time as the probe are included if `at_same_time` is 1.
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


@typed_kernel(
    types.int64(
        indices_in, indices_in, indices_in, types.int64, types.int64,
        times_in, times_in, words_in, times_in, times_in, words_in, word_in,
        times_in, words_in, times_in, words_in, indices_out, indices_out, words_out,
    )
)  # fmt: skip
def find_pairs(
    starts: Int32s,
    ends: Int32s,
    ranks: Int32s,
    first_rank: int,
    end_rank: int,
    probe_times: Int64s,
    probe_seen: Int64s,
    probe_words: Words,
    times: Int64s,
    numbers: Int64s,
    words: Words,
    live: Word,
    ends_us: Int64s,
    bits_us: Words,
    ends_rows: Int64s,
    bits_rows: Words,
    probes: Int32s,
    rows: Int32s,
    wanted: Words,
) -> int:
    """Find the pairs of a probing row and a stored row that at least one query emits.

    Return the number of pairs. Only probes with first_rank <= rank < end_rank are considered. `wanted`
    receives the mask of each pair. `ends_us` are the ends of windows, ascending. `bits_us[i]` are the queries
    whose windows contain ages between end i-1 and end i (S49). `ends_rows` and `bits_rows` are the same for
    windows that count rows. `live` is the mask of the queries that may use rows of this block.
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
            # Later rows of the block are younger, so the index of their age range never increases.
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


# Compiled loops order the pairs of matching rows, and copy column values to the positions of the pairs.


@typed_kernel(types.void(indices_in, indices_in, types.int64, indices_out, indices_out))
def position_by_rank(probes: Int32s, ranks: Int32s, first_rank: int, begins: Int32s, indices: Int32s) -> None:
    """Compute the output position of each matching pair, ordered by the rank of the probing row.

    `begins` has the next free output position of each rank.
    """
    for pair in range(len(probes)):
        rank = ranks[probes[pair]] - first_rank
        indices[pair] = begins[rank]
        begins[rank] += 1


@typed_kernel(types.void(indices_in, indices_in, types.int64, indices_out))
def count_by_rank(probes: Int32s, ranks: Int32s, first_rank: int, counts: Int32s) -> None:
    for probe in probes:
        counts[ranks[probe] - first_rank] += 1


@typed_kernel(types.Array(types.int64, 1, "C")(times_in, times_in, types.int64))
def count_before(times: Int64s, others: Int64s, at_same_time: int) -> Int64s:
    """Return the number of earlier timestamps in `others` for each timestamp in `times`.

    Both arrays are sorted. Equal times are counted too if `at_same_time` is 1.
    """
    found = np.empty(len(times), np.int64)
    count = 0
    for row in range(len(times)):
        while count < len(others) and others[count] < times[row] + at_same_time:
            count += 1
        found[row] = count
    return found


@typed_kernel(types.void(words_in, indices_in, words_out))
def scatter_words(words: Words, indices: Int32s, out: Words) -> None:
    for row in range(len(indices)):
        for word in range(words.shape[1]):
            out[indices[row], word] = words[row, word]


@typed_kernel(
    *[
        types.void(
            types.Array(kind, 1, "C", readonly=True), indices_in, indices_in, types.Array(kind, 1, "C")
        )
        for kind in (types.uint32, types.uint64)
    ]
)
def scatter(values: Any, rows: Int32s, indices: Int32s, out: Any) -> None:
    """Copy the value of row `rows[i]` to position `indices[i]` of the output array, for each i."""
    for pair in range(len(rows)):
        out[indices[pair]] = values[rows[pair]]


@typed_kernel(
    *[
        types.void(types.Array(kind, 1, "C", readonly=True), indices_in, types.Array(kind, 1, "C"))
        for kind in (types.uint32, types.uint64)
    ]
)
def gather(values: Any, rows: Int32s, out: Any) -> None:
    for pair in range(len(rows)):
        out[pair] = values[rows[pair]]


@typed_kernel(types.Array(types.int32, 1, "C")(words_in, types.int64, types.uint64))
def pairs_with_bit(wanted: Words, word: int, bit: Any) -> Int32s:
    """Return the positions of the pairs whose mask of queries has the given bit."""
    found = np.empty(len(wanted), np.int32)
    count = 0
    for index in range(len(wanted)):
        found[count] = index
        if wanted[index, word] & bit:
            count += 1
    return found[:count]


# Compiled loops find the stored rows that are still in the window of a query (S19).


@typed_kernel(types.void(words_in, word_in, indices_in, word_in, times_out, times_out))
def count_wanted(
    words: Words,
    live: Word,
    indices: Int32s,
    bits: Word,
    wanted: Int64s,
    last: Int64s,
) -> None:
    """Count the rows that each query selects, and the rows for which it has the longest window.

    The counts are in `wanted` and in `last`. Queries are ordered by window, longest first. The first query
    that selects a row therefore needs the row longest.
    """
    for row in range(len(words)):
        first = True
        for query in range(len(bits)):
            if words[row, indices[query]] & live[indices[query]] & bits[query]:
                wanted[query] += 1
                if first:
                    last[query] += 1
                    first = False


@typed_kernel(
    types.void(
        times_in,
        times_in,
        words_in,
        word_in,
        types.int64,
        types.int64,
        times_in,
        times_in,
        indices_in,
        word_in,
        flags_out,
    )
)
def find_alive(
    times: Int64s,
    numbers: Int64s,
    words: Words,
    live: Word,
    now: int,
    seen: int,
    windows_us: Int64s,
    windows_rows: Int64s,
    indices: Int32s,
    bits: Word,
    alive: NDArray[np.bool_],
) -> None:
    """Mark the stored rows that are still in the window of a query that selects them.

    Query q has bit `bits[q]` of word `indices[q]`. The window of q is in `windows_us` or in `windows_rows`.
    The value in the other array is negative.
    """
    for row in range(len(times)):
        alive[row] = False
        for query in range(len(bits)):
            if not words[row, indices[query]] & live[indices[query]] & bits[query]:
                continue
            # The test `now <= times[row]` precedes the subtraction, which could overflow otherwise.
            if windows_us[query] > 0 and (now <= times[row] or now - times[row] < windows_us[query]):
                alive[row] = True
                break
            if windows_rows[query] > 0 and seen - numbers[row] <= windows_rows[query]:
                alive[row] = True
                break
