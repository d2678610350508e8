"""Early check of a script's sources and sinks."""

from __future__ import annotations

from pathlib import Path

from slicemill.connectors.files.reader import opened_format
from slicemill.connectors.origin import LINES_IN_FILES, origin_of
from slicemill.connectors.readers import has_readers
from slicemill.connectors.sinks.registry import open_sink
from slicemill.errors import SlicemillError
from slicemill.esl.types.catalog import Catalog, SourceSpec, Stream, Table
from slicemill.ingest.formats.checked import WantedColumns
from slicemill.operators.streams.spec import Source
from slicemill.plan.build import build_graph


def check_declared(catalog: Catalog, folder: Path = Path()) -> None:
    """Raise if a sink, table or stream is declared wrongly.

    A stream is checked only if a query reads it. No connection is opened and no row is read. Spark checks its
    sources later.
    """
    for query in catalog.queries.values():
        if query.continuous and query.options.sink is not None and query.options.table is None:
            open_sink(query.options.sink, query.name, query.schema, folder=folder)
    for relation in catalog.relations.values():
        if isinstance(relation, Table):
            _check_table(relation, folder)
    for stream in _read(catalog):
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
            opened = opened_format(origin, WantedColumns.of_schema(table.schema, table.schema.names))
            if opened is not None:
                opened[1].close()
    except SlicemillError as problem:
        raise SlicemillError(f"table {table.name}: {problem}") from None


def _read(catalog: Catalog) -> list[Stream]:
    """Return the declared streams that queries read, also via side streams."""
    graph = build_graph(catalog)
    wanted = [node.operator.stream for node in graph.sources if isinstance(node.operator, Source)]
    return list({(stream := catalog.declared_stream(name)).name: stream for name in wanted}.values())
