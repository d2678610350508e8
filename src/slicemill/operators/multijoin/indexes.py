"""Indexes of blocks of rows, by any of their keys or by time.

A block is sorted by the first key of its input. An index by another key has its own order of the rows. It is
built once and kept as long as the block.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import ref

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.operators.join import probe
from slicemill.operators.join.arrays import Hashes, Places, Times, Words
from slicemill.operators.join.block import Block, column_numbers
from slicemill.operators.multijoin.entry import hash_column

BY_TIME = -1  # index number of the order by time


@dataclass(frozen=True, slots=True)
class KeyIndex:
    """Rows in order of (hash, time).

    `order` has the position of each row in the block; None for the order of the block.
    """

    hashes: Hashes
    first: Places
    times: Times
    words: Words
    order: Places | None

    @property
    def bytes(self) -> int:
        """Memory of the index in addition to the block."""
        if self.order is None:
            return 0
        return sum(a.nbytes for a in (self.hashes, self.first, self.times, self.words, self.order))


@dataclass(frozen=True, slots=True)
class Target:
    """Block that can be probed, with its queries and time range."""

    block: Block
    live: NDArray[np.uint64]
    earliest: int
    latest: int


class Indexes:
    """Lazily built indexes of the blocks of all inputs."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], tuple[ref[pa.Table], KeyIndex]] = {}

    def of(self, block: Block, key: int) -> KeyIndex:
        if key == 0:
            return KeyIndex(block.hashes, block.first, block.times, block.words, None)
        place = (id(block.table), key)
        found = self._known.get(place)
        if found is None or found[0]() is not block.table:
            self._known[place] = found = (ref(block.table), _indexed(block, key))
        return found[1]

    def forget(self) -> None:
        """Drop the indexes of blocks that no longer exist."""
        self._known = {place: found for place, found in self._known.items() if found[0]() is not None}

    @property
    def bytes(self) -> int:
        return sum(index.bytes for _, index in self._known.values())


def _indexed(block: Block, key: int) -> KeyIndex:
    rows = block.rows
    by_time = np.argsort(block.times, kind="stable").astype(np.int32)
    if key == BY_TIME:
        order, first = by_time, np.zeros(rows, np.int32)
        # All hashes are 0, so that the first range of the directory contains all rows.
        first[1:] = rows
        hashes = np.zeros(rows, np.uint64)
    else:
        own = column_numbers(block.table, hash_column(key)).view(np.uint64)[by_time]
        place, first = np.empty(rows, np.int32), np.empty(rows, np.int32)
        probe.group(np.ascontiguousarray(own), place, first)
        order, hashes = by_time[place], own[place]
    times, words = block.times[order], np.ascontiguousarray(block.words[order])
    return KeyIndex(np.ascontiguousarray(hashes), first, times, words, np.ascontiguousarray(order))
