"""`CREATE MODEL name(parameter REAL, …) [WITH (options)] AS expression`."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from slicemill.esl.syntax import nodes
from slicemill.esl.syntax.cursor import Cursor
from slicemill.esl.syntax.grammar.functions import declaration
from slicemill.esl.syntax.nodes import at


def create_model(c: Cursor, name: exp.Identifier) -> nodes.CreateModel:
    """Its name and parameters; options and the expression follow."""
    c.expect("(")
    arguments = [] if c.looking_at(")") else c.listing(lambda: declaration(c, "a parameter"))
    c.expect(")")
    return nodes.CreateModel(this=name, arguments=arguments)


def expression(c: Cursor, ends: Sequence[str]) -> exp.Var:
    """Everything up to a semicolon, or a word that begins a statement. Models have a grammar of their own."""
    start = c.span()
    short, written = "", ""
    while not c.done and c.word() not in (";", *ends):
        span = c.span()
        gap = span.start - start.start - len(written)
        text = c.text[span.start : span.end]
        short += " " * bool(gap) + text
        written += " " * gap + text  # comments become blanks
        c.advance()
    if not short:
        c.note("an expression such as sum(x)/n")
        c.fail()
    node = at(exp.Var(this=short), c.span_from(start))
    node.meta["written"] = written
    return node
