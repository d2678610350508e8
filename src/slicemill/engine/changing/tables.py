"""Tables: rows that change as a whole, between two tuples.

    tuples of bid     1    2    3  │  4    5
    rows of item      first        │  second          mill.table("item", …), mill.refresh("item"), or a start

A version of a table's rows is a file in the home, named by its content. Plans of units hold its name, so rows
are read where they are looked up, once in a process. The journal says which version is in force: what arrived
before a change meets the rows from before it, also after a crash.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, overload

import pyarrow as pa

from slicemill.columns.rows import plain_rows, to_table
from slicemill.connectors.files.table import read_table
from slicemill.connectors.spark.frame import table_frame
from slicemill.errors import SlicemillError
from slicemill.esl.types.catalog import Catalog, SourceSpec, Table
from slicemill.esl.types.schema import Schema
from slicemill.operators.graph import QueryGraph
from slicemill.plan.reads import tables_of
from slicemill.rows import Row, Timed
from slicemill.storage.files import LOCAL, ensure_folder, exists, folder_name, write_whole
from slicemill.storage.home import Home
from slicemill.storage.home_state import TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOGGER = logging.getLogger("slicemill")
# Versions of tables that a process has in memory.
_READ_AT_ONCE = 64


class StoredTable(Sequence[Row]):
    """One version of a table's rows. It travels as the name of its file, and is read where it is used."""

    __slots__ = ("file", "schema")

    def __init__(self, file: Path, schema: Schema) -> None:
        self.file = file
        self.schema = schema

    @overload
    def __getitem__(self, place: int) -> Row: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Row]: ...
    def __getitem__(self, place: int | slice) -> Row | Sequence[Row]:
        return _rows_in(self.file, self.schema)[place]

    def __iter__(self) -> Iterator[Row]:
        return iter(_rows_in(self.file, self.schema))

    def __len__(self) -> int:
        return len(_rows_in(self.file, self.schema))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StoredTable) and (self.file, self.schema) == (other.file, other.schema)

    def __hash__(self) -> int:
        return hash(self.file)


@lru_cache(maxsize=_READ_AT_ONCE)
def _rows_in(file: Path, schema: Schema) -> list[Row]:
    with pa.ipc.open_file(pa.py_buffer(LOCAL.read(file))) as reader:
        return plain_rows(reader.read_all(), schema)


class TableVersions:
    """The tables of a mill: the versions that its units are to see, and their rows as they are now."""

    def __init__(self, home: Home, folder: Path, spark: Callable[[], SparkSession]) -> None:
        self._home = home
        self._folder = folder
        self._spark = spark
        self._given: dict[str, Sequence[Row]] = {}
        self._current: dict[str, StoredTable] = {}
        self._dropped: set[str] = set()

    def give(self, name: str, rows: Sequence[Row]) -> None:
        """Rows of a table, in place of its source."""
        self._given[name.lower()] = rows

    def take_up(self, catalog: Catalog) -> None:
        """Have a version of every table that is declared, and of no other."""
        declared = {r.name: r for r in catalog.relations.values() if isinstance(r, Table)}
        for name in self._current.keys() - declared.keys():
            del self._current[name]
            self._given.pop(name.lower(), None)
            self._dropped.add(name)
        for name, table in declared.items():
            if name not in self._current:
                self._current[name] = self._kept(table) or self._first(table)

    def refresh(self, table: Table) -> None:
        """Have the rows of a table as they are now."""
        self._current[table.name] = self._stored(table, self._now(table))

    def now(self, table: Table) -> Sequence[Row]:
        """What a program has given last, or what the source holds."""
        if table.source == SourceSpec():
            return self._current[table.name]
        return plain_rows(self._now(table), table.schema)

    def seen_by(self, graph: QueryGraph, catalog: Catalog) -> dict[str, StoredTable]:
        """The tables that a part of the query graph reads."""
        return {name: self._current[name] for name in tables_of(graph, catalog)}

    def seen_so_far(self, tables: Mapping[str, Sequence[Row]]) -> dict[str, Sequence[Row]]:
        """Those of some tables that the home has: what tuples that have arrived have to meet."""
        found = dict(tables)
        for name in tables.keys() & self._home.tables.keys():
            found[name] = StoredTable(self._file(self._home.tables[name]), self._current[name].schema)
        return found

    def changes(self) -> dict[str, str | None]:
        """What is to be committed, once nobody needs the versions that the home has."""
        known = self._home.tables
        changed: dict[str, str | None] = {name: None for name in self._dropped if name in known}
        for name, table in self._current.items():
            if known.get(name) != table.file.name:
                changed[name] = table.file.name
        self._dropped.clear()
        return changed

    def _kept(self, table: Table) -> StoredTable | None:
        """What a program has given in a mill before: there is no source to ask."""
        kept = self._home.tables.get(table.name)
        if kept is None or table.source != SourceSpec() or table.name.lower() in self._given:
            return None
        return StoredTable(self._file(kept), table.schema)

    def _first(self, table: Table) -> StoredTable:
        """The rows of the source when a mill starts; of one that cannot be read, those of the mill before."""
        try:
            return self._stored(table, self._now(table))
        except SlicemillError as problem:
            kept = self._home.tables.get(table.name)
            if kept is None:
                raise
            _LOGGER.warning("table %s keeps its rows, as its source cannot be read: %s", table.name, problem)
            return StoredTable(self._file(kept), table.schema)

    def _now(self, table: Table) -> pa.Table:
        given = self._given.get(table.name.lower())
        if given is not None:
            return _as_columns(given, table)
        found = read_table(table, self._folder)
        return table_frame(self._spark(), table, self._folder).toArrow() if found is None else found

    def _stored(self, table: Table, rows: pa.Table) -> StoredTable:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, rows.schema) as writer:
            writer.write_table(rows.combine_chunks())
        content = sink.getvalue()
        digest = hashlib.blake2b(content, digest_size=12).hexdigest()
        file = self._file(f"{folder_name(table.name)}-{digest}.arrow")
        if not exists(LOCAL, file):
            ensure_folder(LOCAL, file.parent, self._home.durable)
            write_whole(LOCAL, file, content, self._home.durable)
        return StoredTable(file, table.schema)

    def _file(self, name: str) -> Path:
        return self._home.folder / TABLES / name


def _as_columns(rows: Sequence[Row], table: Table) -> pa.Table:
    try:
        made = to_table([Timed(0, row) for row in rows], table.schema, [0] * len(rows))
    except (pa.ArrowInvalid, pa.ArrowTypeError, IndexError, OverflowError) as problem:
        raise SlicemillError(
            f"rows of table {table.name} do not fit its columns {table.schema}: {problem}"
        ) from None
    return made.select(list(table.schema.names))
