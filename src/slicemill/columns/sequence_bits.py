"""Bit widths of row numbers (`columns.order`), known from the query graph."""

from __future__ import annotations

# More than 4 * 10**12 tuples, which is 1.4 years at 100,000 per second.
SEQ_BITS = 42
MOST_BITS = 62
# Bits that number rows with the same cause, and bits that are left free for later operators.
_FAN_BITS, _LEFT_BITS = 8, 3


def rank_bits(bits: int, ranks: int = 1) -> int:
    """Return the number of bits after a rank is added."""
    return min(bits + ranks, MOST_BITS)


def fan_out_bits(bits: int) -> int:
    """Return the number of bits after `order.fan_out` has numbered rows."""
    return bits + max(0, min(_FAN_BITS, MOST_BITS - _LEFT_BITS - bits))
