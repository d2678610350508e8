"""Bind FROM: the relations that a SELECT reads, with their aliases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from slicemill.esl.binder import durations, queries
from slicemill.esl.binder.context import Context, is_finite, view_of_a_stream
from slicemill.esl.binder.functions.elements import bind_elements, joined_elements
from slicemill.esl.binder.functions.tables import returned_rows
from slicemill.esl.binder.joins.kinds import (
    check_kinds,
    check_table,
    kind_of_join,
    merged_columns,
    seen,
    using_condition,
)
from slicemill.esl.binder.problems import Problems
from slicemill.esl.binder.scope import Scope
from slicemill.esl.syntax import nodes
from slicemill.esl.syntax.errors import Mistake
from slicemill.esl.syntax.nodes import child, span_of
from slicemill.esl.types.catalog import Catalog, DerivedStream, Relation, Stream
from slicemill.esl.types.expression import ColumnRef
from slicemill.esl.types.query import Continuous, QueryInput, SelectQuery, UnionQuery
from slicemill.esl.types.relation import RelationQuery

_UNNAMED = "subquery"  # alias of a sub-query without a name, which must be the only entry of FROM


@dataclass(frozen=True, slots=True)
class BoundInput:
    """Input of a SELECT with its syntax and JOIN condition."""

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
        raise Mistake("TABLE(…) in FROM needs a name", span_of(entry), "add AS name")
    return str(alias.name)


def bind_inputs(node: exp.Select, context: Context) -> list[BoundInput]:
    problems = Problems()
    bound: list[BoundInput] = []
    aliases: set[str] = set()
    written = from_entries(node)
    for entry, join in written:
        with problems.noting():
            if isinstance(entry.this, nodes.ListElements):
                made = BoundInput(
                    bind_elements(entry, [one.input for one in bound], context), entry, *joined_elements(join)
                )
            else:
                made = _bind_input(entry, join, context, alone=len(written) == 1)
            if made.input.alias.lower() in aliases:
                raise Mistake(
                    f"{made.input.alias} stands twice in FROM",
                    span_of(entry),
                    "give one of them an alias: AS other",
                )
            aliases.add(made.input.alias.lower())
            if made.using:
                inputs, own = [one.input for one in bound], made.input
                merged = merged_columns([(one.using, one.input) for one in bound], inputs)
                before = [(one.alias, one.schema) for one in seen(inputs)]
                made = replace(made, on=using_condition(made.using, own.alias, own.schema, before, merged))
            bound.append(made)
    problems.raise_any()
    check_kinds([one.input for one in bound], node, {one.input.alias for one in bound if one.left})
    if bound[0].input.finite and any(b.left for b in bound):
        raise Mistake(
            "LEFT JOIN keeps the tuples of a stream", span_of(bound[0].node), "name the stream first"
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
            raise Mistake(f"{side} JOIN keeps tuples without a match in a table", span_of(entry), "use JOIN")
        rows = returned_rows(entry.this, context)
        made = QueryInput(alias_of_call(entry), rows, window=window, finite=True)
    elif isinstance(entry.this, exp.Identifier):
        relation = context.relation(entry.this)
        alias = alias_node.name if alias_node is not None else entry.this.name
        if isinstance(relation, (SelectQuery, UnionQuery)):
            made = QueryInput(alias, relation.schema, query=relation, window=window)
        elif isinstance(relation, RelationQuery):
            raise Mistake("WITH over tables joins no stream", span_of(entry), "make it a CREATE VIEW")
        else:
            _refuse_views_of_views(entry, relation, context)
            made = QueryInput(
                alias, relation.schema, relation=relation.name, window=window, finite=is_finite(relation)
            )
            left = made.finite and check_table(join, made.alias)
    else:
        query = queries.bind_query(entry.this, context)
        if alias_node is None and not alone:
            raise Mistake("a sub-query among others in FROM needs a name", span_of(entry), "add AS name")
        alias = _UNNAMED if alias_node is None else alias_node.name
        if isinstance(query, RelationQuery):
            raise Mistake("a sub-query over tables joins no stream", span_of(entry), "make it a CREATE VIEW")
        made = QueryInput(alias, query.schema, query=query, window=window)
    made = replace(made, kind=kind_of_join(join, finite=made.finite))
    using = (child(join, "using") or ()) if join is not None else ()
    side = child(join, "side") if join is not None else None
    return BoundInput(made, entry, on, left, using, side)


def _refuse_views_of_views(entry: nodes.StreamInput, relation: Relation, context: Context) -> None:
    """Reject a relation computed from a view over a stream.

    Only the view itself can be looked up at the time of a tuple.
    """
    view = view_of_a_stream(relation, context.catalog)
    if view is not None and view is not relation:
        raise Mistake(
            f"{relation.name} is made of {view.name}, a view over a stream, and cannot be looked up",
            span_of(entry),
            f"look up {view.name}; {relation.name} can be read by queries over tables and views alone",
        )


def places_of_time(inputs: Sequence[QueryInput], scope: Scope, catalog: Catalog) -> dict[str, int]:
    """Return the timestamp columns of the inputs with their input's index."""
    found: dict[str, int] = {}
    for place, entry in enumerate(inputs):
        found |= dict.fromkeys(time_columns_of([entry], scope, catalog), place)
    return found


def time_columns_of(inputs: Sequence[QueryInput], scope: Scope, catalog: Catalog) -> frozenset[str]:
    """Return the timestamp columns of the inputs as read in this SELECT."""
    found = set()
    for entry in inputs:
        stream = catalog.relation(entry.relation) if entry.relation is not None else entry.query
        for name in _time_columns(stream, catalog):
            column = entry.schema.find(name)
            assert column is not None, "the binder has found it"
            found.add(scope.read_as(entry.alias, column).name)
    return frozenset(found)


def _time_columns(stream: Relation | Continuous | None, catalog: Catalog) -> list[str]:
    """Return the columns with a stream's timestamp, also of derived streams."""
    if isinstance(stream, Stream):
        return [] if stream.time_column is None else [stream.time_column]
    query = stream.query if isinstance(stream, DerivedStream) else stream
    if (
        not isinstance(query, SelectQuery)
        or len(query.inputs) != 1
        or query.aggregates
        or query.coalesce is not None
        or any(call.window.active for call in query.window_calls)  # an expired tuple emits a later result
    ):
        return []
    scope = Scope(tuple((entry.alias, entry.schema) for entry in query.inputs), qualified=False)
    inner = time_columns_of(query.inputs, scope, catalog)
    return [item.name for item in query.items if isinstance(item.expr, ColumnRef) and item.expr.name in inner]
