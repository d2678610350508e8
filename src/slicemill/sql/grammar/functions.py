"""Parser of CREATE AGGREGATE and CREATE FUNCTION (M29-M38)."""

from __future__ import annotations

from sqlglot import exp

from slicemill.sql import nodes
from slicemill.sql.cursor import Cursor
from slicemill.sql.errors import StatementError
from slicemill.sql.grammar import expressions, queries
from slicemill.sql.nodes import at

STATES = ("INITIALIZE", "ITERATE", "TERMINATE", "EXPIRE")


def create_aggregate(c: Cursor) -> nodes.CreateAggregate:
    """Parse `[ALGEBRAIC] [WINDOW] AGGREGATE name (…) : type { … }` after CREATE."""
    start = c.span()
    algebraic = c.accept("ALGEBRAIC")
    window = c.accept("WINDOW")
    c.expect("AGGREGATE")
    name = c.name("a name for the aggregate")
    c.expect("(")
    arguments = [] if c.looking_at(")") else c.listing(lambda: declaration(c, "an argument"))
    c.expect(")")
    if not c.accept(":"):
        c.expect("RETURNS")
    returns = _returns(c)
    node = nodes.CreateAggregate(
        this=name, arguments=arguments, returns=returns, algebraic=algebraic, window=window
    )
    if c.accept("LANGUAGE"):
        node.set("language", "PYTHON")
        node.set("external", python_object(c, "'module:class'"))
    else:
        _bodies(c, node)
    return at(node, c.span_from(start))


def _returns(c: Cursor) -> list[exp.Expression]:
    """Parse the return type of an aggregate, or a list of named columns.

    An aggregate with several columns returns rows.
    """
    if c.accept("("):
        columns: list[exp.Expression] = list(c.listing(lambda: declaration(c, "a column", typed=True)))
        c.expect(")")
        return columns
    return [expressions.type_name(c)]


def _bodies(c: Cursor, node: nodes.CreateAggregate) -> None:
    c.expect("{")
    tables: list[exp.Expression] = []
    bodies: list[exp.Expression] = []
    while not c.accept("}"):
        start = c.span()
        if c.accept("TABLE"):
            name = c.name("a name for the table")
            c.expect("(")
            columns = c.listing(lambda: declaration(c, "a column"))
            c.expect(")")
            tables.append(at(nodes.LocalTableDeclaration(this=name, columns=columns), c.span_from(start)))
            while c.accept(";"):
                pass
        elif c.word() in STATES:
            bodies.append(_body(c))
            while c.accept(";"):
                pass
        else:
            for word in ("TABLE", *STATES):
                c.note(word)
            c.fail()
    node.set("tables", tables)
    node.set("bodies", bodies)


def _body(c: Cursor) -> nodes.AggregateBody:
    start = c.span()
    states: list[exp.Expression] = []
    while state := c.accept_any(STATES):
        states.append(exp.Var(this=state))
        c.expect(":")
    return at(nodes.AggregateBody(states=states, statements=_statements(c)), c.span_from(start))


def _statements(c: Cursor) -> list[exp.Expression]:
    """Parse the statements in braces in the body of an aggregate."""
    c.expect("{")
    statements: list[exp.Expression] = []
    while not c.accept("}"):
        if c.accept(";"):
            continue
        statements.append(_statement(c))
        if not c.looking_at("}") and not isinstance(statements[-1], nodes.WhileLoop):
            c.expect(";")
    return statements


def _statement(c: Cursor) -> exp.Expression:
    start = c.span()
    if c.word() in ("INSERT", "UPDATE", "DELETE"):
        return row_statement(c)
    for word in ("INSERT", "UPDATE", "DELETE"):
        c.note(word)
    if c.accept("WHILE"):
        condition = expressions.expression(c)
        loop = nodes.WhileLoop(this=condition, statements=c.parse_nested(lambda: _statements(c)))
        return at(loop, c.span_from(start))
    return c.fail(
        "results leave through INSERT INTO RETURN" if c.word() in ("RETURN", "SELECT", "WITH") else ""
    )


def row_statement(c: Cursor) -> exp.Expression:
    """Parse INSERT, UPDATE or DELETE."""
    start = c.span()
    node: exp.Expression
    if c.accept("INSERT"):
        node = insert(c)
    elif c.accept("UPDATE"):
        table = c.name("a table")
        c.expect("SET")
        assignments = c.listing(lambda: assignment(c))
        node = nodes.UpdateSet(this=table, assignments=assignments, where=_where(c))
    else:
        c.expect("DELETE")
        c.expect("FROM")
        node = nodes.DeleteFrom(this=c.name("a table"), where=_where(c))
    return at(node, c.span_from(start))


def insert(c: Cursor) -> nodes.InsertInto:
    c.expect("INTO")
    table = c.name("a table, or RETURN")
    columns = None
    if c.word(1) not in ("SELECT", "WITH", "(") and c.accept("("):
        columns = c.listing(lambda: c.name("a column"))
        c.expect(")")
    if c.accept("VALUES"):
        rows = c.listing(lambda: _values(c))
        return nodes.InsertInto(this=table, columns=columns, values=rows, where=_where(c))
    if c.word() not in ("SELECT", "WITH", "("):
        c.note("SELECT")
        c.fail()
    return nodes.InsertInto(this=table, columns=columns, query=queries.query(c))


def _values(c: Cursor) -> exp.Expression:
    start = c.span()
    c.expect("(")
    values = c.listing(lambda: expressions.expression(c))
    c.expect(")")
    return at(exp.Tuple(expressions=values), c.span_from(start))


def assignment(c: Cursor) -> nodes.Assignment:
    column = c.name("a column")
    c.expect("=")
    value = expressions.expression(c)
    return at(nodes.Assignment(this=column, expression=value), nodes.span_of(column).to(nodes.span_of(value)))


def _where(c: Cursor) -> exp.Expression | None:
    return expressions.expression(c) if c.accept("WHERE") else None


# CREATE FUNCTION name(parameter type, …) RETURNS type AS expression, and its variants
#
# The variants are functions in Python and functions that return the rows of a query.


def declaration(c: Cursor, what: str, typed: bool = False) -> nodes.ColumnDeclaration:
    """Parse the declaration of a parameter or column.

    The type is optional unless `typed` is set.
    """
    start = c.span()
    name = c.name(what)
    kind = expressions.type_name(c) if typed or c.at_name() or c.looking_at("INTERVAL") else None
    return at(nodes.ColumnDeclaration(this=name, kind=kind), c.span_from(start))


def create_function(c: Cursor, name: exp.Identifier) -> nodes.CreateFunction:
    c.expect("(")
    arguments = [] if c.looking_at(")") else c.listing(lambda: declaration(c, "a parameter", typed=True))
    c.expect(")")
    if not c.accept(":"):
        c.expect("RETURNS")
    node = nodes.CreateFunction(this=name, arguments=arguments)
    if c.accept("TABLE"):
        c.expect("(")
        node.set("returns", c.listing(lambda: declaration(c, "a column", typed=True)))
        c.expect(")")
        c.expect("AS")
        if c.word() not in ("SELECT", "WITH", "("):
            c.fail("a function that returns rows is a query: RETURNS TABLE (…) AS SELECT …")
        node.set("body", queries.query(c))
        return node
    node.set("returns", expressions.type_name(c))
    if c.accept("LANGUAGE"):
        node.set("external", python_object(c, "'module:function'"))
    else:
        c.expect("AS")
        node.set("body", expressions.expression(c))
    return node


def python_object(c: Cursor, example: str) -> exp.Literal:
    """Parse `PYTHON AS 'module:name'` after LANGUAGE."""
    language = c.name("a language")
    if language.name.upper() != "PYTHON":
        raise StatementError(
            f"there is no support for {language.name}", nodes.span_of(language), "write LANGUAGE PYTHON"
        )
    c.expect("AS")
    place = c.span()
    external = c.string(example)
    if external is None:
        c.fail()
    return at(exp.Literal.string(external), place)
