"""One aggregate version in generated code: its record, pools and names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from keyword import iskeyword
from typing import Any, Protocol, TypeAlias, runtime_checkable

from slicemill.aggregates.udf.compiler.expressions import Columns as ColumnCodes
from slicemill.aggregates.udf.compiler.expressions import ScalarWriter
from slicemill.aggregates.udf.compiler.layout import (
    MANY,
    Code,
    NoCompiledForm,
    RecordColumns,
    Writer,
    default_of,
    read,
    return_bound,
    returns_one,
    single_tables,
    surely_filled,
)
from slicemill.aggregates.udf.compiler.selects import SelectWriter
from slicemill.aggregates.udf.interpreter import CONDITION, MOST_ROUNDS, ROUNDS, StatementPath
from slicemill.catalog.aggregates import (
    INWINDOW,
    RETURN,
    AggregateDefinition,
    BodyState,
    Delete,
    Insert,
    Statement,
    Update,
    While,
    changes_in,
)
from slicemill.catalog.expressions import Argument, ExistsQuery, Expr, Oldest, ScalarQuery, walk
from slicemill.catalog.queries import RelationQuery
from slicemill.types import Kind, Schema, Type

ArgumentCodes: TypeAlias = Sequence[
    Callable[[], Code]
]  # the values of the arguments; call only those that are needed

CONVERSION = -1  # site of a failed conversion of an argument to its declared type

_PREFIXES = {"s": "arg", "b": "base", "c": "part"}  # prefixes of arguments, by the version's record


def safe_identifier(name: str) -> str:
    """Return an ESL name as a Python identifier."""
    plain = re.sub(r"\W", "_", name.lower())
    return f"{plain}_" if iskeyword(plain) or not plain.isidentifier() else plain


@dataclass(slots=True)
class ModuleFacts:
    """Facts shared by all parts of a module.

    `facts` are collected while the source is written: which values may be NULL, and which arguments are read.
    Earlier parts depend on facts of later parts, so the source is written again until no facts are added.
    """

    form: str
    nullable: bool  # True if arguments may be NULL
    facts: set[str] = field(default_factory=set)
    literals: dict[str, int] = field(default_factory=dict)
    closures: dict[str, Any] = field(default_factory=dict)
    sites: list[tuple[str, BodyState, StatementPath]] = field(default_factory=list)
    external: dict[str, tuple[str, str]] = field(default_factory=dict)  # methods of Python classes, by name

    def may_be_null(self, what: str, code: Code) -> None:
        if not code.known:
            self.facts.add(f"{what} may be NULL")

    def null(self, what: str, text: str) -> str:
        return text if f"{what} may be NULL" in self.facts else "False"


@dataclass(slots=True)
class WindowPool:
    """Pool of the window's tuples: raw arguments, converted when they are read.

    If no statement searches the window, blocks are rings: a new tuple replaces the expired one.
    """

    types: tuple[Type, ...]
    ring: bool = False

    def row(self, index: str) -> str:
        if self.ring:
            position = "k.window_at" if index == "0" else f"(k.window_at + {index}) % k.window_room"
            return f"window[np.uint64(k.window_begin + {position})]"
        return f"window[k.window_at + {index}]" if index != "0" else "window[k.window_at]"


class Version:
    """Generation context of one aggregate version: record, tables and names.

    `record` is the name of the partition's record, `index` the index of that record. The loop sets `give`,
    which writes code for a returned row, and `leave`, which returns the source for leaving a routine on
    failure.
    """

    def __init__(
        self,
        definition: AggregateDefinition,
        shared: ModuleFacts,
        writer: Writer,
        record: str,
        index: str,
        window: WindowPool | None,
        user_defined: frozenset[str],
    ) -> None:
        self.definition = definition
        self.shared = shared
        self.out = writer
        self.record, self.index = record, index
        self.window = window
        self.scalars = ScalarWriter(writer, shared.form, shared.literals, shared.closures, self)
        self.selects = SelectWriter(self.scalars, self, user_defined)
        self.single = single_tables(definition)
        self.schemas = {table.name.lower(): table.schema for table in definition.tables}
        self.bounds = {name: 1 if name in self.single else MANY for name in self.schemas}
        self.pools = [name for name in self.schemas if self.bounds[name] >= MANY and name != INWINDOW]
        self.filled = surely_filled(definition) & self.single
        self.give: Callable[[list[Code]], None]
        self.leave: Callable[[str], str]
        # Context of the current statement: its state, a flag that arguments are bound, and a flag that the
        # window has tuples.
        self.state = BodyState.INITIALIZE
        self.bound = True
        self.window_holds_some = False

    # -- the record ----------------------------------------------------------------------------------------

    def flagged(self, table: str) -> set[str]:
        """Return the columns of a table that may be NULL."""
        names = self.schemas[table].names
        return {safe_identifier(name) for name in names if self.maybe_null(f"{self.record} {table}.{name}")}

    def maybe_null(self, what: str) -> bool:
        return self.shared.null(what, "maybe") != "False"

    def fields(self, table: str) -> list[str]:
        """Return all record fields of a single-row table."""
        flagged = self.flagged(table)
        names = [safe_identifier(name) for name in self.schemas[table].names]
        names += [f"{name}_null" for name in names if name in flagged]
        return [self.rows_of(table), *(f"{self.record}.{safe_identifier(table)}_{name}" for name in names)]

    def array(self, table: str) -> str:
        return f"{self.record}_{safe_identifier(table)}"

    @property
    def keeps_arguments(self) -> bool:
        return f"{self.record} terminates with arguments" in self.shared.facts

    # -- names ---------------------------------------------------------------------------------------------

    def variable(self, argument: str) -> str:
        return f"{_PREFIXES[self.record]}_{safe_identifier(argument)}"

    def argument(self, expr: Argument) -> Code:
        self.shared.facts.add(f"{self.record} reads {expr.name}")
        if self.state is BodyState.TERMINATE:
            self.shared.facts.add(f"{self.record} terminates with arguments")
        name = self.variable(expr.name)
        return Code(name, self.shared.null(name, f"{name}_null"))

    def bind(self, given: ArgumentCodes, types: Sequence[Type]) -> None:
        """Write code that binds the arguments, converted to their declared types."""
        self.scalars.fail = partial(self.fail_at, CONVERSION)
        for argument, code, type_ in zip(self.definition.arguments, given, types, strict=True):
            read = f"{self.record} reads {argument.name}" in self.shared.facts
            if not read and _always_fits(type_, argument.type):
                continue
            converted = self.scalars.convert(code(), type_, argument.type)
            name = self.variable(argument.name)
            self.shared.may_be_null(name, converted)
            self.out.line(f"{name} = {converted.value}")
            if self.maybe_null(name):
                self.out.line(f"{name}_null = {converted.null}")
        if self.keeps_arguments:
            for argument in self.definition.arguments:
                current, last = (
                    self.current(argument.name),
                    f"{self.record}.last_{safe_identifier(argument.name)}",
                )
                self.out.line(f"{last} = {current.value}")
                self.out.line(f"{last}_null = {current.null}")

    def current(self, argument: str) -> Code:
        name = self.variable(argument)
        if f"{self.record} reads {argument}" not in self.shared.facts:
            return Code("0")
        return Code(name, self.shared.null(name, f"{name}_null"))

    def fail_at(self, site: int) -> None:
        self.out.line(f"return {self.leave(self.failed(site))}")
        self.out.failing = True

    def failed(self, site: int) -> str:
        """Return source that stores the arguments for the interpreter, and the site."""
        values = []
        for argument in self.definition.arguments:
            # A failed conversion has no value yet; the interpreter reads the tuple itself.
            code = self.current(argument.name) if self.bound and site != CONVERSION else Code("0")
            if code.value == "0":
                code = Code(default_of(argument.type), "True")
            values += [code.value, code.null]
        given = ", ".join([f"failure_{self.record}", str(site), self.index, "i", *values])
        return f"failed_{self.record}({given})"

    def scalar_query(self, expr: ScalarQuery, columns: ColumnCodes) -> Code:
        return self.selects.scalar_query(expr, columns)

    def exists_query(self, expr: ExistsQuery, columns: ColumnCodes) -> Code:
        return self.selects.exists_query(expr, columns)

    def oldest(self, expr: Oldest) -> Code:
        assert self.window is not None
        index = self.schemas[INWINDOW].index(expr.column)
        code = self._window_column(index, "0")
        if self.window_holds_some:
            return code
        empty = "k.window_rows == 0"
        name = self.out.fresh("oldest")
        self.out.line(f"{name}, {name}_null = {default_of(expr.type)}, True")
        with self.out.block(f"if not {empty}:"):
            self.out.line(f"{name}, {name}_null = {code.value}, {code.null}")
        return Code(name, f"{name}_null")

    def _window_column(self, index: int, row: str) -> Code:
        assert self.window is not None
        self.shared.facts.add(f"window keeps {index}")
        text = f"{self.window.row(row)}.a{index}"
        value = read(text, self.window.types[index], self.shared.form)
        code = Code(value, self.shared.null(f"window {index}", f"{text}_null"))
        with self.out.aside() as conversion:
            code = self.scalars.convert(
                code, self.window.types[index], self.schemas[INWINDOW].columns[index].type
            )
        if conversion.lines:
            raise NoCompiledForm("inwindow has other types than the arguments")
        return code

    def rows_of(self, table: str) -> str:
        if table == INWINDOW and self.window is not None:
            return "k.window_rows"
        return f"{self.record}.{safe_identifier(table)}_rows"

    def if_any(self, table: str) -> AbstractContextManager[None]:
        """Write a condition for a single-row table, if it may be empty."""
        later = self.state in (BodyState.ITERATE, BodyState.EXPIRE)
        if later and table in self.filled and not self.one_body:
            return nullcontext()
        return self.out.block(f"if {self.rows_of(table)} > 0:")

    @property
    def one_body(self) -> bool:
        """Return True if INITIALIZE and ITERATE have the same statements."""
        bodies = self.definition.bodies
        return bodies.get(BodyState.INITIALIZE) == bodies.get(BodyState.ITERATE)

    def row(self, table: str, index: str) -> str:
        """Return the source of a row in a pool."""
        if table == INWINDOW and self.window is not None:
            return self.window.row(index)
        return f"{self.array(table)}[{self.record}.{safe_identifier(table)}_at + {index}]"

    def field(self, table: str, column: str, row: str) -> str:
        if self.bounds[table] < MANY:
            return f"{self.record}.{safe_identifier(table)}_{safe_identifier(column)}"
        return f"{self.row(table, row)}.{safe_identifier(column)}"

    def columns_of(self, table: str, alias: str, row: str) -> ColumnCodes:
        schema = self.schemas[table]
        if table == INWINDOW:
            self.shared.facts.add("window is searched")
            return {
                f"{alias}.{name}": partial(self._window_column, index, row)
                for index, name in enumerate(schema.names)
            }
        return {f"{alias}.{name}": partial(self._column, table, name, row) for name in schema.names}

    def _column(self, table: str, column: str, row: str) -> Code:
        text = self.field(table, column, row)
        schema = self.schemas[table]
        value = read(text, schema.columns[schema.index(column)].type, self.shared.form)
        return Code(value, self.shared.null(f"{self.record} {table}.{column}", f"{text}_null"))


def _always_fits(source: Type, target: Type) -> bool:
    """Return True if the conversion cannot fail and may be omitted."""
    return source.kind is target.kind or target.kind is Kind.DOUBLE or target.kind is Kind.BIGINT


# ESL statements of an aggregate version, as source over records and pools.
#
# Statements are atomic. If a query in the statement reads the same table, or if the statement may fail
# half-way, its effect is computed before anything is changed.


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
            extra.append(
                (f"{safe_identifier(name)}_rows", "i8" if self.version.bounds[name] >= MANY else "i1")
            )
            if self.version.bounds[name] >= MANY:
                extra += [(f"{safe_identifier(name)}_{part}", "i8") for part in ("begin", "at", "room")]
            else:
                types |= {f"{safe_identifier(name)}_{safe_identifier(c.name)}": c.type for c in schema}
                flagged |= {f"{safe_identifier(name)}_{column}" for column in self.version.flagged(name)}
        if self.version.keeps_arguments:
            last = {f"last_{safe_identifier(a.name)}": a.type for a in self.definition.arguments}
            types |= last
            flagged |= set(last)
        return RecordColumns(types, frozenset(flagged), extra)

    def pool_columns(self, table: str) -> RecordColumns:
        types = {safe_identifier(column.name): column.type for column in self.version.schemas[table]}
        return RecordColumns(types, frozenset(self.version.flagged(table)))

    def reset(self) -> None:
        """Write code that empties the tables."""
        for name in self.version.schemas:
            if name != INWINDOW:
                self.out.line(f"{self.record}.{safe_identifier(name)}_rows = 0")

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
                f"{self.record}.last_{safe_identifier(argument.name)}",
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
        """Write the statements of a state. `bound` means that arguments have values."""
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
                    self.out.named(self._scalars.convert_expression(expr, column.type, {}))
                    for expr, column in zip(row, schema, strict=True)
                ]
                for row in statement.rows
            ]
            for row in rows:
                take(row)

    def _append(self, table: str, codes: list[Code]) -> None:
        out, record, name = self.out, self.record, safe_identifier(table)
        rows = f"{record}.{name}_rows"
        if self.version.bounds[table] >= MANY:
            with out.block(
                f"if {record}.{name}_at + {rows} == {record}.{name}_begin + {record}.{name}_room:"
            ):
                parts = ("begin", "at", "rows", "room")
                heads = ", ".join(f'{record.upper()}["{name}_{part}"]' for part in parts)
                pool = self.version.array(table)
                out.line(f"{pool} = ops.more_room({pool}, {pool}_top, {heads}, {self.version.index})")
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
        first, rows = f"{self.record}.{safe_identifier(table)}_at", self.version.rows_of(table)
        out.line(f"{new} = {self.version.array(table)}[{first} : {first} + {rows}].copy()")
        with out.block(f"for {row} in range({rows}):"):
            self._change(statement, row, lambda column: f"{new}[{row}].{safe_identifier(column)}")
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
                code = self._scalars.convert_expression(
                    expr, schema.columns[schema.index(name)].type, columns
                )
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


# Code generator interface for one version of an aggregate.


class AggregateCode(Protocol):
    """Writes a version: ESL statements, Python methods, or an extension's formulas.

    `pools` are the tables of many rows that it stores outside of its record.
    """

    @property
    def version(self) -> Version: ...

    @property
    def pools(self) -> list[str]: ...

    def columns(self) -> RecordColumns:
        """Return the fields of the record."""
        ...

    def pool_columns(self, table: str) -> RecordColumns: ...

    def reset(self) -> None:
        """Write the code that resets the state to empty."""
        ...

    def statements(self, state: BodyState, bound: bool = True) -> None:
        """Write the statements of a state. `bound` means that arguments have values."""
        ...

    def bind_last(self, started: str) -> None:
        """Write code that binds TERMINATE's arguments to those of the last tuple.

        The arguments are NULL if there was no tuple.
        """
        ...

    def bound_of(self, state: BodyState) -> int | None:
        """Return the maximum number of rows a state returns; None if unknown."""
        ...

    def returns_at_steps(self) -> bool:
        """Return True if arriving tuples may return rows."""
        ...

    def needs_window(self) -> bool:
        """Return True if the version depends on the window's content."""
        ...

    @property
    def one_body(self) -> bool:
        """Return True if INITIALIZE and ITERATE have the same statements."""
        ...

    @property
    def answers_once(self) -> bool:
        """Return True if each tuple returns exactly one row on arrival."""
        ...


@runtime_checkable
class JointCode(AggregateCode, Protocol):
    """Writes a version of several calls that share state (`slicemill.aggregates.joint`)."""

    result_test: str
    """Source of the condition that an arriving tuple returns a result."""

    @property
    def parts(self) -> int:
        """Return the number of calls."""
        ...

    def answer(self) -> None:
        """Write the code that emits the results of all calls."""
        ...

    def origins(self, other: Any, numbers: Sequence[int]) -> tuple[dict[str, str], dict[str, str]]:
        """Return the fields and pools of `other` that this code takes over.

        `numbers` are the indexes of these calls in `other`. The keys are the names in this code.
        """
        ...
