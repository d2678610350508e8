"""The statements of one version of an aggregate, as source over its partition's record and pools.

A statement takes effect as a whole: where its own table is read by a query in it, or it may fail half-way,
what it does is worked out before anything is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial

from slicemill.aggregate.compiler.layout import MANY, return_bound
from slicemill.aggregate.compiler.source import Code
from slicemill.aggregate.compiler.version import Version, safe
from slicemill.esl.types.aggregate import INWINDOW, RETURN, Delete, Insert, State, Update
from slicemill.esl.types.expression import ExistsQuery, Expr, ScalarQuery, walk
from slicemill.esl.types.relation import RelationQuery
from slicemill.esl.types.schema import Schema


class Procedure(Version):
    """Writes the statements of a version."""

    def statements(self, state: State, bound: bool = True) -> None:
        """All statements of a state; `bound`: the arguments have values."""
        self._state, self._bound = state, bound
        self._window_holds_some = True  # the tuple that has come, or that is about to leave
        for index, statement in enumerate(self.definition.bodies.get(state, ())):
            self.shared.sites.append((self.record, state, index))
            site = len(self.shared.sites)
            self.fail = partial(self.fail_at, site)
            if isinstance(statement, Insert):
                self._insert(statement)
            elif isinstance(statement, Update):
                self._update(statement)
            else:
                self._delete(statement)
                self._window_holds_some = self._window_holds_some and statement.table != INWINDOW

    def bound_of(self, state: State) -> int | None:
        return return_bound(self.definition.bodies.get(state, ()), self.single)

    def _insert(self, statement: Insert) -> None:
        returns = statement.table == RETURN
        schema = self.definition.returns if returns else self.schemas[statement.table.lower()]
        take = self.give if returns else partial(self._append, statement.table.lower())
        if statement.query is not None:
            query = statement.query

            def taken(items: list[Code]) -> None:
                take(
                    [
                        self.convert(code, given.type, column.type)
                        for code, given, column in zip(items, query.schema, schema, strict=True)
                    ]
                )

            reads_itself = statement.table.lower() in set(_tables_of(query))
            (self.collect if reads_itself else self.select)(query, {}, taken)
            return
        condition = self.condition(statement.where, {})
        with self.out.block(f"if {condition}:") if condition != "True" else nullcontext():
            rows = [
                [
                    self.out.named(self.converted(expr, column.type, {}))
                    for expr, column in zip(row, schema, strict=True)
                ]
                for row in statement.rows
            ]
            for row in rows:
                take(row)

    def _append(self, table: str, codes: list[Code]) -> None:
        out, record, name = self.out, self.record, safe(table)
        rows = f"{record}.{name}_rows"
        if self.bounds[table] >= MANY:
            with out.block(
                f"if {record}.{name}_at + {rows} == {record}.{name}_begin + {record}.{name}_room:"
            ):
                parts = ("begin", "at", "rows", "room")
                heads = ", ".join(f'{record.upper()}["{name}_{part}"]' for part in parts)
                pool = self.array(table)
                out.line(f"{pool} = ops.more_room({pool}, {pool}_top, {heads}, {self.place})")
        for column, code in zip(self.schemas[table], codes, strict=True):
            self.shared.may_be_null(f"{record} {table}.{column.name}", code)
            text = self.field(table, column.name, rows)
            out.line(f"{text} = {code.value}")
            if self._maybe_null(f"{record} {table}.{column.name}"):
                out.line(f"{text}_null = {code.null}")
        out.line(f"{rows} += 1")

    def _update(self, statement: Update) -> None:
        table, out = statement.table.lower(), self.out
        if self.bounds[table] < MANY:
            with self.if_any(table):
                self._change(statement, "0", lambda column: self.field(table, column, "0"))
            return
        row = out.fresh("i")
        with out.aside() as direct, out.block(f"for {row} in range({self.rows_of(table)}):"):
            self._change(statement, row, lambda column: self.field(table, column, row))
        if not direct.failing and table not in set(_read_by(statement)):
            out.put(direct)
            return
        new = out.fresh("new")
        first, rows = f"{self.record}.{safe(table)}_at", self.rows_of(table)
        out.line(f"{new} = {self.array(table)}[{first} : {first} + {rows}].copy()")
        with out.block(f"for {row} in range({rows}):"):
            self._change(statement, row, lambda column: f"{new}[{row}].{safe(column)}")
        with out.block(f"for {row} in range({rows}):"):
            out.line(f"{self.row(table, row)} = {new}[{row}]")

    def _change(self, statement: Update, row: str, target: Callable[[str], str]) -> None:
        """All assignments read the row as it was."""
        table = statement.table.lower()
        schema: Schema = self.schemas[table]
        columns = self.columns_of(table, statement.table, row)
        condition = self.condition(statement.where, columns)
        with self.out.block(f"if {condition}:") if condition != "True" else nullcontext():
            left, right = [], []
            for name, expr in statement.assignments:
                code = self.converted(expr, schema.columns[schema.index(name)].type, columns)
                self.shared.may_be_null(f"{self.record} {table}.{name}", code)
                left.append(target(name))
                right.append(code.value)
                if self._maybe_null(f"{self.record} {table}.{name}"):
                    left.append(f"{target(name)}_null")
                    right.append(code.null)
            self.out.line(f"{', '.join(left)} = {', '.join(right)}")

    def _delete(self, statement: Delete) -> None:
        table, out = statement.table.lower(), self.out
        rows = self.rows_of(table)
        if statement.where is None:
            out.line(f"{rows} = 0")
            return
        if self.bounds[table] < MANY:
            with out.block(f"if {rows} > 0:"):
                columns = self.columns_of(table, statement.table, "0")
                with out.block(f"if {self.condition(statement.where, columns)}:"):
                    out.line(f"{rows} = 0")
            return
        row, left = out.fresh("i"), out.fresh("left")
        columns = self.columns_of(table, statement.table, row)
        with out.aside() as direct:
            out.line(f"{left} = 0")
            with out.block(f"for {row} in range({rows}):"):
                self._keep(table, row, left, self.condition(statement.where, columns))
            out.line(f"{rows} = {left}")
        if not direct.failing and table not in set(_read_by(statement)):
            out.put(direct)
            return
        gone = out.fresh("gone")
        out.line(f"{gone} = np.empty({rows}, np.bool_)")
        with out.block(f"for {row} in range({rows}):"):
            out.line(f"{gone}[{row}] = {self.condition(statement.where, columns)}")
        out.line(f"{left} = 0")
        with out.block(f"for {row} in range({rows}):"):
            self._keep(table, row, left, f"{gone}[{row}]")
        out.line(f"{rows} = {left}")

    def _keep(self, table: str, row: str, left: str, gone: str) -> None:
        with self.out.block(f"if not {gone}:"):
            with self.out.block(f"if {left} != {row}:"):
                self.out.line(f"{self.row(table, left)} = {self.row(table, row)}")
            self.out.line(f"{left} += 1")


def _tables_of(query: RelationQuery) -> Iterator[str]:
    for entry in query.inputs:
        if entry.query is not None:
            yield from _tables_of(entry.query)
        else:
            yield entry.relation.lower()
    expressions: list[Expr | None] = [query.where, query.having, *(item.expr for item in query.items)]
    expressions += [expr for expr, _ in query.order_by]
    expressions += [argument for call in query.aggregates for argument in call.arguments]
    for expr in expressions:
        yield from _tables_in(expr)


def _tables_in(expr: Expr | None) -> Iterator[str]:
    """The tables that queries in an expression read."""
    for node in walk(expr) if expr is not None else ():
        if isinstance(node, ScalarQuery | ExistsQuery):
            yield from _tables_of(node.query)


def _read_by(statement: Update | Delete) -> Iterator[str]:
    yield from _tables_in(statement.where)
    if isinstance(statement, Update):
        for _, expr in statement.assignments:
            yield from _tables_in(expr)
