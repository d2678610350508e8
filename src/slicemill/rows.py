"""Row as Python values, for code that processes rows one by one."""

from __future__ import annotations

from typing import NamedTuple

from slicemill.storage.codec import stored_as

Row = tuple[object, ...]


@stored_as("timed", version=1)
class Timed(NamedTuple):
    """Row of a stream: timestamp in microseconds, and values in schema order."""

    ts: int
    row: Row
