"""Query graph builder: translate each statement into a chain of operators of its own."""

from __future__ import annotations

from dataclasses import dataclass, field

from slicemill.catalog.catalog import (
    SHOWN,
    Catalog,
    DerivedStream,
    QueryDefinition,
    Relation,
    Stream,
    Table,
    TimestampKind,
    View,
)
from slicemill.catalog.expressions import ColumnRef, Expr, as_in_input, columns_of, conjunction, conjuncts
from slicemill.catalog.extended import ComputedStream
from slicemill.catalog.queries import (
    Continuous,
    FrameUnit,
    JoinKind,
    QueryInput,
    RelationInput,
    RelationQuery,
    SelectItem,
    SelectQuery,
    UnionQuery,
    schema_below,
)
from slicemill.extension import load
from slicemill.operators.changelog.spec import JoinChanges, SessionChanges, WindowChanges
from slicemill.operators.graph import Node, QueryGraph
from slicemill.operators.join.spec import WindowJoin
from slicemill.operators.protocol import Operator, Role
from slicemill.operators.registry import kind_of
from slicemill.operators.session.spec import SessionAggregate
from slicemill.operators.specs import (
    AsOfJoin,
    Filter,
    GroupAggregate,
    Lookup,
    Materialize,
    Merge,
    Project,
    PunctuatedJoin,
    QueryResults,
    Reorder,
    Scan,
    Source,
    TableCall,
    Unnest,
)
from slicemill.operators.temporal.spec import Coalesce
from slicemill.operators.window.spec import RelationAggregate, WindowAggregate
from slicemill.plan.changelog_nodes import (
    add_distinct_and_emit,
    add_group_changes,
    add_top_n,
    select_list_schema,
)
from slicemill.plan.join_chain import join_chain
from slicemill.plan.rules.join_parts import keys_of
from slicemill.plan.statement_equality import as_query, views_to_answer
from slicemill.types import TIMESTAMP, Column, Schema, changelog


def build_graph(catalog: Catalog) -> QueryGraph:
    """Return the graph of all statements of a catalog.

    The graph contains derived streams, streams of extensions, queries, and the views that ad hoc queries
    read.
    """
    derived = [r for r in catalog.relations.values() if isinstance(r, (DerivedStream, ComputedStream))]
    views = map(as_query, views_to_answer(catalog))
    return build_part(catalog, *derived, *views, *catalog.queries.values())


def build_part(catalog: Catalog, *statements: QueryDefinition | Relation) -> QueryGraph:
    """Return the graph of some statements, and of all relations that they read."""
    builder = _Builder(catalog)
    for statement in statements:
        if not isinstance(statement, QueryDefinition):
            builder.relation(statement.name)
        elif not isinstance(statement.query, RelationQuery):
            node = builder.query(statement.query, statement.name)
            results = QueryResults(statement.name, statement.options.incomplete == SHOWN)
            builder.add(statement.name, results, (node,), node.schema)
    return QueryGraph(builder.nodes, builder.streams)


@dataclass
class _Builder:
    catalog: Catalog
    nodes: dict[str, Node] = field(default_factory=dict)
    streams: dict[str, str] = field(default_factory=dict)

    def add(
        self,
        name: str,
        operator: Operator,
        inputs: tuple[Node, ...],
        schema: Schema,
        kind: TimestampKind | None = None,
    ) -> Node:
        """Add a node to the graph.

        If the id `name` is taken, a number is appended to it.
        """
        node_id, number = name, 1
        while node_id in self.nodes:
            number += 1
            node_id = f"{name} {number}"
        node = Node(node_id, operator, tuple(i.id for i in inputs), schema, kind or _kind_of(inputs))
        self.nodes[node_id] = node
        return node

    # -- relations -------------------------------------------------------------------------------------

    def relation(self, name: str) -> Node:
        """Return the node of a stream, view or table. All its consumers share the node."""
        if name in self.streams:
            return self.nodes[self.streams[name]]
        relation = self.catalog.relation(name)
        assert relation is not None, "the binder has checked every name"
        node: Node
        if isinstance(relation, Stream):
            source = Source(name, relation.kind, relation.slack_us)
            node = self.add(name, source, (), relation.schema, relation.kind)
        elif isinstance(relation, Table):
            node = self.add(name, Scan(name), (), relation.schema, TimestampKind.LATENT)
        elif isinstance(relation, View):
            node = self._view(relation)
        elif isinstance(relation, ComputedStream):
            node = self._computed(relation)
        else:
            node = self.query(relation.query, name)
            if relation.order is not None:
                operator = Reorder(relation.order, relation.slack_us)
                node = self.add(f"{name}: order", operator, (node,), node.schema, TimestampKind.EXTERNAL)
        self.streams[name] = node.id
        return node

    def _view(self, view: View) -> Node:
        if isinstance(view.query, RelationQuery):
            return self.add(view.name, Scan(view.name), (), view.schema, TimestampKind.LATENT)
        content = self.query(view.query, view.name)
        window = _stream_inputs(view.query)[0].window
        assert window is not None, "the binder rejects a view without a window"
        return self.add(view.name, Materialize(view.name, window), (content,), view.schema)

    def _computed(self, stream: ComputedStream) -> Node:
        inputs = tuple(self.relation(name) for name in stream.reads)
        streams = tuple(node for node in inputs if kind_of(node.operator).role is not Role.TABLE)
        operator: Operator = load(stream.operator)(stream)
        return self.add(stream.name, operator, inputs, stream.schema, _kind_of(streams))

    # -- queries ---------------------------------------------------------------------------------------

    def query(self, query: Continuous, name: str) -> Node:
        if isinstance(query, UnionQuery):
            branches = tuple(self.query(branch, name) for branch in query.branches)
            return self.add(f"{name}: union", Merge(), branches, query.schema)
        return self._select(query, name)

    def _select(self, select: SelectQuery, name: str) -> Node:
        node = self._inputs(select, name)
        if select.coalesce is not None:
            node = self._coalesce(select, node, name)
        elif select.changing:
            node = add_group_changes(self, select, node, name)
            node = self._filter(node, select.having, f"{name}: having")
        elif select.aggregates:
            node = self._aggregate(select, node, name)
            node = self._filter(node, select.having, f"{name}: having")
        elif select.window_calls:
            added = tuple(column for call in select.window_calls for column in call.columns)
            schema = Schema((*node.schema.columns, *added))
            node = self.add(f"{name}: window", WindowAggregate(select.window_calls), (node,), schema)
        node = self._filter(add_top_n(self, select, node, name), select.qualify, f"{name}: qualify")
        if not _is_identity(select.items, node.schema):
            node = self.add(
                f"{name}: project", Project(select.items), (node,), select_list_schema(select, node)
            )
        return add_distinct_and_emit(self, select, node, name)

    def _filter(self, node: Node, condition: Expr | None, name: str) -> Node:
        return node if condition is None else self.add(name, Filter(condition), (node,), node.schema)

    def _input(self, entry: QueryInput, name: str) -> Node:
        if entry.query is not None:
            return self.query(entry.query, f"{name}.{entry.alias}")
        assert entry.relation is not None
        return self.relation(entry.relation)

    def _inputs(self, select: SelectQuery, name: str) -> Node:
        """Join the streams of a FROM clause, then add the lookup joins with its tables.

        Each WHERE condition runs at the first node that has its columns, where the kind of join allows it.
        """
        if len(select.inputs) == 1:
            node = self._input(select.inputs[0], name)
            if select.corrections is not None and select.corrections.late is not None:
                late = self.relation(select.corrections.late.stream)
                node = self.add(f"{name}: with late tuples", Merge(), (node, late), node.schema, node.kind)
            return node if _counts_rows(select) else self._filter(node, select.where, f"{name}: where")
        pending = list(conjuncts(select.where))
        streams = [entry for entry in select.inputs if not entry.finite]
        node = self._input(streams[0], name)
        outer = next((entry for entry in streams if entry.kind is not JoinKind.INNER), None)
        stream_alias = streams[0].alias
        if any(entry.schema.changelog for entry in streams):
            node = self._changing_join(streams, node, pending, name)
            stream_alias = ""
        elif any(entry.as_of is not None for entry in streams):
            node = self._as_of(streams, node, pending, name)
            stream_alias = ""
        elif any(entry.closes is not None for entry in streams):
            node = self._punctuated_join(streams, node, pending, name)
            stream_alias = ""
        elif outer is not None and len(streams) > 2:
            inputs = [node, *(self._input(entry, name) for entry in streams[1:])]
            node = join_chain(self, streams, inputs, pending, name)
            stream_alias = ""
        elif outer is not None:
            node = self._outer_join(streams, outer, node, pending, name)
            stream_alias = ""
        elif len(streams) > 1:
            node = self._join(select, streams, node, pending, name)
            stream_alias = ""
        for entry in (entry for entry in select.inputs if entry.finite):
            if entry.call is not None:
                node = self._table_call(entry, entry.call, node, stream_alias, pending, name)
                stream_alias = ""
                continue
            right = self._input(entry, name)
            schema = Schema(
                (*_qualify_columns(stream_alias, node.schema), *_qualify_columns(entry.alias, right.schema))
            )
            condition = entry.left_on if entry.left_on is not None else _take_conditions(pending, schema)
            lookup = Lookup(stream_alias, entry.alias, condition, left=entry.left_on is not None)
            node = self.add(f"{name}: look up {entry.alias}", lookup, (node, right), schema, node.kind)
            stream_alias = ""
        return self._filter(node, conjunction(tuple(pending)), f"{name}: where")

    def _table_call(
        self, entry: QueryInput, call: RelationInput, node: Node, alias: str, pending: list[Expr], name: str
    ) -> Node:
        """Add a call of a table function or UNNEST for each row.

        Conditions that do not read the call's columns run before the call, so dropped rows cause no call.
        """
        before = Schema(_qualify_columns(alias, node.schema))
        own = _take_conditions(pending, before)
        if own is not None:
            below = as_in_input(own) if alias else own
            node = self._filter(node, below, f"{name}: before {entry.alias}")
        schema = Schema((*before, *_qualify_columns(entry.alias, entry.schema)))
        assert call.arguments is not None, "it is a call"
        operator: TableCall | Unnest
        if call.query is None:
            ((_, elements),) = call.arguments
            operator = Unnest(alias, entry.alias, elements, left=entry.left_on is not None)
        else:
            operator = TableCall(alias, entry.alias, call.relation, call.query, call.arguments)
        node = self.add(f"{name}: call {entry.alias}", operator, (node,), schema, node.kind)
        return self._filter(node, _take_conditions(pending, schema), f"{name}: of {entry.alias}")

    def _join(
        self, select: SelectQuery, streams: list[QueryInput], first: Node, pending: list[Expr], name: str
    ) -> Node:
        inputs = (first, *(self._input(entry, name) for entry in streams[1:]))
        columns = [
            c for s, i in zip(streams, inputs, strict=True) for c in _qualify_columns(s.alias, i.schema)
        ]
        member_times = bool(select.aggregates) and not select.running
        if member_times:
            columns += [_time_of(entry) for entry in streams]
        schema = Schema(tuple(columns))
        windows = tuple(entry.window for entry in streams if entry.window is not None)
        join = WindowJoin(
            tuple(entry.alias for entry in streams), windows, _take_conditions(pending, schema), member_times
        )
        return self.add(f"{name}: join", join, inputs, schema)

    def _as_of(self, streams: list[QueryInput], first: Node, pending: list[Expr], name: str) -> Node:
        """Add an ASOF join of two streams.

        Conditions on one side filter the input of that side. Equalities are the join keys.
        """
        left, right = streams
        assert right.as_of is not None, "the binder sets as_of on the right side"
        versions = self._input(right, name)
        parts = list(conjuncts(right.on))
        own = _take_conditions(parts, Schema(_qualify_columns(right.alias, versions.schema)))
        condition = None if own is None else as_in_input(own)
        versions = self._filter(versions, condition, f"{name}: where {right.alias}")
        asked = _take_conditions(pending, Schema(_qualify_columns(left.alias, first.schema)))
        condition = None if asked is None else as_in_input(asked)
        first = self._filter(first, condition, f"{name}: where {left.alias}")
        columns = (
            *_qualify_columns(left.alias, first.schema),
            *_qualify_columns(right.alias, versions.schema),
        )
        places = {
            c.name: (int(p >= len(first.schema)), c.origin.column) for p, c in enumerate(columns) if c.origin
        }
        keys, rest = keys_of(parts, places)
        assert rest is None, "the binder has checked what can be a key"
        window = None if right.window is None else right.window.extent
        join = AsOfJoin((left.alias, right.alias), keys, right.as_of.left, right.as_of.strict, window)
        return self.add(f"{name}: as-of join", join, (first, versions), Schema(columns))

    def _changing_join(self, streams: list[QueryInput], first: Node, pending: list[Expr], name: str) -> Node:
        """Add a join of two inputs, of which at least one is a changelog.

        If both inputs have a key, the key of the output consists of both.
        """
        inputs = (first, self._input(streams[1], name))
        both = list(zip(streams, inputs, strict=True))
        columns = [column for s, i in both for column in _qualify_columns(s.alias, i.schema.own)]
        places = {
            column.name: (port, own.name)
            for port, (s, i) in enumerate(both)
            for column, own in zip(_qualify_columns(s.alias, i.schema.own), i.schema.own, strict=True)
        }
        kind = streams[1].kind
        condition = (
            _take_conditions(pending, Schema(tuple(columns))) if kind is JoinKind.INNER else streams[1].on
        )
        keys, _ = keys_of(conjuncts(condition), places)
        schema = changelog(columns, schema_below(streams).key)
        aliases = (streams[0].alias, streams[1].alias)
        retracts = (first.schema.changelog, inputs[1].schema.changelog)
        join = JoinChanges(aliases, keys, condition, kind, retracts)
        return self.add(f"{name}: join", join, inputs, schema)

    def _punctuated_join(
        self, streams: list[QueryInput], first: Node, pending: list[Expr], name: str
    ) -> Node:
        """Add a join of streams with punctuations (CLOSES).

        All conditions are evaluated in the join. The conditions never filter the inputs, because a filtered
        tuple may be a punctuation.
        """
        inputs = (first, self._input(streams[1], name))
        columns = [
            c for s, i in zip(streams, inputs, strict=True) for c in _qualify_columns(s.alias, i.schema)
        ]
        places = {
            c.name: (int(p >= len(first.schema)), c.origin.column) for p, c in enumerate(columns) if c.origin
        }
        kind, schema = streams[1].kind, Schema(tuple(columns))
        condition = _take_conditions(pending, schema) if kind is JoinKind.INNER else streams[1].on
        keys, _ = keys_of(conjuncts(condition), places)
        closes = [None if entry.closes is None else as_in_input(entry.closes) for entry in streams]
        lengths = [None if entry.window is None else entry.window.extent for entry in streams]
        aliases = (streams[0].alias, streams[1].alias)
        join = PunctuatedJoin(
            aliases, keys, condition, kind, (closes[0], closes[1]), (lengths[0], lengths[1])
        )
        return self.add(f"{name}: join", join, inputs, schema)

    def _outer_join(
        self, streams: list[QueryInput], outer: QueryInput, first: Node, pending: list[Expr], name: str
    ) -> Node:
        """Add an outer join of two streams, whose join condition is the ON clause.

        A WHERE condition on a single side filters the input of that side if the join preserves all its rows.
        All other WHERE conditions run after the join.
        """
        inputs = [first, self._input(streams[1], name)]
        below = {JoinKind.RIGHT: (1,), JoinKind.FULL: ()}.get(outer.kind, (0,))
        for side in below:
            own = Schema(_qualify_columns(streams[side].alias, inputs[side].schema))
            ready = _take_conditions(pending, own)
            condition = None if ready is None else as_in_input(ready)
            inputs[side] = self._filter(inputs[side], condition, f"{name}: where {streams[side].alias}")
        both = zip(streams, inputs, strict=True)
        schema = Schema(tuple(column for s, i in both for column in _qualify_columns(s.alias, i.schema)))
        windows = tuple(entry.window for entry in streams if entry.window is not None)
        aliases = tuple(entry.alias for entry in streams)
        join = WindowJoin(aliases, windows, outer.on, kind=outer.kind)
        return self.add(f"{name}: join", join, tuple(inputs), schema)

    def _aggregate(self, select: SelectQuery, node: Node, name: str) -> Node:
        groups = [Column(item.name, item.expr.type) for item in select.group_by]
        columns = [column for call in select.aggregates for column in call.columns]
        streams = _stream_inputs(select)
        windowed = [entry for entry in streams if entry.window is not None]
        if select.running:
            schema = Schema((*groups, *columns))
            operator = GroupAggregate(select.group_by, select.aggregates)
            return self.add(f"{name}: aggregate", operator, (node,), schema)
        if select.slide is not None or select.session is not None:
            columns += [Column("window_start", TIMESTAMP), Column("window_end", TIMESTAMP)]
        if select.session is not None and select.corrections is not None:
            every = select.corrections.every
            assert every is not None, "the binder rejects LATE without EMIT EVERY"
            early = SessionChanges(select.group_by, select.aggregates, select.session, every)
            schema = changelog((*groups, *columns), select.early_result_key)
            return self.add(f"{name}: sessions", early, (node,), schema)
        if select.session is not None:
            sessions = SessionAggregate(select.group_by, select.aggregates, select.session)
            return self.add(f"{name}: sessions", sessions, (node,), Schema((*groups, *columns)))
        if select.corrections is not None:
            (window,) = (entry.window for entry in windowed)
            assert window is not None and window.extent is not None and window.slide is not None
            told_early = WindowChanges(
                select.group_by,
                select.aggregates,
                window.extent,
                window.slide,
                select.corrections.every,
                select.corrections.late,
                window.grows,
            )
            schema = changelog((*groups, *columns), select.early_result_key)
            return self.add(f"{name}: windows", told_early, (node,), schema)
        single = len(streams) == 1
        windows = tuple(
            (None if single else _time_of(entry).name, entry.window)
            for entry in windowed
            if entry.window is not None
        )
        where = select.where if _counts_rows(select) else None
        relation = RelationAggregate(select.group_by, select.aggregates, windows, select.slide, where)
        return self.add(f"{name}: aggregate", relation, (node,), Schema((*groups, *columns)))

    def _coalesce(self, select: SelectQuery, node: Node, name: str) -> Node:
        coalesce = select.coalesce
        assert coalesce is not None
        if coalesce.late is not None:
            late = self.relation(coalesce.late.stream)
            node = self.add(f"{name}: with late tuples", Merge(), (node, late), node.schema, node.kind)
        operator = Coalesce(
            coalesce.attributes,
            coalesce.partition_by,
            coalesce.window,
            coalesce.before,
            coalesce.budget,
            coalesce.after if coalesce.budget is not None else None,
            coalesce.tells_open,
            coalesce.changes,
            coalesce.late,
        )
        node = self.add(f"{name}: coalesce", operator, (node,), coalesce.schema)
        return self._filter(node, coalesce.after, f"{name}: valid")


def _counts_rows(select: SelectQuery) -> bool:
    """Return True if the aggregates of a query range over a ROWS window of one stream.

    WHERE then filters the rows inside the window. WHERE must not filter rows before they enter the window.
    """
    window = select.inputs[0].window
    return (
        bool(select.aggregates)
        and not select.running
        and window is not None
        and window.frame is FrameUnit.ROWS
    )


def _stream_inputs(query: Continuous) -> list[QueryInput]:
    if isinstance(query, UnionQuery):
        return [entry for branch in query.branches for entry in _stream_inputs(branch)]
    return [entry for entry in query.inputs if not entry.finite]


def _kind_of(inputs: tuple[Node, ...]) -> TimestampKind:
    """Return the common timestamp kind of all inputs, or EXTERNAL if they differ.

    A latent tuple is stamped on arrival when it is merged with tuples of another kind.
    """
    kinds = {node.kind for node in inputs}
    return kinds.pop() if len(kinds) == 1 else TimestampKind.EXTERNAL


def _time_of(entry: QueryInput) -> Column:
    """Return the timestamp column of one input of a join."""
    return Column("_ts", TIMESTAMP).of(entry.alias)


def _qualify_columns(alias: str, schema: Schema) -> tuple[Column, ...]:
    if not alias:
        return schema.columns
    return tuple(column.of(alias) for column in schema)


def _take_conditions(pending: list[Expr], schema: Schema) -> Expr | None:
    """Remove the conditions whose columns `schema` has, and return their conjunction."""
    ready = tuple(part for part in pending if columns_of(part) <= set(schema.names))
    pending[:] = [part for part in pending if part not in ready]
    return conjunction(ready)


def _is_identity(items: tuple[SelectItem, ...], schema: Schema) -> bool:
    return tuple((i.name, i.expr) for i in items) == tuple((c.name, ColumnRef.to(c)) for c in schema)
