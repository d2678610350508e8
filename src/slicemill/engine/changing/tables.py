"""Tables: rows that change as a whole, between two tuples.

    tuples of bid     1    2    3  │  4    5
    rows of item      first        │  second          INSERT INTO item …, mill.refresh("item"), or a start

A version of a table's rows is a file in the home, named by its content, and those that it builds on
(`storage.table_files`). Plans of units hold its name, so rows are read where they are looked up, once in a
process. The journal says which version is in force: what arrived before a change meets the rows from before
it, also after a crash.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from slicemill.aggregate.interpreter.lookup import evaluate_relation
from slicemill.columns.rows import plain_rows, plain_table, to_table
from slicemill.connectors.files.table import read_table
from slicemill.connectors.spark.frame import table_frame
from slicemill.engine.changing.changelog_tables import ChangelogTables
from slicemill.engine.changing.row_changes import RowsAfter, TableContent, TableRefused
from slicemill.engine.changing.stored_tables import NumberedRows, StoredTable, columns_in, file_in
from slicemill.errors import SlicemillError
from slicemill.esl.types.catalog import Catalog, Table, View
from slicemill.esl.types.relation import RelationQuery
from slicemill.esl.types.table_change import TableChange
from slicemill.operators.graph import QueryGraph
from slicemill.plan.reads import tables_of
from slicemill.rows import Row, Timed
from slicemill.storage.arrow_schema import to_arrow
from slicemill.storage.files import LOCAL, ensure_folder, folder_name, telling_full, write_whole
from slicemill.storage.home import Home
from slicemill.storage.home_state import TABLES
from slicemill.storage.table_files import TableFile, content_digest, is_whole

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOGGER = logging.getLogger("slicemill")


class RefusedChange(SlicemillError):
    """One of several changes that cannot be made, by its place among them: none of them is."""

    def __init__(self, place: int, problem: SlicemillError) -> None:
        super().__init__(str(problem))
        self.place = place
        self.message = problem.message if isinstance(problem, TableRefused) else str(problem)
        self.hint = problem.hint if isinstance(problem, TableRefused) else ""


@dataclass(frozen=True, slots=True)
class StagedChanges:
    """What changes come to, before anybody sees them; `counts` has the rows that each one was about."""

    versions: Mapping[str, StoredTable]
    contents: Mapping[str, TableContent]
    counts: Sequence[int]


NOTHING_STAGED = StagedChanges({}, {}, ())


class TableVersions:
    """The tables of a mill: the versions that its units are to see, and their rows as they are now."""

    def __init__(
        self, home: Home, folder: Path, spark: Callable[[], SparkSession], changelogs: ChangelogTables
    ) -> None:
        self._changelogs = changelogs
        self._home = home
        self._folder = folder
        self._spark = spark
        self._given: dict[str, Sequence[Row]] = {}
        self._current: dict[str, StoredTable] = {}
        self._dropped: set[str] = set()
        self._heads: dict[str, tuple[Path, int]] = {}  # of logs, when the tables made of them were read
        self._contents: dict[str, TableContent] = {}  # of those whose rows were changed last

    def give(self, name: str, rows: Sequence[Row]) -> None:
        """Rows of a table, in place of its source."""
        self._given[name.lower()] = rows

    @contextmanager
    def kept_on_failure(self) -> Iterator[None]:
        """Take changes of the tables back if what is done inside raises: its record was not written."""
        before = dict(self._given), dict(self._current), set(self._dropped), dict(self._heads)
        try:
            yield
        except BaseException:
            self._given, self._current, self._dropped, self._heads = before
            self._contents.clear()
            raise

    def take_up(self, catalog: Catalog, dropped: Collection[str] = ()) -> None:
        """Have a version of every table that is declared, and of no other; `dropped` begin anew."""
        declared = {r.name: r for r in catalog.relations.values() if isinstance(r, Table)}
        for name in {*(self._current.keys() - declared.keys()), *(self._current.keys() & set(dropped))}:
            del self._current[name]
            self._contents.pop(name, None)
            self._given.pop(name.lower(), None)
            self._dropped.add(name)
        for name, table in declared.items():
            if name not in self._current:
                kept = self._kept(table)
                self._current[name] = self._first(table) if kept is None else kept

    def refresh(self, table: Table) -> bool:
        """Have the rows of a table as its source, or a program, has them now; whether they are others."""
        if table.owns_rows and table.name.lower() not in self._given:
            return False
        head = self._head(table)
        if head is not None and self._heads.get(table.name) == head:
            return False
        before = self._current.get(table.name)
        self._current[table.name] = self._taken(table)
        self._contents.pop(table.name, None)
        if head is not None:
            self._heads[table.name] = head
        return before != self._current[table.name]

    def _head(self, table: Table) -> tuple[Path, int] | None:
        """Where the log stands that a table is made of, if it is."""
        log = None if table.materialized is None else self._home.logs.get(table.materialized.name)
        return None if log is None else (log.folder, log.head)

    def now(self, table: Table) -> Sequence[Row]:
        """What a table of its own rows, or one that is refreshed, has; of another, what its source holds."""
        if table.owns_rows or table.refresh_us is not None:
            return self._current[table.name]
        return plain_rows(self._now(table), table.schema)

    def columns_now(self, table: Table) -> pa.Table:
        """The same as columns."""
        if table.owns_rows or table.refresh_us is not None:
            return self._current[table.name].columns
        return self._now(table)

    def stage(
        self,
        changes: Iterable[TableChange],
        catalog: Catalog,
        dropped: Collection[str],
        held: Callable[[View], Sequence[Row]],
    ) -> StagedChanges:
        """Work changes out, one after another, for tables of a catalog that may be yet to come.

        `dropped` begin anew; `held` says what views over streams hold.
        """
        known: dict[str, Sequence[Row]] = {}
        contents: dict[str, TableContent] = {}
        versions: dict[str, StoredTable] = {}
        counts: list[int] = []

        def rows_of(name: str) -> Sequence[Row]:
            relation = catalog.relation(name)
            if relation is not None and relation.name in contents:
                return list(contents[relation.name].rows.values())
            if isinstance(relation, View) and isinstance(relation.query, RelationQuery):
                return evaluate_relation(relation.query, catalog, rows_of)
            if name not in known:
                if isinstance(relation, View):
                    known[name] = held(relation)
                else:
                    assert isinstance(relation, Table), "the binder asks for what is finite"
                    before = self._before(relation, dropped) if relation.owns_rows else None
                    known[name] = (
                        plain_rows(self._now(relation), relation.schema) if before is None else before
                    )
            return known[name]

        for change in changes:
            table = catalog.relation(change.table)
            if not isinstance(table, Table):
                counts.append(0)  # it is dropped further down
                continue
            name = table.name
            before = versions[name] if name in versions else self._before(table, dropped)
            if name not in contents:
                contents[name] = self._content(table, before)
            try:
                after = contents[name].changed(change, catalog, rows_of)
            except SlicemillError as problem:
                raise RefusedChange(len(counts), problem) from None
            counts.append(after.count)
            if after.gone or after.added:
                versions[name], contents[name] = self._next(table, before, after, contents[name])
        return StagedChanges(versions, contents, counts)

    def stage_results(self, table: Table, changes: Iterable[tuple[bool, Row]]) -> StagedChanges:
        """Work out what rows of a query that come and go make of a table with rows of its own."""
        before = self._before(table, ())
        content = self._content(table, before)
        after = content.take_results(changes)
        versions: dict[str, StoredTable] = {}
        if after.gone or after.added:
            versions[table.name], content = self._next(table, before, after, content)
        return StagedChanges(versions, {table.name: content}, [after.count])

    def adopt(self, staged: StagedChanges) -> None:
        """Take staged changes over as the rows of now; the next record has to name them."""
        self._current.update(staged.versions)
        self._contents.update(staged.contents)

    def _before(self, table: Table, dropped: Collection[str]) -> StoredTable | None:
        """The version that a change of a table builds on; None if it has no rows yet."""
        if table.name in dropped:
            return None
        if table.name.lower() in self._given and table.name not in self._current:
            return self._stored(table, self._now(table))
        current = self._current.get(table.name)
        return self._kept(table) if current is None else current

    def _content(self, table: Table, before: StoredTable | None) -> TableContent:
        # Whoever changes it has it to himself: what is not adopted is forgotten.
        known = self._contents.pop(table.name, None)
        if known is not None and known.table == table and before is self._current.get(table.name):
            return known
        return TableContent(table, NumberedRows({}, 0) if before is None else before.numbered)

    def _next(
        self, table: Table, before: StoredTable | None, after: RowsAfter, content: TableContent
    ) -> tuple[StoredTable, TableContent]:
        """A version by what differs from the one before it, or whole; and its content, whose rows have other
        numbers then."""
        new = plain_table(after.added, table.schema)
        if before is None:
            return self._kept_as(table, TableFile(new)), content  # with the numbers that they have
        gone = np.array(after.gone, np.int64)
        first = content.next - len(after.added)
        file = file_in(before.file).followed_by(before.file.name, gone, new, first)
        if not file.is_long(len(content.rows)):
            return self._kept_as(table, file), content
        numbers, rows = columns_in(before.file)
        kept = rows.filter(pa.array(np.isin(numbers, gone, invert=True))).cast(new.schema)
        whole = self._kept_as(table, TableFile(pa.concat_tables([kept, new])))
        return whole, TableContent(table, whole.numbered)

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
        """What a mill before has left: there is no source to ask."""
        kept = self._home.tables.get(table.name)
        if kept is None or not table.owns_rows or table.name.lower() in self._given:
            return None
        if table.name in self._dropped:
            return None
        return StoredTable(self._file(kept), table.schema)

    def _first(self, table: Table) -> StoredTable:
        """The rows of the source when a mill starts; of one that cannot be read, those of the mill before."""
        try:
            return self._taken(table)
        except SlicemillError as problem:
            kept = self._home.tables.get(table.name)
            if kept is None:
                raise
            _LOGGER.warning("table %s keeps its rows, as its source cannot be read: %s", table.name, problem)
            return StoredTable(self._file(kept), table.schema)

    def _taken(self, table: Table) -> StoredTable:
        """The rows of a source or a program. What a program gives to a table without a source, it gives once:
        others may change it from then on."""
        try:
            return self._stored(table, self._now(table))
        finally:
            if table.owns_rows:
                self._given.pop(table.name.lower(), None)

    def _now(self, table: Table) -> pa.Table:
        given = self._given.get(table.name.lower())
        if given is not None:
            return _as_columns(given, table)
        if table.owns_rows:
            return to_arrow(table.schema).empty_table()
        if table.materialized is not None:
            log = self._home.logs.get(table.materialized.name)
            if log is None:  # nothing has run yet
                return to_arrow(table.schema).empty_table()
            if log.freed >= 0 and not log.changes:
                raise SlicemillError(f"changes of {table.materialized.name} are gone; leave RETAIN out of it")
            now = self._changelogs.now(log, table.materialized.changes)
            return now.select(list(table.schema.names)).cast(to_arrow(table.schema))
        found = read_table(table, self._folder)
        return table_frame(self._spark(), table, self._folder).toArrow() if found is None else found

    def _stored(self, table: Table, rows: pa.Table) -> StoredTable:
        if table.key or table.required:  # raises if the rows are not as they should be
            numbered = dict(enumerate(plain_rows(rows, table.schema)))
            TableContent(table, NumberedRows(numbered, len(numbered)))
        return self._kept_as(table, TableFile(rows))

    def _kept_as(self, table: Table, file: TableFile) -> StoredTable:
        content = file.encoded()
        path = self._file(f"{folder_name(table.name)}-{content_digest(content)}.arrow")
        if not is_whole(LOCAL, path):
            with telling_full(self._home.folder):
                ensure_folder(LOCAL, path.parent, self._home.durable)
                write_whole(LOCAL, path, content, self._home.durable)
        return StoredTable(path, table.schema)

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
