"""Hash partitioning: the cell (partition) of a key or row.

The result is the same in every process, run and version. Equal keys have the same cell, in any columns.
Equality is that of GROUP BY (`columns.keys`): NULL equals NULL, NaN equals NaN, -0.0 equals 0.0. Integers
of any width, dates and times are hashed as 64-bit integers, so that both sides of a join agree. Values of
other types are hashed once per distinct value.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from slicemill.columns.keys import Column, comparable

Cells: TypeAlias = NDArray[np.uint16]
Words: TypeAlias = NDArray[np.uint64]

_STEP = np.uint64(0x9E3779B97F4A7C15)
_NULL = np.uint64(0xD1B54A32D192ED03)
_LOW = np.uint64(0xFFFFFFFF)


def cells_of(columns: Sequence[Column], rows: int, count: int) -> Cells:
    """Return each row's cell, from 0 to count - 1, by its key."""
    hashes = np.zeros(rows, np.uint64)
    for column in columns:
        for part in comparable(column):
            hashes = _mixed((_words(part) ^ hashes) + _STEP)
    # Use the low bits, because the directories of joins use the high bits of a very similar hash.
    return np.asarray(((hashes & _LOW) * np.uint64(count)) >> np.uint64(32), np.uint16)


def stripes_of(seqs: NDArray[np.int64], count: int) -> Cells:
    """Return the cells of rows with these numbers, independent of keys (S33, S39).

    Stripes are one row wide, so that even a short window is distributed evenly. Multiples of the golden
    ratio are evenly distributed for any start, and also for numbers with constant steps.
    """
    turns = seqs.view(np.uint64) * _STEP
    return np.asarray(((turns >> np.uint64(32)) * np.uint64(count)) >> np.uint64(32), np.uint16)


def _words(column: pa.Array) -> Words:
    """Return a word for each value. Equal values have equal words."""
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        filled = column.fill_null(False if pa.types.is_boolean(kind) else 0) if column.null_count else column
        words: Words = filled.cast(pa.int64()).to_numpy(zero_copy_only=False).view(np.uint64)
        return np.where(column.is_valid().to_numpy(False), words, _NULL) if column.null_count else words
    encoded = pc.dictionary_encode(column, null_encoding="encode")
    distinct = [_NULL if value is None else _checksum(value) for value in encoded.dictionary.to_pylist()]
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    return np.asarray(np.array(distinct, np.uint64)[codes])


def _checksum(value: object) -> int:
    return zlib.crc32(value if isinstance(value, bytes) else str(value).encode())


def _mixed(words: Words) -> Words:
    """Apply the finaliser of splitmix64, a bijection of 64-bit words."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
