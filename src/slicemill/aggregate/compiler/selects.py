"""Queries over local tables, as loops.

A row of a table that holds at most one is a condition, not a loop. Rows that must be sorted, or that go into
the table they come from, are collected first.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from typing import TypeAlias

from slicemill.aggregate.compiler.accumulate import Accumulator
from slicemill.aggregate.compiler.layout import MANY, default_of, dtype_of, query_bound
from slicemill.aggregate.compiler.scalars import Columns, Scalars
from slicemill.aggregate.compiler.source import Code, Unfit
from slicemill.esl.types.expression import ExistsQuery, ScalarQuery
from slicemill.esl.types.relation import RelationInput, RelationQuery
from slicemill.esl.types.schema import Kind, Type

Take: TypeAlias = Callable[[list[Code]], None]  # writes what happens to a row of a query's result


def _same(code: Code) -> Code:
    return code


class Selects(Scalars):
    """Writes queries; which tables there are is up to whoever has them."""

    bounds: Mapping[str, int]  # how many rows each table holds at most
    user_defined: frozenset[str]  # names of aggregates that are not the built-in ones

    @abstractmethod
    def rows_of(self, table: str) -> str:
        """The text of how many rows a table holds."""
        ...

    @abstractmethod
    def if_any(self, table: str) -> AbstractContextManager[None]:
        """A condition for the row of a table that holds one at most."""
        ...

    @abstractmethod
    def columns_of(self, table: str, alias: str, row: str) -> Columns:
        """The columns of a row under the names that expressions use."""
        ...

    def select(self, query: RelationQuery, columns: Columns, take: Take, stop: str | None = None) -> None:
        """Writes `take` for each row of the result; once `stop` is true no more rows are needed."""
        if query.distinct or query.group_by:
            raise Unfit("GROUP BY and DISTINCT in a body have no form in generated code")
        if query.order_by:
            self._sorted(query, columns, take)
        elif query.limit is None or query_bound(query, dict(self.bounds)) <= query.limit:
            self._unsorted(query, columns, lambda inside: take(self._items(query, inside)), stop)
        else:
            count = self.out.fresh("count")
            self.out.line(f"{count} = 0")

            def first_ones(inside: Columns) -> None:
                items = self._items(query, inside)
                with self.out.block(f"if {count} < {query.limit}:"):
                    take(items)
                self.out.line(f"{count} += 1")

            self._unsorted(query, columns, first_ones, None)

    def collect(self, query: RelationQuery, columns: Columns, take: Take) -> None:
        """`take` for each row, after all of them have been worked out."""
        self._sorted(query, columns, take)

    def _items(self, query: RelationQuery, inside: Columns) -> list[Code]:
        return [self.expression(item.expr, inside) for item in query.items]

    def _unsorted(
        self, query: RelationQuery, columns: Columns, inner: Callable[[Columns], None], stop: str | None
    ) -> None:
        if not query.aggregates:
            self._each(query, columns, inner, stop)
            return
        inside = self._totals(query, columns)
        having = self.condition(query.having, inside)
        if having == "True":
            inner(inside)
        else:
            with self.out.block(f"if {having}:"):
                inner(inside)

    def _each(
        self, query: RelationQuery, columns: Columns, inner: Callable[[Columns], None], stop: str | None
    ) -> None:
        merged = dict(columns)
        with ExitStack() as stack:
            for entry in query.inputs:
                table = self._local(entry)
                if self.bounds[table] < MANY:
                    row = "0"
                    stack.enter_context(self.if_any(table))
                else:
                    row = self.out.fresh("i")
                    stack.enter_context(self.out.block(f"for {row} in range({self.rows_of(table)}):"))
                    if stop is not None:
                        with self.out.block(f"if {stop}:"):
                            self.out.line("break")
                merged.update(self.columns_of(table, entry.alias, row))
            condition = self.condition(query.where, merged)
            if condition != "True":
                stack.enter_context(self.out.block(f"if {condition}:"))
            inner(merged)

    def _local(self, entry: RelationInput) -> str:
        table = entry.relation.lower()
        if entry.query is not None or table not in self.bounds:
            what = "a query in FROM" if entry.query is not None else f"the stored table {entry.relation}"
            raise Unfit(f"{what} is read, which only the interpreter does")
        return table

    def _totals(self, query: RelationQuery, columns: Columns) -> Columns:
        """The columns of the one group that aggregates without GROUP BY have."""
        totals = []
        for call in query.aggregates:
            if call.name.lower() in self.user_defined:
                raise Unfit(f"{call.name} is an aggregate of the user's own")
            types = tuple(argument.type for argument in call.arguments)
            totals.append(Accumulator(call, types, self.form, self.out))
        for total in totals:
            total.begin()

        def step(inside: Columns) -> None:
            for call, total in zip(query.aggregates, totals, strict=True):
                overflow = total.step([self.expression(a, inside) for a in call.arguments])
                if overflow is not None:
                    self.fail_if(overflow)

        self._each(query, columns, step, None)
        names = {f"{entry.alias}.{name}" for entry in query.inputs for name in entry.schema.names}
        visible = {name: code for name, code in columns.items() if name not in names}
        for call, total in zip(query.aggregates, totals, strict=True):
            (column,) = call.columns
            code = self.convert(self.out.named(total.value()), total.type(), column.type)
            visible[column.name] = partial(_same, code)
        return visible

    # -- sorted rows ---------------------------------------------------------------------------------------

    def _sorted(self, query: RelationQuery, columns: Columns, take: Take) -> None:
        out = self.out
        tables = [self._local(entry) for entry in query.inputs]
        many = [self.rows_of(table) for table in tables if self.bounds[table] >= MANY]
        size, count = out.fresh("size"), out.fresh("count")
        room = " * ".join(many) if many and not query.aggregates else "1"
        out.line(f"{size}, {count} = max(1, {room}), 0")
        kept = [self._array(size, item.expr.type) for item in query.items]
        keys = [(self._key(size, expr.type), descending) for expr, descending in query.order_by]

        def keep(inside: Columns) -> None:
            sort_by = [out.named(self.expression(expr, inside)) for expr, _ in query.order_by]
            for (values, ranks), code in zip((key for key, _ in keys), sort_by, strict=True):
                self._keep_key(values, ranks, count, code)
            for array, code in zip(kept, self._items(query, inside), strict=True):
                out.line(f"{array}[{count}] = {code.value}")
                out.line(f"{array}_null[{count}] = {code.null}")
            out.line(f"{count} += 1")

        self._unsorted(query, columns, keep, None)
        order = out.fresh("order")
        out.line(f"{order} = np.arange({count})")
        for ((values, ranks), descending), (expr, _) in reversed(
            list(zip(keys, query.order_by, strict=True))
        ):
            # Negatives, or complements, sort the other way round and leave ties as they are.
            sign = "" if not descending else "-" if expr.type.kind is Kind.DOUBLE else "~"
            out.line(f"{order} = ops.sorted_by({order}, {sign}{values})")
            out.line(f"{order} = ops.sorted_by({order}, {'~' if descending else ''}{ranks})")
        row = out.fresh("i")
        last = count if query.limit is None else f"min({count}, {query.limit})"
        with out.block(f"for {row} in {order}[:{last}]:"):
            take([Code(f"{array}[{row}]", f"{array}_null[{row}]") for array in kept])

    def _array(self, size: str, type_: Type) -> str:
        name = self.out.fresh("kept")
        dtype = dtype_of(type_, self.form).__name__.removesuffix("_")
        self.out.line(f"{name} = np.empty({size}, np.{dtype}{'_' if dtype in ('bool', 'object') else ''})")
        self.out.line(f"{name}_null = np.empty({size}, np.bool_)")
        return name

    def _key(self, size: str, type_: Type) -> tuple[str, str]:
        if type_.kind in (Kind.VARCHAR, Kind.DECIMAL, Kind.BINARY, Kind.PERIOD):
            raise Unfit(f"ORDER BY of {type_} has no form in generated code")
        values, ranks = self.out.fresh("key"), self.out.fresh("rank")
        dtype = "float64" if type_.kind is Kind.DOUBLE else "int64"
        self.out.line(f"{values}, {ranks} = np.zeros({size}, np.{dtype}), np.zeros({size}, np.int64)")
        return values, ranks

    def _keep_key(self, values: str, ranks: str, place: str, code: Code) -> None:
        """NULL is the smallest value and NaN the greatest."""
        with self.out.block(f"if not {code.null}:") if not code.known else nullcontext():
            self.out.line(f"{ranks}[{place}] = 1 if {code.value} == {code.value} else 2")
            with self.out.block(f"if {code.value} == {code.value}:"):
                self.out.line(f"{values}[{place}] = {code.value}")

    # -- queries used as values ----------------------------------------------------------------------------

    def scalar_query(self, expr: ScalarQuery, columns: Columns) -> Code:
        query, out = expr.query, self.out
        if query.aggregates and query.having is None and not query.order_by and query.limit is None:
            return self._items(query, self._totals(query, columns))[0]
        value, count = out.fresh(), out.fresh("rows")
        out.line(f"{value}, {value}_null, {count} = {default_of(expr.type)}, True, 0")

        def take(items: list[Code]) -> None:
            out.line(f"{value}, {value}_null = {items[0].value}, {items[0].null}")
            out.line(f"{count} += 1")

        self.select(query, columns, take)
        if query_bound(query, dict(self.bounds)) >= MANY:
            self.fail_if(f"{count} > 1")
        return Code(value, f"{value}_null")

    def exists_query(self, expr: ExistsQuery, columns: Columns) -> Code:
        query, out = expr.query, self.out
        if query.limit == 0:
            return Code("False")
        found = out.fresh("found")
        out.line(f"{found} = False")

        def take(items: list[Code]) -> None:
            del items
            out.line(f"{found} = True")

        with out.aside() as quick:
            self.select(query, columns, take, found)
        if not quick.failing:
            out.put(quick)
        else:  # an error further on must not go unnoticed
            self.select(query, columns, take)
        return Code(found)
