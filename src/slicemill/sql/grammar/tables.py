"""Parser of CREATE TABLE with its constraints, and INSERT, UPDATE, DELETE and TRUNCATE.

CREATE TABLE item (id bigint PRIMARY KEY, name varchar NOT NULL, price double)
INSERT INTO item VALUES (7, 'clock', 20.0) ON CONFLICT (id) DO UPDATE SET price = excluded.price
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from slicemill.sql import nodes
from slicemill.sql.cursor import Cursor
from slicemill.sql.errors import StatementError
from slicemill.sql.grammar import expressions, windows
from slicemill.sql.grammar import functions as aggregates
from slicemill.sql.nodes import at

ROW_CHANGES = ("INSERT", "UPDATE", "DELETE", "TRUNCATE")
_OTHERS = ("UNIQUE", "DEFAULT", "CHECK", "REFERENCES", "FOREIGN", "CONSTRAINT")


def create_table(
    c: Cursor,
    name: exp.Identifier,
    column: Callable[[], nodes.ColumnDeclaration],
    source: Callable[[], nodes.SourceClause | None],
) -> nodes.CreateTable:
    """Parse the columns and clauses after the name of a table."""
    node = nodes.CreateTable(this=name)
    c.expect("(")
    declared = c.listing(
        lambda: _key(c, node) if c.looking_at("PRIMARY", "KEY") else _column_constraints(c, column())
    )
    c.expect(")")
    node.set("columns", [one for one in declared if one is not None])
    node.set("source", source())
    if c.accept("REFRESH"):
        c.expect("EVERY")
        node.set("refresh", windows.duration(c))
    return node


def materialize_table(c: Cursor, name: exp.Identifier) -> nodes.MaterializeTable:
    """Parse the rest of `CREATE TABLE name AS MATERIALIZED query [REFRESH EVERY …]`."""
    node = nodes.MaterializeTable(this=name, query=c.name("a query whose results change"))
    if c.accept("REFRESH"):
        c.expect("EVERY")
        node.set("refresh", windows.duration(c))
    return node


def _key(c: Cursor, node: nodes.CreateTable) -> None:
    start = c.span()
    c.expect("PRIMARY", "KEY", "(")
    names = c.listing(lambda: c.name("a column"))
    c.expect(")")
    if c.looking_at("NOT", "ENFORCED"):
        c.expect("NOT", "ENFORCED")  # words that Flink requires after PRIMARY KEY
    if node.args.get("key") is not None:
        raise StatementError(
            "a table has one key", c.span_from(start), "name all its columns in one PRIMARY KEY (…)"
        )
    node.set("key", names)


def _column_constraints(c: Cursor, column: nodes.ColumnDeclaration) -> nodes.ColumnDeclaration:
    while True:
        if c.accept("NOT", "NULL"):
            column.set("required", True)
        elif c.accept("PRIMARY", "KEY"):
            column.set("primary", True)
        elif c.word() in _OTHERS:
            raise StatementError(
                f"a column of a table may be NOT NULL or the PRIMARY KEY, and there is no {c.word()}",
                c.span(),
                "leave it out",
            )
        elif not c.accept("NULL"):
            return column


def row_change(c: Cursor) -> exp.Expression:
    """Parse INSERT, UPDATE, DELETE or TRUNCATE."""
    start = c.span()
    if c.accept("TRUNCATE"):
        c.accept("TABLE")
        return at(nodes.TruncateRows(this=c.name("a table")), c.span_from(start))
    replace = c.looking_at("INSERT", "OR", "REPLACE")
    if replace:
        c.index += 3
    node = aggregates.insert(c) if replace else aggregates.row_statement(c)
    if isinstance(node, nodes.InsertInto):
        node.set("replace", replace)
        if node.args.get("where") is not None:
            raise StatementError(
                "an INSERT of values has no condition",
                nodes.span_of(node.args["where"]),
                "write INSERT INTO … SELECT … WHERE …",
            )
        if not replace and c.looking_at("ON", "CONFLICT"):
            node.set("conflict", _conflict(c))
    return at(node, c.span_from(start))


def _conflict(c: Cursor) -> nodes.OnConflictClause:
    start = c.span()
    c.expect("ON", "CONFLICT")
    columns = None
    if c.accept("("):
        columns = c.listing(lambda: c.name("a column"))
        c.expect(")")
    c.expect("DO")
    node = nodes.OnConflictClause(columns=columns)
    if not c.accept("NOTHING"):
        c.expect("UPDATE", "SET")
        node.set("assignments", c.listing(lambda: aggregates.assignment(c)))
        node.set("where", expressions.expression(c) if c.accept("WHERE") else None)
    return at(node, c.span_from(start))
