"""Syntax nodes for what SQL has no words for, beside sqlglot's own expressions.

The parse tree is sqlglot's, so its walking, diffing and printing work on ESL too. Every node that the
grammar makes carries its place in the text as a TextSpan in `meta["span"]`.
"""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

from sqlglot import exp

from slicemill.esl.syntax.source import TextSpan

Node = TypeVar("Node", bound=exp.Expression)


def at(node: Node, span: TextSpan) -> Node:
    """Mark where `node` stands in the text."""
    node.meta["span"] = span
    return node


def span_of(node: exp.Expression) -> TextSpan:
    """Where `node` stands: its own mark, else the hull of its descendants' marks."""
    own: TextSpan | None = node.meta.get("span")
    if own is not None:
        return own
    spans: list[TextSpan] = [child.meta["span"] for child in node.walk() if "span" in child.meta]
    hull = spans[0] if spans else TextSpan(0, 0)
    for span in spans[1:]:
        hull = hull.to(span)
    return hull


def height(node: exp.Expression) -> int:
    """How many nodes stand on the longest way from `node` down to a leaf."""
    tallest = 0
    below: list[tuple[exp.Expr, int]] = [(node, 1)]
    while below:
        current, level = below.pop()
        tallest = max(tallest, level)
        below.extend((child, level + 1) for child in current.iter_expressions())
    return tallest


class TypeName(exp.Expression):
    """A type as written: name and parameters, `decimal(10, 2)`."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expressions": False}


class ColumnDeclaration(exp.Expression):
    """`name [type [unit]]` in a stream, table or aggregate; units are for the times of a source."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "kind": False, "unit": False}


class Duration(exp.Expression):
    """A length of time as written: pairs of number and unit, `1 HOUR 30 MINUTES`."""

    arg_types: ClassVar[dict[str, bool]] = {"expressions": True}


class DurationPart(exp.Expression):
    """One `number unit` pair of a Duration."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "unit": True}


class FrameClause(exp.Expression):
    """`ROWS|RANGE extent [PRECEDING] [SLIDE length | ACTIVE EXPIRATION]`; no `this` means UNBOUNDED.

    `from_start` makes it grow: its windows begin at multiples of the extent (CUMULATE). Of a `SESSION`,
    `this` is the gap that ends it; or the column `until` says how long a tuple holds it open; `close`
    is a condition on its last tuple.
    """

    arg_types: ClassVar[dict[str, bool]] = {
        "kind": True,
        "this": False,
        "slide": False,
        "active": False,
        "from_start": False,
        "until": False,
        "close": False,
    }


class WindowFunction(exp.Expression):
    """`TUMBLE|HOP|CUMULATE|SESSION (TABLE stream, DESCRIPTOR(column), lengths)` in FROM."""

    arg_types: ClassVar[dict[str, bool]] = {
        "kind": True,
        "this": True,
        "column": True,
        "partition_by": False,
        "size": False,
        "slide": False,
        "step": False,
        "gap": False,
    }


class KeySets(exp.Expression):
    """`GROUPING SETS ((a, b), (a), ())`: `expressions` are the sets, each a tuple."""

    arg_types: ClassVar[dict[str, bool]] = {"expressions": True}


class Over(exp.Expression):
    """`call OVER ([PARTITION BY …] [ORDER BY ts] [frame])`; `ranked` is the ORDER BY of a rank."""

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "partition_by": False,
        "order": False,
        "ranked": False,
        "frame": False,
    }


class EmitPart(exp.Expression):
    """`EMIT CHANGES | FINAL | EVERY length` at the end of a SELECT."""

    arg_types: ClassVar[dict[str, bool]] = {"kind": True, "this": False}


class StreamInput(exp.Expression):
    """One entry of FROM: a named relation or a sub-query, its alias and its window.

    `coalesce` is the attribute list of a temporal query, `Stream(a, b) AS S RANGE … SLIDES … [CHANGES]
    [LATE …]`; the window then follows the alias and may have its own PARTITION BY.
    """

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "alias": False,
        "frame": False,
        "coalesce": False,
        "changes": False,
        "late": False,
        "partition_by": False,
        "as_of": False,
    }


class TableFunctionCall(exp.Expression):
    """`TABLE(f(…))` in FROM: the rows that a function returns."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}


class JoinInput(exp.Expression):
    """`[LEFT|RIGHT|FULL|SEMI|ANTI|CROSS|ASOF|LEFT ASOF] JOIN input ON condition`, or `USING (column, …)`."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "side": False, "on": False, "using": False}


class IntervalRelation(exp.Expression):
    """`period RELATION period`, RELATION being one of Allen's thirteen or a TSQL one (L7)."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "relation": True, "expression": True}


class SourceClause(exp.Expression):
    """Where a stream or table comes from: `SOURCE 'url'`, or `USING format OPTIONS (…)`."""

    arg_types: ClassVar[dict[str, bool]] = {"url": False, "format": False, "options": False}


class Option(exp.Expression):
    """`name = value` in OPTIONS or WITH."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "value": True}


class CreateStream(exp.Expression):
    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "columns": False,
        "order": False,
        "slack": False,
        "skew": False,
        "source": False,
        "query": False,
    }


class CreateTable(exp.Expression):
    arg_types: ClassVar[dict[str, bool]] = {"this": True, "columns": True, "source": False}


class CreateView(exp.Expression):
    arg_types: ClassVar[dict[str, bool]] = {"this": True, "query": True}


class CreateQuery(exp.Expression):
    arg_types: ClassVar[dict[str, bool]] = {"this": True, "options": False, "query": True}


class FeatureInput(exp.Expression):
    """`stream(column, …)` in a classifier."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "columns": True}


class CreateClassifier(exp.Expression):
    """`options` are those of WITH; without `key` there is one task."""

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "inputs": True,
        "key": False,
        "label": True,
        "training": True,
        "every": True,
        "options": True,
    }


class CreateModel(exp.Expression):
    """`texts` are its expressions, spaces between tokens where some were written; one for each of `results`.

    Their `meta["written"]` has everything at its place, so that a mistake in it can be shown.
    """

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "arguments": True,
        "constants": False,
        "results": False,
        "options": False,
        "texts": True,
    }


class ModelResults(exp.Expression):
    """`name`, or `name[index = first TO last]`."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "index": False, "first": False, "last": False}


class CreateFunction(exp.Expression):
    """A function: its `body` is an expression, or `external` names a function in Python.

    One that returns rows has a list of columns as `returns`, and a query as `body`.
    """

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "arguments": True,
        "returns": True,
        "body": False,
        "external": False,
    }


class DropObject(exp.Expression):
    arg_types: ClassVar[dict[str, bool]] = {"this": True, "kind": True}


class SetOption(exp.Expression):
    """`SET name = value [FOR component]`."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "value": True, "component": False}


class CreateAggregate(exp.Expression):
    """An aggregate: `bodies` in ESL, or `language` and `external` for one in a procedural language."""

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "arguments": True,
        "returns": True,
        "algebraic": False,
        "window": False,
        "tables": False,
        "bodies": False,
        "language": False,
        "external": False,
    }


class LocalTableDeclaration(exp.Expression):
    """`TABLE name (columns);` inside an aggregate."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "columns": True}


class AggregateBody(exp.Expression):
    """The statements of one or more states: `INITIALIZE: ITERATE: { … }`."""

    arg_types: ClassVar[dict[str, bool]] = {"states": True, "statements": True}


class InsertInto(exp.Expression):
    """`INSERT INTO table VALUES (…) [WHERE …]` or `INSERT INTO table SELECT …`."""

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "columns": False,
        "values": False,
        "where": False,
        "query": False,
    }


class UpdateSet(exp.Expression):
    arg_types: ClassVar[dict[str, bool]] = {"this": True, "assignments": True, "where": False}


class WhileLoop(exp.Expression):
    """`WHILE condition { statements }` in an aggregate."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "statements": True}


class Assignment(exp.Expression):
    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expression": True}


class DeleteFrom(exp.Expression):
    arg_types: ClassVar[dict[str, bool]] = {"this": True, "where": False}


def child(node: exp.Expression, key: str) -> Any:
    """The argument `key` of a node: typed Any because sqlglot's argument map is untyped."""
    return node.args.get(key)
