"""Binder of SELECT over finite relations: tables, views, and aggregates' local tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from slicemill.binder import queries, sub_queries
from slicemill.binder.calls import (
    ResolvedCall,
    callable_names,
    function_call,
    is_aggregate,
    read_field,
    resolve_calls,
    single_column,
)
from slicemill.binder.changelog import HIDDEN_COUNT
from slicemill.binder.context import Context, ErrorCollector, is_finite, view_of_a_stream
from slicemill.binder.dialects import set_operations as ends
from slicemill.binder.expressions import as_key, bind, bind_condition, bind_key, order_keys
from slicemill.binder.from_clause import alias_of_call, from_entries, using_condition
from slicemill.binder.joins import is_proctime
from slicemill.binder.scope import Scope
from slicemill.binder.select_list import bind_items, item_at, read_groups, schema_of_items, with_unique_names
from slicemill.binder.table_functions import bind_table_call
from slicemill.binder.table_writes import refuse_table_writes
from slicemill.catalog.expressions import ColumnRef, Expr, Oldest, conjunction, walk
from slicemill.catalog.queries import AggregateCall, RelationInput, RelationQuery, SelectItem
from slicemill.extension import load
from slicemill.sql import nodes
from slicemill.sql.dialect import to_esl
from slicemill.sql.errors import StatementError
from slicemill.sql.nodes import child, span_of
from slicemill.types import Column, Schema


@dataclass(slots=True)
class RelationEnvironment:
    """Name resolution in a query or statement over finite relations.

    `tables` are the local tables of an aggregate. `inwindow` is the schema of the aggregate's window content,
    if it is declared.
    """

    context: Context
    scope: Scope
    tables: Mapping[str, Schema] = field(default_factory=dict)
    inwindow: Schema | None = None
    place: str = ""
    resolved: dict[str, ResolvedCall] = field(default_factory=dict)
    _columns: dict[str, tuple[Column, ...]] = field(default_factory=dict)

    def column(self, node: exp.Column) -> Expr:
        return self.scope.resolve(node)

    def call_names(self) -> list[str]:
        return [*callable_names(self.context.catalog), "oldest"]

    def call(self, node: exp.Anonymous) -> Expr | None:
        name = node.name.lower()
        if name == "oldest":
            return self._oldest(node, None)
        if not is_aggregate(name, self.context.catalog):
            return function_call(node, self.context, self)
        return single_column(node, self._aggregate(node))

    def _aggregate(self, node: exp.Anonymous) -> tuple[Column, ...]:
        """Resolve an aggregate call; return the columns with its results."""
        if self.place:
            raise StatementError(f"an aggregate cannot stand in {self.place}", span_of(node))
        text = to_esl(node)
        if text not in self._columns:
            before, self.place = self.place, "the argument of an aggregate"
            arguments = [bind(a, self) for a in node.expressions if not isinstance(a, exp.Star)]
            self.place = before
            found = resolve_calls(node, arguments, self.context.catalog)
            for resolved in found:
                if resolved.base is None and not resolved.builtin:
                    raise StatementError(
                        f"{resolved.name} has only a window version", span_of(node), "a table has no window"
                    )
                refuse_table_writes(resolved.base, span_of(node))
                provider = None if resolved.base is None else resolved.base.provider
                if provider is not None and provider.check_table is not None:
                    load(provider.check_table)(resolved.base, node)
                self.resolved[resolved.columns[0].name] = resolved
            self._columns[text] = tuple(column for resolved in found for column in resolved.columns)
        return self._columns[text]

    def returned_columns(self, node: exp.Expression) -> tuple[Column, ...] | None:
        """Return the columns with the results of an aggregate call, or None."""
        if isinstance(node, exp.Anonymous) and is_aggregate(node.name, self.context.catalog):
            return self._aggregate(node)
        return None

    def _oldest(self, node: exp.Anonymous, wanted: exp.Identifier | None) -> Expr:
        if self.inwindow is None:
            raise StatementError(
                "oldest() asks for the window's content",
                span_of(node),
                "declare TABLE inwindow(…) in a window aggregate",
            )
        if wanted is None:
            if len(self.inwindow) != 1:
                raise StatementError(
                    "inwindow has several columns", span_of(node), f"write oldest().{self.inwindow.names[0]}"
                )
            column = self.inwindow.columns[0]
        else:
            found = self.inwindow.find(wanted.name)
            if found is None:
                raise StatementError(
                    f"inwindow has no column {wanted.name}",
                    span_of(wanted),
                    f"its columns are {', '.join(self.inwindow.names)}",
                )
            column = found
        return Oldest(column.name, column.type)

    def field(self, node: exp.Dot) -> Expr:
        if isinstance(node.this, exp.Anonymous) and node.this.name.lower() == "oldest":
            return self._oldest(node.this, node.expression)
        return read_field(node, self.returned_columns(node.this))

    def over(self, node: nodes.Over) -> Expr:
        raise StatementError("OVER is for streams; a table has no order", span_of(node), "leave OVER out")

    def query(self, node: exp.Expression, scalar: bool, member: exp.Expression | None = None) -> Expr:
        inner = bind_relation(node, self.context, self.tables, self.inwindow, self.scope)
        value = None if member is None else bind(member, self)
        return sub_queries.value_of(sub_queries.SubQueryCall(node, scalar, value, member), inner)


def bind_relation(
    node: exp.Expression,
    context: Context,
    tables: Mapping[str, Schema] | None = None,
    inwindow: Schema | None = None,
    outer: Scope | None = None,
) -> RelationQuery:
    """Bind a SELECT or UNION over tables."""
    from slicemill.binder.dialects.rewrite import (
        normalize_select,  # imported here because of a cycle: `normalize_select` binds sub-queries
    )

    while isinstance(node, exp.Subquery):
        node = node.this
    definitions = child(node, "with_")
    for definition in definitions.expressions if definitions is not None else ():
        context = context.with_local(
            definition.args["alias"].name, queries.bind_query(definition.this, context)
        )
    around = ends.wrap_union(node)
    if around is not None:
        return bind_relation(around, context, tables, inwindow, outer)
    if isinstance(node, exp.Select) and not tables and inwindow is None:
        spelled = normalize_select(node, context)
        if not isinstance(spelled, exp.Select):
            return bind_relation(spelled, context, tables, inwindow, outer)
        node = spelled
    if isinstance(node, exp.Union):
        problems = ErrorCollector()
        bound: list[tuple[RelationQuery, exp.Expression]] = []
        for branch in ends.branches_of(node):
            with problems.collect():
                bound.append((bind_relation(branch, context, tables, inwindow, outer), branch))
        problems.raise_any()
        return union_of(bound)
    assert isinstance(node, exp.Select), "the grammar has no other queries"
    return bind_select(node, context, tables, inwindow, outer)


def union_of(branches: Sequence[tuple[RelationQuery, exp.Expression]]) -> RelationQuery:
    """Return the UNION ALL of queries over tables, with the rows in the order of branches."""
    schema = Schema(queries.union_columns([(query.schema, branch) for query, branch in branches]))
    first, *others = [
        replace(query, items=queries.branch_items(query, schema), schema=schema) for query, _ in branches
    ]
    entry = RelationInput("union", "union", schema, first, more=tuple(others))
    items = tuple(SelectItem(column.name, ColumnRef.to(column.of("union"))) for column in schema)
    return RelationQuery((entry,), None, (), (), None, items, False, (), None, schema)


def bind_select(
    node: exp.Select,
    context: Context,
    tables: Mapping[str, Schema] | None = None,
    inwindow: Schema | None = None,
    outer: Scope | None = None,
) -> RelationQuery:
    """Bind a SELECT over tables after `normalize_select` has normalized it."""
    tables = tables or {}
    problems = ErrorCollector()
    inputs, conditions = _bind_inputs(node, context, tables, inwindow, outer, problems)
    problems.raise_any()
    scope = Scope(
        tuple((i.alias, i.schema) for i in inputs),
        qualified=True,
        parent=outer,
        arguments=outer.arguments if outer is not None else Schema(()),
    )
    env = RelationEnvironment(context, scope, tables, inwindow)

    env.place = "WHERE"
    parts: list[Expr] = []
    for condition in conditions:
        with problems.collect():
            parts.append(bind_condition(condition, env))
    env.place = "GROUP BY"
    groups: list[SelectItem] = []
    for part in child(node, "group").expressions if child(node, "group") is not None else ():
        with problems.collect():
            groups.append(SelectItem(to_esl(part), bind_key(part, env)))
    env.place = ""
    bound = bind_items(node.expressions, env, scope, context, problems)
    having_node = child(node, "having")
    having: Expr | None = None
    with problems.collect():
        if having_node is not None:
            having = bind_condition(having_node.this, env)
    orders: list[tuple[Expr, bool, exp.Expression]] = []
    for ordered in child(node, "order").expressions if child(node, "order") is not None else ():
        with problems.collect():
            by = as_key(_bind_order(ordered.this, env, bound), ordered.this)
            orders += [(expr, falls, ordered) for expr, falls in order_keys(by, ordered)]
    problems.raise_any()

    # GROUPING SETS (()) is one group without keys, even without an aggregate.
    one_group = child(node, "group") is not None and not groups
    grouped = bool(env.resolved or groups or one_group)
    where = conjunction(tuple(parts))
    if orders and _takes_rows_in_order(env, orders):
        inputs, where, orders = [_sort_input(inputs, where, orders)], None, []
    if grouped:
        provided = frozenset(c.name for r in env.resolved.values() for c in r.columns) | _outer_columns(outer)
        bound = [
            (SelectItem(item.name, read_groups(item.expr, item_node, groups, provided, "column")), item_node)
            for item, item_node in bound
        ]
        orders = [(read_groups(e, n, groups, provided, "column"), d, n) for e, d, n in orders]
        if having is not None:
            having = read_groups(having, having_node.this, groups, provided, "column")
    elif having is not None:
        raise StatementError("HAVING selects groups, and there are none", span_of(having_node), "use WHERE")
    items = with_unique_names([item for item, _ in bound])
    limit = child(node, "limit")
    return RelationQuery(
        inputs=tuple(inputs),
        where=where,
        group_by=tuple(groups),
        aggregates=(HIDDEN_COUNT,)
        if one_group and not env.resolved
        else tuple(AggregateCall(r.name, r.arguments, r.distinct, r.columns) for r in env.resolved.values()),
        having=having,
        items=items,
        distinct=child(node, "distinct") is not None,
        order_by=tuple((expr, descending) for expr, descending, _ in orders),
        limit=_limit(limit) if limit is not None else None,
        schema=schema_of_items(items),
    )


def _takes_rows_in_order(env: RelationEnvironment, orders: list[tuple[Expr, bool, exp.Expression]]) -> bool:
    """Return True if ORDER BY sorts the input of running aggregates."""
    returned = {column.name for resolved in env.resolved.values() for column in resolved.columns}
    by_answers = any(isinstance(p, ColumnRef) and p.name in returned for e, _, _ in orders for p in walk(e))
    return bool(env.resolved) and not by_answers and not any(r.blocking for r in env.resolved.values())


def _sort_input(
    inputs: list[RelationInput], where: Expr | None, orders: list[tuple[Expr, bool, exp.Expression]]
) -> RelationInput:
    """Return an input that has the selected rows of FROM in sort order."""
    if len(inputs) != 1:
        raise StatementError(
            "rows of several tables have no order here",
            span_of(orders[0][2]),
            "join and sort them in a sub-query: FROM (SELECT … FROM … ORDER BY …) AS o",
        )
    (entry,) = inputs
    items = tuple(SelectItem(c.name, ColumnRef(f"{entry.alias}.{c.name}", c.type)) for c in entry.schema)
    order_by = tuple((expr, descending) for expr, descending, _ in orders)
    rows = RelationQuery((entry,), where, (), (), None, items, False, order_by, None, entry.schema)
    return RelationInput(entry.relation, entry.alias, entry.schema, rows)


def _bind_inputs(
    node: exp.Select,
    context: Context,
    tables: Mapping[str, Schema],
    inwindow: Schema | None,
    outer: Scope | None,
    problems: ErrorCollector,
) -> tuple[list[RelationInput], list[exp.Expression]]:
    inputs: list[RelationInput] = []
    conditions: list[exp.Expression] = []
    aliases: set[str] = set()
    for entry, join in from_entries(node):
        with problems.collect():
            if child(entry, "frame") is not None:
                raise StatementError(
                    "a table has no window", span_of(child(entry, "frame")), "leave the window out"
                )
            if join is not None and child(join, "side") not in (None, "CROSS"):
                side = child(join, "side")
                raise StatementError(
                    f"{side} JOIN of tables is not part of a query that is stored",
                    span_of(join),
                    "ask it instead (slicemill sql, or any client); a stored query may use JOIN, which drops "
                    "rows without a match",
                )
            if isinstance(entry.this, nodes.ListElements):
                raise StatementError(
                    "UNNEST goes along with a stream",
                    span_of(entry),
                    "name the stream first: FROM s, UNNEST(…)",
                )
            if isinstance(entry.this, nodes.TableFunctionCall):
                made = _bind_call(entry, inputs, context, tables, inwindow, outer)
            else:
                made = _bind_input(entry, context, tables, inwindow, outer)
            if join is not None and child(join, "on") is not None:
                conditions.append(child(join, "on"))
            if join is not None and child(join, "using"):
                before = [(one.alias, one.schema) for one in inputs]
                conditions.append(using_condition(child(join, "using"), made.alias, made.schema, before))
            if made.alias.lower() in aliases:
                raise StatementError(
                    f"{made.alias} occurs twice in FROM",
                    span_of(entry),
                    "give one of them an alias: AS other",
                )
            aliases.add(made.alias.lower())
            inputs.append(made)
    where = child(node, "where")
    if where is not None:
        conditions.append(where.this)
    return inputs, conditions


def _bind_call(
    entry: nodes.StreamInput,
    before: list[RelationInput],
    context: Context,
    tables: Mapping[str, Schema],
    inwindow: Schema | None,
    outer: Scope | None,
) -> RelationInput:
    """Bind a TABLE(…) call.

    The arguments of the call may read preceding inputs.
    """
    scope = Scope(
        tuple((i.alias, i.schema) for i in before),
        qualified=True,
        parent=outer,
        arguments=outer.arguments if outer is not None else Schema(()),
    )
    env = RelationEnvironment(context, scope, tables, inwindow, place="TABLE(…)")
    return bind_table_call(entry.this, alias_of_call(entry), context, lambda node: bind(node, env))


def _bind_input(
    entry: nodes.StreamInput,
    context: Context,
    tables: Mapping[str, Schema],
    inwindow: Schema | None,
    outer: Scope | None,
) -> RelationInput:
    """Bind an entry of FROM.

    A sub-query can read columns of the outer scope, but not of other inputs in FROM.
    """
    alias_node = child(entry, "alias")
    if not isinstance(entry.this, exp.Identifier):
        if alias_node is None:
            raise StatementError("a sub-query in FROM needs a name", span_of(entry), "add AS name")
        inner = bind_relation(entry.this, context, tables, inwindow, outer)
        return RelationInput(alias_node.name, alias_node.name, inner.schema, inner)
    name = entry.this.name
    alias = alias_node.name if alias_node is not None else name
    local = tables.get(name.lower())
    version = child(entry, "as_of")
    if version is not None and not is_proctime(version):
        raise StatementError(
            f"{name} has no earlier versions of its rows",
            span_of(version),
            "leave FOR SYSTEM_TIME out: a query over tables reads the rows of now",
        )
    if local is not None:
        return RelationInput(name, alias, local)
    relation = context.relation(entry.this)
    if not is_finite(relation):
        raise StatementError(
            f"{name} is a stream, and this is a query over tables",
            span_of(entry),
            f"make a view of what is wanted of it: CREATE VIEW … AS SELECT … FROM {name} [RANGE 1 HOUR]",
        )
    if context.in_body and (view := view_of_a_stream(relation, context.catalog)) is not None:
        raise StatementError(
            f"{view.name} is a view over a stream: what is called gives the same for the same tuples",
            span_of(entry),
            f"join the stream with {view.name}, and give its columns as arguments",
        )
    if isinstance(relation, RelationQuery):
        return RelationInput(name, alias, relation.schema, relation)
    return RelationInput(getattr(relation, "name", name), alias, relation.schema)


def _bind_order(
    node: exp.Expression, env: RelationEnvironment, items: list[tuple[SelectItem, exp.Expression]]
) -> Expr:
    """Bind a sort key of ORDER BY: output column, position, or expression."""
    if isinstance(node, exp.Literal) and not node.is_string:
        return item_at(node, items)
    if isinstance(node, exp.Column) and not node.table:
        for item, _ in items:
            if item.name.lower() == node.name.lower():
                return item.expr
    return bind(node, env)


def _outer_columns(outer: Scope | None) -> frozenset[str]:
    """Return the columns of enclosing queries.

    These columns are constant inside the sub-query.
    """
    names: set[str] = set()
    while outer is not None:
        names |= {outer.read_as(alias, column).name for alias, schema in outer.relations for column in schema}
        outer = outer.parent
    return frozenset(names)


def _limit(node: exp.Limit) -> int:
    text = node.expression.name
    if not text.isdigit():
        raise StatementError("LIMIT takes an integer", span_of(node))
    return int(text)
