"""Versions of tables: each change writes a new version, which the tasks read from the next row on.

    rows of bid       1    2    3  │  4    5
    rows of item      first        │  second          INSERT INTO item …, a refresh, or a start

Each version of a table is a file in the home directory, named by a digest of its content. A file may contain
only the difference to an earlier version (`storage.table_files`). A task's plan has the name of the file, so
each process reads the rows once, where it joins them. The journal names the version in force. Stream rows
that arrived before a change are joined with the old table rows, also after a crash.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, overload

import numpy as np
import pyarrow as pa

from slicemill.aggregates.udf.interpreter import (
    QueryEnvironment,
    Source,
    assignment,
    columns_of,
    compile_condition_in_query,
    compile_in_query,
    compile_query,
)
from slicemill.aggregates.udf.lookup import aggregate_lookup, evaluate_relation
from slicemill.catalog.catalog import Catalog, Table, View
from slicemill.catalog.expressions import Call, ColumnRef, Expr, Literal, conjuncts
from slicemill.catalog.queries import RelationQuery
from slicemill.catalog.table_change import EXCLUDED, DeleteRows, InsertRows, TableChange, UpdateRows
from slicemill.columns.arrow_schema import to_arrow
from slicemill.columns.rows import plain_rows, plain_table, to_table
from slicemill.connectors.files.reader import read_table
from slicemill.connectors.spark.open import table_frame
from slicemill.errors import SlicemillError
from slicemill.functions.values import ExpressionError
from slicemill.kernels.arrays import Int64s
from slicemill.lifecycle.compaction import ChangelogTables
from slicemill.operators.graph import QueryGraph
from slicemill.plan.statement_equality import tables_of
from slicemill.storage.filesystem import (
    LOCAL,
    ensure_folder,
    folder_name,
    raise_storage_full,
    write_atomically,
)
from slicemill.storage.home import Home
from slicemill.storage.home_state import TABLES
from slicemill.storage.table_files import MOST_FILES, TableFile, content_digest, is_whole, read_table_file
from slicemill.types import Kind, Row, Schema, Timed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOGGER = logging.getLogger("slicemill")


class RejectedChange(SlicemillError):
    """Error in one change (INSERT, UPDATE, …) of a script. No change of the script is applied.

    `index` is the index of the failing change in the script.
    """

    def __init__(self, index: int, problem: SlicemillError) -> None:
        super().__init__(str(problem))
        self.index = index
        self.message = problem.message if isinstance(problem, RejectedRows) else str(problem)
        self.hint = problem.hint if isinstance(problem, RejectedRows) else ""


@dataclass(frozen=True, slots=True)
class StagedChanges:
    """New table versions that are written but not yet visible.

    `counts` has the number of rows that each change affected.
    """

    versions: Mapping[str, StoredTable]
    contents: Mapping[str, TableContent]
    counts: Sequence[int]


NOTHING_STAGED = StagedChanges({}, {}, ())


class TableVersions:
    """Tables of a home directory, with their current versions and rows."""

    def __init__(self, home: Home, folder: Path, spark: Callable[[], SparkSession]) -> None:
        self.changelogs = ChangelogTables()
        self._home = home
        self._folder = folder
        self._spark = spark
        self._given: dict[str, Sequence[Row]] = {}
        self._current: dict[str, StoredTable] = {}
        self._dropped: set[str] = set()
        # For each table over a changelog: folder and last epoch of the changelog when it was last read.
        self._heads: dict[str, tuple[Path, int]] = {}
        self._contents: dict[str, TableContent] = {}  # rows of recently changed tables

    def give(self, name: str, rows: Sequence[Row]) -> None:
        """Set the rows of a table from Python. These rows are used instead of the rows of its source."""
        self._given[name.lower()] = rows

    @contextmanager
    def restore_on_failure(self) -> Iterator[None]:
        """Restore the tables if the `with` block raises, because its journal record was not written."""
        before = dict(self._given), dict(self._current), set(self._dropped), dict(self._heads)
        try:
            yield
        except BaseException:
            self._given, self._current, self._dropped, self._heads = before
            self._contents.clear()
            raise

    def take_up(self, catalog: Catalog, dropped: Collection[str] = ()) -> None:
        """Load the rows of every declared table, and drop the rows of tables that are no longer declared.

        Tables in `dropped` start empty.
        """
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
        """Read a table's source again. Return True if its rows differ from the current rows."""
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
        """Return the log folder and the last epoch of the changelog whose current rows are the table.

        Return None for tables that are not over a changelog.
        """
        log = None if table.materialized is None else self._home.logs.get(table.materialized.name)
        return None if log is None else (log.folder, log.head)

    def now(self, table: Table) -> Sequence[Row]:
        """Return the current rows of a table.

        A table that neither owns its rows nor is refreshed is read from its source.
        """
        if table.owns_rows or table.refresh_us is not None:
            return self._current[table.name]
        return plain_rows(self._now(table), table.schema)

    def columns_now(self, table: Table) -> pa.Table:
        """Return the current rows of a table as Arrow columns."""
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
        """Apply INSERT, UPDATE, DELETE and TRUNCATE in order, and write a new version of each changed table.

        `catalog` need not be in force yet. Tables in `dropped` start empty. `held` returns the rows of a view
        over a stream.
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
                    assert isinstance(relation, Table), "the binder rejects streams here"
                    before = self._before(relation, dropped) if relation.owns_rows else None
                    known[name] = (
                        plain_rows(self._now(relation), relation.schema) if before is None else before
                    )
            return known[name]

        for change in changes:
            table = catalog.relation(change.table)
            if not isinstance(table, Table):
                counts.append(0)  # a later statement of the script drops the table
                continue
            name = table.name
            before = versions[name] if name in versions else self._before(table, dropped)
            if name not in contents:
                contents[name] = self._content(table, before)
            try:
                after = contents[name].changed(change, catalog, rows_of)
            except SlicemillError as problem:
                raise RejectedChange(len(counts), problem) from None
            counts.append(after.count)
            if after.gone or after.added:
                versions[name], contents[name] = self._next(table, before, after, contents[name])
        return StagedChanges(versions, contents, counts)

    def stage_results(self, table: Table, changes: Iterable[tuple[bool, Row]]) -> StagedChanges:
        """Write a new version of a table after a query's inserts (True) and deletes (False)."""
        before = self._before(table, ())
        content = self._content(table, before)
        after = content.take_results(changes)
        versions: dict[str, StoredTable] = {}
        if after.gone or after.added:
            versions[table.name], content = self._next(table, before, after, content)
        return StagedChanges(versions, {table.name: content}, [after.count])

    def adopt(self, staged: StagedChanges) -> None:
        """Make the staged table versions current. The next journal record must name the new versions."""
        self._current.update(staged.versions)
        self._contents.update(staged.contents)

    def _before(self, table: Table, dropped: Collection[str]) -> StoredTable | None:
        """Return the version of a table to which a change applies, or None if the table has no rows."""
        if table.name in dropped:
            return None
        if table.name.lower() in self._given and table.name not in self._current:
            return self._stored(table, self._now(table))
        current = self._current.get(table.name)
        return self._kept(table) if current is None else current

    def _content(self, table: Table, before: StoredTable | None) -> TableContent:
        # The caller changes the content in place, so the content is removed here; `adopt` puts it back.
        known = self._contents.pop(table.name, None)
        if known is not None and known.table == table and before is self._current.get(table.name):
            return known
        return TableContent(table, NumberedRows({}, 0) if before is None else before.numbered)

    def _next(
        self, table: Table, before: StoredTable | None, after: RowsAfter, content: TableContent
    ) -> tuple[StoredTable, TableContent]:
        """Write a new version of a table, either as a difference to the previous version or with all rows.

        Rows of a whole version are numbered from 0, so the new content is returned too.
        """
        new = plain_table(after.added, table.schema)
        if before is None:
            return self._write_version(table, TableFile(new)), content  # the content keeps its row numbers
        gone = np.array(after.gone, np.int64)
        first = content.next - len(after.added)
        file = file_in(before.file).next_version(before.file.name, gone, new, first)
        if not file.is_long(len(content.rows)):
            return self._write_version(table, file), content
        numbers, rows = columns_in(before.file)
        kept = rows.filter(pa.array(np.isin(numbers, gone, invert=True))).cast(new.schema)
        whole = self._write_version(table, TableFile(pa.concat_tables([kept, new])))
        return whole, TableContent(table, whole.numbered)

    def versions_read_by(self, graph: QueryGraph, catalog: Catalog) -> dict[str, StoredTable]:
        """Return the versions of the tables that a query graph reads."""
        return {name: self._current[name] for name in tables_of(graph, catalog)}

    def rows_as_of_commit(self, tables: Mapping[str, Sequence[Row]]) -> dict[str, Sequence[Row]]:
        """Return the committed version of each table. Stream rows that arrived earlier are joined with it."""
        found = dict(tables)
        for name in tables.keys() & self._home.tables.keys():
            found[name] = StoredTable(self._file(self._home.tables[name]), self._current[name].schema)
        return found

    def changes(self) -> dict[str, str | None]:
        """Return the file of each changed table for the journal record, and None for each dropped table.

        Call when no task needs the committed versions any more.
        """
        known = self._home.tables
        changed: dict[str, str | None] = {name: None for name in self._dropped if name in known}
        for name, table in self._current.items():
            if known.get(name) != table.file.name:
                changed[name] = table.file.name
        self._dropped.clear()
        return changed

    def _kept(self, table: Table) -> StoredTable | None:
        """Return the committed version of a table whose rows statements change, or None if there is none."""
        kept = self._home.tables.get(table.name)
        if kept is None or not table.owns_rows or table.name.lower() in self._given:
            return None
        if table.name in self._dropped:
            return None
        return StoredTable(self._file(kept), table.schema)

    def _first(self, table: Table) -> StoredTable:
        """Read the source of a table when it is declared; if reading fails, keep the committed version."""
        try:
            return self._taken(table)
        except SlicemillError as problem:
            kept = self._home.tables.get(table.name)
            if kept is None:
                raise
            _LOGGER.warning("table %s keeps its rows, as its source cannot be read: %s", table.name, problem)
            return StoredTable(self._file(kept), table.schema)

    def _taken(self, table: Table) -> StoredTable:
        """Write a version of a table with the rows of its source, or with rows that a Python program has set.

        Rows set from Python for a table without a source are used only once, because statements may change
        them.
        """
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
            if log is None:  # no statement has written the log yet
                return to_arrow(table.schema).empty_table()
            if log.freed >= 0 and not log.changes:
                raise SlicemillError(
                    f"changes of {table.materialized.name} were deleted (RETAIN); declare it without RETAIN"
                )
            now = self.changelogs.now(log, table.materialized.changes)
            return now.select(list(table.schema.names)).cast(to_arrow(table.schema))
        found = read_table(table, self._folder)
        return table_frame(self._spark(), table, self._folder).toArrow() if found is None else found

    def _stored(self, table: Table, rows: pa.Table) -> StoredTable:
        if table.key or table.required:  # `TableContent` raises an error on NULLs or duplicate keys
            numbered = dict(enumerate(plain_rows(rows, table.schema)))
            TableContent(table, NumberedRows(numbered, len(numbered)))
        return self._write_version(table, TableFile(rows))

    def _write_version(self, table: Table, file: TableFile) -> StoredTable:
        content = file.encoded()
        path = self._file(f"{folder_name(table.name)}-{content_digest(content)}.arrow")
        if not is_whole(LOCAL, path):
            with raise_storage_full(self._home.folder):
                ensure_folder(LOCAL, path.parent, self._home.durable)
                write_atomically(LOCAL, path, content, self._home.durable)
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


# INSERT, UPDATE, DELETE and TRUNCATE
#
# A change is applied wholly or not at all. Subqueries read the rows before the change.


_WHOLE_NUMBERS = {Kind.INT, Kind.BIGINT}

Key = tuple[object, ...]
Assign = Callable[[Row, QueryEnvironment], Row]


class RejectedRows(SlicemillError):
    """Error: rows violate a NOT NULL or PRIMARY KEY constraint of a table. `hint` says what to do."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(f"{message}; {hint}")
        self.message = message
        self.hint = hint


@dataclass(slots=True)
class RowsAfter:
    """Effect of one change on a table: the row numbers of deleted rows, and the new rows.

    `count` is the number of affected rows.
    """

    gone: list[int]
    added: list[Row]
    count: int


class TableContent:
    """Current rows of a table, with an index on its primary key."""

    def __init__(self, table: Table, version: NumberedRows) -> None:
        self.table = table
        self.rows = dict(version.rows)
        self.next = version.next
        self._indices = [table.schema.index(name) for name in table.key]
        self._never_null = [
            (name, table.schema.index(name)) for name in dict.fromkeys((*table.key, *table.required))
        ]
        self._keys: dict[Key, int] = {}
        for number, row in self.rows.items() if self._never_null else ():
            self._take(number, row)

    def changed(self, change: TableChange, catalog: Catalog, source: Source) -> RowsAfter:
        """Apply INSERT, UPDATE, DELETE or TRUNCATE to the rows; `source` returns the rows of other tables."""
        try:
            after = self._evaluate_change(change, catalog, source)
        except ExpressionError as problem:
            raise SlicemillError(str(problem)) from None
        self._adopt(after)
        return after

    def take_results(self, changes: Iterable[tuple[bool, Row]]) -> RowsAfter:
        """Apply a query's results to the table rows: inserts (True) and deletes (False).

        An insert replaces the row with the same key. A table without a key keeps all rows.
        """
        after = self._with_results(list(changes))
        self._adopt(after)
        return after

    def _with_results(self, changes: list[tuple[bool, Row]]) -> RowsAfter:
        if not self._indices:
            return RowsAfter([], [row for _, row in changes], len(changes))
        latest = {self._key_of(row): row if comes else None for comes, row in changes}
        before = {key: self._keys.get(key) for key in latest}
        differs = {
            key: row
            for key, row in latest.items()
            if row != (None if (number := before[key]) is None else self.rows[number])
        }
        gone = [number for key in differs if (number := before[key]) is not None]
        return RowsAfter(gone, [row for row in differs.values() if row is not None], len(changes))

    def _evaluate_change(self, change: TableChange, catalog: Catalog, source: Source) -> RowsAfter:
        if isinstance(change, InsertRows):
            return self._insert(change, catalog, source)
        if isinstance(change, UpdateRows):
            return self._update(change, catalog, source)
        where = change.where if isinstance(change, DeleteRows) else None
        gone = [number for number, _, _ in self._chosen(where, catalog, source)]
        return RowsAfter(gone, [], len(gone))

    def _adopt(self, after: RowsAfter) -> None:
        for row in after.added:
            self._check_nulls(row)
        gone = after.gone if self._indices else ()
        freed = {self._key_of(self.rows[number]) for number in gone}
        if self._indices:
            new: set[Key] = set()
            for row in after.added:
                key = self._key_of(row)
                if key in new or (key in self._keys and key not in freed):
                    raise self._duplicate(key)
                new.add(key)
        for number in after.gone:
            del self.rows[number]
        for key in freed:
            del self._keys[key]
        for number, row in enumerate(after.added, self.next):
            self.rows[number] = row
            if self._indices:
                self._keys[self._key_of(row)] = number
        self.next += len(after.added)

    def _take(self, number: int, row: Row) -> None:
        self._check_nulls(row)
        if self._indices:
            key = self._key_of(row)
            if key in self._keys:
                raise self._duplicate(key)
            self._keys[key] = number

    def _check_nulls(self, row: Row) -> None:
        for name, index in self._never_null:
            if row[index] is None:
                raise RejectedRows(f"{name} of table {self.table.name} must not be NULL", "give it a value")

    def _key_of(self, row: Row) -> Key:
        return tuple(row[index] for index in self._indices)

    def _duplicate(self, key: Key) -> RejectedRows:
        shown = ", ".join(f"{name} = {value!r}" for name, value in zip(self.table.key, key, strict=True))
        return RejectedRows(
            f"table {self.table.name} has a row with {shown} already",
            "write INSERT OR REPLACE, or add ON CONFLICT DO UPDATE SET …, to change that row",
        )

    def _insert(self, change: InsertRows, catalog: Catalog, source: Source) -> RowsAfter:
        rows = list(_rows_to_insert(change, self.table, catalog, source))
        if change.conflict is None or not self._indices:
            return RowsAfter([], rows, len(rows))
        conflict = change.conflict
        env = QueryEnvironment(source)
        assign = _assigner(conflict.assignments, self.table, catalog)
        holds = compile_condition_in_query(conflict.where, aggregate_lookup(catalog, source))
        new: dict[Key, Row] = {}
        gone: list[int] = []
        count = 0
        for row in rows:
            key = self._key_of(row)
            number = self._keys.get(key)
            if key in new and conflict.assignments:
                raise RejectedRows(
                    f"two of the new rows have the key {', '.join(map(repr, key))}", "give each key once"
                )
            if number is None:
                count += key not in new
                new.setdefault(key, row)
            elif conflict.assignments:
                before = self.rows[number]
                inside = self._row_environment(before, env).around(
                    columns_of(EXCLUDED, self.table.schema, row)
                )
                if holds(inside):
                    gone.append(number)
                    new[key] = assign(before, inside)
                    count += 1
        return RowsAfter(gone, list(new.values()), count)

    def _update(self, change: UpdateRows, catalog: Catalog, source: Source) -> RowsAfter:
        assign = _assigner(change.assignments, self.table, catalog)
        chosen = list(self._chosen(change.where, catalog, source))
        rows = [assign(row, inside) for _, row, inside in chosen]
        return RowsAfter([number for number, _, _ in chosen], rows, len(rows))

    def _chosen(
        self, where: Expr | None, catalog: Catalog, source: Source
    ) -> Iterator[tuple[int, Row, QueryEnvironment]]:
        holds = compile_condition_in_query(where, aggregate_lookup(catalog, source))
        env = QueryEnvironment(source)
        for number in self._candidates(where):
            row = self.rows[number]
            inside = self._row_environment(row, env)
            if holds(inside):
                yield number, row, inside

    def _candidates(self, where: Expr | None) -> Iterable[int]:
        """Return the row numbers of the rows that may satisfy a WHERE condition.

        A condition on the whole primary key is looked up in the index of the key.
        """
        named = dict(_equalities(where, self.table))
        if not self._indices or not all(name in named for name in self.table.key):
            return self.rows.keys()
        number = self._keys.get(tuple(named[name] for name in self.table.key))
        return () if number is None else (number,)

    def _row_environment(self, row: Row, env: QueryEnvironment) -> QueryEnvironment:
        return env.around(columns_of(self.table.name, self.table.schema, row))


def _rows_to_insert(change: InsertRows, table: Table, catalog: Catalog, source: Source) -> Iterator[Row]:
    """Yield the rows of an INSERT in the column order of the table.

    Columns that the INSERT does not name are NULL.
    """
    lookup = aggregate_lookup(catalog, source)
    env = QueryEnvironment(source)
    columns = [table.schema.columns[table.schema.index(name)] for name in change.columns]
    indices = {name: index for index, name in enumerate(change.columns)}

    def in_order(values: Sequence[object]) -> Row:
        return tuple(values[indices[name]] if name in indices else None for name in table.schema.names)

    if change.query is not None:
        given = zip(change.query.schema, columns, strict=True)
        convert = [assignment(column.type, into.type) for column, into in given]
        for row in compile_query(change.query, lookup)(env):
            yield in_order([to(value) for to, value in zip(convert, row, strict=True)])
    for values in change.rows:
        made = [
            assignment(value.type, column.type)(compile_in_query(value, lookup)(env))
            for value, column in zip(values, columns, strict=True)
        ]
        yield in_order(made)


def _assigner(assignments: Sequence[tuple[str, Expr]], table: Table, catalog: Catalog) -> Assign:
    lookup = aggregate_lookup(catalog)
    made = [
        (
            table.schema.index(name),
            compile_in_query(value, lookup),
            assignment(value.type, table.schema.columns[table.schema.index(name)].type),
        )
        for name, value in assignments
    ]

    def assign(row: Row, inside: QueryEnvironment) -> Row:
        new = list(row)
        for index, value, to in made:
            new[index] = to(value(inside))
        return tuple(new)

    return assign


def _equalities(where: Expr | None, table: Table) -> Iterator[tuple[str, object]]:
    """Yield column and constant of each equality in a WHERE condition between values of the same type."""
    for part in conjuncts(where) if where is not None else ():
        if not isinstance(part, Call) or part.function != "=":
            continue
        for column, other in (part.arguments, part.arguments[::-1]):
            if isinstance(column, ColumnRef) and isinstance(other, Literal) and other.value is not None:
                kinds = {column.type.kind, other.type.kind}
                if len(kinds) == 1 or kinds == _WHOLE_NUMBERS:
                    yield column.name.removeprefix(f"{table.name}."), other.value


# Cache of table versions in each process, by file name.
#
# A process needs a few current versions of tables, and the earlier versions that their files build on.


# Number of cached table versions: a few current versions, and the earlier versions that they build on.
_READ_AT_ONCE = 2 * MOST_FILES


@dataclass(frozen=True)
class NumberedRows:
    """Rows of a table version by row number. `next` is the row number of the next new row."""

    rows: Mapping[int, Row]
    next: int

    @cached_property
    def in_order(self) -> list[Row]:
        return list(self.rows.values())

    def after(self, gone: Sequence[int], added: Sequence[Row]) -> NumberedRows:
        """Return the rows without the row numbers in `gone`, followed by the rows in `added`."""
        rows = dict(self.rows)
        for number in gone:
            del rows[number]
        rows.update(enumerate(added, self.next))
        return NumberedRows(rows, self.next + len(added))


class StoredTable(Sequence[Row]):
    """Version of a table's rows, loaded from its file on first use."""

    __slots__ = ("file", "schema")

    def __init__(self, file: Path, schema: Schema) -> None:
        self.file = file
        self.schema = schema

    @property
    def numbered(self) -> NumberedRows:
        return _rows_in(self.file, self.schema)

    @property
    def columns(self) -> pa.Table:
        """Return the rows as Arrow columns."""
        return columns_in(self.file)[1]

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | Sequence[Row]:
        return self.numbered.in_order[index]

    def __iter__(self) -> Iterator[Row]:
        return iter(self.numbered.in_order)

    def __len__(self) -> int:
        return len(self.numbered.rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StoredTable) and (self.file, self.schema) == (other.file, other.schema)

    def __hash__(self) -> int:
        return hash(self.file)


@lru_cache(maxsize=_READ_AT_ONCE)
def file_in(file: Path) -> TableFile:
    """Return the decoded file of a table version, from a cache."""
    return read_table_file(LOCAL, file)


@lru_cache(maxsize=_READ_AT_ONCE)
def _rows_in(file: Path, schema: Schema) -> NumberedRows:
    said = file_in(file)
    added = plain_rows(said.rows, schema)
    if said.parent is None:
        return NumberedRows(dict(enumerate(added)), len(added))
    return _rows_in(file.parent / said.parent, schema).after(said.deleted.tolist(), added)


@lru_cache(maxsize=16)
def columns_in(file: Path) -> tuple[Int64s, pa.Table]:
    """Return the row numbers of a table version, and its rows as Arrow columns."""
    said = file_in(file)
    own = np.arange(said.first, said.next)
    if said.parent is None:
        return own, said.rows
    numbers, rows = columns_in(file.parent / said.parent)
    if len(said.deleted):
        stays = np.isin(numbers, said.deleted, invert=True)
        numbers, rows = numbers[stays], rows.filter(pa.array(stays))
    added = said.rows.replace_schema_metadata(None)
    return np.concatenate([numbers, own]), pa.concat_tables([rows, added])
