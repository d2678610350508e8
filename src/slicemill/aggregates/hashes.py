"""Hash functions and pseudo-random priorities that are equal in all processes and after restarts.

SplitMix64 is a bijection, so that no two tuples of a partition have the same priority.
"""

from __future__ import annotations

import struct
from decimal import Decimal
from hashlib import blake2b
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.aggregates.columns import valid_mask
from slicemill.functions.vectors import numbers
from slicemill.kernels.arrays import Int64s

Bits: TypeAlias = NDArray[np.uint64]

_MASK = 2**64 - 1
GOLDEN = 0x9E37_79B9_7F4A_7C15
MIX_1 = 0xBF58_476D_1CE4_E5B9
MIX_2 = 0x94D0_49BB_1331_11EB


def mix_bits(number: int) -> int:
    number = (number + GOLDEN) & _MASK
    number = ((number ^ (number >> 30)) * MIX_1) & _MASK
    number = ((number ^ (number >> 27)) * MIX_2) & _MASK
    return number ^ (number >> 31)


def priority(arrival_number: int) -> int:
    """Return the pseudo-random number by which priority_sample selects a tuple (M33)."""
    return mix_bits(arrival_number)


def bits_of(value: object) -> int:
    """Return a 64-bit hash of a value. Equal values have equal hashes.

    Different strings, decimals or binary values may have equal hashes.
    """
    if isinstance(value, int):
        return value & _MASK
    if isinstance(value, float):
        number = float("nan") if value != value else value + 0.0
        return int.from_bytes(struct.pack("<d", number), "little")
    if isinstance(value, Decimal):
        value = format(value.normalize(), "f")
    raw = value if isinstance(value, bytes) else str(value).encode()
    return int.from_bytes(blake2b(raw, digest_size=8).digest(), "little")


# -- columnar implementation -------------------------------------------------------------------------------


def column_bits(array: pa.Array) -> Bits:
    """Return the 64-bit hash of each value of a column, like `bits_of`. Hashes of NULLs are arbitrary."""
    kind = array.type
    if pa.types.is_floating(kind):
        values = numbers(array) + 0.0
        return np.where(np.isnan(values), np.nan, values).view(np.uint64)
    if pa.types.is_primitive(kind) and not pa.types.is_decimal(kind):
        bits: Bits = numbers(array).astype(np.int64).view(np.uint64)
        return bits
    encoded = array.dictionary_encode()
    of_each = np.array([bits_of(value) for value in encoded.dictionary.to_pylist()] or [0], np.uint64)
    return of_each[np.where(valid_mask(array), numbers(encoded.indices.fill_null(0)), 0)]


def mix_column(values: Bits) -> Bits:
    """Apply the SplitMix64 hash to each number of a column, like `mix_bits`."""
    values = values + np.uint64(GOLDEN)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(MIX_1)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(MIX_2)
    return values ^ (values >> np.uint64(31))


def column_priorities(arrival_numbers: Int64s) -> Bits:
    """Return the pseudo-random numbers by which priority_sample selects a tuple, for each arrival number."""
    return mix_column(arrival_numbers.view(np.uint64))
