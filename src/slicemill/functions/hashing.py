"""Hash functions: Spark's hash and xxhash64, CRC and digests of strings.

Spark's hashes depend on the type of each value: Murmur3 (x86, 32 bits) after Austin Appleby, with Spark's
own treatment of the last bytes of a string, and XXH64 after Yann Collet. Both start with the seed 42.
Each value's hash is the seed of the next value; NULL leaves the seed unchanged. The row functions mask Python
integers to 32 or 64 bits; NumPy columns wrap around. Strings are hashed once per distinct string.
"""

from __future__ import annotations

import binascii
import hashlib
import struct
import zlib
from collections.abc import Callable
from functools import reduce
from typing import Any, TypeAlias

import numpy as np

from slicemill.functions.function import SAME, RowFunction, RowMaker, ScalarFunction, Sql, Types, plain
from slicemill.functions.kernel import Kernel, KernelCall, KernelMaker
from slicemill.functions.values import ExpressionError, decimal_digits, wrap_integer
from slicemill.functions.vectors import Vector, or_masks
from slicemill.types import Kind, Type

_SEED = 42
_M32, _M64 = 0xFFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF
_SHORT_DECIMAL_DIGITS = 18  # precision above which decimals are hashed as bytes
_INTS = (Kind.BOOLEAN, Kind.INT, Kind.DATE, Kind.MONTHS)
_LONGS = (Kind.BIGINT, Kind.TIMESTAMP, Kind.INTERVAL)
_NAN_BITS = 0x7FF8_0000_0000_0000  # the bits of Java's NaN, used for all NaNs

Seeded: TypeAlias = Callable[[int, int], int]
SeededBytes: TypeAlias = Callable[[bytes, int], int]
Words: TypeAlias = Any  # arrays of unsigned integers
SeededColumn: TypeAlias = Callable[[Words, Words], Words]


def _rotate_column(words: Words, by: int) -> Words:
    width = words.dtype.itemsize * 8
    return (words << by) | (words >> (width - by))


# -- Murmur3 ----------------------------------------------------------------------------------------------


def _mix_row(hash_: int, word: int) -> int:
    word = word * 0xCC9E2D51 & _M32
    word = (word << 15 | word >> 17) & _M32
    hash_ ^= word * 0x1B873593 & _M32
    hash_ = (hash_ << 13 | hash_ >> 19) & _M32
    return (hash_ * 5 + 0xE6546B64) & _M32


def _end_row(hash_: int, length: int) -> int:
    hash_ ^= length
    hash_ = (hash_ ^ hash_ >> 16) * 0x85EBCA6B & _M32
    hash_ = (hash_ ^ hash_ >> 13) * 0xC2B2AE35 & _M32
    return hash_ ^ hash_ >> 16


def _murmur_int_row(value: int, seed: int) -> int:
    return _end_row(_mix_row(seed, value & _M32), 4)


def _murmur_long_row(value: int, seed: int) -> int:
    low = _mix_row(seed, value & _M32)
    return _end_row(_mix_row(low, value >> 32 & _M32), 8)


def _murmur_bytes_row(value: bytes, seed: int) -> int:
    whole = len(value) // 4 * 4
    for (word,) in struct.iter_unpack("<I", value[:whole]):
        seed = _mix_row(seed, word)
    for (byte,) in struct.iter_unpack("<b", value[whole:]):
        seed = _mix_row(seed, byte & _M32)
    return _end_row(seed, len(value))


def _mix_column(hash_: Words, word: Words) -> Words:
    word = _rotate_column(word * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    return _rotate_column(hash_ ^ word, 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _end_column(hash_: Words, length: int) -> Words:
    hash_ = hash_ ^ np.uint32(length)
    hash_ = (hash_ ^ hash_ >> 16) * np.uint32(0x85EBCA6B)
    hash_ = (hash_ ^ hash_ >> 13) * np.uint32(0xC2B2AE35)
    return hash_ ^ hash_ >> 16


def _murmur_int_column(value: Words, seed: Words) -> Words:
    return _end_column(_mix_column(seed, value.astype(np.uint32)), 4)


def _murmur_long_column(value: Words, seed: Words) -> Words:
    low = _mix_column(seed, value.astype(np.uint32))
    return _end_column(_mix_column(low, (value >> np.uint64(32)).astype(np.uint32)), 8)


# -- XXH64 ------------------------------------------------------------------------------------------------

_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def _rotate_row(value: int, by: int) -> int:
    return (value << by | value >> (64 - by)) & _M64


def _xx_round(hash_: int, word: int) -> int:
    return _rotate_row((hash_ + word * _P2) & _M64, 31) * _P1 & _M64


def _xx_long_step(hash_: int, word: int) -> int:
    return (_rotate_row(hash_ ^ _xx_round(0, word), 27) * _P1 + _P4) & _M64


def _xx_int_step(hash_: int, word: int) -> int:
    return (_rotate_row(hash_ ^ (word * _P1 & _M64), 23) * _P2 + _P3) & _M64


def _xx_end_row(hash_: int) -> int:
    hash_ = (hash_ ^ hash_ >> 33) * _P2 & _M64
    hash_ = (hash_ ^ hash_ >> 29) * _P3 & _M64
    return hash_ ^ hash_ >> 32


def _xx_int_row(value: int, seed: int) -> int:
    return _xx_end_row(_xx_int_step((seed + _P5 + 4) & _M64, value & _M32))


def _xx_long_row(value: int, seed: int) -> int:
    return _xx_end_row(_xx_long_step((seed + _P5 + 8) & _M64, value & _M64))


def _xx_bytes_row(value: bytes, seed: int) -> int:
    striped = len(value) // 32 * 32
    hash_ = _xx_stripes(value[:striped], seed) if striped else (seed + _P5) & _M64
    hash_ = (hash_ + len(value)) & _M64
    rest = value[striped:]
    longs = len(rest) // 8 * 8
    for (word,) in struct.iter_unpack("<Q", rest[:longs]):
        hash_ = _xx_long_step(hash_, word)
    ints = longs + (len(rest) - longs) // 4 * 4
    for (word,) in struct.iter_unpack("<I", rest[longs:ints]):
        hash_ = _xx_int_step(hash_, word)
    for byte in rest[ints:]:
        hash_ = _rotate_row(hash_ ^ (byte * _P5 & _M64), 11) * _P1 & _M64
    return _xx_end_row(hash_)


def _xx_stripes(value: bytes, seed: int) -> int:
    lanes = [(seed + _P1 + _P2) & _M64, (seed + _P2) & _M64, seed, (seed - _P1) & _M64]
    for words in struct.iter_unpack("<4Q", value):
        lanes = [_xx_round(lane, word) for lane, word in zip(lanes, words, strict=True)]
    hash_ = sum(_rotate_row(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & _M64
    for lane in lanes:
        hash_ = ((hash_ ^ _xx_round(0, lane)) * _P1 + _P4) & _M64
    return hash_


# The constants of XXH64 as NumPy integers.
_U1, _U2, _U3, _U4, _U5 = (np.uint64(prime) for prime in (_P1, _P2, _P3, _P4, _P5))


def _xx_end_column(hash_: Words) -> Words:
    hash_ = (hash_ ^ hash_ >> 33) * _U2
    hash_ = (hash_ ^ hash_ >> 29) * _U3
    return hash_ ^ hash_ >> 32


def _xx_int_column(value: Words, seed: Words) -> Words:
    hash_ = (seed + _U5 + np.uint64(4)) ^ (value.astype(np.uint32).astype(np.uint64) * _U1)
    return _xx_end_column(_rotate_column(hash_, 23) * _U2 + _U3)


def _xx_long_column(value: Words, seed: Words) -> Words:
    word = _rotate_column(value * _U2, 31) * _U1
    return _xx_end_column(_rotate_column((seed + _U5 + np.uint64(8)) ^ word, 27) * _U1 + _U4)


# -- hashes by type of value ------------------------------------------------------------------------------


def _double_bits(value: float) -> int:
    if value != value:
        return _NAN_BITS
    return int(struct.unpack("<q", struct.pack("<d", value + 0.0))[0])  # -0.0 + 0.0 is 0.0


def _decimal_bytes(digits: int) -> bytes:
    """Return the shortest big-endian two's complement of an integer, as in Java."""
    return digits.to_bytes((digits if digits >= 0 else ~digits).bit_length() // 8 + 1, "big", signed=True)


def _hasher(type_: Type, on_int: Seeded, on_long: Seeded, on_bytes: SeededBytes) -> RowFunction:
    kind = type_.kind
    if kind in _INTS:
        return on_int
    if kind in _LONGS:
        return on_long
    if kind is Kind.DOUBLE:
        return lambda value, seed: on_long(_double_bits(value), seed)
    if kind is Kind.VARCHAR:
        return lambda value, seed: on_bytes(value.encode(), seed)
    if kind is Kind.BINARY or kind is Kind.NULL:
        return on_bytes
    if kind is Kind.DECIMAL:
        assert type_.precision is not None and type_.scale is not None
        scale = type_.scale
        if type_.precision <= _SHORT_DECIMAL_DIGITS:
            return lambda value, seed: on_long(decimal_digits(value, scale), seed)
        return lambda value, seed: on_bytes(_decimal_bytes(decimal_digits(value, scale)), seed)
    raise ExpressionError(f"{type_} has no hash")


def _chain_row(on_int: Seeded, on_long: Seeded, on_bytes: SeededBytes, bits: int) -> RowMaker:
    def make(types: Types, _result: Type) -> RowFunction:
        hashers = [_hasher(type_, on_int, on_long, on_bytes) for type_ in types]

        def hash_of(*values: object) -> int:
            seed = _SEED
            for value, hasher in zip(values, hashers, strict=True):
                if value is not None:
                    seed = hasher(value, seed)
            return wrap_integer(seed, bits)

        return hash_of

    return make


def _bits_column(data: Words, type_: Type) -> Words:
    """Return a column's values as 64-bit integers to hash.

    Doubles are returned as bits. All NaNs have the same bits, and so have both zeros.
    """
    if type_.kind is Kind.DOUBLE:
        found = np.where(np.isnan(data), np.int64(_NAN_BITS), (data + 0.0).view(np.int64))
        return found.view(np.uint64)
    return data.astype(np.int64).view(np.uint64)


def _chain_column(on_int: SeededColumn, on_long: SeededColumn, dtype: type[np.generic]) -> KernelMaker:
    signed = np.int32 if dtype is np.uint32 else np.int64

    def make(call: KernelCall) -> Kernel | None:
        if any(type_.kind not in (*_INTS, *_LONGS, Kind.DOUBLE) for type_ in call.types):
            return None

        def hash_of(*vectors: Vector) -> Vector:
            seed: Words = np.full((1,), _SEED, dtype)
            for vector in vectors:
                hasher = on_int if vector.type.kind in _INTS else on_long
                found = hasher(np.atleast_1d(_bits_column(vector.data, vector.type)), seed)
                seed = found if vector.valid is None else np.where(vector.valid, found, seed)
            fallback = reduce(or_masks, (vector.fallback for vector in vectors))
            return Vector(call.result, seed.view(signed), None, fallback)

        return Kernel(hash_of, strict=False)

    return make


# -- digests of strings -----------------------------------------------------------------------------------

_SHA2 = {0: "sha256", 224: "sha224", 256: "sha256", 384: "sha384", 512: "sha512"}


def _digest(name: str, duckdb: Sql | None) -> ScalarFunction:
    return ScalarFunction(
        row=plain(lambda text: hashlib.new(name, text.encode(), usedforsecurity=False).hexdigest()),
        duckdb=duckdb,
    )


def _sha2(text: str, bits: int) -> str | None:
    """Return a SHA-2 digest; NULL for an invalid number of bits."""
    name = _SHA2.get(bits)
    return None if name is None else hashlib.new(name, text.encode()).hexdigest()


def _unhex(text: str) -> bytes | None:
    """Return the bytes of hexadecimal digits; NULL for other text.

    >>> _unhex("DE00"), _unhex("f"), _unhex("x1")
    (b'\\xde\\x00', b'\\x0f', None)
    """
    try:
        return binascii.unhexlify(text if len(text) % 2 == 0 else f"0{text}")
    except ValueError:
        return None


HASHES: dict[str, ScalarFunction] = {
    "hash": ScalarFunction(
        row=_chain_row(_murmur_int_row, _murmur_long_row, _murmur_bytes_row, 32),
        strict=False,
        column=_chain_column(_murmur_int_column, _murmur_long_column, np.uint32),
    ),
    "xxhash64": ScalarFunction(
        row=_chain_row(_xx_int_row, _xx_long_row, _xx_bytes_row, 64),
        strict=False,
        column=_chain_column(_xx_int_column, _xx_long_column, np.uint64),
    ),
    "crc32": ScalarFunction(row=plain(lambda text: zlib.crc32(text.encode()))),
    "md5": _digest("md5", SAME),
    "sha1": _digest("sha1", SAME),
    "sha2": ScalarFunction(row=plain(_sha2)),
    "unhex": ScalarFunction(row=plain(_unhex)),
}
