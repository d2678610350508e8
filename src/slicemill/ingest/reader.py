"""The interface of source readers: batches, offsets, and how readers are opened.

A reader is one partition of a source and lives in a worker. It is asked for the rows after an offset, and
keeps nothing that the offset does not say: whoever has committed an offset can ask a new reader to go on
there. Files (Parquet, CSV, JSON), sockets and generators have readers; every other format comes through
Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from slicemill.esl.types.catalog import Stream


@dataclass(slots=True)
class SourceBatch:
    """Rows that a reader gives at once, in the order of their arrival.

    `table` has exactly the wanted columns, in their declared types; `errors` has the columns `raw` and
    `reason`. `offset` is plain JSON: where to go on. `arrival_us` is when the rows reached the reader, one
    time for all or one for each row of `table`.
    """

    table: pa.Table | None
    errors: pa.Table | None
    offset: Any
    arrival_us: int | npt.NDArray[np.int64]
    more: bool  # there is more to read at once
    again_us: int | None  # ask again after so long; None: the reader calls notify() when something comes
    ended: bool = False  # nothing will ever come again
    warning: str | None = None  # what is wrong with the source, though it can be read


class SourceReader(Protocol):
    """One partition of a source."""

    def read(self, offset: Any | None, limit_rows: int) -> SourceBatch:
        """The rows after an offset (None: from the beginning), about `limit_rows` at most."""
        ...

    def committed(self, offset: Any) -> None:
        """All up to this offset is safe in the journal; a spool may free it."""
        ...

    def close(self) -> None: ...


class OpenReaders(Protocol):
    """Opens the readers of a stream's source; `connectors/readers.py` has the one that knows all sources."""

    def __call__(
        self,
        stream: Stream,
        columns: Sequence[str],
        folder: Path,
        spool: Path,
        notify: Callable[[], None],
        clock: Callable[[], int],
    ) -> dict[str, SourceReader] | None: ...
