"""Spark's hash and xxhash64 of numbers and times over whole columns; texts are hashed once per distinct text.

A value's hash is the seed of the next, and NULL changes nothing, as in the reference.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from slicemill.esl.types.schema import Kind, Type
from slicemill.scalar.kernel import Bound, Kernel, Maker
from slicemill.scalar.vectors import Vector, either

Words = Any
Hasher = Callable[[Words, Words], Words]

_SEED = 42
_INTS = (Kind.BOOLEAN, Kind.INT, Kind.DATE, Kind.MONTHS)
_LONGS = (Kind.BIGINT, Kind.TIMESTAMP, Kind.INTERVAL, Kind.DOUBLE)
_NAN_BITS = 0x7FF8_0000_0000_0000


def _rotated(words: Words, by: int) -> Words:
    width = words.dtype.itemsize * 8
    return (words << by) | (words >> (width - by))


def _murmur_mix(hash_: Words, word: Words) -> Words:
    word = _rotated(word * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    return _rotated(hash_ ^ word, 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _murmur_end(hash_: Words, length: int) -> Words:
    hash_ = hash_ ^ np.uint32(length)
    hash_ = (hash_ ^ hash_ >> 16) * np.uint32(0x85EBCA6B)
    hash_ = (hash_ ^ hash_ >> 13) * np.uint32(0xC2B2AE35)
    return hash_ ^ hash_ >> 16


def _murmur_int(value: Words, seed: Words) -> Words:
    return _murmur_end(_murmur_mix(seed, value.astype(np.uint32)), 4)


def _murmur_long(value: Words, seed: Words) -> Words:
    low = _murmur_mix(seed, value.astype(np.uint32))
    return _murmur_end(_murmur_mix(low, (value >> np.uint64(32)).astype(np.uint32)), 8)


_P1, _P2, _P3 = np.uint64(0x9E3779B185EBCA87), np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0x165667B19E3779F9)
_P4, _P5 = np.uint64(0x85EBCA77C2B2AE63), np.uint64(0x27D4EB2F165667C5)


def _xx_end(hash_: Words) -> Words:
    hash_ = (hash_ ^ hash_ >> 33) * _P2
    hash_ = (hash_ ^ hash_ >> 29) * _P3
    return hash_ ^ hash_ >> 32


def _xx_int(value: Words, seed: Words) -> Words:
    hash_ = (seed + _P5 + np.uint64(4)) ^ (value.astype(np.uint32).astype(np.uint64) * _P1)
    return _xx_end(_rotated(hash_, 23) * _P2 + _P3)


def _xx_long(value: Words, seed: Words) -> Words:
    word = _rotated(value * _P2, 31) * _P1
    return _xx_end(_rotated((seed + _P5 + np.uint64(8)) ^ word, 27) * _P1 + _P4)


def _bits(data: Words, type_: Type) -> Words:
    """Whole numbers of 64 bits; doubles by their bits, with one NaN and one zero."""
    if type_.kind is Kind.DOUBLE:
        found = np.where(np.isnan(data), np.int64(_NAN_BITS), (data + 0.0).view(np.int64))
        return found.view(np.uint64)
    return data.astype(np.int64).view(np.uint64)


def _chained(on_int: Hasher, on_long: Hasher, dtype: type[np.generic]) -> Maker:
    signed = np.int32 if dtype is np.uint32 else np.int64

    def make(bound: Bound) -> Kernel | None:
        if any(type_.kind not in _INTS + _LONGS for type_ in bound.types):
            return None

        def hash_of(*vectors: Vector) -> Vector:
            seed: Words = np.full((1,), _SEED, dtype)
            for vector in vectors:
                hasher = on_int if vector.type.kind in _INTS else on_long
                found = hasher(np.atleast_1d(_bits(vector.data, vector.type)), seed)
                seed = found if vector.valid is None else np.where(vector.valid, found, seed)
            unsure = reduce(either, (vector.unsure for vector in vectors))
            return Vector(bound.result, seed.view(signed), None, unsure)

        return Kernel(hash_of, strict=False)

    return make


HASHES: dict[str, Maker] = {
    "hash": _chained(_murmur_int, _murmur_long, np.uint32),
    "xxhash64": _chained(_xx_int, _xx_long, np.uint64),
}
