"""Reject passwords in statements.

Statements are stored, listed and copied into support bundles.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from slicemill.esl.syntax import nodes
from slicemill.esl.syntax.errors import Diagnostic
from slicemill.esl.syntax.nodes import child, span_of
from slicemill.secrets import HINT, contains_secret


def passwords_in(statement: exp.Expression) -> Iterator[Diagnostic]:
    """Yield an error for each source, sink or option with a password."""
    for node in statement.find_all(nodes.SourceClause, nodes.Option):
        name, value = "source", child(node, "url")
        if isinstance(node, nodes.Option):
            name, value = node.this.name, child(node, "value")
            if name.lower() != "sink" and node.find_ancestor(nodes.SourceClause) is None:
                continue  # an option of a query, not of its sink or source
        if isinstance(value, exp.Literal) and contains_secret(value.name, name):
            what = name if name.lower() in ("sink", "source") else f"option {name}"
            message = f"the {what} contains a password, which a statement would show"
            yield Diagnostic(message, span_of(value), HINT)
