"""The compiled loops that say which rows somebody can still reach (S19)."""

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
    """How many rows each query wants, and of how many it is the last one that does, in the order given."""
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
    """Which rows some query that wants them can still reach; query q has bit `bits[q]` of word `places[q]`.

    A query has a window in time, or one in rows; the other one is negative.
    """
    for row in range(len(times)):
        alive[row] = False
        for query in range(len(bits)):
            if not words[row, places[query]] & live[places[query]] & bits[query]:
                continue
            # Compared so that nothing overflows, however long the window is, also at the beginning of time.
            if windows_us[query] > 0 and (now <= times[row] or now - times[row] < windows_us[query]):
                alive[row] = True
                break
            if windows_rows[query] > 0 and seen - numbers[row] <= windows_rows[query]:
                alive[row] = True
                break
