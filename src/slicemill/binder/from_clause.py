"""Binder of FROM: relations with their aliases, kinds of joins, and USING."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from sqlglot import exp

from slicemill.binder import windows as durations
from slicemill.binder.context import Context, ErrorCollector, is_finite, view_of_a_stream
from slicemill.binder.scope import MergedColumn, Scope
from slicemill.binder.table_functions import bind_elements, row_schema_of, unnest_condition
from slicemill.catalog.catalog import Catalog, DerivedStream, Relation, Stream
from slicemill.catalog.expressions import ColumnRef
from slicemill.catalog.queries import (
    Continuous,
    FrameUnit,
    JoinKind,
    QueryInput,
    RelationQuery,
    SelectQuery,
    UnionQuery,
)
from slicemill.errors import did_you_mean
from slicemill.sql import nodes
from slicemill.sql.errors import StatementError
from slicemill.sql.nodes import at, child, span_of
from slicemill.types import Schema

_UNNAMED = "subquery"  # alias of a sub-query without a name, which must be the only entry of FROM


@dataclass(frozen=True, slots=True)
class BoundInput:
    """Bound input of a SELECT, with its syntax node and JOIN condition."""

    input: QueryInput
    node: nodes.StreamInput
    on: exp.Expression | None = None
    left: bool = False
    using: Sequence[exp.Identifier] = ()
    side: str | None = None

    @property
    def is_as_of(self) -> bool:
        """Return True for the right stream of an ASOF join."""
        asked = self.side in ("ASOF", "LEFT ASOF") or child(self.node, "as_of") is not None
        return asked and not self.input.finite


def from_entries(node: exp.Select) -> list[tuple[nodes.StreamInput, nodes.JoinInput | None]]:
    entries = []
    for entry in child(node, "entries"):
        join = entry if isinstance(entry, nodes.JoinInput) else None
        entries.append((join.this if join is not None else entry, join))
    return entries


def alias_of_call(entry: nodes.StreamInput) -> str:
    alias = child(entry, "alias")
    if alias is None:
        raise StatementError("TABLE(…) in FROM needs a name", span_of(entry), "add AS name")
    return str(alias.name)


def bind_inputs(node: exp.Select, context: Context) -> list[BoundInput]:
    problems = ErrorCollector()
    bound: list[BoundInput] = []
    aliases: set[str] = set()
    written = from_entries(node)
    for entry, join in written:
        with problems.collect():
            if isinstance(entry.this, nodes.ListElements):
                made = BoundInput(
                    bind_elements(entry, [one.input for one in bound], context),
                    entry,
                    *unnest_condition(join),
                )
            else:
                made = _bind_input(entry, join, context, alone=len(written) == 1)
            if made.input.alias.lower() in aliases:
                raise StatementError(
                    f"{made.input.alias} occurs twice in FROM",
                    span_of(entry),
                    "give one of them an alias: AS other",
                )
            aliases.add(made.input.alias.lower())
            if made.using:
                inputs, own = [one.input for one in bound], made.input
                merged = merged_columns([(one.using, one.input) for one in bound], inputs)
                before = [(one.alias, one.schema) for one in visible_inputs(inputs)]
                made = replace(made, on=using_condition(made.using, own.alias, own.schema, before, merged))
            bound.append(made)
    problems.raise_any()
    check_kinds([one.input for one in bound], node, {one.input.alias for one in bound if one.left})
    if bound[0].input.finite and any(b.left for b in bound):
        raise StatementError(
            "LEFT JOIN preserves the rows of a stream, not of a table",
            span_of(bound[0].node),
            "name the stream first",
        )
    return bound


def _bind_input(
    entry: nodes.StreamInput, join: nodes.JoinInput | None, context: Context, *, alone: bool
) -> BoundInput:
    alias_node = child(entry, "alias")
    frame = child(entry, "frame")
    session = frame is not None and child(frame, "kind") == "SESSION"
    reports = child(entry, "coalesce") is not None
    window = durations.from_window(frame, reports) if frame is not None and not session else None
    left = False
    on = child(join, "on") if join is not None else None
    if isinstance(entry.this, nodes.TableFunctionCall):
        if join is not None and child(join, "side") not in (None, "CROSS"):
            side = child(join, "side")
            raise StatementError(
                f"{side} JOIN would preserve rows of a table without a match", span_of(entry), "use JOIN"
            )
        rows = row_schema_of(entry.this, context)
        made = QueryInput(alias_of_call(entry), rows, window=window, finite=True)
    elif isinstance(entry.this, exp.Identifier):
        relation = context.relation(entry.this)
        alias = alias_node.name if alias_node is not None else entry.this.name
        if isinstance(relation, (SelectQuery, UnionQuery)):
            made = QueryInput(alias, relation.schema, query=relation, window=window)
        elif isinstance(relation, RelationQuery):
            raise StatementError("WITH over tables joins no stream", span_of(entry), "make it a CREATE VIEW")
        else:
            _refuse_views_of_views(entry, relation, context)
            made = QueryInput(
                alias, relation.schema, relation=relation.name, window=window, finite=is_finite(relation)
            )
            left = made.finite and check_table(join, made.alias)
    else:
        from slicemill.binder.queries import bind_query  # circular import: `bind_query` binds FROM

        query = bind_query(entry.this, context)
        if alias_node is None and not alone:
            raise StatementError(
                "a sub-query among others in FROM needs a name", span_of(entry), "add AS name"
            )
        alias = _UNNAMED if alias_node is None else alias_node.name
        if isinstance(query, RelationQuery):
            raise StatementError(
                "a sub-query over tables joins no stream", span_of(entry), "make it a CREATE VIEW"
            )
        made = QueryInput(alias, query.schema, query=query, window=window)
    made = replace(made, kind=kind_of_join(join, finite=made.finite))
    using = (child(join, "using") or ()) if join is not None else ()
    side = child(join, "side") if join is not None else None
    return BoundInput(made, entry, on, left, using, side)


def _refuse_views_of_views(entry: nodes.StreamInput, relation: Relation, context: Context) -> None:
    """Reject a relation computed from a view over a stream.

    A lookup at the time of a tuple is possible only in the view, not in a relation computed from the view.
    """
    view = view_of_a_stream(relation, context.catalog)
    if view is not None and view is not relation:
        raise StatementError(
            f"{relation.name} is made of {view.name}, a view over a stream, and cannot be looked up",
            span_of(entry),
            f"look up {view.name}; {relation.name} can be read by queries over tables and views alone",
        )


def timestamp_column_inputs(inputs: Sequence[QueryInput], scope: Scope, catalog: Catalog) -> dict[str, int]:
    """Return the timestamp columns of the inputs, each with the index of its input."""
    found: dict[str, int] = {}
    for place, entry in enumerate(inputs):
        found |= dict.fromkeys(time_columns_of([entry], scope, catalog), place)
    return found


def time_columns_of(inputs: Sequence[QueryInput], scope: Scope, catalog: Catalog) -> frozenset[str]:
    """Return the names under which a SELECT reads the timestamp columns of its inputs."""
    found = set()
    for entry in inputs:
        stream = catalog.relation(entry.relation) if entry.relation is not None else entry.query
        for name in _time_columns(stream, catalog):
            column = entry.schema.find(name)
            assert column is not None, "the binder has found it"
            found.add(scope.read_as(entry.alias, column).name)
    return frozenset(found)


def _time_columns(stream: Relation | Continuous | None, catalog: Catalog) -> list[str]:
    """Return the columns with the timestamp of a stream, derived stream or query."""
    if isinstance(stream, Stream):
        return [] if stream.time_column is None else [stream.time_column]
    query = stream.query if isinstance(stream, DerivedStream) else stream
    if (
        not isinstance(query, SelectQuery)
        or len(query.inputs) != 1
        or query.aggregates
        or query.coalesce is not None
        # With ACTIVE EXPIRATION, a tuple also emits a result when it expires, with a later timestamp.
        or any(call.window.active for call in query.window_calls)
    ):
        return []
    scope = Scope(tuple((entry.alias, entry.schema) for entry in query.inputs), qualified=False)
    inner = time_columns_of(query.inputs, scope, catalog)
    return [item.name for item in query.items if isinstance(item.expr, ColumnRef) and item.expr.name in inner]


# Kinds of joins, and USING


def kind_of_join(join: nodes.JoinInput | None, *, finite: bool) -> JoinKind:
    """Return the kind of a JOIN.

    A join with a table is a lookup, whose kind is always INNER.
    """
    side = None if join is None else child(join, "side")
    as_of = join is not None and (child(join.this, "as_of") is not None or side in ("ASOF", "LEFT ASOF"))
    return JoinKind.INNER if finite or as_of or side in (None, "CROSS") else JoinKind(side)


def check_table(join: nodes.JoinInput | None, name: str) -> bool:
    """Reject RIGHT and FULL joins with a table; return True for a LEFT JOIN."""
    side = None if join is None else child(join, "side")
    if side in ("RIGHT", "FULL"):
        assert join is not None
        raise StatementError(
            f"{name} is finite: it is never known that a row will have no match",
            span_of(join),
            f"name the stream first: stream LEFT JOIN {name} ON …",
        )
    if side in ("SEMI", "ANTI"):
        assert join is not None
        hint = f"use JOIN {name}, or LEFT JOIN {name} … WHERE {name}.column IS NULL"
        raise StatementError(f"{side} JOIN is for streams; {name} is finite", span_of(join), hint)
    if side in ("ASOF", "LEFT ASOF"):
        assert join is not None
        raise StatementError(
            f"{name} is finite: a tuple is joined with the rows in the table when the tuple arrives",
            span_of(join),
            f"use JOIN {name}, or LEFT JOIN {name}",
        )
    return side == "LEFT"


def is_outer_join_chain(inputs: Sequence[QueryInput]) -> bool:
    """Return True for chains of three or more streams with outer joins.

    In such a chain each ON belongs to its own join.
    """
    streams = [entry for entry in inputs if not entry.finite]
    return len(streams) > 2 and any(entry.kind is not JoinKind.INNER for entry in streams)


def inputs_of_on(inputs: Sequence[QueryInput], place: int) -> Sequence[QueryInput]:
    """Return the inputs whose columns an ON condition can read.

    In a chain of outer joins, ON can name its own input and the inputs joined before it.
    """
    if not is_outer_join_chain(inputs):
        return inputs
    own = inputs[place]
    before = [entry for entry in visible_inputs(inputs[:place]) if own.finite or not entry.finite]
    return [*before, own]


def check_on(inputs: Sequence[QueryInput], place: int, on: exp.Expression) -> None:
    """Reject an ON condition that reads a later input of the join, or a table."""
    if not is_outer_join_chain(inputs) or inputs[place].finite:
        return
    later = {one.alias.lower(): one for n, one in enumerate(inputs) if n > place or one.finite}
    for column in on.find_all(exp.Column):
        other = later.get(column.table.lower())
        if other is not None and other.finite:
            raise StatementError(
                f"{other.alias} is looked up after the joins of streams",
                span_of(column),
                "look it up in a stream of its own, "
                f"CREATE STREAM s AS SELECT … JOIN {other.alias} …, and join s",
            )
        if other is not None:
            raise StatementError(
                f"{other.alias} follows the join that reads it in FROM",
                span_of(column),
                f"name {other.alias} before {inputs[place].alias} in FROM",
            )


def visible_inputs(inputs: Sequence[QueryInput]) -> list[QueryInput]:
    """Return the inputs whose columns are in the results.

    The result excludes the second inputs of SEMI and ANTI joins.
    """
    return [entry for entry in inputs if entry.kind not in (JoinKind.SEMI, JoinKind.ANTI)]


def check_kinds(inputs: Sequence[QueryInput], node: exp.Select, optional: Collection[str]) -> None:
    """Check the order of tables and streams in outer joins.

    FROM must begin with a stream. In SQL, a table before a RIGHT or FULL join drops only rows of the streams
    before the table. The engine looks up tables after the joins of streams, so a table before a RIGHT or FULL
    join must be `optional` (LEFT JOIN).
    """
    for place, entry in enumerate(inputs):
        if entry.finite or entry.kind is JoinKind.INNER:
            continue
        brings_own = entry.kind in (JoinKind.RIGHT, JoinKind.FULL)
        drops = any(other.finite and other.alias not in optional for other in inputs[:place])
        if inputs[0].finite or (brings_own and drops):
            raise StatementError(
                f"a {entry.kind.value} JOIN begins with a stream", span_of(node), "name the tables last"
            )


def check_windows(inputs: Sequence[QueryInput], node: exp.Select, *, aggregates: bool) -> None:
    streams = [entry for entry in inputs if not entry.finite]
    kind = next((entry.kind for entry in streams if entry.kind is not JoinKind.INNER), None)
    if kind is None:
        return
    in_turn = is_outer_join_chain(inputs)
    for place, entry in enumerate(streams):
        window = entry.window
        assert window is not None, "it was asked for"
        endless = window.extent is None and window.expires is None
        if in_turn and window.expires is not None:
            raise StatementError(
                f"EXPIRES AT goes with a {kind.value} JOIN of two streams, and FROM has {len(streams)}",
                span_of(node),
                "join two of them in a stream of their own: CREATE STREAM ab AS SELECT …; "
                "then FROM ab [RANGE …]",
            )
        if window.frame is FrameUnit.ROWS or (endless and (in_turn or place in kind.judged)):
            raise StatementError(
                f"a {kind.value} JOIN needs a window of time: when it has passed, a row of {entry.alias} "
                "can no longer be matched",
                span_of(node),
                f"write {entry.alias} [RANGE 10 MINUTES]",
            )
    if aggregates:
        raise StatementError(
            f"an aggregate over a {kind.value} JOIN needs windows of its own",
            span_of(node),
            "make the join a stream, CREATE STREAM ab AS SELECT …, and aggregate FROM ab [RANGE …]",
        )


def using_condition(
    using: Sequence[exp.Identifier],
    alias: str,
    schema: Schema,
    before: Sequence[tuple[str, Schema]],
    merged: Mapping[str, MergedColumn] = MappingProxyType({}),
) -> exp.Expression:
    """Return the condition of `USING (k)`, which is `before.k = alias.k`.

    The left side is the first relation of `before` that has k. A column that an earlier USING has `merged` is
    compared by its merged value.
    """
    parts: list[exp.Expression] = []
    for name in using:
        owner = next((other for other, columns in before if columns.find(name.name) is not None), None)
        if owner is None or schema.find(name.name) is None:
            without = alias if owner is not None else " or ".join(other for other, _ in before)
            known = schema.names if owner is not None else [n for _, c in before for n in c.names]
            raise StatementError(
                f"there is no column {name.name} in {without}",
                span_of(name),
                did_you_mean(name.name, known) or "USING names columns of both sides",
            )
        known_as = merged.get(name.name.lower())
        columns = [_column(other, name) for other in (known_as.values if known_as else (owner,))]
        value: exp.Expression = columns[0]
        if len(columns) > 1:
            value = at(exp.Anonymous(this="coalesce", expressions=columns), span_of(name))
        parts.append(at(exp.EQ(this=value, expression=_column(alias, name)), span_of(name)))
    condition = parts[0]
    for part in parts[1:]:
        condition = at(exp.And(this=condition, expression=part), span_of(condition))
    return condition


def merged_columns(
    using: Sequence[tuple[Sequence[exp.Identifier], QueryInput]], before: Sequence[QueryInput]
) -> dict[str, MergedColumn]:
    """Return the columns that USING merges, by name in lower case."""
    found: dict[str, MergedColumn] = {}
    for names, entry in using:
        for name in names:
            known = found.get(name.name.lower())
            if known is None:
                owner = next(
                    one.alias for one in visible_inputs(before) if one.schema.find(name.name) is not None
                )
                known = MergedColumn(owner, (owner,))
            values = {JoinKind.RIGHT: (entry.alias,), JoinKind.FULL: (*known.values, entry.alias)}
            found[name.name.lower()] = MergedColumn(known.owner, values.get(entry.kind, known.values))
    return found


def select_list_scope(inputs: Sequence[QueryInput], merged: dict[str, MergedColumn]) -> Scope:
    """Return the name scope of the select list and WHERE.

    The scope excludes the second inputs of SEMI and ANTI joins.
    """
    relations = tuple((entry.alias, entry.schema.own) for entry in visible_inputs(inputs))
    return Scope(relations, qualified=len(inputs) > 1, merged=merged)


def on_scope(scope: Scope, inputs: Sequence[QueryInput]) -> Scope:
    """Return the name scope of an ON condition, with all inputs."""
    return replace(scope, relations=tuple((entry.alias, entry.schema.own) for entry in inputs))


def _column(alias: str, name: exp.Identifier) -> exp.Column:
    table = exp.Identifier(this=alias, quoted=True)
    return at(exp.Column(this=name.copy(), table=table), span_of(name))
