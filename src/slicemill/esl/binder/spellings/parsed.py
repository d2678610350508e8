"""Parse generated text to syntax nodes with a given span."""

from __future__ import annotations

from sqlglot import exp

from slicemill.esl.syntax.cursor import Cursor
from slicemill.esl.syntax.grammar import expressions, queries
from slicemill.esl.syntax.source import TextSpan
from slicemill.esl.syntax.tokens import tokenize


def parsed_query(text: str, span: TextSpan) -> exp.Expression:
    return _placed(queries.query(Cursor(tokenize(text), text)), span)


def parsed_expression(text: str, span: TextSpan) -> exp.Expression:
    return _placed(expressions.expression(Cursor(tokenize(text), text)), span)


def _placed(node: exp.Expression, span: TextSpan) -> exp.Expression:
    for part in node.walk():
        part.meta["span"] = span
    return node
