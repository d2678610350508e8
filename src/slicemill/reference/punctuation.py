"""Enabling timestamps that travel as tuples (M22, X20), and the two ends of time.

An enabling timestamp (ETS) v promises that no later tuple on the same arc has a timestamp below v. As a
punctuation it sits in the buffers among the data. `END` is the ETS of an input that has ended for good.
"""

from __future__ import annotations

from typing import Final

from slicemill.rows import Row, Timed

BEGINNING: Final = -(2**63)
END: Final = 2**63 - 1

Item = tuple[Timed, int]
"""What a buffer holds: a tuple, and when the last input it was made from arrived."""

# A row no source can produce: punctuation is told from data by identity.
MARK: Final[Row] = (object(),)


def punctuation(ts: int, now: int) -> Item:
    """The buffer item that promises `ts`."""
    return (Timed(ts, MARK), now)


def is_punctuation(item: Item) -> bool:
    return item[0].row is MARK
