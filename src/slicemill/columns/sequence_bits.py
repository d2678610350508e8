"""Bit widths of sequence numbers (`_seq`, see `columns.order`).

The query graph determines how many bits `_seq` has after each operator.
"""

from __future__ import annotations

# Bits of the sequence numbers of a stream: 4 * 10**12 tuples, which is 1.4 years at 100,000 tuples per
# second.
SEQ_BITS = 42
MOST_BITS = 62
# Number of bits for numbering the output rows of one input row, and number of bits left for later operators.
_FAN_BITS, _LEFT_BITS = 8, 3


def rank_bits(bits: int, ranks: int = 1) -> int:
    """Return the bit width of `_seq` after a rank is added above the number."""
    return min(bits + ranks, MOST_BITS)


def fan_out_bits(bits: int) -> int:
    """Return the bit width of `_seq` after `order.fan_out` appends low bits."""
    return bits + max(0, min(_FAN_BITS, MOST_BITS - _LEFT_BITS - bits))
