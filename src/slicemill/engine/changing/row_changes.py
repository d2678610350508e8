"""INSERT, UPDATE, DELETE and TRUNCATE: changes of a table's rows.

A change is applied wholly or not at all. Subqueries read the rows before the change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from slicemill.aggregate.interpreter.lookup import aggregate_lookup
from slicemill.aggregate.interpreter.relations import (
    QueryEnvironment,
    Source,
    assignment,
    columns_of,
    compile_condition_in_query,
    compile_in_query,
    compile_query,
)
from slicemill.engine.changing.stored_tables import NumberedRows
from slicemill.errors import SlicemillError
from slicemill.esl.types.catalog import Catalog, Table
from slicemill.esl.types.expression import Call, ColumnRef, Expr, Literal, conjuncts
from slicemill.esl.types.schema import Kind
from slicemill.esl.types.table_change import (
    EXCLUDED,
    DeleteRows,
    InsertRows,
    TableChange,
    UpdateRows,
)
from slicemill.rows import Row
from slicemill.scalar.values import ExpressionError

_WHOLE_NUMBERS = {Kind.INT, Kind.BIGINT}

Key = tuple[object, ...]
Assign = Callable[[Row, QueryEnvironment], Row]


class TableRefused(SlicemillError):
    """Error of rows that violate their table's declaration, with a hint."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(f"{message}; {hint}")
        self.message = message
        self.hint = hint


@dataclass(slots=True)
class RowsAfter:
    """Effect of a change: deleted row numbers, new rows, affected rows."""

    gone: list[int]
    added: list[Row]
    count: int


class TableContent:
    """Current rows of a table, with an index of its key."""

    def __init__(self, table: Table, version: NumberedRows) -> None:
        self.table = table
        self.rows = dict(version.rows)
        self.next = version.next
        self._places = [table.schema.index(name) for name in table.key]
        self._never_null = [
            (name, table.schema.index(name)) for name in dict.fromkeys((*table.key, *table.required))
        ]
        self._keys: dict[Key, int] = {}
        for number, row in self.rows.items() if self._never_null else ():
            self._take(number, row)

    def changed(self, change: TableChange, catalog: Catalog, source: Source) -> RowsAfter:
        """Apply a change; `source` returns the rows of other tables."""
        try:
            after = self._worked_out(change, catalog, source)
        except ExpressionError as problem:
            raise SlicemillError(str(problem)) from None
        self._adopt(after)
        return after

    def take_results(self, changes: Iterable[tuple[bool, Row]]) -> RowsAfter:
        """Apply results of a query: inserts (True) and deletes.

        An insert replaces the row with the same key. A table without a key keeps all rows.
        """
        after = self._with_results(list(changes))
        self._adopt(after)
        return after

    def _with_results(self, changes: list[tuple[bool, Row]]) -> RowsAfter:
        if not self._places:
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

    def _worked_out(self, change: TableChange, catalog: Catalog, source: Source) -> RowsAfter:
        if isinstance(change, InsertRows):
            return self._inserted(change, catalog, source)
        if isinstance(change, UpdateRows):
            return self._updated(change, catalog, source)
        where = change.where if isinstance(change, DeleteRows) else None
        gone = [number for number, _, _ in self._chosen(where, catalog, source)]
        return RowsAfter(gone, [], len(gone))

    def _adopt(self, after: RowsAfter) -> None:
        for row in after.added:
            self._check_nulls(row)
        gone = after.gone if self._places else ()
        freed = {self._key_of(self.rows[number]) for number in gone}
        if self._places:
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
            if self._places:
                self._keys[self._key_of(row)] = number
        self.next += len(after.added)

    def _take(self, number: int, row: Row) -> None:
        self._check_nulls(row)
        if self._places:
            key = self._key_of(row)
            if key in self._keys:
                raise self._duplicate(key)
            self._keys[key] = number

    def _check_nulls(self, row: Row) -> None:
        for name, place in self._never_null:
            if row[place] is None:
                raise TableRefused(f"{name} of table {self.table.name} must not be NULL", "give it a value")

    def _key_of(self, row: Row) -> Key:
        return tuple(row[place] for place in self._places)

    def _duplicate(self, key: Key) -> TableRefused:
        shown = ", ".join(f"{name} = {value!r}" for name, value in zip(self.table.key, key, strict=True))
        return TableRefused(
            f"table {self.table.name} has a row with {shown} already",
            "write INSERT OR REPLACE, or add ON CONFLICT DO UPDATE SET …, to change that one",
        )

    def _inserted(self, change: InsertRows, catalog: Catalog, source: Source) -> RowsAfter:
        rows = list(_given(change, self.table, catalog, source))
        if change.conflict is None or not self._places:
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
                raise TableRefused(
                    f"two of the new rows have the key {', '.join(map(repr, key))}", "give each key once"
                )
            if number is None:
                count += key not in new
                new.setdefault(key, row)
            elif conflict.assignments:
                before = self.rows[number]
                inside = self._inside(before, env).around(columns_of(EXCLUDED, self.table.schema, row))
                if holds(inside):
                    gone.append(number)
                    new[key] = assign(before, inside)
                    count += 1
        return RowsAfter(gone, list(new.values()), count)

    def _updated(self, change: UpdateRows, catalog: Catalog, source: Source) -> RowsAfter:
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
            inside = self._inside(row, env)
            if holds(inside):
                yield number, row, inside

    def _candidates(self, where: Expr | None) -> Iterable[int]:
        """Return the row numbers that may satisfy a condition.

        The key index finds a condition on the whole key.
        """
        named = dict(_equalities(where, self.table))
        if not self._places or not all(name in named for name in self.table.key):
            return self.rows.keys()
        number = self._keys.get(tuple(named[name] for name in self.table.key))
        return () if number is None else (number,)

    def _inside(self, row: Row, env: QueryEnvironment) -> QueryEnvironment:
        return env.around(columns_of(self.table.name, self.table.schema, row))


def _given(change: InsertRows, table: Table, catalog: Catalog, source: Source) -> Iterator[Row]:
    """Yield the rows of an INSERT in the table's column order.

    Missing columns are NULL.
    """
    lookup = aggregate_lookup(catalog, source)
    env = QueryEnvironment(source)
    columns = [table.schema.columns[table.schema.index(name)] for name in change.columns]
    places = {name: place for place, name in enumerate(change.columns)}

    def in_order(values: Sequence[object]) -> Row:
        return tuple(values[places[name]] if name in places else None for name in table.schema.names)

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
        for place, value, to in made:
            new[place] = to(value(inside))
        return tuple(new)

    return assign


def _equalities(where: Expr | None, table: Table) -> Iterator[tuple[str, object]]:
    """Yield `column = constant` conditions whose sides have the same kind."""
    for part in conjuncts(where) if where is not None else ():
        if not isinstance(part, Call) or part.function != "=":
            continue
        for column, other in (part.arguments, part.arguments[::-1]):
            if isinstance(column, ColumnRef) and isinstance(other, Literal) and other.value is not None:
                kinds = {column.type.kind, other.type.kind}
                if len(kinds) == 1 or kinds == _WHOLE_NUMBERS:
                    yield column.name.removeprefix(f"{table.name}."), other.value
