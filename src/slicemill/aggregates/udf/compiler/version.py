"""Code generator for one variant of an aggregate: its state, names and ESL statements.

An aggregate has a variant for unbounded streams (CREATE AGGREGATE), a variant for windows (CREATE WINDOW
AGGREGATE), or both. In generated code, a record has the state of one partition: the tables of at most one
row, and where the rows of other tables are. A pool is an array with the rows of one local table for all
partitions. The class `Version` stands for one variant.
"""

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

# Code generators for the values of a tuple's arguments. Only arguments that are used are generated.
ArgumentCodes: TypeAlias = Sequence[Callable[[], Code]]

# Number that stands for a failed conversion of an argument, in place of the number of a failed statement
CONVERSION = -1

# Prefixes of the variables for arguments, by the name of the record variable
_PREFIXES = {"s": "arg", "b": "base", "c": "part"}


def safe_identifier(name: str) -> str:
    """Convert a table, column or argument name to a Python identifier."""
    plain = re.sub(r"\W", "_", name.lower())
    return f"{plain}_" if iskeyword(plain) or not plain.isidentifier() else plain


@dataclass(slots=True)
class ModuleFacts:
    """Facts about an aggregate call that the generator collects while it writes the module's code.

    `facts` say which values may be NULL, and which arguments are read. Earlier code depends on facts that
    later code adds. So the module is generated again until no facts are added.
    """

    form: str
    nullable: bool  # True if arguments of the call may be NULL
    facts: set[str] = field(default_factory=set)
    literals: dict[str, int] = field(default_factory=dict)
    closures: dict[str, Any] = field(default_factory=dict)
    sites: list[tuple[str, BodyState, StatementPath]] = field(default_factory=list)
    external: dict[str, tuple[str, str]] = field(default_factory=dict)  # class and method by function name

    def may_be_null(self, what: str, code: Code) -> None:
        if not code.known:
            self.facts.add(f"{what} may be NULL")

    def null(self, what: str, text: str) -> str:
        return text if f"{what} may be NULL" in self.facts else "False"


@dataclass(slots=True)
class WindowPool:
    """Pool (array) that stores the tuples in the windows of all partitions.

    The arguments are converted to their declared types when they are read. If no statement searches the
    window, the block of each partition is a ring buffer (`ring`).
    """

    types: tuple[Type, ...]
    ring: bool = False

    def row(self, index: str) -> str:
        if self.ring:
            position = "k.window_at" if index == "0" else f"(k.window_at + {index}) % k.window_room"
            return f"window[np.uint64(k.window_begin + {position})]"
        return f"window[k.window_at + {index}]" if index != "0" else "window[k.window_at]"


class Version:
    """Names and settings for generating the code of one variant of an aggregate.

    A variant serves unbounded streams or windows. `record` is the name of the variable for the partition's
    record, and `index` the code expression for its index. The loop generator sets two functions: `give`
    writes code for a returned row, and `leave` returns code that leaves a routine after a failure.
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
        # Context of the statement for which code is generated: its routine, whether the arguments
        # have values, and whether the window is known to have tuples.
        self.state = BodyState.INITIALIZE
        self.bound = True
        self.window_holds_some = False

    # -- fields of the record with a partition's state -----------------------------------------------------

    def flagged(self, table: str) -> set[str]:
        """Return the columns of a local table that may be NULL, as identifiers."""
        names = self.schemas[table].names
        return {safe_identifier(name) for name in names if self.maybe_null(f"{self.record} {table}.{name}")}

    def maybe_null(self, what: str) -> bool:
        return self.shared.null(what, "maybe") != "False"

    def fields(self, table: str) -> list[str]:
        """Return code expressions for all record fields of a table of at most one row."""
        flagged = self.flagged(table)
        names = [safe_identifier(name) for name in self.schemas[table].names]
        names += [f"{name}_null" for name in names if name in flagged]
        return [self.rows_of(table), *(f"{self.record}.{safe_identifier(table)}_{name}" for name in names)]

    def array(self, table: str) -> str:
        return f"{self.record}_{safe_identifier(table)}"

    @property
    def keeps_arguments(self) -> bool:
        return f"{self.record} terminates with arguments" in self.shared.facts

    # -- arguments, window and tables ----------------------------------------------------------------------

    def variable(self, argument: str) -> str:
        return f"{_PREFIXES[self.record]}_{safe_identifier(argument)}"

    def argument(self, expr: Argument) -> Code:
        self.shared.facts.add(f"{self.record} reads {expr.name}")
        if self.state is BodyState.TERMINATE:
            self.shared.facts.add(f"{self.record} terminates with arguments")
        name = self.variable(expr.name)
        return Code(name, self.shared.null(name, f"{name}_null"))

    def bind(self, given: ArgumentCodes, types: Sequence[Type]) -> None:
        """Write code that assigns the arguments, converted to their declared types, to variables."""
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
        """Return code that stores the arguments of a failed statement, and returns the statement's number.

        The interpreter needs the arguments to repeat the statement. `site` is the number of the statement.
        """
        values = []
        for argument in self.definition.arguments:
            # After a failed conversion, the interpreter reads the arguments from the input tuple.
            code = self.current(argument.name) if self.bound and site != CONVERSION else Code("0")
            if code.value == "0":
                code = Code(default_of(argument.type), "True")
            values += [code.value, code.null]
        parameters = ", ".join([f"failure_{self.record}", str(site), self.index, "i", *values])
        return f"failed_{self.record}({parameters})"

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
            raise NoCompiledForm("the columns of inwindow and the arguments have different types")
        return code

    def rows_of(self, table: str) -> str:
        if table == INWINDOW and self.window is not None:
            return "k.window_rows"
        return f"{self.record}.{safe_identifier(table)}_rows"

    def if_any(self, table: str) -> AbstractContextManager[None]:
        """Write an `if` around code that reads a table of at most one row, unless it always has a row."""
        later = self.state in (BodyState.ITERATE, BodyState.EXPIRE)
        if later and table in self.filled and not self.one_body:
            return nullcontext()
        return self.out.block(f"if {self.rows_of(table)} > 0:")

    @property
    def one_body(self) -> bool:
        """Return True if the routines INITIALIZE and ITERATE have the same statements."""
        bodies = self.definition.bodies
        return bodies.get(BodyState.INITIALIZE) == bodies.get(BodyState.ITERATE)

    def row(self, table: str, index: str) -> str:
        """Return a code expression for a table row that is stored in a pool (an array of table rows)."""
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
    """Return True if the conversion of an argument cannot fail, so that unused arguments need none."""
    return source.kind is target.kind or target.kind is Kind.DOUBLE or target.kind is Kind.BIGINT


# Code generator for ESL statements: INSERT, UPDATE, DELETE and WHILE over local tables
#
# Statements are atomic. If a query in the statement reads the table that the statement changes, or if the
# statement may fail half-way, its effect is computed completely before the table is changed.


class StatementCode:
    """Code generator for an aggregate written in ESL, with one list of statements per routine.

    The routines are INITIALIZE, ITERATE, EXPIRE and TERMINATE.
    """

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
        """Return the fields of the record that stores the state of one partition."""
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
        """Write code that deletes all rows of the local tables."""
        for name in self.version.schemas:
            if name != INWINDOW:
                self.out.line(f"{self.record}.{safe_identifier(name)}_rows = 0")

    def bind_last(self, started: str) -> None:
        """Write code that assigns the arguments of the last tuple to variables, for statements of TERMINATE.

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
        """Write the code of one routine (INITIALIZE, ITERATE, EXPIRE or TERMINATE).

        `bound` is True if the variables of the arguments have values.
        """
        self.version.state, self.version.bound = state, bound
        self.version.window_holds_some = True  # at least the arriving or the expiring tuple
        self._write_statements(self.definition.bodies.get(state, ()), ())

    def _write_statements(self, statements: Sequence[Statement], path: StatementPath) -> None:
        """Write code for a list of statements.

        `path` has the indexes of the enclosing WHILE loops, which identify a statement that fails.
        """
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
            self.version.window_holds_some = False  # the loop may have emptied the window in an earlier round
        out.line(f"{rounds} = 0")
        with out.block("while True:"):
            self._scalars.fail = partial(self.version.fail_at, self._site((*path, CONDITION)))
            with out.block(f"if not ({self._scalars.condition(statement.condition, {})}):"):
                out.line("break")
            with out.block(f"if {rounds} == {MOST_ROUNDS}:"):
                self.version.fail_at(self._site((*path, ROUNDS)))
            out.line(f"{rounds} += 1")
            self._write_statements(statement.statements, path)

    def bound_of(self, state: BodyState) -> int | None:
        return return_bound(self.definition.bodies.get(state, ()), self.version.single)

    def _insert(self, statement: Insert) -> None:
        returns = statement.table == RETURN
        schema = self.definition.returns if returns else self.version.schemas[statement.table.lower()]
        take = self.version.give if returns else partial(self._append, statement.table.lower())
        if statement.query is not None:
            query = statement.query

            def take_converted(items: list[Code]) -> None:
                take(
                    [
                        self._scalars.convert(code, source.type, column.type)
                        for code, source, column in zip(items, query.schema, schema, strict=True)
                    ]
                )

            reads_itself = statement.table.lower() in set(_tables_of(query))
            (self._selects.collect if reads_itself else self._selects.select)(query, {}, take_converted)
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
        """Write code for the assignments of an UPDATE, which all read the old values of the row."""
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
    """Yield the names of the tables that sub-queries in an expression read."""
    for node in walk(expr) if expr is not None else ():
        if isinstance(node, ScalarQuery | ExistsQuery):
            yield from _tables_of(node.query)


def _read_by(statement: Update | Delete) -> Iterator[str]:
    yield from _tables_in(statement.where)
    if isinstance(statement, Update):
        for _, expr in statement.assignments:
            yield from _tables_in(expr)


# Interface of code generators for one variant of an aggregate


class AggregateCode(Protocol):
    """Code generator for one variant of an aggregate: for unbounded streams, or for windows.

    The aggregate is written in ESL or Python, or it is a formula of an extension. `pools` are the names of
    the tables with many rows, which are stored outside of the record.
    """

    @property
    def version(self) -> Version: ...

    @property
    def pools(self) -> list[str]: ...

    def columns(self) -> RecordColumns:
        """Return the fields of the record that stores the state of one partition."""
        ...

    def pool_columns(self, table: str) -> RecordColumns: ...

    def reset(self) -> None:
        """Write code that resets the state of a partition to its initial state."""
        ...

    def statements(self, state: BodyState, bound: bool = True) -> None:
        """Write the code of one routine (INITIALIZE, ITERATE, EXPIRE or TERMINATE).

        `bound` is True if the variables of the arguments have values.
        """
        ...

    def bind_last(self, started: str) -> None:
        """Write code that assigns the arguments of the last tuple to variables, for statements of TERMINATE.

        The arguments are NULL if there was no tuple.
        """
        ...

    def bound_of(self, state: BodyState) -> int | None:
        """Return the maximum number of rows that a routine returns, None if unknown."""
        ...

    def returns_at_steps(self) -> bool:
        """Return True if the routines INITIALIZE and ITERATE may return rows."""
        ...

    def needs_window(self) -> bool:
        """Return True if the aggregate reads the tuples in the window, or must process expired tuples."""
        ...

    @property
    def one_body(self) -> bool:
        """Return True if the routines INITIALIZE and ITERATE have the same statements."""
        ...

    @property
    def answers_once(self) -> bool:
        """Return True if the aggregate returns exactly one row at the arrival of each tuple."""
        ...


@runtime_checkable
class JointCode(AggregateCode, Protocol):
    """Code generator for several aggregate calls that share state (`slicemill.aggregates.joint`)."""

    result_test: str
    """Code expression that is true if an arriving tuple returns a result."""

    @property
    def parts(self) -> int:
        """Return the number of aggregate calls that share state."""
        ...

    def answer(self) -> None:
        """Write code that emits the current results of all calls that share state."""
        ...

    def origins(self, other: Any, numbers: Sequence[int]) -> tuple[dict[str, str], dict[str, str]]:
        """Map the record fields and pools of this code to those of code for more calls.

        `numbers` are the indexes of these calls in `other`. The keys are names in this code, the values names
        in `other`.
        """
        ...
