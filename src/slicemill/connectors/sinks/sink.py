"""Interface of sinks: consumers of results in ranges of epochs.

The cursor in the home is written after the delivery, so after a crash it may be behind the sink. A sink that
stores its own position together with its rows (a file's name, a row in the same transaction) returns that
position on resume, and gets every row once. Other sinks get the last delivery again, with the same number.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import pyarrow as pa

from slicemill.errors import SlicemillError


class SinkError(SlicemillError):
    """Sink that cannot be opened, or that rejects a delivery."""


class Sink(Protocol):
    """Consumer of results; creating it has no side effects.

    `resume` is the first call that may fail, and it may be repeated.
    """

    @property
    def per_epoch(self) -> bool:
        """Return True if each delivery must be a single epoch.

        So an epoch's number is a permanent id of the delivery.
        """

    def resume(self, owner: str, stored: int) -> int:
        """Prepare the sink, initially or after a failure; return its last epoch.

        `owner` is the home's unique name for this sink; `stored` is the home's cursor.
        """

    def deliver(self, first: int, last: int, table: pa.Table) -> None:
        """Receive the rows of epochs `first` … `last`.

        The columns are `_ts` (UTC), then the query's columns.
        """

    def close(self) -> None:
        """Release resources of `resume`; the sink may be resumed later."""


@runtime_checkable
class TableSink(Sink, Protocol):
    """Sink that holds the current table of a changelog."""

    def replace(self, last: int, table: pa.Table) -> None:
        """Replace all rows by the table after epoch `last`, given as inserts.

        Changes between the sink's position and this epoch were freed.
        """
