"""Numbers that look random and are the same in every process, run and restart.

SplitMix64 takes different numbers to different ones, so that no two tuples of a partition share a priority.
"""

from __future__ import annotations

import struct
from decimal import Decimal
from hashlib import blake2b

_MASK = 2**64 - 1
GOLDEN = 0x9E37_79B9_7F4A_7C15
MIX_1 = 0xBF58_476D_1CE4_E5B9
MIX_2 = 0x94D0_49BB_1331_11EB


def mixed(number: int) -> int:
    number = (number + GOLDEN) & _MASK
    number = ((number ^ (number >> 30)) * MIX_1) & _MASK
    number = ((number ^ (number >> 27)) * MIX_2) & _MASK
    return number ^ (number >> 31)


def priority(arrival_number: int) -> int:
    """The priority of a tuple in a sample (M33)."""
    return mixed(arrival_number)


def bits_of(value: object) -> int:
    """64 bits of a value; equal values have equal bits, of different ones texts and the like may clash."""
    if isinstance(value, int):
        return value & _MASK
    if isinstance(value, float):
        number = float("nan") if value != value else value + 0.0
        return int.from_bytes(struct.pack("<d", number), "little")
    if isinstance(value, Decimal):
        value = format(value.normalize(), "f")
    raw = value if isinstance(value, bytes) else str(value).encode()
    return int.from_bytes(blake2b(raw, digest_size=8).digest(), "little")
