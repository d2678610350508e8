"""64-bit hashes of join keys of any type. Every process computes the same hash for a key.

Equal keys have equal hashes. A key with a NULL matches no key. A single column of at most 64 bits is hashed
by a bijection, so that equal hashes mean equal keys. Other keys are compared as well. NaN equals NaN, and
-0.0 equals 0.0, as in the row-by-row reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import types
from numpy.typing import NDArray

from slicemill.kernels.arrays import Int64s
from slicemill.kernels.kernel import kernel
from slicemill.operators.join.probe import Hashes, hashes_in, hashes_out, times_in, typed_kernel

_NAN_BITS = np.array([np.nan]).view(np.int64)[0]
_STEP = np.uint64(0x9E3779B97F4A7C15)

_bytes_in = types.Array(types.uint8, 1, "C", readonly=True)


@dataclass(frozen=True, slots=True)
class HashedKeys:
    """Hashes of the join keys of rows.

    `valid` is False for each key that contains a NULL. It is None if no key contains a NULL. `columns` has
    the key columns to compare where hashes are equal. It is empty if equal hashes mean equal keys.
    """

    hashes: Hashes
    valid: NDArray[np.bool_] | None
    columns: tuple[pa.Array, ...]


def hash_keys(keys: Sequence[pa.ChunkedArray], rows: int) -> HashedKeys:
    """Return the hashes of the join keys of rows.

    If the join has no key, all rows have the same hash.
    """
    hashes = np.zeros(rows, np.uint64)
    valid: NDArray[np.bool_] | None = None
    columns = tuple(_comparable(key) for key in keys)
    for column in columns:
        _mix_in(column, hashes)
        if column.null_count:
            known = column.is_valid().to_numpy(zero_copy_only=False)
            valid = known if valid is None else valid & known
    exact = len(columns) <= 1 and all(column.type == pa.int64() for column in columns)
    return HashedKeys(hashes, valid, () if exact else columns)


def _comparable(key: pa.ChunkedArray) -> pa.Array:
    """Convert a key column to values that can be compared bit by bit.

    Two converted values are equal if and only if the keys are equal. Types of at most 64 bits become int64.
    """
    array = key.combine_chunks() if isinstance(key, pa.ChunkedArray) else key
    kind = array.type
    if pa.types.is_floating(kind):
        values = pc.fill_null(array, 0.0).to_numpy(zero_copy_only=False) + 0.0
        bits = np.where(np.isnan(values), _NAN_BITS, values.view(np.int64))
        return pa.array(bits, mask=array.is_null().to_numpy(zero_copy_only=False))
    if pa.types.is_date32(kind):
        return array.cast(pa.int32()).cast(pa.int64())
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_temporal(kind):
        return array.cast(pa.int64())
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        # large_binary has 64-bit offsets, so that one loop hashes strings of all types.
        return array.cast(pa.large_binary())
    return array


def _mix_in(column: pa.Array, hashes: Hashes) -> None:
    """Add the values of a key column to the hashes of the rows.

    The hash of a row with a NULL is arbitrary.
    """
    kind = column.type
    rows = len(column)
    if not rows:
        return
    if kind == pa.int64():
        _mix_words(_buffer(column, 1, np.uint64)[column.offset : column.offset + rows], hashes)
    elif pa.types.is_decimal(kind):
        pairs = _buffer(column, 1, np.uint64)[2 * column.offset : 2 * (column.offset + rows)]
        _mix_words(np.ascontiguousarray(pairs[0::2]), hashes)
        _mix_words(np.ascontiguousarray(pairs[1::2]), hashes)
    else:
        assert kind == pa.large_binary(), f"{kind} is no type of a key"
        offsets = _buffer(column, 1, np.int64)[column.offset : column.offset + rows + 1]
        _mix_bytes(offsets, _buffer(column, 2, np.uint8), hashes)


def _buffer(column: pa.Array, index: int, dtype: type[np.generic]) -> NDArray[Any]:
    buffer = column.buffers()[index]
    return np.frombuffer(buffer, dtype) if buffer is not None else np.zeros(0, dtype)


@kernel(inline="always")
def _mix_bits(word: np.uint64) -> np.uint64:
    """Apply the finaliser of splitmix64, a bijection of 64-bit words."""
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


def invert_hashes(hashes: Hashes) -> Hashes:
    """Return the key from which each hash was computed.

    Hashes can be inverted only for a single key column of at most 64 bits.
    """
    words = (hashes ^ (hashes >> np.uint64(31)) ^ (hashes >> np.uint64(62))) * np.uint64(0x319642B2D24D8EC3)
    words = (words ^ (words >> np.uint64(27)) ^ (words >> np.uint64(54))) * np.uint64(0x96DE1B173F119089)
    return np.asarray((words ^ (words >> np.uint64(30)) ^ (words >> np.uint64(60))) - _STEP)


@typed_kernel(types.void(hashes_in, hashes_out))
def _mix_words(words: Hashes, hashes: Hashes) -> None:
    for row in range(len(words)):
        hashes[row] = _mix_bits((words[row] ^ hashes[row]) + _STEP)


@typed_kernel(types.void(times_in, _bytes_in, hashes_out))
def _mix_bytes(offsets: Int64s, data: NDArray[np.uint8], hashes: Hashes) -> None:
    for row in range(len(hashes)):
        first, end = offsets[row], offsets[row + 1]
        hashed = _mix_bits((hashes[row] ^ np.uint64(end - first)) + _STEP)
        word, shift = np.uint64(0), np.uint64(0)
        for index in range(first, end):
            word |= np.uint64(data[index]) << shift
            shift += np.uint64(8)
            if shift == np.uint64(64):
                hashed = _mix_bits((hashed ^ word) + _STEP)
                word, shift = np.uint64(0), np.uint64(0)
        if shift:
            hashed = _mix_bits((hashed ^ word) + _STEP)
        hashes[row] = hashed
