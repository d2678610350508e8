"""Specifications of sources, sinks and operators without a package of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from slicemill.catalog.catalog import Catalog, TimestampKind
from slicemill.catalog.expressions import ColumnRef, Expr, columns_of, transform
from slicemill.catalog.queries import (
    LOAD_SHEDDING_METHODS,
    AggregateCall,
    JoinKind,
    LoadBudget,
    RelationQuery,
    SelectItem,
    Window,
)
from slicemill.columns.sequence_bits import SEQ_BITS, fan_out_bits, rank_bits
from slicemill.functions.render import render
from slicemill.operators.protocol import (
    ColumnsRead,
    Description,
    Fact,
    Keys,
    KeysBelow,
    MemberKind,
    Operator,
    OperatorKind,
    Role,
    SharedOperator,
    TaskOf,
    grouping_facts,
    longest_us,
    same_keys,
)
from slicemill.time import format_us

if TYPE_CHECKING:
    from slicemill.operators.graph import Node, QueryGraph


@dataclass(frozen=True, slots=True)
class Source(Operator):
    """Declared stream.

    Rows that are late by at most the slack are reordered.
    """

    stream: str
    kind: TimestampKind
    slack_us: int = 0


@dataclass(frozen=True, slots=True)
class Scan(Operator):
    """Table, or view over tables: a finite relation that does not change."""

    relation: str


@dataclass(frozen=True, slots=True)
class QueryResults(Operator):
    """Sink with the results of a query.

    With `incomplete`, the results include windows that began before the query.
    """

    query: str
    incomplete: bool = False


TIMESTAMPS = {
    TimestampKind.EXTERNAL: "external timestamp",
    TimestampKind.INTERNAL: "internal timestamp",
    TimestampKind.LATENT: "no timestamp (latent)",
}

_STREAMS_KINDS = (
    OperatorKind(
        spec=Source,
        role=Role.SOURCE,
        words=lambda source, *_: Description(
            "", f"Stream {source.stream}", (("time", TIMESTAMPS[source.kind]),)
        ),
        own_name=lambda source: source.stream,
        seq_bits=lambda *_: SEQ_BITS,
    ),
    OperatorKind(
        spec=Scan,
        role=Role.TABLE,
        words=lambda scan, *_: Description("", f"Table {scan.relation}"),
        own_name=lambda scan: scan.relation,
        relation=lambda scan: scan.relation,
        keeps_state=False,
    ),
    OperatorKind(
        spec=QueryResults,
        role=Role.SINK,
        words=lambda sink, *_: Description("", f"Query {sink.query}"),
        own_name=lambda sink: sink.query,
        keeps_state=False,
        ties=True,
        step="slicemill.operators.sink:sink",
    ),
)

# Specifications of filter and projection.


@dataclass(frozen=True, slots=True)
class Filter(Operator):
    condition: Expr


@dataclass(frozen=True, slots=True)
class Project(Operator):
    items: tuple[SelectItem, ...]


def _keys_below_project(project: Project, node: Node, _: QueryGraph, keys: Keys) -> KeysBelow:
    items = {item.name: item.expr for item in project.items}
    below = tuple(
        transform(key, lambda e: items[e.name] if isinstance(e, ColumnRef) else None) for key in keys
    )
    return ((node.inputs[0], below),)


def _items(items: Sequence[SelectItem]) -> str:
    short = _short_names(items)

    def change(part: Expr) -> Expr | None:
        return (
            replace(part, name=short[part.name])
            if isinstance(part, ColumnRef) and part.name in short
            else None
        )

    return ", ".join(_item(SelectItem(item.name, transform(item.expr, change))) for item in items)


def _short_names(items: Sequence[SelectItem]) -> dict[str, str]:
    """Map names of OVER calls to unambiguous names without windows.

    Empty if these names would be ambiguous. EXPLAIN shows the windows in the operator below.
    """
    names = sorted({name for item in items for name in columns_of(item.expr) if " OVER (" in name})
    short = {name: f"{name.split(' OVER (')[0]} OVER (…)" for name in names}
    return short if len(set(short.values())) == len(names) else {}


def _item(item: SelectItem) -> str:
    text = render(item.expr)
    named = text in (item.name, f'"{item.name}"') or text.endswith(f".{item.name}")
    return text if named else f"{text} AS {item.name}"


_SELECT_KINDS = (
    OperatorKind(
        spec=Filter,
        words=lambda where, *_: Description("σ", "Filter", (("where", render(where.condition)),)),
        label=lambda _: "where",
        shared_label=lambda where: f"where {render(where.condition)}",
        for_all=lambda *_: True,
        selections=lambda where, _: (where.condition,),
        columns_read=lambda where, _, wanted: ColumnsRead([where.condition], wanted),
        keeps_state=False,
        ties=True,
        keys_below=same_keys,
        step="slicemill.operators.filter_project:filter_step",
    ),
    OperatorKind(
        spec=Project,
        words=lambda project, *_: Description("π", "Project", (("select", _items(project.items)),)),
        label=lambda _: "project",
        shared_label=lambda project: f"select {', '.join(item.name for item in project.items)}",
        for_all=lambda *_: True,
        # An item that no consumer reads is computed too, because it may raise an error.
        columns_read=lambda project, *_: ColumnsRead([item.expr for item in project.items], ()),
        keeps_state=False,
        ties=True,
        keys_below=_keys_below_project,
        step="slicemill.operators.filter_project:project_step",
    ),
)


# Specifications of drop boxes, and of filters for complete windows.


@dataclass(frozen=True, slots=True)
class Drop(Operator):
    """Drop box, which passes only a share of the rows under load (S54).

    `weight` is the weight of the queries that read the box. `utility` ranks rows by importance. If whole
    windows are dropped, `range_us` is the length of the queries' windows.
    """

    budget: LoadBudget
    weight: float
    utility: Expr | None = None
    range_us: int | None = None


@dataclass(frozen=True, slots=True)
class WholeWindows(Operator):
    """Passes only results of windows from which `box` has dropped no row."""

    box: str


def _describe_drop(drop: Drop) -> Description:
    budget = drop.budget
    facts = [("under load", LOAD_SHEDDING_METHODS[budget.method])]
    if drop.utility is not None:
        facts.append(("utility", render(drop.utility)))
    if budget.lag_us is not None:
        facts.append(("lag", f"at most {format_us(budget.lag_us).lower()}"))
    if budget.memory is not None:
        facts.append(("state", f"at most {budget.memory:,} bytes"))
    if budget.least:
        facts.append(("keeps", f"{budget.least:.0%} at least"))
    return Description("", "Drop box", tuple(facts))


def _describe_whole_windows(whole: WholeWindows, _: Node, graph: QueryGraph) -> Description:
    return Description("", "Whole windows", (("of which nothing was dropped by", graph[whole.box].name),))


_DROP_KINDS = (
    OperatorKind(
        spec=Drop,
        words=lambda drop, *_: _describe_drop(drop),
        label=lambda _: "drop box",
        # Queries with the same budget share a drop box, so that they can also share the operators that read
        # it.
        for_all=lambda *_: True,
        columns_read=lambda drop, _, wanted: ColumnsRead(
            [] if drop.utility is None else [drop.utility], wanted
        ),
        computes=False,
        keys_below=same_keys,
        step="slicemill.operators.drop:drop",
    ),
    OperatorKind(
        spec=WholeWindows,
        words=_describe_whole_windows,
        label=lambda _: "whole windows",
        refer=lambda whole, renamed: WholeWindows(renamed(whole.box)),
        keeps_state=False,
        step="slicemill.operators.drop:whole_windows",
    ),
)


# Specification of UNION of streams.


@dataclass(frozen=True, slots=True)
class Merge(Operator):
    """UNION: sort-merge of its inputs by timestamp (M14, M21)."""


def _describe_union(_: Merge, node: Node, __: QueryGraph) -> Description:
    order = "as tuples arrive" if node.kind is TimestampKind.LATENT else "by timestamp"
    return Description("∪", "Union", (("merged", order),))


def input_ranks(node: Node) -> int:
    """Return the bits that are needed to number the inputs."""
    return (len(node.inputs) - 1).bit_length()


def keeps_numbers(_: Merge, node: Node, graph: QueryGraph) -> bool:
    """Return True if rows are numbered by (input, number).

    The number is that of the row in its input. Such numbers do not depend on the number of subtasks. All
    inputs must be declared streams, possibly behind filters and projections, because the numbers of
    declared streams leave enough bits. All consumers must be joins. Aggregates order groups by their first
    rows, for which numbers must increase with time. In all other cases rows are renumbered.
    """
    behind = (graph[node_id].operator for node_id in graph.ancestors(node.id) - {node.id})
    plain = all(isinstance(operator, Source | Filter | Project) for operator in behind)
    return plain and _feeds_only_joins(node, graph)


def _feeds_only_joins(node: Node, graph: QueryGraph) -> bool:
    """Return True if every consumer is a join, possibly behind filters."""
    from slicemill.operators.registry import kind_of  # cyclic import

    readers = graph.consumers(node.id)
    if not readers or graph.stream_of(node.id) is not None:
        return False
    return all(
        _feeds_only_joins(reader, graph)
        if isinstance(reader.operator, Filter | Project)
        else kind_of(reader.operator).joins(reader.operator) is not None
        for reader in readers
    )


def _union_keys_below(union: Merge, node: Node, graph: QueryGraph, keys: Keys) -> KeysBelow | None:
    """Map keys to the columns of each input by position.

    None if types differ.
    """
    if not keeps_numbers(union, node, graph):
        return None
    read = {name for key in keys for name in columns_of(key)}
    indices = {column.name: index for index, column in enumerate(node.schema)}
    found = []
    for source in node.inputs:
        columns = graph[source].schema.columns
        if any(columns[indices[name]].type != node.schema.columns[indices[name]].type for name in read):
            return None
        own = tuple(
            transform(
                key,
                lambda e, columns=columns: (  # type: ignore[misc]
                    replace(e, name=columns[indices[e.name]].name) if isinstance(e, ColumnRef) else None
                ),
            )
            for key in keys
        )
        found.append((source, own))
    return tuple(found)


_UNION_KINDS = (
    OperatorKind(
        spec=Merge,
        words=_describe_union,
        label=lambda _: "union",
        # Latent rows have no timestamp, and are passed on at once.
        waits_for_time=lambda _, kind: kind is not TimestampKind.LATENT,
        split_by_any=keeps_numbers,
        keys_below=_union_keys_below,
        seq_bits=lambda union, _, __, node, graph: (
            rank_bits(SEQ_BITS, input_ranks(node)) if keeps_numbers(union, node, graph) else SEQ_BITS
        ),
        step="slicemill.operators.union:merge",
    ),
)


# Specifications of lookups in tables and in views over streams.


@dataclass(frozen=True, slots=True)
class Lookup(Operator):
    """Join each stream row (input 0) with a finite relation (input 1).

    `stream_alias` is empty if the columns of the stream already have aliases. With `left`, a row without a
    match is emitted with NULLs.
    """

    stream_alias: str
    alias: str
    condition: Expr | None
    left: bool


@dataclass(frozen=True, slots=True)
class Materialize(Operator):
    """View over a stream: the content of its window (M40).

    A row of another stream reads the content as of the row's own time.
    """

    view: str
    window: Window


def _describe_lookup(lookup: Lookup, node: Node, graph: QueryGraph) -> Description:
    relation = graph[node.inputs[1]].operator
    assert isinstance(relation, Scan | Materialize), "no other relation is finite"
    name = relation.relation if isinstance(relation, Scan) else relation.view
    title = f"Look up {name}" if lookup.alias == name else f"Look up {name} AS {lookup.alias}"
    condition = "every row" if lookup.condition is None else render(lookup.condition)
    facts: list[Fact] = [("on", condition)]
    if lookup.left:
        facts.append(("no match", "keep the tuple, with NULLs"))
    return Description("⋈", title, tuple(facts))


def in_table(_: Lookup, node: Node, graph: QueryGraph) -> bool:
    """Return True for a table, False for a view of a stream."""
    return isinstance(graph[node.inputs[1]].operator, Scan)


def _lookup_inputs(_: Lookup, node: Node, graph: QueryGraph) -> tuple[str, ...]:
    """Return the input streams of a lookup.

    A table is not an input stream. The stream of a view precedes the probing stream, so that a row matches
    view rows with its own timestamp.
    """
    stream, relation = node.inputs
    return (stream,) if in_table(_, node, graph) else (graph[relation].inputs[0], stream)


def _lookup_keys_below(lookup: Lookup, node: Node, graph: QueryGraph, keys: Keys) -> KeysBelow | None:
    """Map keys to columns of the stream.

    None if a key has other columns.
    """
    prefix = f"{lookup.stream_alias}." if lookup.stream_alias else ""
    own = {prefix + name for name in graph[node.inputs[0]].schema.names}
    if not in_table(lookup, node, graph) or not all(columns_of(key) <= own for key in keys):
        return None
    return ((node.inputs[0], tuple(transform(key, lambda e: _without(e, prefix)) for key in keys)),)


def _without(expr: Expr, prefix: str) -> Expr | None:
    return replace(expr, name=expr.name.removeprefix(prefix)) if isinstance(expr, ColumnRef) else None


_LOOKUP_KINDS = (
    OperatorKind(
        spec=Lookup,
        words=_describe_lookup,
        label=lambda lookup: f"look up {lookup.alias}",
        for_all=in_table,
        fed_by=_lookup_inputs,
        alias=lambda lookup, port: lookup.alias if port == 1 else lookup.stream_alias,
        looked_up=lambda _, port: port == 1,
        columns_read=lambda lookup, _, wanted: ColumnsRead(
            [] if lookup.condition is None else [lookup.condition], wanted
        ),
        keeps_state=False,
        keys_below=_lookup_keys_below,
        seq_bits=lambda _, bits, *__: fan_out_bits(bits),
        step="slicemill.operators.lookup:lookup",
    ),
    OperatorKind(
        spec=Materialize,
        role=Role.TABLE,
        words=lambda view, *_: Description("", f"View {view.view}", (("window", str(view.window)),)),
        relation=lambda view: view.view,
        label=lambda _: "view",
        history_us=lambda view, *_: longest_us([view.window]),
    ),
)


# Specification of `TABLE(f(…))`: each row is joined with the rows that a function returns.


@dataclass(frozen=True, slots=True)
class TableCall(Operator):
    """Join each row of a stream with the rows of `query`.

    The body of the function is `query`. The `arguments` are computed from the row, and `query` reads them by
    name. `stream_alias` is empty if the columns of the stream already have aliases.
    """

    stream_alias: str
    alias: str
    function: str
    query: RelationQuery
    arguments: tuple[tuple[str, Expr], ...]


def _describe_table_call(call: TableCall, *_: object) -> Description:
    values = ", ".join(render(value) for _, value in call.arguments)
    return Description("⋈", f"Table {call.function}({values}) AS {call.alias}", ())


def stream_keys_below(alias: str, node: Node, graph: QueryGraph, keys: Keys) -> KeysBelow | None:
    """Map keys to columns of the stream.

    None if a key has other columns.
    """
    prefix = f"{alias}." if alias else ""
    own = {prefix + name for name in graph[node.inputs[0]].schema.names}
    if not all(columns_of(key) <= own for key in keys):
        return None

    def below(expr: Expr) -> Expr | None:
        return replace(expr, name=expr.name.removeprefix(prefix)) if isinstance(expr, ColumnRef) else None

    return ((node.inputs[0], tuple(transform(key, below) for key in keys)),)


_TABLE_CALL_KINDS = (
    OperatorKind(
        spec=TableCall,
        words=_describe_table_call,
        label=lambda call: f"call {call.alias}",
        for_all=lambda *_: True,
        alias=lambda call, _: call.stream_alias,
        columns_read=lambda call, _, wanted: ColumnsRead([value for _, value in call.arguments], wanted),
        keeps_state=False,
        keys_below=lambda call, node, graph, keys: stream_keys_below(call.stream_alias, node, graph, keys),
        seq_bits=lambda _, bits, *__: fan_out_bits(bits),
        step="slicemill.operators.table_call:table_call",
    ),
)


# Specification of `UNNEST(list)`: each row is joined with every element of its list.


@dataclass(frozen=True, slots=True)
class Unnest(Operator):
    """Join each row with the elements of `list`, in list order.

    With `left`, a row whose list is empty or NULL is emitted with a NULL. `stream_alias` is empty if the
    columns of the stream already have aliases.
    """

    stream_alias: str
    alias: str
    list: Expr
    left: bool


def _describe_unnest(unnest: Unnest, *_: object) -> Description:
    facts: tuple[Fact, ...] = (("no element", "keep the tuple, with NULL"),) if unnest.left else ()
    return Description("⋈", f"Elements of {render(unnest.list)} AS {unnest.alias}", facts)


_UNNEST_KINDS = (
    OperatorKind(
        spec=Unnest,
        words=_describe_unnest,
        label=lambda unnest: f"unnest {unnest.alias}",
        for_all=lambda *_: True,
        alias=lambda unnest, _: unnest.stream_alias,
        columns_read=lambda unnest, _, wanted: ColumnsRead([unnest.list], wanted),
        keeps_state=False,
        keys_below=lambda unnest, node, graph, keys: stream_keys_below(
            unnest.stream_alias, node, graph, keys
        ),
        seq_bits=lambda _, bits, *__: fan_out_bits(bits),
        step="slicemill.operators.unnest:unnest",
    ),
)


# ASOF join: each row of the first stream is joined with the latest row of its key in the second stream.
#
#     b   k=1: x         y              z
#     a               1        1  1        1
#     result         (1,x)   (1,y)(1,y)   (1,z)       at the times of a
#
# The second stream is a versioned table: the version of a key is its latest row (FOR SYSTEM_TIME AS OF).


@dataclass(frozen=True, slots=True)
class AsOfJoin(Operator):
    """ASOF join; output columns are named `alias.column`.

    Results have the timestamps of input 0. `keys` are over the columns of each input. A row of input 1
    matches if it is not later than the row of input 0, or earlier if `strict`. If `window_us` is set, the row
    must also be less than `window_us` older. With `left`, a row without a match is emitted with NULLs.
    """

    aliases: tuple[str, str]
    keys: tuple[Keys, Keys]
    left: bool = False
    strict: bool = False
    window_us: int | None = None


def _describe_asof(join: AsOfJoin) -> Description:
    equal = [f"{render(left)} = {render(right)}" for left, right in zip(*join.keys, strict=True)]
    facts: list[Fact] = [("on", " AND ".join(equal) or "every tuple")]
    facts.append(("the latest", "that is earlier" if join.strict else "that is no later"))
    if join.window_us is not None:
        facts.append(("within", format_us(join.window_us)))
    return Description("⋈", "Left as-of join" if join.left else "As-of join", tuple(facts))


_ASOF_KINDS = (
    OperatorKind(
        spec=AsOfJoin,
        role=Role.STATEFUL,
        words=lambda join, *_: _describe_asof(join),
        label=lambda _: "as-of join",
        waits_for_time=lambda *_: True,
        alias=lambda join, port: join.aliases[port],
        keys=lambda join: join.keys if join.keys[0] else None,
        history_us=lambda join, *_: join.window_us,
        # Results have the sequence numbers of the first input.
        numbered_by=lambda _, node, __: node.inputs[:1],
        step="slicemill.operators.asof:as_of_step",
    ),
)


# Specification of `CREATE STREAM s AS SELECT … ORDER BY column SLACK d`.


@dataclass(frozen=True, slots=True)
class Reorder(Operator):
    """Set the timestamp of rows to `column`, and reorder the rows.

    Rows whose new timestamp is more than `slack_us` before the old timestamp are dropped. This does not
    depend on other rows.
    """

    column: str
    slack_us: int


def _describe_reorder(operator: Reorder) -> Description:
    return Description("↕", "Order", (("by", operator.column), ("slack", format_us(operator.slack_us))))


_REORDER_KINDS = (
    OperatorKind(
        spec=Reorder,
        role=Role.STATEFUL,
        words=lambda operator, *_: _describe_reorder(operator),
        label=lambda _: "order",
        slack_us=lambda operator: operator.slack_us,
        waits_for_time=lambda *_: True,
        columns_read=lambda operator, _, read: ColumnsRead((), {*read, operator.column}),
        history_us=lambda operator, *_: operator.slack_us,
        step="slicemill.operators.reorder:reorder",
    ),
)


# Specification of the result of one member of a shared operator.


@dataclass(frozen=True, slots=True)
class Part(Operator):
    """Result of one member of the shared operator in the input."""

    member: str


def member_of(shared: SharedOperator, part: Part) -> Any:
    """Return the member of a part."""
    return next(member for member in shared.members if member.name == part.member)


def _member_of_part(part: Part, node: Node, graph: QueryGraph) -> tuple[MemberKind, Any]:
    """Return the kind of the member, and the member."""
    from slicemill.operators.registry import kind_of  # cyclic import

    shared = graph[node.inputs[0]].operator
    assert isinstance(shared, SharedOperator), "a part is of what is shared"
    kind = kind_of(shared).member
    assert kind is not None, "what is shared has members"
    return kind, member_of(shared, part)


def _describe_part(part: Part, node: Node, graph: QueryGraph) -> Description:
    """Describe the member like an operator that is not shared."""
    kind, member = _member_of_part(part, node, graph)
    return kind.words(member)


def _history_us(part: Part, node: Node, graph: QueryGraph) -> int | None:
    kind, member = _member_of_part(part, node, graph)
    return kind.history_us(member)


def _seq_bits(part: Part, bits: int, catalog: Catalog, node: Node, graph: QueryGraph) -> int:
    """Return the bits of the sequence numbers of a member's results."""
    kind, member = _member_of_part(part, node, graph)
    return kind.seq_bits(member, bits, catalog)


def _part_keys_below(part: Part, node: Node, graph: QueryGraph, keys: Keys) -> KeysBelow | None:
    """Return the corresponding keys of the shared operator's inputs."""
    kind, member = _member_of_part(part, node, graph)
    shared = graph[node.inputs[0]]
    below = kind.keys_below(shared.operator, member, keys)
    return None if below is None else tuple(zip(shared.inputs, below, strict=True))


_PART_KINDS = (
    OperatorKind(
        spec=Part,
        keys_below=_part_keys_below,
        words=_describe_part,
        keeps_state=False,
        ties=True,
        history_us=_history_us,
        numbered_by=lambda _, node, graph: graph[node.inputs[0]].inputs,
        seq_bits=_seq_bits,
    ),
)


# Specification of GROUP BY over all history.


@dataclass(frozen=True, slots=True)
class GroupAggregate(Operator):
    """Grouped aggregates, which emit a row whenever an aggregate returns a row (M30)."""

    group_by: tuple[SelectItem, ...]
    calls: tuple[AggregateCall, ...]


def _describe_group(group: GroupAggregate) -> Description:
    return Description(
        "γ", "Aggregate", (*grouping_facts(group.calls, group.group_by), ("over", "all history"))
    )


def _group_columns_read(group: GroupAggregate) -> ColumnsRead:
    arguments = [argument for call in group.calls for argument in call.arguments]
    return ColumnsRead([*(item.expr for item in group.group_by), *arguments], ())


_GROUP_KINDS = (
    OperatorKind(
        spec=GroupAggregate,
        role=Role.STATEFUL,
        words=lambda group, *_: _describe_group(group),
        label=lambda _: "aggregate",
        columns_read=lambda group, *_: _group_columns_read(group),
        task=TaskOf.KEYS,
        keys=lambda group: (tuple(item.expr for item in group.group_by),),
        history_us=lambda *_: None,
        seq_bits=lambda _, bits, *__: fan_out_bits(rank_bits(bits)),
        last_words=True,
        step="slicemill.operators.group:group_calls",
    ),
)


# Joins over punctuation windows. A row that satisfies a condition closes the window of its key (S2).
#
#     a, k = 7    ·  a1        a2            a3, closes            a4
#     b, k = 7          b1          b2               ·  b3   b4
#     windows of 7  [─────────────────────────────)(────────────────
#     result      (a1,b1) (a2,b1) (a1,b2) …  (a3,b1) …      (a4,b3) …
#
# A key has one window over both streams. The window begins with the first row after the previous closing row,
# and ends with the next closing row. The state of the key is then deleted.


@dataclass(frozen=True, slots=True)
class PunctuatedJoin(Operator):
    """Join over punctuation windows; output columns are named `alias.column`.

    `condition` is over the output columns. `keys` are the equal expressions in `condition`. `closes` are the
    conditions of closing rows. `keys` and `closes` are over the columns of each input. `lengths` are the
    maximum ages of rows; None if rows stay until their window is closed. For outer, semi and anti joins
    (`kind`), an unmatched row is emitted when no match is possible any more.
    """

    aliases: tuple[str, str]
    keys: tuple[Keys, Keys]
    condition: Expr | None
    kind: JoinKind
    closes: tuple[Expr | None, Expr | None]
    lengths: tuple[int | None, int | None]


def _describe_punctuated_join(join: PunctuatedJoin) -> Description:
    title = "Join" if join.kind is JoinKind.INNER else f"{join.kind.value.capitalize()} join"
    on = "every row" if join.condition is None else render(join.condition)
    facts: list[Fact] = [("on", on)]
    for alias, close, length in zip(join.aliases, join.closes, join.lengths, strict=True):
        words = [] if length is None else [format_us(length)]
        words += [] if close is None else [f"closed when {render(close)}"]
        facts += [(alias, ", ".join(words))] if words else []
    return Description("⋈", f"{title} over punctuation windows", tuple(facts))


_PUNCTUATED_JOIN_KINDS = (
    OperatorKind(
        spec=PunctuatedJoin,
        role=Role.STATEFUL,
        words=lambda join, *_: _describe_punctuated_join(join),
        label=lambda _: "join",
        waits_for_time=lambda *_: True,
        alias=lambda join, port: join.aliases[port],
        history_us=lambda *_: None,
        seq_bits=lambda *_: SEQ_BITS,
        by_position=lambda _: True,
        step="slicemill.operators.punctuated_join:punctuated_join",
    ),
)


KINDS = (
    *_STREAMS_KINDS,
    *_SELECT_KINDS,
    *_DROP_KINDS,
    *_UNION_KINDS,
    *_LOOKUP_KINDS,
    *_TABLE_CALL_KINDS,
    *_UNNEST_KINDS,
    *_ASOF_KINDS,
    *_REORDER_KINDS,
    *_PART_KINDS,
    *_GROUP_KINDS,
    *_PUNCTUATED_JOIN_KINDS,
)
