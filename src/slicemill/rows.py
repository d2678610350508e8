"""A tuple of a stream as Python values: what row-by-row code takes and gives."""

from __future__ import annotations

from typing import NamedTuple

from slicemill.storage.codec import stored_as

Row = tuple[object, ...]


@stored_as("timed", version=1)
class Timed(NamedTuple):
    """A data tuple: its timestamp in microseconds and its values in schema order."""

    ts: int
    row: Row
