"""Bind ALTER STREAM … ADD COLUMN, with defaults for old rows."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from slicemill.esl.binder.context import Context
from slicemill.esl.binder.lives.steering import running
from slicemill.esl.binder.problems import Problems
from slicemill.esl.binder.relations import RelationEnvironment
from slicemill.esl.binder.scalar import bind
from slicemill.esl.binder.scope import Scope
from slicemill.esl.binder.types import bind_columns
from slicemill.esl.syntax import nodes
from slicemill.esl.syntax.dialect import to_esl
from slicemill.esl.syntax.errors import Mistake
from slicemill.esl.syntax.nodes import child, span_of
from slicemill.esl.types.catalog import AlteredStream, DerivedStream, Stream
from slicemill.esl.types.expression import Cast, Expr, Literal
from slicemill.esl.types.schema import Column, Kind, Schema, assignable
from slicemill.scalar.operator_types import castable
from slicemill.scalar.values import ExpressionError


def bind_added_columns(node: nodes.AlterStream, context: Context) -> AlteredStream:
    before = running("STREAM", node.this, context)
    if not isinstance(before, Stream):
        raise Mistake(
            f"{before.name} has the columns that its query selects",
            span_of(node.this),
            f"write CREATE OR REPLACE STREAM {before.name} AS SELECT …"
            if isinstance(before, DerivedStream)
            else f"DROP CLASSIFIER {before.name}, and create it anew",
        )
    declared: list[nodes.ColumnDeclaration] = child(node, "columns")
    added = bind_columns(declared)
    plain = added.with_units(())
    problems = Problems()
    defaults: list[tuple[str, object]] = []
    for column, declaration in zip(plain, declared, strict=True):
        with problems.noting():
            _check_name(column, before, declaration)
            if (given := child(declaration, "default")) is not None:
                value = _constant(given, column, context)
                defaults += [(column.name, value)] if value is not None else []
    problems.raise_any()
    after = replace(before, schema=Schema((*before.schema, *plain)), units=(*before.units, *added.units))
    return AlteredStream(before, after, tuple(defaults))


def _check_name(column: Column, stream: Stream, node: nodes.ColumnDeclaration) -> None:
    known = stream.schema.find(column.name)
    if known is not None:
        raise Mistake(
            f"{stream.name} has a column {known} already", span_of(node), "give the new one another name"
        )
    # Imported here and below, because a script without ALTER STREAM is checked without Arrow and NumPy.
    from slicemill.storage.arrow_schema import ArrowSchemaError, to_arrow

    try:
        to_arrow(Schema((column,)))
    except ArrowSchemaError as problem:
        raise Mistake(str(problem), span_of(node), "give it another name or type") from None


def _constant(node: exp.Expression, column: Column, context: Context) -> object:
    """Return a constant default, converted to the type of the column."""
    if named := node.find(exp.Column):
        raise Mistake("a default is a constant", span_of(named), "strings are written in single quotes")
    value: Expr = bind(node, RelationEnvironment(context, Scope((), qualified=True), place="DEFAULT"))
    if isinstance(value, Literal) and value.value is None:
        return None
    text = isinstance(value, Literal) and value.type.kind is Kind.VARCHAR
    if not (text or assignable(column.type, value.type)) or not castable(value.type, column.type):
        raise Mistake(
            f"{column.name} is {column.type}, and its default {to_esl(node)} is {value.type}",
            span_of(node),
            f"write DEFAULT CAST(… AS {column.type})",
        )
    from slicemill.scalar.rows import compile_expression

    try:
        return compile_expression(Cast(value, column.type), Schema(()))(())
    except ExpressionError as problem:
        raise Mistake(str(problem), span_of(node), f"write a constant of type {column.type}") from None
