"""Punctuation: enabling timestamps that travel as tuples (M22, X20).

An enabling timestamp (ETS) v promises that no later tuple on the same arc has a timestamp below v. A
punctuation is stored in the buffers between data. `END` is the ETS of an input that has ended.
"""

from __future__ import annotations

from typing import Final

from slicemill.types import Row, Timed

BEGINNING: Final = -(2**63)
END: Final = 2**63 - 1

Item = tuple[Timed, int]
"""Item of a buffer: a tuple and the arrival time of its last input tuple."""

# A row that no source can produce. Punctuation is recognized by the identity of this row.
MARK: Final[Row] = (object(),)


def punctuation(ts: int, now: int) -> Item:
    """Return the buffer item that promises `ts`."""
    return (Timed(ts, MARK), now)


def is_punctuation(item: Item) -> bool:
    return item[0].row is MARK
