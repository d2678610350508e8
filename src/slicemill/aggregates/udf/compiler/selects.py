"""Code generator for queries over the local tables of an aggregate.

For a table of at most one row, a condition is generated instead of a loop. Rows are first collected in arrays
if they must be sorted, or if they are inserted into the table from which they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from typing import Protocol, TypeAlias

from slicemill.aggregates.udf.compiler.expressions import Columns, ScalarWriter
from slicemill.aggregates.udf.compiler.layout import (
    MACHINE,
    MANY,
    Code,
    NoCompiledForm,
    Writer,
    any_null,
    default_of,
    dtype_of,
    query_bound,
)
from slicemill.catalog.expressions import ExistsQuery, ScalarQuery
from slicemill.catalog.queries import AggregateCall, RelationInput, RelationQuery
from slicemill.functions.comparison import less_source
from slicemill.types import Kind, Type

Take: TypeAlias = Callable[[list[Code]], None]  # function that writes code for one row of a query's result

_NUMBERS = (Kind.INT, Kind.BIGINT, Kind.DOUBLE)
_MEANS = ("avg", "mean")
_ORDERED = (*_NUMBERS, Kind.BOOLEAN, Kind.TIMESTAMP, Kind.DATE, Kind.INTERVAL)


def _same(code: Code) -> Code:
    return code


class Tables(Protocol):
    """Code generator for access to the local tables that queries read."""

    @property
    def bounds(self) -> Mapping[str, int]:
        """Return the maximum number of rows of each table."""
        ...

    def rows_of(self, table: str) -> str:
        """Return a code expression for the number of rows in a local table."""
        ...

    def if_any(self, table: str) -> AbstractContextManager[None]:
        """Write an `if` around code that reads a table of at most one row."""
        ...

    def columns_of(self, table: str, alias: str, row: str) -> Columns:
        """Return code generators for the columns of a table row, by their names in expressions."""
        ...


class SelectWriter:
    """Code generator for queries over local tables.

    `user_defined` has the names of user-defined aggregates, which compiled queries cannot call.
    """

    def __init__(self, scalars: ScalarWriter, tables: Tables, user_defined: frozenset[str]) -> None:
        self.out = scalars.out
        self._scalars = scalars
        self._tables = tables
        self._user_defined = user_defined

    def select(self, query: RelationQuery, columns: Columns, take: Take, stop: str | None = None) -> None:
        """Write a loop over the rows of a query's result.

        `take` writes the code for one row. The loop ends early if the code expression `stop` is true.
        """
        if query.distinct or query.group_by:
            raise NoCompiledForm("GROUP BY and DISTINCT in an aggregate cannot be compiled")
        if query.order_by:
            self._sorted(query, columns, take)
        elif query.limit is None or query_bound(query, dict(self._tables.bounds)) <= query.limit:
            self._select_unsorted(query, columns, lambda inside: take(self._items(query, inside)), stop)
        else:
            count = self.out.fresh("count")
            self.out.line(f"{count} = 0")

            def take_until_limit(inside: Columns) -> None:
                items = self._items(query, inside)
                with self.out.block(f"if {count} < {query.limit}:"):
                    take(items)
                self.out.line(f"{count} += 1")

            self._select_unsorted(query, columns, take_until_limit, None)

    def collect(self, query: RelationQuery, columns: Columns, take: Take) -> None:
        """Write code that computes all rows of a query's result, and then a loop over these rows.

        `take` writes the code for one row.
        """
        self._sorted(query, columns, take)

    def _items(self, query: RelationQuery, inside: Columns) -> list[Code]:
        return [self._scalars.expression(item.expr, inside) for item in query.items]

    def _select_unsorted(
        self, query: RelationQuery, columns: Columns, inner: Callable[[Columns], None], stop: str | None
    ) -> None:
        if not query.aggregates:
            self._each(query, columns, inner, stop)
            return
        inside = self._totals(query, columns)
        having = self._scalars.condition(query.having, inside)
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
                if self._tables.bounds[table] < MANY:
                    row = "0"
                    stack.enter_context(self._tables.if_any(table))
                else:
                    row = self.out.fresh("i")
                    stack.enter_context(self.out.block(f"for {row} in range({self._tables.rows_of(table)}):"))
                    if stop is not None:
                        with self.out.block(f"if {stop}:"):
                            self.out.line("break")
                merged.update(self._tables.columns_of(table, entry.alias, row))
            condition = self._scalars.condition(query.where, merged)
            if condition != "True":
                stack.enter_context(self.out.block(f"if {condition}:"))
            inner(merged)

    def _local(self, entry: RelationInput) -> str:
        table = entry.relation.lower()
        if entry.query is not None or table not in self._tables.bounds:
            what = "a query in FROM" if entry.query is not None else f"the stored table {entry.relation}"
            raise NoCompiledForm(f"only the interpreter can read {what}")
        return table

    def _totals(self, query: RelationQuery, columns: Columns) -> Columns:
        """Write code that computes the aggregates of a query without GROUP BY. Return the visible columns."""
        totals = []
        for call in query.aggregates:
            if call.name.lower() in self._user_defined:
                raise NoCompiledForm(f"{call.name} is a user-defined aggregate")
            types = tuple(argument.type for argument in call.arguments)
            totals.append(LocalAggregate(call, types, self._scalars.form, self.out))
        for total in totals:
            total.begin()

        def step(inside: Columns) -> None:
            for call, total in zip(query.aggregates, totals, strict=True):
                overflow = total.step([self._scalars.expression(a, inside) for a in call.arguments])
                if overflow is not None:
                    self._scalars.fail_if(overflow)

        self._each(query, columns, step, None)
        names = {f"{entry.alias}.{name}" for entry in query.inputs for name in entry.schema.names}
        visible = {name: code for name, code in columns.items() if name not in names}
        for call, total in zip(query.aggregates, totals, strict=True):
            (column,) = call.columns
            code = self._scalars.convert(self.out.named(total.value()), total.type(), column.type)
            visible[column.name] = partial(_same, code)
        return visible

    # -- queries whose rows are collected and sorted -------------------------------------------------------

    def _sorted(self, query: RelationQuery, columns: Columns, take: Take) -> None:
        out = self.out
        tables = [self._local(entry) for entry in query.inputs]
        many = [self._tables.rows_of(table) for table in tables if self._tables.bounds[table] >= MANY]
        size, count = out.fresh("size"), out.fresh("count")
        room = " * ".join(many) if many and not query.aggregates else "1"
        out.line(f"{size}, {count} = max(1, {room}), 0")
        arrays = [self._array(size, item.expr.type) for item in query.items]
        keys = [(self._key(size, expr.type), descending) for expr, descending in query.order_by]

        def keep(inside: Columns) -> None:
            sort_by = [out.named(self._scalars.expression(expr, inside)) for expr, _ in query.order_by]
            for (values, ranks), code in zip((key for key, _ in keys), sort_by, strict=True):
                self._keep_key(values, ranks, count, code)
            for array, code in zip(arrays, self._items(query, inside), strict=True):
                out.line(f"{array}[{count}] = {code.value}")
                out.line(f"{array}_null[{count}] = {code.null}")
            out.line(f"{count} += 1")

        self._select_unsorted(query, columns, keep, None)
        order = out.fresh("order")
        out.line(f"{order} = np.arange({count})")
        for ((values, ranks), descending), (expr, _) in reversed(
            list(zip(keys, query.order_by, strict=True))
        ):
            # Keys are negated or complemented for DESC, so that rows with equal keys remain in order.
            sign = "" if not descending else "-" if expr.type.kind is Kind.DOUBLE else "~"
            out.line(f"{order} = ops.sorted_by({order}, {sign}{values})")
            out.line(f"{order} = ops.sorted_by({order}, {'~' if descending else ''}{ranks})")
        row = out.fresh("i")
        last = count if query.limit is None else f"min({count}, {query.limit})"
        with out.block(f"for {row} in {order}[:{last}]:"):
            take([Code(f"{array}[{row}]", f"{array}_null[{row}]") for array in arrays])

    def _array(self, size: str, type_: Type) -> str:
        name = self.out.fresh("kept")
        dtype = dtype_of(type_, self._scalars.form).__name__.removesuffix("_")
        self.out.line(f"{name} = np.empty({size}, np.{dtype}{'_' if dtype in ('bool', 'object') else ''})")
        self.out.line(f"{name}_null = np.empty({size}, np.bool_)")
        return name

    def _key(self, size: str, type_: Type) -> tuple[str, str]:
        if type_.kind in (Kind.VARCHAR, Kind.DECIMAL, Kind.BINARY, Kind.PERIOD):
            raise NoCompiledForm(f"ORDER BY of {type_} cannot be compiled")
        values, ranks = self.out.fresh("key"), self.out.fresh("rank")
        dtype = "float64" if type_.kind is Kind.DOUBLE else "int64"
        self.out.line(f"{values}, {ranks} = np.zeros({size}, np.{dtype}), np.zeros({size}, np.int64)")
        return values, ranks

    def _keep_key(self, values: str, ranks: str, index: str, code: Code) -> None:
        """Write code that stores the sort key of a row. NULL is the smallest value, NaN the greatest."""
        with self.out.block(f"if not {code.null}:") if not code.known else nullcontext():
            self.out.line(f"{ranks}[{index}] = 1 if {code.value} == {code.value} else 2")
            with self.out.block(f"if {code.value} == {code.value}:"):
                self.out.line(f"{values}[{index}] = {code.value}")

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
        if query_bound(query, dict(self._tables.bounds)) >= MANY:
            self._scalars.fail_if(f"{count} > 1")
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
        else:  # all rows are processed, because an error in a later row must be raised
            self.select(query, columns, take)
        return Code(found)


class LocalAggregate:
    """Code generator for a built-in aggregate over a local table: code before, in and after the row loop."""

    def __init__(self, call: AggregateCall, types: tuple[Type, ...], form: str, out: Writer) -> None:
        self._name = call.name.lower()
        self._types = types
        self._out = out
        self._in = out.fresh(f"{self._name}_")
        kind = types[0].kind if types else None
        of_numbers = self._name in ("sum", *_MEANS) and kind in _NUMBERS
        ordered = self._name in ("min", "max") and (kind in _ORDERED or form != MACHINE)
        if call.distinct or not (of_numbers or ordered or self._name in ("count", "first", "last")):
            raise NoCompiledForm(f"{call.name} of {' and '.join(map(str, types))} cannot be compiled")
        self._exact = of_numbers and (self._name in _MEANS or kind is Kind.DOUBLE)

    def begin(self) -> None:
        out, name = self._out, self._in
        if self._name == "count":
            out.line(f"{name} = 0")
        elif self._exact:
            out.line(f"{name}, {name}_count = np.zeros(exact.CELLS, np.int64), 0")
        elif self._name == "sum":
            out.line(f"{name}, {name}_count = 0, 0")
        else:
            flag = f", {name}_null" if self._name in ("first", "last") else ""
            value = ", True" if flag else ""
            out.line(f"{name}, {name}_count{flag} = {default_of(self._types[0])}, 0{value}")

    def step(self, arguments: list[Code]) -> str | None:
        """Write the code for one row of the loop.

        Return a code expression that is true after an overflow and must be tested immediately, or None.
        """
        out, name = self._out, self._in
        if self._name in ("first", "last"):
            (code,) = arguments
            with out.block(f"if {name}_count == 0:") if self._name == "first" else nullcontext():
                out.line(f"{name}, {name}_null = {code.value}, {code.null}")
            out.line(f"{name}_count += 1")
            return None
        null = any_null(arguments)
        with out.block(f"if not {null}:") if null != "False" else nullcontext():
            if self._name == "count":
                out.line(f"{name} += 1")
                return None
            code = out.named(arguments[0])
            if self._exact:
                add = "add" if self._types[0].kind is Kind.DOUBLE else "add_integer"
                out.line(f"exact.{add}({name}, {code.value})")
            elif self._name == "sum":
                before = out.fresh()
                out.line(f"{before} = {name}")
                out.line(f"{name} = {before} + {code.value}")
            else:
                old, new = (name, code.value) if self._name == "max" else (code.value, name)
                with out.block(f"if {name}_count == 0 or {less_source(self._types[0].kind, old, new)}:"):
                    out.line(f"{name} = {code.value}")
            out.line(f"{name}_count += 1")
        if self._name == "sum" and not self._exact:
            return f"not {null} and (({before} ^ {name}) & ({code.value} ^ {name})) < 0"
        return None

    def value(self) -> Code:
        name = self._in
        if self._name == "count":
            return Code(name)
        if self._name in ("first", "last"):
            return Code(name, f"{name}_null")
        if self._exact:
            by = f"{name}_count" if self._name in _MEANS else "1"
            return Code(f"exact.quotient({name}, max({by}, 1))", f"({name}_count == 0)")
        return Code(name, f"({name}_count == 0)")

    def type(self) -> Type:
        """Return the type of the aggregate's value, before its conversion to the declared type."""
        if self._name == "count" or (self._name == "sum" and not self._exact):
            return Type(Kind.BIGINT)
        return Type(Kind.DOUBLE) if self._exact else self._types[0]
