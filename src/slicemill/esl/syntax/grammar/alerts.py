"""Parse CREATE ALERT."""

from __future__ import annotations

from sqlglot import exp

from slicemill.esl.syntax import nodes
from slicemill.esl.syntax.cursor import Cursor
from slicemill.esl.syntax.grammar import expressions, windows
from slicemill.esl.syntax.nodes import at
from slicemill.time import unit_name


def create_alert(c: Cursor, name: exp.Identifier) -> nodes.CreateAlert:
    """Parse `ON query | ANY QUERY | ANY STREAM [WHEN condition [FOR d] [REPEAT EVERY d]] WEBHOOK 'url'`."""
    node = nodes.CreateAlert(this=name)
    c.expect("ON")
    if c.accept("ANY"):
        kind = c.accept_any(("QUERY", "STREAM"))
        if not kind:
            c.fail()
        node.set("any", kind)
    else:
        node.set("on", c.name("a query or stream"))
    if c.accept("WHEN"):
        node.set("when", expressions.expression(c))
        if unit_name(c.word()):
            c.fail(f"write INTERVAL before the number, as in INTERVAL 5 {c.word()}")
        if c.accept("FOR"):
            node.set("held", windows.duration(c))
        if c.accept("REPEAT", "EVERY"):
            node.set("repeat", windows.duration(c))
    c.expect("WEBHOOK")
    url_at = c.span()
    url = c.string("an address such as 'https://example.org/alerts'")
    if url is None:
        c.fail()
    node.set("webhook", at(exp.Literal.string(url), url_at))
    return node
