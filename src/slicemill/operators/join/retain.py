"""Compiled loops that find rows that a query can still reach (S19)."""

from __future__ import annotations

import numpy as np
from numba import types
from numpy.typing import NDArray

from slicemill.operators.join.arrays import (
    Places,
    Times,
    Word,
    Words,
    flags_out,
    places_in,
    times_in,
    times_out,
    word_in,
    words_in,
)
from slicemill.operators.join.loops import loop


@loop(types.void(words_in, word_in, places_in, word_in, times_out, times_out))
def count_wanted(
    words: Words,
    live: Word,
    places: Places,
    bits: Word,
    wanted: Times,
    last: Times,
) -> None:
    """Count selected rows by query, and rows by their first query.

    Queries are ordered by window, longest first, so the first one is the last to reach the row.
    """
    for row in range(len(words)):
        first = True
        for query in range(len(bits)):
            if words[row, places[query]] & live[places[query]] & bits[query]:
                wanted[query] += 1
                if first:
                    last[query] += 1
                    first = False


@loop(
    types.void(
        times_in,
        times_in,
        words_in,
        word_in,
        types.int64,
        types.int64,
        times_in,
        times_in,
        places_in,
        word_in,
        flags_out,
    )
)
def find_alive(
    times: Times,
    numbers: Times,
    words: Words,
    live: Word,
    now: int,
    seen: int,
    windows_us: Times,
    windows_rows: Times,
    places: Places,
    bits: Word,
    alive: NDArray[np.bool_],
) -> None:
    """Mark rows that are still in the window of a selecting query.

    Query q has bit `bits[q]` of word `places[q]`. It has a window in time or in rows; the other one is
    negative.
    """
    for row in range(len(times)):
        alive[row] = False
        for query in range(len(bits)):
            if not words[row, places[query]] & live[places[query]] & bits[query]:
                continue
            # Compared so that the difference cannot overflow, even for unbounded windows and the earliest
            # times.
            if windows_us[query] > 0 and (now <= times[row] or now - times[row] < windows_us[query]):
                alive[row] = True
                break
            if windows_rows[query] > 0 and seen - numbers[row] <= windows_rows[query]:
                alive[row] = True
                break
