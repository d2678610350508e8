"""Derivation of a window aggregate from an aggregate that sums a function of its arguments (C15).

An aggregate declared by CREATE AGGREGATE has no EXPIRE routine, so a window must be read again for each
result. For the following pattern, a variant for windows with EXPIRE is derived: a table of one row, to each
column of which each tuple adds a function of its arguments.

    INITIALIZE: { INSERT INTO state VALUES (f(x), 1); }
    ITERATE:    { UPDATE state SET total = total + f(x), n = n + 1; }
    TERMINATE:  { INSERT INTO RETURN SELECT … FROM state; }

The derived EXPIRE routine subtracts the expired tuple. Results must be bitwise identical, so EXPIRE is
derived only for integers that cannot overflow: 64-bit sums of 32-bit integers. Doubles would retain rounding
errors of expired values. NULL cannot be subtracted. So NULLs are counted, and a column is NULL while the
window contains a NULL for it (C24).
"""

from __future__ import annotations

from dataclasses import replace

from slicemill import types as t
from slicemill.catalog.aggregates import (
    RETURN,
    AggregateDefinition,
    BodyState,
    Insert,
    LocalTable,
    Statement,
    Update,
)
from slicemill.catalog.catalog import Catalog
from slicemill.catalog.expressions import (
    Argument,
    Call,
    Case,
    Cast,
    ColumnRef,
    Expr,
    Literal,
    transform,
    walk,
)
from slicemill.types import Column, Kind, Schema

_PURE = (Argument, Call, Case, Cast, Literal)


def with_derived_window(name: str, catalog: Catalog) -> Catalog:
    """Add a derived variant for windows of an aggregate to a copy of the catalog.

    The catalog is returned unchanged if the user has declared a variant for windows, or if none can be
    derived.
    """
    base, window = catalog.aggregates(name)
    if base is None or window is not None:
        return catalog
    derived = derive_window(base)
    if derived is None:
        return catalog
    catalog = catalog.copy()
    catalog.window_aggregates[name.lower()] = derived
    return catalog


def derive_window(base: AggregateDefinition) -> AggregateDefinition | None:
    """Derive the variant for windows of an aggregate that sums functions of its arguments.

    Return None if the aggregate does not match this pattern.
    """
    images = summands_of(base)
    returned = base.bodies.get(BodyState.TERMINATE, ())
    if images is None or len(returned) != 1:
        return None
    (table,) = base.tables
    counters = [Column(_counter(name), t.BIGINT) for name in images]
    with_counters = LocalTable(table.name, Schema((*table.schema.columns, *counters)))
    answer = _answer(returned[0], with_counters)
    if answer is None:
        return None
    row = (*(_null_as_zero(f) for f in images.values()), *(_missing(f) for f in images.values()))
    begin = Insert(table.name, rows=(row,))
    bodies: dict[BodyState, tuple[Statement, ...]] = {
        BodyState.INITIALIZE: (begin, answer),
        BodyState.ITERATE: (_update(table, images, "+"), answer),
        BodyState.EXPIRE: (_update(table, images, "-"),),
    }
    return replace(base, window=True, tables=(with_counters,), bodies=bodies)


def summands_of(base: AggregateDefinition) -> dict[str, Expr] | None:
    """Return, for each column of the aggregate's table, the expression that each tuple adds to the column.

    Return None if the aggregate does not sum functions of its arguments.
    """
    first, later = (base.bodies.get(state, ()) for state in (BodyState.INITIALIZE, BodyState.ITERATE))
    if len(base.tables) != 1 or base.algebraic or len(first) != 1 or len(later) != 1:
        return None
    (table,), (begin,), (change,) = base.tables, first, later
    if not isinstance(begin, Insert) or not isinstance(change, Update):
        return None
    if {begin.table.lower(), change.table.lower()} != {table.name.lower()} or len(begin.rows) != 1:
        return None
    if begin.where is not None or change.where is not None:
        return None
    grows = {name: _summand(expr, f"{change.table}.{name}") for name, expr in change.assignments}
    images: dict[str, Expr] = {}
    for column, value in zip(table.schema, begin.rows[0], strict=True):
        image = grows.get(column.name)
        if column.type.kind is not Kind.BIGINT or image is None or image != value:
            return None
        images[column.name] = image
    return images


def _summand(expr: Expr, column: str) -> Expr | None:
    """Return the expression f that is added to a column, if `expr` is `column + f` or `f + column`.

    f must be a 32-bit integer that depends only on the arguments. Otherwise return None.
    """
    if not isinstance(expr, Call) or expr.function != "+" or len(expr.arguments) != 2:
        return None
    left, right = expr.arguments
    held, image = (left, right) if isinstance(left, ColumnRef) else (right, left)
    if not isinstance(held, ColumnRef) or held.name.lower() != column.lower():
        return None
    pure = all(isinstance(part, _PURE) for part in walk(image))
    return image if pure and image.type.kind is Kind.INT else None


def _answer(returned: Statement, table: LocalTable) -> Insert | None:
    """Return the statement INSERT INTO RETURN of the derived aggregate, or None if it is not simple.

    A column is replaced by NULL while its counter of NULLs is greater than 0.
    """
    if not isinstance(returned, Insert) or returned.table != RETURN or returned.query is None:
        return None
    query = returned.query
    if len(query.inputs) != 1 or query.inputs[0].relation.lower() != table.name.lower():
        return None
    chosen = (query.where, query.having, query.limit, *query.group_by, *query.aggregates, *query.order_by)
    if any(part is not None for part in chosen) or query.distinct:
        return None
    if not all(_simple(item.expr) for item in query.items):
        return None
    (source,) = query.inputs

    def change(expr: Expr) -> Expr | None:
        if not isinstance(expr, ColumnRef):
            return None
        nulls = ColumnRef(_counter(expr.name), t.BIGINT)
        some = Call(">", (nulls, Literal(0, t.INT)), t.BOOLEAN)
        return Case(((some, Literal(None, expr.type)),), expr, expr.type)

    items = tuple(replace(item, expr=transform(item.expr, change)) for item in query.items)
    return replace(
        returned, query=replace(query, inputs=(replace(source, schema=table.schema),), items=items)
    )


def _simple(expr: Expr) -> bool:
    return all(isinstance(part, (*_PURE, ColumnRef)) for part in walk(expr))


def _counter(name: str) -> str:
    return f"{name}_nulls"


def _missing(image: Expr) -> Expr:
    null = Call("isnull", (image,), t.BOOLEAN)
    return Case(((null, Literal(1, t.INT)),), Literal(0, t.INT), t.INT)


def _null_as_zero(image: Expr) -> Expr:
    null = Call("isnull", (image,), t.BOOLEAN)
    return Case(((null, Literal(0, t.INT)),), image, t.INT)


def _update(table: LocalTable, images: dict[str, Expr], sign: str) -> Update:
    changes = []
    for name, image in images.items():
        for column, by in ((name, _null_as_zero(image)), (_counter(name), _missing(image))):
            held = ColumnRef(f"{table.name}.{column}", t.BIGINT)
            changes.append((column, Call(sign, (held, by), t.BIGINT)))
    return Update(table.name, tuple(changes), None)
