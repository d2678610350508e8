"""Compiled loops that order pairs and fetch their values."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from slicemill.operators.join.arrays import (
    Places,
    Times,
    Words,
    places_in,
    places_out,
    times_in,
    words_in,
    words_out,
)
from slicemill.operators.join.loops import loop


@loop(types.void(places_in, places_in, types.int64, places_out, places_out))
def place_by_rank(probes: Places, ranks: Places, first_rank: int, begins: Places, places: Places) -> None:
    """Set the positions of pairs, in the order of their probes' ranks.

    `begins` has the next free position of each rank.
    """
    for pair in range(len(probes)):
        rank = ranks[probes[pair]] - first_rank
        places[pair] = begins[rank]
        begins[rank] += 1


@loop(types.void(places_in, places_in, types.int64, places_out))
def count_by_rank(probes: Places, ranks: Places, first_rank: int, counts: Places) -> None:
    for probe in probes:
        counts[ranks[probe] - first_rank] += 1


@loop(types.Array(types.int64, 1, "C")(times_in, times_in, types.int64))
def count_before(times: Times, others: Times, at_same_time: int) -> Times:
    """Count for each time the earlier `others`; both are sorted.

    Equal times are counted if `at_same_time` is 1.
    """
    found = np.empty(len(times), np.int64)
    count = 0
    for row in range(len(times)):
        while count < len(others) and others[count] < times[row] + at_same_time:
            count += 1
        found[row] = count
    return found


@loop(types.void(words_in, places_in, words_out))
def scatter_words(words: Words, places: Places, out: Words) -> None:
    for row in range(len(places)):
        for word in range(words.shape[1]):
            out[places[row], word] = words[row, word]


@loop(
    *[
        types.void(types.Array(kind, 1, "C", readonly=True), places_in, places_in, types.Array(kind, 1, "C"))
        for kind in (types.uint32, types.uint64)
    ]
)
def scatter(values: Any, rows: Places, places: Places, out: Any) -> None:
    """Copy the value of each row to its position."""
    for pair in range(len(rows)):
        out[places[pair]] = values[rows[pair]]


@loop(
    *[
        types.void(types.Array(kind, 1, "C", readonly=True), places_in, types.Array(kind, 1, "C"))
        for kind in (types.uint32, types.uint64)
    ]
)
def gather(values: Any, rows: Places, out: Any) -> None:
    for pair in range(len(rows)):
        out[pair] = values[rows[pair]]


@loop(types.Array(types.int32, 1, "C")(words_in, types.int64, types.uint64))
def having(wanted: Words, word: int, bit: Any) -> Places:
    """Return the positions of pairs with this bit set."""
    found = np.empty(len(wanted), np.int32)
    count = 0
    for place in range(len(wanted)):
        found[count] = place
        if wanted[place, word] & bit:
            count += 1
    return found[:count]
