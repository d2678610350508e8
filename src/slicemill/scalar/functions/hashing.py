"""Hashes: Spark's hash and xxhash64, which depend on the type of each value, and digests of texts.

Murmur3 (x86, 32 bits) after Austin Appleby, with Spark's own treatment of the last bytes of a text; XXH64
after Yann Collet. Both start from the seed 42, a value's hash is the seed of the next, NULL changes nothing.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Callable

from slicemill.esl.types.schema import Kind, Type
from slicemill.scalar.values import (
    ExpressionError,
    Function,
    Scalar,
    Types,
    as_given,
    plain,
    unscaled,
    wrapped,
)

_SEED = 42
_M32, _M64 = 0xFFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF
_SHORT_DECIMAL_DIGITS = 18  # a decimal of more digits is hashed as bytes
_SHA2 = {0: "sha256", 224: "sha224", 256: "sha256", 384: "sha384", 512: "sha512"}

Seeded = Callable[[int, int], int]


# -- Murmur3 ----------------------------------------------------------------------------------------------


def _murmur_mix(hash_: int, word: int) -> int:
    word = word * 0xCC9E2D51 & _M32
    word = (word << 15 | word >> 17) & _M32
    hash_ ^= word * 0x1B873593 & _M32
    hash_ = (hash_ << 13 | hash_ >> 19) & _M32
    return (hash_ * 5 + 0xE6546B64) & _M32


def _murmur_end(hash_: int, length: int) -> int:
    hash_ ^= length
    hash_ = (hash_ ^ hash_ >> 16) * 0x85EBCA6B & _M32
    hash_ = (hash_ ^ hash_ >> 13) * 0xC2B2AE35 & _M32
    return hash_ ^ hash_ >> 16


def _murmur_int(value: int, seed: int) -> int:
    return _murmur_end(_murmur_mix(seed, value & _M32), 4)


def _murmur_long(value: int, seed: int) -> int:
    low = _murmur_mix(seed, value & _M32)
    return _murmur_end(_murmur_mix(low, value >> 32 & _M32), 8)


def _murmur_bytes(value: bytes, seed: int) -> int:
    whole = len(value) // 4 * 4
    for (word,) in struct.iter_unpack("<I", value[:whole]):
        seed = _murmur_mix(seed, word)
    for (byte,) in struct.iter_unpack("<b", value[whole:]):
        seed = _murmur_mix(seed, byte & _M32)
    return _murmur_end(seed, len(value))


# -- XXH64 ------------------------------------------------------------------------------------------------

_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def _rotated(value: int, by: int) -> int:
    return (value << by | value >> (64 - by)) & _M64


def _xx_round(hash_: int, word: int) -> int:
    return _rotated((hash_ + word * _P2) & _M64, 31) * _P1 & _M64


def _xx_long_step(hash_: int, word: int) -> int:
    return (_rotated(hash_ ^ _xx_round(0, word), 27) * _P1 + _P4) & _M64


def _xx_int_step(hash_: int, word: int) -> int:
    return (_rotated(hash_ ^ (word * _P1 & _M64), 23) * _P2 + _P3) & _M64


def _xx_end(hash_: int) -> int:
    hash_ = (hash_ ^ hash_ >> 33) * _P2 & _M64
    hash_ = (hash_ ^ hash_ >> 29) * _P3 & _M64
    return hash_ ^ hash_ >> 32


def _xx_int(value: int, seed: int) -> int:
    return _xx_end(_xx_int_step((seed + _P5 + 4) & _M64, value & _M32))


def _xx_long(value: int, seed: int) -> int:
    return _xx_end(_xx_long_step((seed + _P5 + 8) & _M64, value & _M64))


def _xx_bytes(value: bytes, seed: int) -> int:
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
        hash_ = _rotated(hash_ ^ (byte * _P5 & _M64), 11) * _P1 & _M64
    return _xx_end(hash_)


def _xx_stripes(value: bytes, seed: int) -> int:
    lanes = [(seed + _P1 + _P2) & _M64, (seed + _P2) & _M64, seed, (seed - _P1) & _M64]
    for words in struct.iter_unpack("<4Q", value):
        lanes = [_xx_round(lane, word) for lane, word in zip(lanes, words, strict=True)]
    hash_ = sum(_rotated(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & _M64
    for lane in lanes:
        hash_ = ((hash_ ^ _xx_round(0, lane)) * _P1 + _P4) & _M64
    return hash_


# -- by type ----------------------------------------------------------------------------------------------


def _double_bits(value: float) -> int:
    if value != value:
        return 0x7FF8_0000_0000_0000  # Java knows one NaN
    return int(struct.unpack("<q", struct.pack("<d", value + 0.0))[0])  # minus zero becomes zero


def _decimal_bytes(digits: int) -> bytes:
    """Two's complement, most significant byte first, as short as possible, as Java gives it."""
    return digits.to_bytes((digits if digits >= 0 else ~digits).bit_length() // 8 + 1, "big", signed=True)


def _hasher(type_: Type, on_int: Seeded, on_long: Seeded, on_bytes: Callable[[bytes, int], int]) -> Function:
    kind = type_.kind
    if kind in (Kind.BOOLEAN, Kind.INT, Kind.DATE, Kind.MONTHS):
        return on_int
    if kind in (Kind.BIGINT, Kind.TIMESTAMP, Kind.INTERVAL):
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
            return lambda value, seed: on_long(unscaled(value, scale), seed)
        return lambda value, seed: on_bytes(_decimal_bytes(unscaled(value, scale)), seed)
    raise ExpressionError(f"{type_} has no hash")


def _chained(
    on_int: Seeded, on_long: Seeded, on_bytes: Callable[[bytes, int], int], bits: int
) -> Callable[[Types, Type], Function]:
    def make(types: Types, result: Type) -> Function:
        del result
        hashers = [_hasher(type_, on_int, on_long, on_bytes) for type_ in types]

        def hash_of(*values: object) -> int:
            seed = _SEED
            for value, hasher in zip(values, hashers, strict=True):
                if value is not None:
                    seed = hasher(value, seed)
            return wrapped(seed, bits)

        return hash_of

    return make


def _digest(name: str) -> Scalar:
    return plain(lambda text: hashlib.new(name, text.encode(), usedforsecurity=False).hexdigest())


def _sha2(text: str, bits: int) -> str | None:
    """NULL for a number of bits that SHA-2 does not have."""
    name = _SHA2.get(bits)
    return None if name is None else hashlib.new(name, text.encode()).hexdigest()


HASHES: dict[str, Scalar] = {
    "hash": Scalar(_chained(_murmur_int, _murmur_long, _murmur_bytes, 32), as_given, strict=False),
    "xxhash64": Scalar(_chained(_xx_int, _xx_long, _xx_bytes, 64), as_given, strict=False),
    "crc32": plain(lambda text: zlib.crc32(text.encode())),
    "md5": _digest("md5"),
    "sha1": _digest("sha1"),
    "sha2": plain(_sha2),
}
