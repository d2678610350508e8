"""The registry of source readers: files, sockets and generators.

Every other format comes through Spark (`connectors/spark`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from slicemill.connectors.files.reader import open_files
from slicemill.connectors.generators.generator import GENERATORS
from slicemill.connectors.generators.reader import open_generator
from slicemill.connectors.origin import LINES_IN_FILES, origin_of
from slicemill.connectors.tcp.reader import open_tcp
from slicemill.esl.types.catalog import SourceSpec, Stream
from slicemill.ingest.formats.checked import WantedColumns
from slicemill.ingest.reader import SourceReader
from slicemill.time import wall_clock_us


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
    if stream.source == SourceSpec():
        return {}
    origin = origin_of(stream.source, stream.name, folder)
    wanted = WantedColumns.of(stream, columns)
    reader: SourceReader | None = None
    if origin.format in (*LINES_IN_FILES, "parquet"):
        reader = open_files(origin, wanted, spool, clock)
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
