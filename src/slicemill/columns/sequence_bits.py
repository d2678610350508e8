"""How many bits the numbers of rows have (`columns.order` says what they are), known without any row."""

from __future__ import annotations

# More than four million million tuples: a year and a half of a hundred thousand a second.
SEQ_BITS = 42
MOST_BITS = 62
# For rows of one cause, and what is left for operators behind: two that fan out may follow each other.
_FAN_BITS, _LEFT_BITS = 8, 3


def ranked_bits(bits: int, ranks: int = 1) -> int:
    """How many bits numbers have that come by their rank first."""
    return min(bits + ranks, MOST_BITS)


def fanned_bits(bits: int) -> int:
    """How many bits numbers have where rows of one cause are numbered."""
    return bits + max(0, min(_FAN_BITS, MOST_BITS - _LEFT_BITS - bits))
