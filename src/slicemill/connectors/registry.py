"""Registry of source readers: files, sockets and generators.

All other formats are read through Spark (`connectors/spark`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from slicemill.catalog.catalog import Catalog, SourceSpec, Stream, Table
from slicemill.connectors.files.listing import listing_of
from slicemill.connectors.files.reader import open_files, open_format
from slicemill.connectors.generators.generator import GENERATORS, open_generator
from slicemill.connectors.origin import LINES_IN_FILES, origin_of
from slicemill.connectors.sinks.registry import open_sink
from slicemill.connectors.tcp.reader import open_tcp
from slicemill.errors import SlicemillError
from slicemill.ingest.formats.checked import WantedColumns
from slicemill.ingest.reader import SourceReader
from slicemill.operators.specs import Source
from slicemill.plan.build import build_graph
from slicemill.time import wall_clock_us


def open_readers(
    stream: Stream,
    columns: Sequence[str],
    folder: Path,
    spool: Path,
    notify: Callable[[], None],
    clock: Callable[[], int],
) -> dict[str, SourceReader] | None:
    """Return the readers of a source by partition.

    Return None if the source needs Spark. Paths are relative to `folder`. `spool` is the folder of the stream
    in the home directory, for data that must survive a restart. A declaration can be checked by opening its
    readers, which read no rows and start no thread before the first `read`.
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


def new_rows_check(stream: Stream, folder: Path, spool: Path) -> Callable[[], bool]:
    """Return a cheap function that checks a source for new rows.

    The function checks local files and spools. It returns True for all other sources.
    """
    origin = origin_of(stream.source, stream.name, folder)
    if origin.format == "tcp":
        return _spool_check(spool)
    path = origin.require_file() if origin.format in (*LINES_IN_FILES, "parquet") else None
    if path is None:
        return _maybe
    listing = listing_of(path.absolute(), origin.option("pathGlobFilter"))
    seen: set[str] = set()

    def look() -> bool:
        try:
            found = listing.new(seen) if listing.exists() else None
        except OSError:
            found = None  # the reader of the source reports this error
        if found is None:
            return True
        seen.update(file.name for file in found)
        return bool(found)

    return look


def _spool_check(spool: Path) -> Callable[[], bool]:
    known: dict[str, int] | None = None

    def look() -> bool:
        nonlocal known
        before = known
        try:
            with os.scandir(spool) as entries:
                known = {entry.name: entry.stat().st_size for entry in entries}
        except OSError:  # a file of the source was deleted meanwhile
            known = None
        return known is None or known != before

    return look


def _maybe() -> bool:
    return True


def has_readers(stream: Stream, folder: Path, spool: Path) -> bool:
    """Return True if workers read the source natively, without Spark.

    Raise if the declaration is invalid.
    """

    def ignore() -> None:
        """Ignore notifications of new rows, because no rows are read."""

    readers = open_readers(stream, stream.schema.names, folder, spool, ignore, wall_clock_us) or {}
    for reader in readers.values():
        reader.close()
    return bool(readers)


# Check of the sources and sinks of a script before the script runs


def check_declared(catalog: Catalog, folder: Path = Path()) -> None:
    """Raise if the declaration of a sink, table or stream is invalid.

    A stream is checked only if a query reads it. The check opens no connection and reads no row. Sources that
    Spark reads are checked later.
    """
    for query in catalog.queries.values():
        if query.continuous and query.options.sink is not None and query.options.table is None:
            open_sink(query.options.sink, query.name, query.schema, folder=folder)
    for relation in catalog.relations.values():
        if isinstance(relation, Table):
            _check_table(relation, folder)
    for stream in _streams_read(catalog):
        try:
            has_readers(stream, folder, folder)
        except SlicemillError as problem:
            raise SlicemillError(f"stream {stream.name}: {problem}") from None


def _check_table(table: Table, folder: Path) -> None:
    if table.source == SourceSpec():
        return
    try:
        origin = origin_of(table.source, table.name, folder)
        if origin.format in (*LINES_IN_FILES, "parquet"):
            opened = open_format(origin, WantedColumns.of_schema(table.schema, table.schema.names))
            if opened is not None:
                opened[1].close()
    except SlicemillError as problem:
        raise SlicemillError(f"table {table.name}: {problem}") from None


def _streams_read(catalog: Catalog) -> list[Stream]:
    """Return the declared streams that queries read.

    The result includes streams of which queries read only late or bad rows.
    """
    graph = build_graph(catalog)
    wanted = [node.operator.stream for node in graph.sources if isinstance(node.operator, Source)]
    return list({(stream := catalog.declared_stream(name)).name: stream for name in wanted}.values())
