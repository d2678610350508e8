"""One aggregate version in generated code: its record, pools and names."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from keyword import iskeyword
from typing import Any, TypeAlias

from slicemill.aggregate.compiler.layout import (
    MANY,
    default_of,
    read,
    single_tables,
    surely_filled,
)
from slicemill.aggregate.compiler.scalars import Columns as ColumnCodes
from slicemill.aggregate.compiler.scalars import Scalars
from slicemill.aggregate.compiler.selects import Selects
from slicemill.aggregate.compiler.source import Code, NoCompiledForm, Writer
from slicemill.aggregate.interpreter.statements import StatementPath
from slicemill.esl.types.aggregate import INWINDOW, AggregateDefinition, BodyState
from slicemill.esl.types.expression import Argument, ExistsQuery, Oldest, ScalarQuery
from slicemill.esl.types.schema import Kind, Type

ArgumentCodes: TypeAlias = Sequence[
    Callable[[], Code]
]  # the values of the arguments, called only for those needed

CONVERSION = -1  # site of an argument whose value does not fit its declared type

_PREFIXES = {"s": "arg", "b": "base", "c": "part"}  # prefixes of arguments, by the version's record


def safe(name: str) -> str:
    """Return an ESL name as a Python identifier."""
    plain = re.sub(r"\W", "_", name.lower())
    return f"{plain}_" if iskeyword(plain) or not plain.isidentifier() else plain


@dataclass(slots=True)
class ModuleFacts:
    """Facts shared by all parts of a module.

    `facts` are collected while the source is written: which values may be NULL, which are read. Because later
    parts depend on the facts, the source is written again until there are no new facts.
    """

    form: str
    nullable: bool  # may arguments be NULL?
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
            place = "k.window_at" if index == "0" else f"(k.window_at + {index}) % k.window_room"
            return f"window[np.uint64(k.window_begin + {place})]"
        return f"window[k.window_at + {index}]" if index != "0" else "window[k.window_at]"


class Version:
    """Generation context of one aggregate version: record, tables and names.

    `record` is the name of the partition's record, `place` the index of that record. The loop sets `give`,
    which writes code for a returned row, and `leave`, which returns the text that ends a routine on failure.
    """

    def __init__(
        self,
        definition: AggregateDefinition,
        shared: ModuleFacts,
        writer: Writer,
        record: str,
        place: str,
        window: WindowPool | None,
        user_defined: frozenset[str],
    ) -> None:
        self.definition = definition
        self.shared = shared
        self.out = writer
        self.record, self.place = record, place
        self.window = window
        self.scalars = Scalars(writer, shared.form, shared.literals, shared.closures, self)
        self.selects = Selects(self.scalars, self, user_defined)
        self.single = single_tables(definition)
        self.schemas = {table.name.lower(): table.schema for table in definition.tables}
        self.bounds = {name: 1 if name in self.single else MANY for name in self.schemas}
        self.pools = [name for name in self.schemas if self.bounds[name] >= MANY and name != INWINDOW]
        self.filled = surely_filled(definition) & self.single
        self.give: Callable[[list[Code]], None]
        self.leave: Callable[[str], str]
        # Current context: the state, whether arguments have values, whether the window surely has tuples.
        self.state = BodyState.INITIALIZE
        self.bound = True
        self.window_holds_some = False

    # -- the record ----------------------------------------------------------------------------------------

    def flagged(self, table: str) -> set[str]:
        """Return the columns of a table that may be NULL."""
        names = self.schemas[table].names
        return {safe(name) for name in names if self.maybe_null(f"{self.record} {table}.{name}")}

    def maybe_null(self, what: str) -> bool:
        return self.shared.null(what, "maybe") != "False"

    def fields(self, table: str) -> list[str]:
        """Return all record fields of a single-row table."""
        flagged = self.flagged(table)
        names = [safe(name) for name in self.schemas[table].names]
        names += [f"{name}_null" for name in names if name in flagged]
        return [self.rows_of(table), *(f"{self.record}.{safe(table)}_{name}" for name in names)]

    def array(self, table: str) -> str:
        return f"{self.record}_{safe(table)}"

    @property
    def keeps_arguments(self) -> bool:
        return f"{self.record} terminates with arguments" in self.shared.facts

    # -- names ---------------------------------------------------------------------------------------------

    def variable(self, argument: str) -> str:
        return f"{_PREFIXES[self.record]}_{safe(argument)}"

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
                current, last = self.current(argument.name), f"{self.record}.last_{safe(argument.name)}"
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
        given = ", ".join([f"failure_{self.record}", str(site), self.place, "i", *values])
        return f"failed_{self.record}({given})"

    def scalar_query(self, expr: ScalarQuery, columns: ColumnCodes) -> Code:
        return self.selects.scalar_query(expr, columns)

    def exists_query(self, expr: ExistsQuery, columns: ColumnCodes) -> Code:
        return self.selects.exists_query(expr, columns)

    def oldest(self, expr: Oldest) -> Code:
        assert self.window is not None
        place = self.schemas[INWINDOW].index(expr.column)
        code = self._window_column(place, "0")
        if self.window_holds_some:
            return code
        empty = "k.window_rows == 0"
        name = self.out.fresh("oldest")
        self.out.line(f"{name}, {name}_null = {default_of(expr.type)}, True")
        with self.out.block(f"if not {empty}:"):
            self.out.line(f"{name}, {name}_null = {code.value}, {code.null}")
        return Code(name, f"{name}_null")

    def _window_column(self, place: int, row: str) -> Code:
        assert self.window is not None
        self.shared.facts.add(f"window keeps {place}")
        text = f"{self.window.row(row)}.a{place}"
        value = read(text, self.window.types[place], self.shared.form)
        code = Code(value, self.shared.null(f"window {place}", f"{text}_null"))
        with self.out.aside() as conversion:
            code = self.scalars.convert(
                code, self.window.types[place], self.schemas[INWINDOW].columns[place].type
            )
        if conversion.lines:
            raise NoCompiledForm("inwindow has other types than the arguments")
        return code

    def rows_of(self, table: str) -> str:
        if table == INWINDOW and self.window is not None:
            return "k.window_rows"
        return f"{self.record}.{safe(table)}_rows"

    def if_any(self, table: str) -> AbstractContextManager[None]:
        """Write a condition for a single-row table, if it may be empty."""
        later = self.state in (BodyState.ITERATE, BodyState.EXPIRE)
        if later and table in self.filled and not self.one_body:
            return nullcontext()
        return self.out.block(f"if {self.rows_of(table)} > 0:")

    @property
    def one_body(self) -> bool:
        """Return True if the first tuple and later ones share their statements."""
        bodies = self.definition.bodies
        return bodies.get(BodyState.INITIALIZE) == bodies.get(BodyState.ITERATE)

    def row(self, table: str, index: str) -> str:
        """Return the source of a row in a pool."""
        if table == INWINDOW and self.window is not None:
            return self.window.row(index)
        return f"{self.array(table)}[{self.record}.{safe(table)}_at + {index}]"

    def field(self, table: str, column: str, row: str) -> str:
        if self.bounds[table] < MANY:
            return f"{self.record}.{safe(table)}_{safe(column)}"
        return f"{self.row(table, row)}.{safe(column)}"

    def columns_of(self, table: str, alias: str, row: str) -> ColumnCodes:
        schema = self.schemas[table]
        if table == INWINDOW:
            self.shared.facts.add("window is searched")
            return {
                f"{alias}.{name}": partial(self._window_column, place, row)
                for place, name in enumerate(schema.names)
            }
        return {f"{alias}.{name}": partial(self._column, table, name, row) for name in schema.names}

    def _column(self, table: str, column: str, row: str) -> Code:
        text = self.field(table, column, row)
        schema = self.schemas[table]
        value = read(text, schema.columns[schema.index(column)].type, self.shared.form)
        return Code(value, self.shared.null(f"{self.record} {table}.{column}", f"{text}_null"))


def _always_fits(source: Type, target: Type) -> bool:
    """Return True if an unneeded conversion can be skipped safely."""
    return source.kind is target.kind or target.kind is Kind.DOUBLE or target.kind is Kind.BIGINT
