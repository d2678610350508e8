"""Specifications of sources, sinks and operators without a package of their own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
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
)
from slicemill.time import format_us

if TYPE_CHECKING:
    from slicemill.operators.graph import Node, QueryGraph


@dataclass(frozen=True, slots=True)
class Source(Operator):
    """Source node of a declared stream.

    Rows that are late by at most the slack are reordered.
    """

    stream: str
    kind: TimestampKind
    slack_us: int = 0


@dataclass(frozen=True, slots=True)
class Scan(Operator):
    """Source node of a table, or of a view over tables."""

    relation: str


@dataclass(frozen=True, slots=True)
class QueryResults(Operator):
    """Sink that stores the results of a query.

    If `incomplete` is set, the results include windows that began before the query started.
    """

    query: str
    incomplete: bool = False


TIMESTAMPS = {
    TimestampKind.EXTERNAL: "external timestamp",
    TimestampKind.INTERNAL: "internal timestamp",
    TimestampKind.LATENT: "no timestamp (latent)",
}


class SourceKind(OperatorKind[Source]):
    spec = Source
    role = Role.SOURCE

    def words(self, source: Source, node: Node, graph: QueryGraph) -> Description:
        return Description("", f"Stream {source.stream}", (("time", TIMESTAMPS[source.kind]),))

    def own_name(self, source: Source) -> str:
        return source.stream

    def seq_bits(self, source: Source, bits: int, catalog: Catalog, node: Node, graph: QueryGraph) -> int:
        return SEQ_BITS


class ScanKind(OperatorKind[Scan]):
    spec = Scan
    role = Role.TABLE
    keeps_state = False

    def words(self, scan: Scan, node: Node, graph: QueryGraph) -> Description:
        return Description("", f"Table {scan.relation}")

    def own_name(self, scan: Scan) -> str:
        return scan.relation

    def relation(self, scan: Scan) -> str:
        return scan.relation


class QueryResultsKind(OperatorKind[QueryResults]):
    spec = QueryResults
    role = Role.SINK
    keeps_state = False
    ties = True
    step = "slicemill.operators.sink:sink"

    def words(self, sink: QueryResults, node: Node, graph: QueryGraph) -> Description:
        return Description("", f"Query {sink.query}")

    def own_name(self, sink: QueryResults) -> str:
        return sink.query


# Specifications of filter and projection.


@dataclass(frozen=True, slots=True)
class Filter(Operator):
    condition: Expr


@dataclass(frozen=True, slots=True)
class Project(Operator):
    items: tuple[SelectItem, ...]


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
    """Map column names of OVER calls to short names, in which "…" replaces the window.

    Return an empty dict if short names would be ambiguous. EXPLAIN shows the windows in the operator below.
    """
    names = sorted({name for item in items for name in columns_of(item.expr) if " OVER (" in name})
    short = {name: f"{name.split(' OVER (')[0]} OVER (…)" for name in names}
    return short if len(set(short.values())) == len(names) else {}


def _item(item: SelectItem) -> str:
    text = render(item.expr)
    named = text in (item.name, f'"{item.name}"') or text.endswith(f".{item.name}")
    return text if named else f"{text} AS {item.name}"


class FilterKind(OperatorKind[Filter]):
    spec = Filter
    keeps_state = False
    ties = True
    keeps_keys = True
    step = "slicemill.operators.filter_project:filter_step"

    def words(self, where: Filter, node: Node, graph: QueryGraph) -> Description:
        return Description("σ", "Filter", (("where", render(where.condition)),))

    def label(self, where: Filter) -> str:
        return "where"

    def shared_label(self, where: Filter) -> str:
        return f"where {render(where.condition)}"

    def for_all(self, where: Filter, node: Node, graph: QueryGraph) -> bool:
        return True

    def selections(self, where: Filter, ports: Sequence[int]) -> tuple[Expr | None, ...]:
        return (where.condition,)

    def columns_read(self, where: Filter, port: int, wanted: Collection[str]) -> ColumnsRead:
        return ColumnsRead([where.condition], wanted)


class ProjectKind(OperatorKind[Project]):
    spec = Project
    keeps_state = False
    ties = True
    step = "slicemill.operators.filter_project:project_step"

    def words(self, project: Project, node: Node, graph: QueryGraph) -> Description:
        return Description("π", "Project", (("select", _items(project.items)),))

    def label(self, project: Project) -> str:
        return "project"

    def shared_label(self, project: Project) -> str:
        return f"select {', '.join(item.name for item in project.items)}"

    def for_all(self, project: Project, node: Node, graph: QueryGraph) -> bool:
        return True

    def columns_read(self, project: Project, port: int, wanted: Collection[str]) -> ColumnsRead:
        # All SELECT items are computed, because an item that no consumer reads may raise an error.
        return ColumnsRead([item.expr for item in project.items], ())

    def keys_below(self, project: Project, node: Node, graph: QueryGraph, keys: Keys) -> KeysBelow | None:
        items = {item.name: item.expr for item in project.items}
        below = tuple(
            transform(key, lambda e: items[e.name] if isinstance(e, ColumnRef) else None) for key in keys
        )
        return ((node.inputs[0], below),)


# Specifications of drop boxes, which remove rows under load, and of filters for complete windows.


@dataclass(frozen=True, slots=True)
class Drop(Operator):
    """Drop box: operator that passes only a share of the rows under load (S54).

    `weight` is the weight of the queries that read the drop box. `utility` ranks rows by importance. If whole
    windows are dropped, `range_us` is the length of the queries' windows.
    """

    budget: LoadBudget
    weight: float
    utility: Expr | None = None
    range_us: int | None = None


@dataclass(frozen=True, slots=True)
class WholeWindows(Operator):
    """Filter that passes the result of a window only if the drop box `box` has removed no row of the window.

    A drop box is an operator that removes rows under load.
    """

    box: str


class DropKind(OperatorKind[Drop]):
    spec = Drop
    computes = False
    keeps_keys = True
    step = "slicemill.operators.drop:drop"

    def words(self, drop: Drop, node: Node, graph: QueryGraph) -> Description:
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

    def label(self, drop: Drop) -> str:
        return "drop box"

    def for_all(self, drop: Drop, node: Node, graph: QueryGraph) -> bool:
        # Queries with the same load budget share one drop box (operator that removes rows under load).
        # These queries can then also share the operators that read the drop box.
        return True

    def columns_read(self, drop: Drop, port: int, wanted: Collection[str]) -> ColumnsRead:
        return ColumnsRead([] if drop.utility is None else [drop.utility], wanted)


class WholeWindowsKind(OperatorKind[WholeWindows]):
    spec = WholeWindows
    keeps_state = False
    step = "slicemill.operators.drop:whole_windows"

    def words(self, whole: WholeWindows, node: Node, graph: QueryGraph) -> Description:
        return Description("", "Whole windows", (("of which nothing was dropped by", graph[whole.box].name),))

    def label(self, whole: WholeWindows) -> str:
        return "whole windows"

    def refer(self, whole: WholeWindows, renamed: Callable[[str], str]) -> WholeWindows:
        return WholeWindows(renamed(whole.box))


# Specification of UNION of streams.


@dataclass(frozen=True, slots=True)
class Merge(Operator):
    """UNION of streams: merges its sorted inputs by timestamp (M14, M21)."""


def input_ranks(node: Node) -> int:
    """Return the number of bits that represent the index of any input."""
    return (len(node.inputs) - 1).bit_length()


def keeps_numbers(_: Merge, node: Node, graph: QueryGraph) -> bool:
    """Return True if UNION forms sequence numbers from the input index and the number of the input row.

    Such sequence numbers do not depend on the number of subtasks. All inputs must be declared streams,
    possibly behind filters and projections, because the sequence numbers of declared streams leave enough
    bits. All consumers must be joins. Aggregates order groups by their first rows, for which sequence numbers
    must increase with time. In all other cases UNION assigns new sequence numbers.
    """
    behind = (graph[node_id].operator for node_id in graph.ancestors(node.id) - {node.id})
    plain = all(isinstance(operator, Source | Filter | Project) for operator in behind)
    return plain and _feeds_only_joins(node, graph)


def _feeds_only_joins(node: Node, graph: QueryGraph) -> bool:
    """Return True if every consumer of a node is a join, possibly behind filters and projections."""
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


class MergeKind(OperatorKind[Merge]):
    spec = Merge
    step = "slicemill.operators.union:merge"

    def words(self, union: Merge, node: Node, graph: QueryGraph) -> Description:
        order = "as tuples arrive" if node.kind is TimestampKind.LATENT else "by timestamp"
        return Description("∪", "Union", (("merged", order),))

    def label(self, union: Merge) -> str:
        return "union"

    def waits_for_time(self, union: Merge, kind: TimestampKind) -> bool:
        # Rows of a stream without timestamps (latent) are passed on at once.
        return kind is not TimestampKind.LATENT

    def split_by_any(self, union: Merge, node: Node, graph: QueryGraph) -> bool:
        return keeps_numbers(union, node, graph)

    def keys_below(self, union: Merge, node: Node, graph: QueryGraph, keys: Keys) -> KeysBelow | None:
        """Rewrite keys over the output columns as keys over the columns of each input.

        Columns correspond by position. Return None if the types of corresponding columns differ.
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

    def seq_bits(self, union: Merge, bits: int, catalog: Catalog, node: Node, graph: QueryGraph) -> int:
        return rank_bits(SEQ_BITS, input_ranks(node)) if keeps_numbers(union, node, graph) else SEQ_BITS


# Specifications of lookups in tables and in views over streams.


@dataclass(frozen=True, slots=True)
class Lookup(Operator):
    """Join each stream row (input 0) with a table or view (input 1).

    `stream_alias` is empty if the columns of the stream already have aliases. If `left` is set, a row without
    a match is emitted with NULLs.
    """

    stream_alias: str
    alias: str
    condition: Expr | None
    left: bool


@dataclass(frozen=True, slots=True)
class Materialize(Operator):
    """View over a stream, which stores the rows in the window of the stream (M40).

    A row of another stream reads the content of the view as of the row's own time.
    """

    view: str
    window: Window


def in_table(_: Lookup, node: Node, graph: QueryGraph) -> bool:
    """Return True if a lookup reads a table, False if the lookup reads a view of a stream."""
    return isinstance(graph[node.inputs[1]].operator, Scan)


def _without(expr: Expr, prefix: str) -> Expr | None:
    return replace(expr, name=expr.name.removeprefix(prefix)) if isinstance(expr, ColumnRef) else None


class LookupKind(OperatorKind[Lookup]):
    spec = Lookup
    keeps_state = False
    step = "slicemill.operators.lookup:lookup"

    def words(self, lookup: Lookup, node: Node, graph: QueryGraph) -> Description:
        relation = graph[node.inputs[1]].operator
        assert isinstance(relation, Scan | Materialize), "no other relation is finite"
        name = relation.relation if isinstance(relation, Scan) else relation.view
        title = f"Look up {name}" if lookup.alias == name else f"Look up {name} AS {lookup.alias}"
        condition = "every row" if lookup.condition is None else render(lookup.condition)
        facts: list[Fact] = [("on", condition)]
        if lookup.left:
            facts.append(("no match", "keep the tuple, with NULLs"))
        return Description("⋈", title, tuple(facts))

    def label(self, lookup: Lookup) -> str:
        return f"look up {lookup.alias}"

    def for_all(self, lookup: Lookup, node: Node, graph: QueryGraph) -> bool:
        return in_table(lookup, node, graph)

    def fed_by(self, lookup: Lookup, node: Node, graph: QueryGraph) -> tuple[str, ...]:
        """Return the nodes of the streams whose rows a lookup join reads.

        A table is not a stream. The stream of a view precedes the probing stream, so that a row matches view
        rows with its own timestamp.
        """
        stream, relation = node.inputs
        return (stream,) if in_table(lookup, node, graph) else (graph[relation].inputs[0], stream)

    def alias(self, lookup: Lookup, port: int) -> str:
        return lookup.alias if port == 1 else lookup.stream_alias

    def looked_up(self, lookup: Lookup, port: int) -> bool:
        return port == 1

    def columns_read(self, lookup: Lookup, port: int, wanted: Collection[str]) -> ColumnsRead:
        return ColumnsRead([] if lookup.condition is None else [lookup.condition], wanted)

    def keys_below(self, lookup: Lookup, node: Node, graph: QueryGraph, keys: Keys) -> KeysBelow | None:
        """Rewrite keys over the output columns as keys over the columns of the input stream.

        Return None if a key reads columns that the stream does not have.
        """
        prefix = f"{lookup.stream_alias}." if lookup.stream_alias else ""
        own = {prefix + name for name in graph[node.inputs[0]].schema.names}
        if not in_table(lookup, node, graph) or not all(columns_of(key) <= own for key in keys):
            return None
        return ((node.inputs[0], tuple(transform(key, lambda e: _without(e, prefix)) for key in keys)),)

    def seq_bits(self, lookup: Lookup, bits: int, catalog: Catalog, node: Node, graph: QueryGraph) -> int:
        return fan_out_bits(bits)


class MaterializeKind(OperatorKind[Materialize]):
    spec = Materialize
    role = Role.TABLE

    def words(self, view: Materialize, node: Node, graph: QueryGraph) -> Description:
        return Description("", f"View {view.view}", (("window", str(view.window)),))

    def relation(self, view: Materialize) -> str:
        return view.view

    def label(self, view: Materialize) -> str:
        return "view"

    def history_us(self, view: Materialize, node: Node, graph: QueryGraph) -> int | None:
        return longest_us([view.window])


# Specification of `TABLE(f(…))`: each row is joined with the rows that a function returns.


@dataclass(frozen=True, slots=True)
class TableCall(Operator):
    """Join of each stream row with the rows that a table function returns for this row.

    The body of the function is `query`. The `arguments` are computed from the stream row, and `query` reads
    the arguments by name. `stream_alias` is empty if the columns of the stream already have aliases.
    """

    stream_alias: str
    alias: str
    function: str
    query: RelationQuery
    arguments: tuple[tuple[str, Expr], ...]


def stream_keys_below(alias: str, node: Node, graph: QueryGraph, keys: Keys) -> KeysBelow | None:
    """Rewrite keys over the output columns as keys over the columns of the input stream.

    Return None if a key reads columns that the stream does not have.
    """
    prefix = f"{alias}." if alias else ""
    own = {prefix + name for name in graph[node.inputs[0]].schema.names}
    if not all(columns_of(key) <= own for key in keys):
        return None

    def below(expr: Expr) -> Expr | None:
        return replace(expr, name=expr.name.removeprefix(prefix)) if isinstance(expr, ColumnRef) else None

    return ((node.inputs[0], tuple(transform(key, below) for key in keys)),)


class TableCallKind(OperatorKind[TableCall]):
    spec = TableCall
    keeps_state = False
    step = "slicemill.operators.table_call:table_call"

    def words(self, call: TableCall, node: Node, graph: QueryGraph) -> Description:
        values = ", ".join(render(value) for _, value in call.arguments)
        return Description("⋈", f"Table {call.function}({values}) AS {call.alias}", ())

    def label(self, call: TableCall) -> str:
        return f"call {call.alias}"

    def for_all(self, call: TableCall, node: Node, graph: QueryGraph) -> bool:
        return True

    def alias(self, call: TableCall, port: int) -> str:
        return call.stream_alias

    def columns_read(self, call: TableCall, port: int, wanted: Collection[str]) -> ColumnsRead:
        return ColumnsRead([value for _, value in call.arguments], wanted)

    def keys_below(self, call: TableCall, node: Node, graph: QueryGraph, keys: Keys) -> KeysBelow | None:
        return stream_keys_below(call.stream_alias, node, graph, keys)

    def seq_bits(self, call: TableCall, bits: int, catalog: Catalog, node: Node, graph: QueryGraph) -> int:
        return fan_out_bits(bits)


# Specification of `UNNEST(list)`: each row is joined with every element of its list.


@dataclass(frozen=True, slots=True)
class Unnest(Operator):
    """Join of each row with the elements of the row's `list`, in list order.

    If `left` is set, a row whose list is empty or NULL is emitted with a NULL. `stream_alias` is empty if the
    columns of the stream already have aliases.
    """

    stream_alias: str
    alias: str
    list: Expr
    left: bool


class UnnestKind(OperatorKind[Unnest]):
    spec = Unnest
    keeps_state = False
    step = "slicemill.operators.unnest:unnest"

    def words(self, unnest: Unnest, node: Node, graph: QueryGraph) -> Description:
        facts: tuple[Fact, ...] = (("no element", "keep the tuple, with NULL"),) if unnest.left else ()
        return Description("⋈", f"Elements of {render(unnest.list)} AS {unnest.alias}", facts)

    def label(self, unnest: Unnest) -> str:
        return f"unnest {unnest.alias}"

    def for_all(self, unnest: Unnest, node: Node, graph: QueryGraph) -> bool:
        return True

    def alias(self, unnest: Unnest, port: int) -> str:
        return unnest.stream_alias

    def columns_read(self, unnest: Unnest, port: int, wanted: Collection[str]) -> ColumnsRead:
        return ColumnsRead([unnest.list], wanted)

    def keys_below(self, unnest: Unnest, node: Node, graph: QueryGraph, keys: Keys) -> KeysBelow | None:
        return stream_keys_below(unnest.stream_alias, node, graph, keys)

    def seq_bits(self, unnest: Unnest, bits: int, catalog: Catalog, node: Node, graph: QueryGraph) -> int:
        return fan_out_bits(bits)


# ASOF join: each row of the first stream is joined with the latest row of its key in the second stream.
# In the example, stream a is joined with stream b. All rows have key k = 1, and time runs to the right.
#
#     b   k=1: x         y              z
#     a               1        1  1        1
#     result         (1,x)   (1,y)(1,y)   (1,z)       result rows have the times of a
#
# The second stream is a versioned table: the version of a key is its latest row (FOR SYSTEM_TIME AS OF).


@dataclass(frozen=True, slots=True)
class AsOfJoin(Operator):
    """ASOF join; output columns are named `alias.column`.

    Results have the timestamps of input 0. `keys` are expressions over the columns of each input. A row of
    input 1 matches if it is not later than the row of input 0. If `strict` is set, the row must be earlier.
    If `window_us` is set, the row must also be less than `window_us` older. If `left` is set, a row without a
    match is emitted with NULLs.
    """

    aliases: tuple[str, str]
    keys: tuple[Keys, Keys]
    left: bool = False
    strict: bool = False
    window_us: int | None = None


class AsOfJoinKind(OperatorKind[AsOfJoin]):
    spec = AsOfJoin
    role = Role.STATEFUL
    step = "slicemill.operators.asof:as_of_step"

    def words(self, join: AsOfJoin, node: Node, graph: QueryGraph) -> Description:
        equal = [f"{render(left)} = {render(right)}" for left, right in zip(*join.keys, strict=True)]
        facts: list[Fact] = [("on", " AND ".join(equal) or "every tuple")]
        facts.append(("the latest", "that is earlier" if join.strict else "that is no later"))
        if join.window_us is not None:
            facts.append(("within", format_us(join.window_us)))
        return Description("⋈", "Left as-of join" if join.left else "As-of join", tuple(facts))

    def label(self, join: AsOfJoin) -> str:
        return "as-of join"

    def waits_for_time(self, join: AsOfJoin, kind: TimestampKind) -> bool:
        return True

    def alias(self, join: AsOfJoin, port: int) -> str:
        return join.aliases[port]

    def keys(self, join: AsOfJoin) -> tuple[Keys, ...] | None:
        return join.keys if join.keys[0] else None

    def history_us(self, join: AsOfJoin, node: Node, graph: QueryGraph) -> int | None:
        return join.window_us

    def numbered_by(self, join: AsOfJoin, node: Node, graph: QueryGraph) -> Iterable[str]:
        # The results of an ASOF join have the sequence numbers of the first input.
        return node.inputs[:1]


# Specification of `CREATE STREAM s AS SELECT … ORDER BY column SLACK d`.


@dataclass(frozen=True, slots=True)
class Reorder(Operator):
    """Set the timestamp of rows to `column`, and reorder the rows.

    Rows whose new timestamp is more than `slack_us` before the old timestamp are dropped. The decision does
    not depend on other rows.
    """

    column: str
    slack_us: int


class ReorderKind(OperatorKind[Reorder]):
    spec = Reorder
    role = Role.STATEFUL
    step = "slicemill.operators.reorder:reorder"

    def words(self, operator: Reorder, node: Node, graph: QueryGraph) -> Description:
        return Description("↕", "Order", (("by", operator.column), ("slack", format_us(operator.slack_us))))

    def label(self, operator: Reorder) -> str:
        return "order"

    def slack_us(self, operator: Reorder) -> int:
        return operator.slack_us

    def waits_for_time(self, operator: Reorder, kind: TimestampKind) -> bool:
        return True

    def columns_read(self, operator: Reorder, port: int, read: Collection[str]) -> ColumnsRead:
        return ColumnsRead((), {*read, operator.column})

    def history_us(self, operator: Reorder, node: Node, graph: QueryGraph) -> int | None:
        return operator.slack_us


# Specification of a part: the result of a shared operator for one of its queries.


@dataclass(frozen=True, slots=True)
class Part(Operator):
    """Result of a shared operator for one query (`member`). The shared operator is the node's input."""

    member: str


def member_of(shared: SharedOperator, part: Part) -> Any:
    """Return the member (one query's use) of a shared operator whose result a `Part` node provides."""
    return next(member for member in shared.members if member.name == part.member)


def _member_of_part(part: Part, node: Node, graph: QueryGraph) -> tuple[MemberKind[Any], Any]:
    """Return the planning properties of the member whose result a `Part` node provides, and the member.

    A member is one query's use of a shared operator.
    """
    from slicemill.operators.registry import kind_of  # cyclic import

    shared = graph[node.inputs[0]].operator
    assert isinstance(shared, SharedOperator), "a part is of what is shared"
    kind = kind_of(shared).member
    assert kind is not None, "what is shared has members"
    return kind, member_of(shared, part)


class PartKind(OperatorKind[Part]):
    spec = Part
    keeps_state = False
    ties = True

    def keys_below(self, part: Part, node: Node, graph: QueryGraph, keys: Keys) -> KeysBelow | None:
        """Rewrite keys over the output columns as keys over the inputs of the shared operator."""
        kind, member = _member_of_part(part, node, graph)
        shared = graph[node.inputs[0]]
        below = kind.keys_below(shared.operator, member, keys)
        return None if below is None else tuple(zip(shared.inputs, below, strict=True))

    def words(self, part: Part, node: Node, graph: QueryGraph) -> Description:
        """Return the description of one query's part of a shared operator, as if it were not shared."""
        kind, member = _member_of_part(part, node, graph)
        return kind.words(member)

    def history_us(self, part: Part, node: Node, graph: QueryGraph) -> int | None:
        kind, member = _member_of_part(part, node, graph)
        return kind.history_us(member)

    def numbered_by(self, part: Part, node: Node, graph: QueryGraph) -> Iterable[str]:
        return graph[node.inputs[0]].inputs

    def seq_bits(self, part: Part, bits: int, catalog: Catalog, node: Node, graph: QueryGraph) -> int:
        """Return the bit width of the sequence numbers in one query's results of a shared operator."""
        kind, member = _member_of_part(part, node, graph)
        return kind.seq_bits(member, bits, catalog)


# Specification of GROUP BY over all history.


@dataclass(frozen=True, slots=True)
class GroupAggregate(Operator):
    """Grouped aggregates, which emit a row whenever an aggregate returns a row (M30)."""

    group_by: tuple[SelectItem, ...]
    calls: tuple[AggregateCall, ...]


class GroupAggregateKind(OperatorKind[GroupAggregate]):
    spec = GroupAggregate
    role = Role.STATEFUL
    task = TaskOf.KEYS
    last_words = True
    step = "slicemill.operators.group:group_calls"

    def words(self, group: GroupAggregate, node: Node, graph: QueryGraph) -> Description:
        return Description(
            "γ", "Aggregate", (*grouping_facts(group.calls, group.group_by), ("over", "all history"))
        )

    def label(self, group: GroupAggregate) -> str:
        return "aggregate"

    def columns_read(self, group: GroupAggregate, port: int, wanted: Collection[str]) -> ColumnsRead:
        arguments = [argument for call in group.calls for argument in call.arguments]
        return ColumnsRead([*(item.expr for item in group.group_by), *arguments], ())

    def keys(self, group: GroupAggregate) -> tuple[Keys, ...] | None:
        return (tuple(item.expr for item in group.group_by),)

    def history_us(self, group: GroupAggregate, node: Node, graph: QueryGraph) -> int | None:
        return None

    def seq_bits(
        self, group: GroupAggregate, bits: int, catalog: Catalog, node: Node, graph: QueryGraph
    ) -> int:
        return fan_out_bits(rank_bits(bits))


# Joins over punctuation windows. A row that satisfies a condition closes the window of its key (S2).
# In the example, the rows of streams a and b have the key k = 7, and the row a3 closes the window.
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

    `condition` is an expression over the output columns. `keys` are the equal expressions in `condition`. A
    row that satisfies `closes` closes the window of its key. `keys` and `closes` are expressions over the
    columns of each input. `lengths` are the maximum ages of rows; None if rows stay until their window is
    closed. For outer, semi and anti joins (`kind`), an unmatched row is emitted when no match is possible any
    more.
    """

    aliases: tuple[str, str]
    keys: tuple[Keys, Keys]
    condition: Expr | None
    kind: JoinKind
    closes: tuple[Expr | None, Expr | None]
    lengths: tuple[int | None, int | None]


class PunctuatedJoinKind(OperatorKind[PunctuatedJoin]):
    spec = PunctuatedJoin
    role = Role.STATEFUL
    step = "slicemill.operators.punctuated_join:punctuated_join"

    def words(self, join: PunctuatedJoin, node: Node, graph: QueryGraph) -> Description:
        title = "Join" if join.kind is JoinKind.INNER else f"{join.kind.value.capitalize()} join"
        on = "every row" if join.condition is None else render(join.condition)
        facts: list[Fact] = [("on", on)]
        for alias, close, length in zip(join.aliases, join.closes, join.lengths, strict=True):
            words = [] if length is None else [format_us(length)]
            words += [] if close is None else [f"closed when {render(close)}"]
            facts += [(alias, ", ".join(words))] if words else []
        return Description("⋈", f"{title} over punctuation windows", tuple(facts))

    def label(self, join: PunctuatedJoin) -> str:
        return "join"

    def waits_for_time(self, join: PunctuatedJoin, kind: TimestampKind) -> bool:
        return True

    def alias(self, join: PunctuatedJoin, port: int) -> str:
        return join.aliases[port]

    def history_us(self, join: PunctuatedJoin, node: Node, graph: QueryGraph) -> int | None:
        return None

    def seq_bits(
        self, join: PunctuatedJoin, bits: int, catalog: Catalog, node: Node, graph: QueryGraph
    ) -> int:
        return SEQ_BITS

    def by_position(self, join: PunctuatedJoin) -> bool:
        return True


KINDS: tuple[OperatorKind[Any], ...] = (
    SourceKind(),
    ScanKind(),
    QueryResultsKind(),
    FilterKind(),
    ProjectKind(),
    DropKind(),
    WholeWindowsKind(),
    MergeKind(),
    LookupKind(),
    MaterializeKind(),
    TableCallKind(),
    UnnestKind(),
    AsOfJoinKind(),
    ReorderKind(),
    PartKind(),
    GroupAggregateKind(),
    PunctuatedJoinKind(),
)
