"""Binder of select lists: expand *, name columns, and read grouped columns."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from slicemill.binder.calls import field_of
from slicemill.binder.context import Context, ErrorCollector
from slicemill.binder.expressions import ScalarEnvironment, bind
from slicemill.binder.scope import Scope
from slicemill.catalog.expressions import ColumnRef, Expr, transform, walk
from slicemill.catalog.queries import SelectItem
from slicemill.errors import did_you_mean
from slicemill.sql import nodes
from slicemill.sql.dialect import to_esl
from slicemill.sql.errors import StatementError
from slicemill.sql.lexer import RESERVED
from slicemill.sql.nodes import span_of
from slicemill.types import Column, Kind, Schema


def bind_items(
    item_nodes: Sequence[exp.Expression],
    env: ScalarEnvironment,
    scope: Scope,
    context: Context,
    problems: ErrorCollector,
) -> list[tuple[SelectItem, exp.Expression]]:
    """Bind the select list, and return its items with their syntax nodes."""
    bound: list[tuple[SelectItem, exp.Expression]] = []
    for node in item_nodes:
        with problems.collect():
            if isinstance(node, exp.Star) or (
                isinstance(node, exp.Column) and isinstance(node.this, exp.Star)
            ):
                columns = _expand(node, scope)
                context.stars[span_of(node)] = tuple(column for _, column in columns)
                bound += [(item, node) for item, _ in columns]
                continue
            alias = node.alias if isinstance(node, exp.Alias) else ""
            value_node = node.this if isinstance(node, exp.Alias) else node
            several = getattr(env, "returned_columns", lambda _: None)(value_node)
            if several is not None and len(several) > 1:
                if alias:
                    raise StatementError(
                        "this aggregate returns several columns, so it takes no single name",
                        span_of(node),
                        "leave AS out; the columns have names of their own",
                    )
                bound += [(SelectItem(field_of(c), ColumnRef.to(c)), node) for c in several]
                continue
            bound.append((SelectItem(alias or name_of(value_node), bind(value_node, env)), node))
    return bound


def _expand(node: exp.Expression, scope: Scope) -> list[tuple[SelectItem, exp.Column]]:
    """Return the columns to which a * expands, each with its syntax node."""
    wanted = node.text("table").lower() if isinstance(node, exp.Column) else ""
    aliases = [alias for alias, _ in scope.relations]
    if wanted and wanted not in {alias.lower() for alias in aliases}:
        raise StatementError(f"there is no {wanted} in FROM", span_of(node), did_you_mean(wanted, aliases))
    found: list[tuple[SelectItem, exp.Column]] = []
    for alias, schema in scope.relations:
        if not wanted or alias.lower() == wanted:
            for column in schema:
                merged = None if wanted else scope.merged.get(column.name.lower())
                value = scope.using_value(column.name) if merged is not None else None
                if merged is None or value is None:
                    item = SelectItem(column.name, ColumnRef.to(scope.read_as(alias, column)))
                    found.append((item, _column_node(column.name, alias if scope.qualified else "")))
                elif merged.owner == alias:
                    found.append((SelectItem(column.name, value), _column_node(column.name)))
    return found


def _column_node(name: str, table: str = "") -> exp.Column:
    parts = [
        exp.Identifier(this=part, quoted=not part.isidentifier() or part.upper() in RESERVED)
        for part in (name, table)
        if part
    ]
    return exp.Column(this=parts[0], table=parts[1] if table else None)


def name_of(node: exp.Expression) -> str:
    if isinstance(node, exp.Column):
        return node.name
    if isinstance(node, exp.Dot):
        return str(node.expression.name)
    if isinstance(node, exp.Anonymous) and node.name.lower() == "valid":
        return "valid"
    # The name omits the window of a call, because the name would be too long.
    return to_esl(node.this if isinstance(node, nodes.Over) else node)


def item_at(key: exp.Literal, items: Sequence[tuple[SelectItem, exp.Expression]]) -> Expr:
    """Return the SELECT item at a position, as in ORDER BY 2."""
    place = int(key.name) if key.name.isdigit() else 0
    if not 1 <= place <= len(items):
        raise StatementError(
            f"there is no column {key.name} in the select list",
            span_of(key),
            "write the position of a column in the select list",
        )
    return items[place - 1][0].expr


def with_unique_names(items: Sequence[SelectItem]) -> tuple[SelectItem, ...]:
    """Append numbers to repeated column names, because column names must be unique.

    >>> from slicemill.types import INT
    >>> items = [SelectItem("a", ColumnRef("a", INT)), SelectItem("A", ColumnRef("b", INT))]
    >>> [item.name for item in with_unique_names(items)]
    ['a', 'A_2']
    """
    taken: set[str] = set()
    unique: list[SelectItem] = []
    for item in items:
        name, number = item.name, 1
        while name.lower() in taken:
            number += 1
            name = f"{item.name}_{number}"
        taken.add(name.lower())
        unique.append(SelectItem(name, item.expr))
    return tuple(unique)


def warn_of_equal_names(items: Sequence[tuple[SelectItem, exp.Expression]], context: Context) -> None:
    """Warn of an alias that is also the name of an earlier column."""
    unique = with_unique_names([item for item, _ in items])
    for (item, node), named in zip(items, unique, strict=True):
        if isinstance(node, exp.Alias) and item.name != named.name:
            context.warn(
                f"a column before is called {item.name} too: this one is called {named.name}",
                span_of(node),
                "give it another name",
            )


def schema_of_items(items: Sequence[SelectItem]) -> Schema:
    return Schema(tuple(Column(item.name, item.expr.type) for item in items))


def read_groups(
    expr: Expr, node: exp.Expression, groups: Sequence[SelectItem], provided: frozenset[str], what: str
) -> Expr:
    """Replace grouped expressions by their columns.

    A column that is not grouped is an error.
    """

    def replace_group(part: Expr) -> Expr | None:
        for group in groups:
            if part == group.expr:
                return ColumnRef(group.name, part.type)
        return None

    rewritten = transform(expr, replace_group)
    allowed = provided | {group.name for group in groups}
    for part in walk(rewritten):
        if isinstance(part, ColumnRef) and part.name not in allowed:
            raise StatementError(
                f"{what} {part.name} has no single value in a group",
                span_of(node),
                f"add {part.name} to GROUP BY, or put it into an aggregate",
            )
    return rewritten


def refuse_null_columns(items: Sequence[tuple[SelectItem, exp.Expression]], problems: ErrorCollector) -> None:
    """Report SELECT items that are NULL without a type."""
    for item, node in items:
        if item.expr.type.kind is Kind.NULL:
            with problems.collect():
                raise StatementError("this NULL has no type", span_of(node), "write CAST(NULL AS …)")
