"""ESL statements of an aggregate version, as source over records and pools.

Statements are atomic. If a query in the statement reads the same table, or if the statement may fail
half-way, its effect is computed before anything is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

from slicemill.aggregate.compiler.layout import MANY, RecordColumns, read, return_bound, returns_one
from slicemill.aggregate.compiler.source import Code
from slicemill.aggregate.compiler.version import Version, safe
from slicemill.aggregate.interpreter.statements import CONDITION, MOST_ROUNDS, ROUNDS, StatementPath
from slicemill.esl.types.aggregate import (
    INWINDOW,
    RETURN,
    BodyState,
    Delete,
    Insert,
    Statement,
    Update,
    While,
    changes_in,
)
from slicemill.esl.types.expression import ExistsQuery, Expr, ScalarQuery, walk
from slicemill.esl.types.relation import RelationQuery
from slicemill.esl.types.schema import Schema, Type


class StatementCode:
    """Writes a version that is written in ESL, state by state."""

    def __init__(self, version: Version) -> None:
        self.version = version
        self.out = version.out
        self.definition, self.record = version.definition, version.record
        self.pools = version.pools
        self._scalars, self._selects = version.scalars, version.selects

    @property
    def one_body(self) -> bool:
        return self.version.one_body

    def columns(self) -> RecordColumns:
        """Return the fields of the record."""
        types: dict[str, Type] = {}
        flagged: set[str] = set()
        extra: list[tuple[str, Any]] = []
        for name, schema in self.version.schemas.items():
            if name == INWINDOW:
                continue
            extra.append((f"{safe(name)}_rows", "i8" if self.version.bounds[name] >= MANY else "i1"))
            if self.version.bounds[name] >= MANY:
                extra += [(f"{safe(name)}_{part}", "i8") for part in ("begin", "at", "room")]
            else:
                types |= {f"{safe(name)}_{safe(c.name)}": c.type for c in schema}
                flagged |= {f"{safe(name)}_{column}" for column in self.version.flagged(name)}
        if self.version.keeps_arguments:
            last = {f"last_{safe(a.name)}": a.type for a in self.definition.arguments}
            types |= last
            flagged |= set(last)
        return RecordColumns(types, frozenset(flagged), extra)

    def pool_columns(self, table: str) -> RecordColumns:
        types = {safe(column.name): column.type for column in self.version.schemas[table]}
        return RecordColumns(types, frozenset(self.version.flagged(table)))

    def reset(self) -> None:
        """Write code that empties the tables."""
        for name in self.version.schemas:
            if name != INWINDOW:
                self.out.line(f"{self.record}.{safe(name)}_rows = 0")

    def bind_last(self, started: str) -> None:
        """Write code that binds TERMINATE's arguments to those of the last tuple.

        The arguments are NULL if there was no tuple.
        """
        if not self.version.keeps_arguments:
            return
        for argument in self.definition.arguments:
            if f"{self.record} reads {argument.name}" not in self.version.shared.facts:
                continue
            name, last = (
                self.version.variable(argument.name),
                f"{self.record}.last_{safe(argument.name)}",
            )
            self.version.shared.facts.add(f"{name} may be NULL")
            self.out.line(f"{name} = {read(last, argument.type, self.version.shared.form)}")
            self.out.line(f"{name}_null = not {started} or {last}_null")

    def returns_at_steps(self) -> bool:
        states = (BodyState.INITIALIZE, BodyState.ITERATE)
        bodies = [statement for state in states for statement in self.definition.bodies.get(state, ())]
        return any(isinstance(s, Insert) and s.table == RETURN for s in changes_in(bodies))

    def needs_window(self) -> bool:
        return INWINDOW in self.version.schemas or bool(self.definition.bodies.get(BodyState.EXPIRE))

    @property
    def answers_once(self) -> bool:
        first, later = (self.definition.bodies.get(s, ()) for s in (BodyState.INITIALIZE, BodyState.ITERATE))
        before = frozenset() if self.version.one_body else self.version.filled
        return returns_one(first, frozenset()) and returns_one(later, before)

    def statements(self, state: BodyState, bound: bool = True) -> None:
        """Write the statements of a state; `bound`: arguments have values."""
        self.version.state, self.version.bound = state, bound
        self.version.window_holds_some = True  # the arriving or the expiring tuple
        self._in_turn(self.definition.bodies.get(state, ()), ())

    def _in_turn(self, statements: Sequence[Statement], path: StatementPath) -> None:
        """Write statements in order; `path` leads to the enclosing loop."""
        for index, statement in enumerate(statements):
            here = (*path, index)
            if isinstance(statement, While):
                self._loop(statement, here)
                continue
            self._scalars.fail = partial(self.version.fail_at, self._site(here))
            if isinstance(statement, Insert):
                self._insert(statement)
            elif isinstance(statement, Update):
                self._update(statement)
            else:
                self._delete(statement)
                if statement.table == INWINDOW:
                    self.version.window_holds_some = False

    def _site(self, path: StatementPath) -> int:
        self.version.shared.sites.append((self.record, self.version.state, path))
        return len(self.version.shared.sites)

    def _loop(self, statement: While, path: StatementPath) -> None:
        out, rounds = self.out, self.out.fresh("rounds")
        if deletes_from_window(statement.statements):
            self.version.window_holds_some = False  # from the second round on
        out.line(f"{rounds} = 0")
        with out.block("while True:"):
            self._scalars.fail = partial(self.version.fail_at, self._site((*path, CONDITION)))
            with out.block(f"if not ({self._scalars.condition(statement.condition, {})}):"):
                out.line("break")
            with out.block(f"if {rounds} == {MOST_ROUNDS}:"):
                self.version.fail_at(self._site((*path, ROUNDS)))
            out.line(f"{rounds} += 1")
            self._in_turn(statement.statements, path)

    def bound_of(self, state: BodyState) -> int | None:
        return return_bound(self.definition.bodies.get(state, ()), self.version.single)

    def _insert(self, statement: Insert) -> None:
        returns = statement.table == RETURN
        schema = self.definition.returns if returns else self.version.schemas[statement.table.lower()]
        take = self.version.give if returns else partial(self._append, statement.table.lower())
        if statement.query is not None:
            query = statement.query

            def taken(items: list[Code]) -> None:
                take(
                    [
                        self._scalars.convert(code, given.type, column.type)
                        for code, given, column in zip(items, query.schema, schema, strict=True)
                    ]
                )

            reads_itself = statement.table.lower() in set(_tables_of(query))
            (self._selects.collect if reads_itself else self._selects.select)(query, {}, taken)
            return
        condition = self._scalars.condition(statement.where, {})
        with self.out.block(f"if {condition}:") if condition != "True" else nullcontext():
            rows = [
                [
                    self.out.named(self._scalars.converted(expr, column.type, {}))
                    for expr, column in zip(row, schema, strict=True)
                ]
                for row in statement.rows
            ]
            for row in rows:
                take(row)

    def _append(self, table: str, codes: list[Code]) -> None:
        out, record, name = self.out, self.record, safe(table)
        rows = f"{record}.{name}_rows"
        if self.version.bounds[table] >= MANY:
            with out.block(
                f"if {record}.{name}_at + {rows} == {record}.{name}_begin + {record}.{name}_room:"
            ):
                parts = ("begin", "at", "rows", "room")
                heads = ", ".join(f'{record.upper()}["{name}_{part}"]' for part in parts)
                pool = self.version.array(table)
                out.line(f"{pool} = ops.more_room({pool}, {pool}_top, {heads}, {self.version.place})")
        for column, code in zip(self.version.schemas[table], codes, strict=True):
            self.version.shared.may_be_null(f"{record} {table}.{column.name}", code)
            text = self.version.field(table, column.name, rows)
            out.line(f"{text} = {code.value}")
            if self.version.maybe_null(f"{record} {table}.{column.name}"):
                out.line(f"{text}_null = {code.null}")
        out.line(f"{rows} += 1")

    def _update(self, statement: Update) -> None:
        table, out = statement.table.lower(), self.out
        if self.version.bounds[table] < MANY:
            with self.version.if_any(table):
                self._change(statement, "0", lambda column: self.version.field(table, column, "0"))
            return
        row = out.fresh("i")
        with out.aside() as direct, out.block(f"for {row} in range({self.version.rows_of(table)}):"):
            self._change(statement, row, lambda column: self.version.field(table, column, row))
        if not direct.failing and table not in set(_read_by(statement)):
            out.put(direct)
            return
        new = out.fresh("new")
        first, rows = f"{self.record}.{safe(table)}_at", self.version.rows_of(table)
        out.line(f"{new} = {self.version.array(table)}[{first} : {first} + {rows}].copy()")
        with out.block(f"for {row} in range({rows}):"):
            self._change(statement, row, lambda column: f"{new}[{row}].{safe(column)}")
        with out.block(f"for {row} in range({rows}):"):
            out.line(f"{self.version.row(table, row)} = {new}[{row}]")

    def _change(self, statement: Update, row: str, target: Callable[[str], str]) -> None:
        """Write assignments, which all read the row before the update."""
        table = statement.table.lower()
        schema: Schema = self.version.schemas[table]
        columns = self.version.columns_of(table, statement.table, row)
        condition = self._scalars.condition(statement.where, columns)
        with self.out.block(f"if {condition}:") if condition != "True" else nullcontext():
            left, right = [], []
            for name, expr in statement.assignments:
                code = self._scalars.converted(expr, schema.columns[schema.index(name)].type, columns)
                self.version.shared.may_be_null(f"{self.record} {table}.{name}", code)
                left.append(target(name))
                right.append(code.value)
                if self.version.maybe_null(f"{self.record} {table}.{name}"):
                    left.append(f"{target(name)}_null")
                    right.append(code.null)
            self.out.line(f"{', '.join(left)} = {', '.join(right)}")

    def _delete(self, statement: Delete) -> None:
        table, out = statement.table.lower(), self.out
        rows = self.version.rows_of(table)
        if statement.where is None:
            out.line(f"{rows} = 0")
            return
        if self.version.bounds[table] < MANY:
            with out.block(f"if {rows} > 0:"):
                columns = self.version.columns_of(table, statement.table, "0")
                with out.block(f"if {self._scalars.condition(statement.where, columns)}:"):
                    out.line(f"{rows} = 0")
            return
        row, left = out.fresh("i"), out.fresh("left")
        columns = self.version.columns_of(table, statement.table, row)
        with out.aside() as direct:
            out.line(f"{left} = 0")
            with out.block(f"for {row} in range({rows}):"):
                self._keep(table, row, left, self._scalars.condition(statement.where, columns))
            out.line(f"{rows} = {left}")
        if not direct.failing and table not in set(_read_by(statement)):
            out.put(direct)
            return
        gone = out.fresh("gone")
        out.line(f"{gone} = np.empty({rows}, np.bool_)")
        with out.block(f"for {row} in range({rows}):"):
            out.line(f"{gone}[{row}] = {self._scalars.condition(statement.where, columns)}")
        out.line(f"{left} = 0")
        with out.block(f"for {row} in range({rows}):"):
            self._keep(table, row, left, f"{gone}[{row}]")
        out.line(f"{rows} = {left}")

    def _keep(self, table: str, row: str, left: str, gone: str) -> None:
        with self.out.block(f"if not {gone}:"):
            with self.out.block(f"if {left} != {row}:"):
                self.out.line(f"{self.version.row(table, left)} = {self.version.row(table, row)}")
            self.out.line(f"{left} += 1")


def deletes_from_window(statements: Sequence[Statement]) -> bool:
    return any(isinstance(s, Delete) and s.table == INWINDOW for s in changes_in(statements))


def _tables_of(query: RelationQuery) -> Iterator[str]:
    for entry in query.inputs:
        for inner in entry.queries:
            yield from _tables_of(inner)
        if not entry.queries:
            yield entry.relation.lower()
    expressions: list[Expr | None] = [query.where, query.having, *(item.expr for item in query.items)]
    expressions += [expr for expr, _ in query.order_by]
    expressions += [argument for call in query.aggregates for argument in call.arguments]
    for expr in expressions:
        yield from _tables_in(expr)


def _tables_in(expr: Expr | None) -> Iterator[str]:
    """Yield the tables that queries in an expression read."""
    for node in walk(expr) if expr is not None else ():
        if isinstance(node, ScalarQuery | ExistsQuery):
            yield from _tables_of(node.query)


def _read_by(statement: Update | Delete) -> Iterator[str]:
    yield from _tables_in(statement.where)
    if isinstance(statement, Update):
        for _, expr in statement.assignments:
            yield from _tables_in(expr)
