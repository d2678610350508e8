"""Interface of source readers: batches, offsets, and opening of readers.

A reader reads one partition of a source, in a worker. It reads the rows after a given offset and has no other
persistent state, so a new reader can continue at any committed offset. Files (Parquet, CSV, JSON), sockets
and generators have readers. All other formats are read through Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from slicemill.catalog.catalog import Stream


@dataclass(slots=True)
class SourceBatch:
    """Rows of one read, in order of arrival.

    `table` has exactly the requested columns, with their declared types. `errors` has the columns `raw` and
    `reason`. `offset` is a JSON value from which the next read continues. `arrival_us` is the time at which
    the reader received the rows: one time for all rows, or one for each row of `table`.
    """

    table: pa.Table | None
    errors: pa.Table | None
    offset: Any
    arrival_us: int | npt.NDArray[np.int64]
    more: bool  # True if more rows can be read immediately
    again_us: int | None  # time until the next poll, or None if the reader will call notify()
    ended: bool = False  # True if no more rows will arrive
    warning: str | None = None  # problem of the source that does not prevent reading


class SourceReader(Protocol):
    """Reader of one partition of a source."""

    def read(self, offset: Any | None, limit_rows: int) -> SourceBatch:
        """Read about `limit_rows` rows after an offset.

        None is the offset of the source's first row.
        """
        ...

    def commit(self, offset: Any) -> None:
        """Handle that an offset has been committed.

        A reader with a spool (rows on disk) may then free the rows before the offset.
        """
        ...

    def close(self) -> None: ...


class OpenReaders(Protocol):
    """Function that opens the readers of a source.

    `connectors/registry.py` implements it.
    """

    def __call__(
        self,
        stream: Stream,
        columns: Sequence[str],
        folder: Path,
        spool: Path,
        notify: Callable[[], None],
        clock: Callable[[], int],
    ) -> dict[str, SourceReader] | None: ...
