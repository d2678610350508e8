"""Syntax nodes for parts of ESL that have no sqlglot class.

The syntax tree consists of sqlglot expressions, so sqlglot's functions that walk, compare and print trees
work on ESL. Every node that the grammar creates has its position in the text as a TextSpan in `meta["span"]`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from sqlglot import exp

from slicemill.sql.errors import TextSpan

if TYPE_CHECKING:
    from slicemill.sql.printer import EslGenerator

Node = TypeVar("Node", bound=exp.Expression)


def at(node: Node, span: TextSpan) -> Node:
    """Set the span of a node and return the node."""
    node.meta["span"] = span
    return node


def span_of(node: exp.Expression) -> TextSpan:
    """Return the span of a node.

    The span of a node without a position is the range of its descendants' spans.
    """
    own: TextSpan | None = node.meta.get("span")
    if own is not None:
        return own
    spans: list[TextSpan] = [child.meta["span"] for child in node.walk() if "span" in child.meta]
    hull = spans[0] if spans else TextSpan(0, 0)
    for span in spans[1:]:
        hull = hull.to(span)
    return hull


def height(node: exp.Expression) -> int:
    """Return the number of nodes from `node` to its deepest leaf."""
    tallest = 0
    below: list[tuple[exp.Expr, int]] = [(node, 1)]
    while below:
        current, level = below.pop()
        tallest = max(tallest, level)
        below.extend((child, level + 1) for child in current.iter_expressions())
    return tallest


class ExtensionNode(exp.Expression):
    """Syntax node of an extension, which prints itself."""

    def esl(self, generator: EslGenerator) -> str:
        """Return the node as ESL text."""
        raise NotImplementedError


class CreateObject(ExtensionNode):
    """CREATE statement of an extension.

    `this` is the name of the object.
    """

    kind: ClassVar[str]
    """Keyword after CREATE."""


class TypeName(exp.Expression):
    """Name of a type in a statement, such as `decimal(10, 2)`, or of a `list` of this type."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expressions": False, "list": False}


class ColumnDeclaration(exp.Expression):
    """Column declaration `name [type [unit]]` of a stream, table or aggregate.

    The unit applies if a source sends times as numbers. A column of a table may be `required` (NOT NULL) or
    `primary`. A column added by ALTER STREAM may have a `default` for older rows.
    """

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "kind": False,
        "unit": False,
        "default": False,
        "required": False,
        "primary": False,
    }


class Duration(exp.Expression):
    """Duration in a statement, such as `1 HOUR 30 MINUTES`, as number and unit pairs."""

    arg_types: ClassVar[dict[str, bool]] = {"expressions": True}


class DurationPart(exp.Expression):
    """One pair `number unit` of a Duration, such as `30 MINUTES`."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "unit": True}


class FrameClause(exp.Expression):
    """Window frame `ROWS|RANGE extent [PRECEDING] [SLIDE length | ACTIVE EXPIRATION]`.

    Without `this`, the window is UNBOUNDED. With `from_start`, the window grows from a multiple of the extent
    to its full length (CUMULATE). A `SESSION` has the gap in `this`, or in `until` a column with the time up
    to which a tuple keeps the session open. The condition `close` marks the last tuple of a session or
    punctuation window. `expires` is the latest time at which a tuple leaves the window of a join.
    """

    arg_types: ClassVar[dict[str, bool]] = {
        "kind": True,
        "this": False,
        "slide": False,
        "active": False,
        "from_start": False,
        "until": False,
        "close": False,
        "expires": False,
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
    """`GROUPING SETS ((a, b), (a), ())`.

    `expressions` are the sets, and each set is a tuple.
    """

    arg_types: ClassVar[dict[str, bool]] = {"expressions": True}


class NamedWindow(exp.Expression):
    """`name AS ([base] [PARTITION BY …] [ORDER BY …] [frame])` in WINDOW.

    `base` is the name of another window.
    """

    arg_types: ClassVar[dict[str, bool]] = {
        "this": False,
        "base": False,
        "partition_by": False,
        "order": False,
        "frame": False,
    }


class Over(exp.Expression):
    """`call OVER ([PARTITION BY …] [ORDER BY ts] [frame])`.

    `ranked` is the ORDER BY of a rank. `named` is a reference to a named window, which is resolved at the end
    of its SELECT.
    """

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "partition_by": False,
        "order": False,
        "ranked": False,
        "frame": False,
        "named": False,
    }


class EmitPart(exp.Expression):
    """`EMIT CHANGES | FINAL | EVERY length` after a SELECT.

    Windows also have `EMIT EARLY EVERY … LATE …`.
    """

    arg_types: ClassVar[dict[str, bool]] = {"kind": True, "this": False, "late": False}


class StreamInput(exp.Expression):
    """Entry of FROM: a relation or sub-query with alias and window.

    `coalesce` is the attribute list of a temporal query, `Stream(a, b) AS S RANGE … SLIDES … [CHANGES] [LATE
    …]`. In a temporal query the window follows the alias and may have its own PARTITION BY.
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
    """`TABLE(f(…))` in FROM: rows returned by a function."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}


class ListElements(exp.Expression):
    """`UNNEST(list) AS t(column)` in FROM.

    The alias `t` is stored in the FROM entry. `column` is optional.
    """

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "column": False}


class JoinInput(exp.Expression):
    """`[LEFT|RIGHT|FULL|SEMI|ANTI|CROSS|ASOF|LEFT ASOF] JOIN input ON condition`, or `USING (column, …)`."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "side": False, "on": False, "using": False}


class IntervalRelation(exp.Expression):
    """`period RELATION period`.

    The relation is one of Allen's thirteen relations, or a TSQL relation (L7).
    """

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "relation": True, "expression": True}


class SourceClause(exp.Expression):
    """Source of a stream or table: `SOURCE 'url'`, or `USING format OPTIONS (…)`."""

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
        "begin": False,
        "retain": False,
        "source": False,
        "query": False,
    }


class CreateTable(exp.Expression):
    """CREATE TABLE with columns, source and constraints.

    `key` is PRIMARY KEY (…), and `refresh` is REFRESH EVERY.
    """

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "columns": True,
        "key": False,
        "source": False,
        "refresh": False,
    }


class MaterializeTable(exp.Expression):
    """`CREATE TABLE name AS MATERIALIZED query [REFRESH EVERY …]`."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "query": True, "refresh": False}


class CreateView(exp.Expression):
    arg_types: ClassVar[dict[str, bool]] = {"this": True, "query": True}


class CreateQuery(exp.Expression):
    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "begins": False,
        "retain": False,
        "options": False,
        "query": True,
    }


class CreateFunction(exp.Expression):
    """CREATE FUNCTION with a `body` in ESL, or an `external` Python function.

    A function that returns rows has a list of columns as `returns`, and a query as `body`.
    """

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "arguments": True,
        "returns": True,
        "body": False,
        "external": False,
    }


class CreateAlert(exp.Expression):
    """CREATE ALERT on a query or stream.

    `on` is the name of the query or stream. For all queries or streams, `any` is QUERY or STREAM.
    """

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "on": False,
        "any": False,
        "when": False,
        "held": False,
        "repeat": False,
        "webhook": True,
    }


class ReplayErrors(exp.Expression):
    """`REPLAY s_errors [WHERE …]`."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "where": False}


REPLACE, IF_ABSENT = "OR REPLACE", "IF NOT EXISTS"


class DropObject(exp.Expression):
    """`DROP kind [IF EXISTS] name [CASCADE]`."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "kind": True, "exists": False, "cascade": False}


class CreateMode(exp.Expression):
    """CREATE node with a `mode`, which is `OR REPLACE` or `IF NOT EXISTS`."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "mode": True}


class ChangeLifecycle(exp.Expression):
    """`PAUSE | RESUME | RESTART kind name`."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "action": True, "kind": True}


class AlterQuery(exp.Expression):
    """`ALTER QUERY name SET (option = value, …)`.

    The value NULL resets an option to its default.
    """

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "options": True}


class AlterStream(exp.Expression):
    """`ALTER STREAM name ADD COLUMN column, …`."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "columns": True}


class SetOption(exp.Expression):
    """`SET name = value [FOR component]`."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "value": True, "component": False}


class CreateAggregate(exp.Expression):
    """CREATE AGGREGATE with `bodies` in ESL, or an `external` Python class."""

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
    """Statements of one or more phases of an aggregate: `INITIALIZE: ITERATE: { … }`."""

    arg_types: ClassVar[dict[str, bool]] = {"states": True, "statements": True}


class InsertInto(exp.Expression):
    """`INSERT INTO table VALUES (…) [WHERE …]` or `INSERT INTO table SELECT …`.

    Outside aggregates, `conflict` or `replace` determine the treatment of an existing row with the same key.
    """

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "columns": False,
        "values": False,
        "where": False,
        "query": False,
        "conflict": False,
        "replace": False,
    }


class OnConflictClause(exp.Expression):
    """`ON CONFLICT [(key)] DO NOTHING`, or `DO UPDATE SET assignments [WHERE …]`."""

    arg_types: ClassVar[dict[str, bool]] = {"columns": False, "assignments": False, "where": False}


class TruncateRows(exp.Expression):
    """`TRUNCATE [TABLE] table`."""


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
    """Return the child node `key` of a syntax node.

    The type is Any because sqlglot's map of children is untyped.
    """
    return node.args.get(key)
