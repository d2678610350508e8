"""Readers of sources that are ours: what they give, and which source has one.

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

from slicemill.esl.catalog import SourceSpec, Stream
from slicemill.time import wall_clock_us


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


class SourceReader(Protocol):
    """One partition of a source."""

    def read(self, offset: Any | None, limit_rows: int) -> SourceBatch:
        """The rows after an offset (None: from the beginning), about `limit_rows` at most."""
        ...

    def committed(self, offset: Any) -> None:
        """All up to this offset is safe in the journal; a spool may free it."""
        ...

    def at_end(self) -> bool:
        """Whether a run to the end of what there is may stop here, after a read that left nothing."""
        ...

    def close(self) -> None: ...


def open_readers(
    stream: Stream,
    columns: Sequence[str],
    folder: Path,
    spool: Path,
    notify: Callable[[], None],
    clock: Callable[[], int],
) -> dict[str, SourceReader] | None:
    """The readers of a stream's source by partition; None: it must come through Spark.

    Paths are taken from `folder`. `spool` is the stream's own folder in the home, for what must outlive a
    restart. Nothing is read and no thread started before the first `read`, so that opening checks a
    declaration.
    """
    from slicemill.connectors.files.reader import open_files
    from slicemill.connectors.generators.generator import GENERATORS
    from slicemill.connectors.generators.reader import open_generator
    from slicemill.connectors.tcp.reader import open_tcp
    from slicemill.ingest.formats.checked import Wanted
    from slicemill.sources.origin import LINES_IN_FILES, origin_of

    if stream.source == SourceSpec():
        return {}
    origin = origin_of(stream.source, stream.name, folder)
    wanted = Wanted.of(stream, columns)
    reader: SourceReader | None = None
    if origin.format in (*LINES_IN_FILES, "parquet"):
        reader = open_files(origin, wanted, folder, spool, clock)
    elif origin.format == "tcp":
        reader = open_tcp(origin, wanted, spool, notify, clock)
    elif origin.format in GENERATORS:
        reader = open_generator(origin, wanted, clock)
    return None if reader is None else {"0": reader}


def has_readers(stream: Stream, folder: Path, spool: Path) -> bool:
    """Do workers read its source? Raises for a declaration that no reader can be opened for."""

    def nobody() -> None:
        """Nothing is read, so nothing can be noticed."""

    readers = open_readers(stream, stream.schema.names, folder, spool, nobody, wall_clock_us) or {}
    for reader in readers.values():
        reader.close()
    return bool(readers)
