"""Storage layout of an aggregate's local tables in generated code, and the writer of generated code.

A table that never has more than one row is stored in the fields of the partition's record. Other tables are
stored in pools, arrays with rows of all partitions. An analysis follows the maximum row counts through the
statements of each routine (INITIALIZE, ITERATE, …): an INSERT adds its maximum number of rows, an
unconditional DELETE sets the count to 0, and a loop is repeated to a fixed point. INITIALIZE starts with
empty tables, and every other routine with the maximum row counts after any routine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from slicemill.catalog.aggregates import (
    INWINDOW,
    RETURN,
    AggregateDefinition,
    BodyState,
    Delete,
    Insert,
    Statement,
    While,
    changes_in,
)
from slicemill.catalog.queries import RelationQuery
from slicemill.types import Kind, Type

MANY = 2
MACHINE, PYTHON, INTERPRETER = "machine code", "Python", "interpreter"

_WHOLE = (Kind.INT, Kind.BIGINT, Kind.TIMESTAMP, Kind.DATE, Kind.INTERVAL, Kind.MONTHS)


def dtype_of(type_: Type, form: str) -> Any:
    """Return the NumPy dtype that represents values of a SQL type in generated code.

    Machine code represents strings as integer codes.
    """
    if type_.kind in _WHOLE or (type_.kind is Kind.VARCHAR and form == MACHINE):
        return np.int64
    if type_.kind is Kind.DOUBLE:
        return np.float64
    if type_.kind in (Kind.BOOLEAN, Kind.NULL):
        return np.bool_
    if form == MACHINE:
        raise NoCompiledForm(f"{type_} cannot be compiled to machine code")
    return np.object_


def field_of(type_: Type, form: str) -> Any:
    """Return the NumPy dtype of a record field that stores values of a SQL type."""
    return np.int32 if type_.kind is Kind.INT and form == MACHINE else dtype_of(type_, form)


def read(text: str, type_: Type, form: str) -> str:
    """Return a code expression that reads the value of a record field.

    Machine code reads 32-bit integers as 64-bit integers. The code must convert them explicitly, because it
    may first run as Python.
    """
    return f"np.int64({text})" if type_.kind is Kind.INT and form == MACHINE else text


def default_of(type_: Type) -> str:
    """Return a code expression for an arbitrary value of a type, which accompanies a NULL flag."""
    return {Kind.DOUBLE: "0.0", Kind.BOOLEAN: "False", Kind.NULL: "False"}.get(type_.kind, "0")


@dataclass(slots=True)
class RecordColumns:
    """Fields of a record or pool row: named values with their types and optional NULL flags."""

    types: dict[str, Type]
    flagged: frozenset[str] = frozenset()
    extra: list[tuple[str, Any]] = field(default_factory=list)

    def dtype(self, form: str) -> np.dtype[Any]:
        fields = list(self.extra)
        for name, type_ in self.types.items():
            fields.append((name, field_of(type_, form)))
            fields += [(f"{name}_null", np.bool_)] if name in self.flagged else []
        fields.sort(key=lambda named: -np.dtype(named[1]).itemsize)  # descending sizes leave no gaps
        if len({name for name, _ in fields}) < len(fields):
            raise NoCompiledForm("names of columns collide in generated code")
        # A record type needs at least one field.
        return np.dtype(fields or [("unused", np.bool_)], align=True)

    def texts(self) -> list[str]:
        return [name for name, type_ in self.types.items() if type_.kind is Kind.VARCHAR]


def single_tables(definition: AggregateDefinition) -> frozenset[str]:
    """Return the names of the local tables that never have more than one row, in lower case."""
    most = {table.name.lower(): 0 for table in definition.tables} | {INWINDOW: MANY}
    while True:
        after = dict(most)
        for state, statements in definition.bodies.items():
            rows = dict.fromkeys(most, 0) if state is BodyState.INITIALIZE else dict(most)
            for statement in statements:
                _count(statement, rows, after)
        if after == most:
            return frozenset(name for name, count in most.items() if count < MANY)
        most = after


def _count(statement: Statement, rows: dict[str, int], most: dict[str, int]) -> None:
    """Update the maximum row counts of local tables for the effect of one statement.

    `rows` has the counts after the preceding statement, `most` the maximum counts at any time.
    """
    if isinstance(statement, While):
        while True:  # repeats the loop body until a fixed point
            before = dict(rows)
            for inner in statement.statements:
                _count(inner, rows, most)
            rows.update({name: max(before[name], rows[name]) for name in rows})
            if rows == before:
                return
    table = statement.table.lower()
    if isinstance(statement, Delete) and statement.where is None:
        rows[table] = 0
    elif isinstance(statement, Insert) and statement.table != RETURN:
        rows[table] = min(MANY, rows[table] + _insert_bound(statement, rows))
        most[table] = max(most[table], rows[table])


def _insert_bound(statement: Insert, rows: dict[str, int]) -> int:
    return len(statement.rows) if statement.query is None else query_bound(statement.query, rows)


def query_bound(query: RelationQuery, rows: dict[str, int]) -> int:
    """Return the maximum number of rows of a query over local tables. MANY means two or more."""
    bound = 1
    if query.group_by or not query.aggregates:
        for entry in query.inputs:
            inner = sum(query_bound(query, rows) for query in entry.queries)
            bound = min(MANY, bound * (inner if entry.queries else rows.get(entry.relation.lower(), MANY)))
    return bound if query.limit is None else min(bound, query.limit)


def surely_filled(definition: AggregateDefinition) -> frozenset[str]:
    """Return the local tables that always have a row after the routine INITIALIZE.

    INITIALIZE inserts a row unconditionally, and no statement deletes from the table.
    """
    filled = {
        statement.table.lower()
        for statement in definition.bodies.get(BodyState.INITIALIZE, ())
        if isinstance(statement, Insert) and statement.rows and statement.where is None
    }
    bodies = definition.bodies.values()
    emptied = {s.table.lower() for body in bodies for s in changes_in(body) if isinstance(s, Delete)}
    return frozenset(filled - emptied)


def returns_one(statements: Sequence[Statement], filled: frozenset[str]) -> bool:
    """Return True if statements always insert exactly one row into RETURN.

    The tables in `filled` have one row each.
    """
    returning = [s for s in changes_in(statements) if isinstance(s, Insert) and s.table == RETURN]
    if len(returning) != 1 or returning[0] not in statements:
        return False
    (statement,) = returning
    query = statement.query
    if query is None:
        return len(statement.rows) == 1 and statement.where is None
    if query.group_by or query.having is not None or query.limit is not None:
        return False
    if query.aggregates:
        return True
    return query.where is None and all(entry.relation.lower() in filled for entry in query.inputs)


def return_bound(statements: Sequence[Statement], single: frozenset[str]) -> int | None:
    """Return the maximum number of rows that statements insert into RETURN, None if unknown.

    `single` has the tables that never have more than one row.
    """
    total = 0
    for statement in changes_in(statements):
        if not isinstance(statement, Insert) or statement.table != RETURN:
            continue
        if statement not in statements:  # the statement is inside a loop
            return None
        if statement.query is None:
            total += len(statement.rows)
        elif query_bound(statement.query, dict.fromkeys(single, 1)) < MANY:
            total += 1
        else:
            return None
    return total


# Writer of generated Python code


_ATOM = re.compile(r"-?[\w.]+(\[[\w. +]*\])?[\w.]*")


class NoCompiledForm(Exception):
    """Raised if no code can be generated for a construct, which the message names.

    The interpreter then runs the aggregate.
    """


@dataclass(frozen=True, slots=True)
class Code:
    """Generated code for a value: one expression for the value, and one for its NULL flag.

    The value is arbitrary if the NULL flag is true.
    """

    value: str
    null: str = "False"

    @property
    def known(self) -> bool:
        """Return True if the value is never NULL."""
        return self.null == "False"

    @property
    def truth(self) -> str:
        """Return a code expression that is true if this boolean value is true and not NULL."""
        if self.known:
            return self.value
        return "False" if self.null == "True" else f"(not {self.null} and {self.value})"


def any_null(codes: list[Code]) -> str:
    """Return a code expression that is true if one of several values is NULL."""
    parts = list(dict.fromkeys(code.null for code in codes if not code.known))
    if "True" in parts:
        return "True"
    return "False" if not parts else parts[0] if len(parts) == 1 else f"({' or '.join(parts)})"


class Writer:
    """Writer of generated Python code: appends lines with indentation, and creates fresh variable names.

    `failing` is True if a line written so far can stop the code with an error.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.failing = False
        self._depth = 0
        self._names = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self._depth + text)

    def fresh(self, stem: str = "v") -> str:
        self._names += 1
        return f"{stem}{self._names}"

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        self.line(header)
        self._depth += 1
        before = len(self.lines)
        yield
        if len(self.lines) == before:
            self.line("pass")
        self._depth -= 1

    @contextmanager
    def aside(self) -> Iterator[Aside]:
        """Collect lines in a separate list, which `put` can insert later."""
        lines, failing = self.lines, self.failing
        aside = Aside([], self._depth, False)
        self.lines, self.failing = aside.lines, False
        yield aside
        aside.failing = self.failing
        self.lines, self.failing = lines, failing

    def put(self, aside: Aside) -> None:
        shift = "    " * (self._depth - aside.depth)
        self.lines += [shift + line for line in aside.lines]
        self.failing = self.failing or aside.failing

    def named(self, code: Code, stem: str = "v") -> Code:
        """Return code for a value that can be used several times without evaluating it again.

        The value is assigned to a variable unless it is a name, a constant or an array element.
        """
        value, null = code.value, code.null
        if not _ATOM.fullmatch(value):
            name = self.fresh(stem)
            self.line(f"{name} = {value}")
            value = name
        if not _ATOM.fullmatch(null):
            name = f"{value}_null" if value.isidentifier() else self.fresh("null")
            self.line(f"{name} = {null}")
            null = name
        return Code(value, null)


@dataclass(slots=True)
class Aside:
    lines: list[str]
    depth: int
    failing: bool
