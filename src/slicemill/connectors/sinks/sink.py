"""The interface of sinks: a sink takes a query's results in ranges of epochs.

The cursor in the home says how far a sink has come, but it is written after the delivery, so a crash between
leaves it behind. A sink that keeps its own position together with its rows (a file's name, a row in the same
transaction) says where it is when it is resumed, and so gets every row once. The others get the last
delivery again, under the same number.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import pyarrow as pa

from slicemill.errors import SlicemillError


class SinkError(SlicemillError):
    """A sink that cannot be opened, or that refuses a delivery."""


class Sink(Protocol):
    """Made without touching the outside world; `resume` is the first call that may fail, and be repeated."""

    @property
    def per_epoch(self) -> bool:
        """Whether each delivery must be one epoch, so that its number is the delivery's id for good."""

    def resume(self, owner: str, stored: int) -> int:
        """Get ready, at the start and after every failure; returns the last epoch that the sink has.

        `owner` is the home's name for this sink, which no other home uses; `stored` is the home's cursor.
        """

    def deliver(self, first: int, last: int, table: pa.Table) -> None:
        """Take the rows of the epochs `first` … `last`: `_ts` (a timestamp in UTC), then the columns."""

    def close(self) -> None:
        """Let go of what `resume` has opened; a sink may be resumed after."""


@runtime_checkable
class TableSink(Sink, Protocol):
    """A sink that holds the table which changes come to."""

    def replace(self, last: int, table: pa.Table) -> None:
        """Have the rows of the table after epoch `last`, given as inserts, in place of all that is there.

        Changes between what the sink has and this epoch are gone.
        """
