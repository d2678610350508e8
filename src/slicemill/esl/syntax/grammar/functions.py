"""Parse `CREATE FUNCTION name(parameter type, …) RETURNS type AS expression`, and its variants.

The variants are functions in Python and functions that return the rows of a query.
"""

from __future__ import annotations

from sqlglot import exp

from slicemill.esl.syntax import nodes
from slicemill.esl.syntax.cursor import Cursor
from slicemill.esl.syntax.errors import Mistake
from slicemill.esl.syntax.grammar import expressions, queries
from slicemill.esl.syntax.nodes import at


def declaration(c: Cursor, what: str, typed: bool = False) -> nodes.ColumnDeclaration:
    """Parse a parameter or column.

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
        raise Mistake(
            f"there is no support for {language.name}", nodes.span_of(language), "write LANGUAGE PYTHON"
        )
    c.expect("AS")
    place = c.span()
    external = c.string(example)
    if external is None:
        c.fail()
    return at(exp.Literal.string(external), place)
