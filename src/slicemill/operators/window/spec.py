"""Specifications of aggregates over windows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from slicemill.catalog.builtin_aggregates import BUILTINS
from slicemill.catalog.catalog import Catalog, TimestampKind
from slicemill.catalog.expressions import Call, ColumnRef, Expr, Literal, conjunction
from slicemill.catalog.queries import AggregateCall, FrameUnit, RankedBy, SelectItem, Window, WindowCall
from slicemill.columns.sequence_bits import SEQ_BITS, fan_out_bits, rank_bits
from slicemill.functions.render import render
from slicemill.operators.changelog.spec import order_of
from slicemill.operators.protocol import (
    ColumnsRead,
    Description,
    Keys,
    MemberKind,
    Operator,
    OperatorKind,
    Role,
    SharedOperator,
    TaskOf,
    each,
    grouping_facts,
    length_of,
    longest_us,
    partition,
    pluralize,
    window_calls,
)
from slicemill.operators.window.accumulators import is_by_itself, sources_of_calls, sources_of_columns
from slicemill.time import format_us
from slicemill.types import DOUBLE, Column, Kind

if TYPE_CHECKING:
    from slicemill.operators.graph import Node, QueryGraph


@dataclass(frozen=True, slots=True)
class WindowMember:
    """Aggregate query that shares panes with other queries (M35).

    `name` does not change during the lifetime of the query. `columns` are the output columns that consumers
    read. If `partial` is set, results are combined from partial aggregates of panes. Otherwise the state has
    the argument values of each tuple.
    """

    name: str
    conditions: tuple[Expr, ...]
    operator: RelationAggregate | WindowAggregate
    columns: tuple[Column, ...]
    partial: bool

    @property
    def windows(self) -> tuple[tuple[int, int], ...]:
        """Return the pair (length, slide) of each window of the query, in microseconds."""
        if isinstance(self.operator, RelationAggregate):
            found = [(self.operator.windows[0][1].extent, self.operator.slide)]
        else:
            found = [(call.window.extent, call.window.slide) for call in self.operator.calls]
        return tuple((length, slide) for length, slide in found if length is not None and slide is not None)

    @property
    def calls_read(self) -> Sequence[PaneCall]:
        """Return the aggregate calls whose result columns consumers read."""
        read = {column.name for column in self.columns}
        return [call for call in self.operator.calls if call.columns[0].name in read]


@dataclass(frozen=True, slots=True)
class SharedWindows(SharedOperator):
    """Window aggregates of several queries that share panes. All queries have the same input and keys."""

    keys: tuple[Expr, ...]
    members: tuple[WindowMember, ...]


def _input_columns(member: WindowMember) -> list[Column]:
    """Return the columns that the query copies from its input to its output.

    Tuples that wait for the end of their slot are stored with these columns.
    """
    returned = {column.name for call in member.operator.calls for column in call.columns}
    return [column for column in member.columns if column.name not in returned]


class WindowMemberKind(MemberKind[WindowMember]):
    def words(self, member: WindowMember) -> Description:
        if isinstance(member.operator, RelationAggregate):
            facts = describe_windows(member.operator).facts
        else:
            facts = window_calls(member.operator.calls)
        where = conjunction(member.conditions)
        selected = (("where", render(where)),) if where is not None else ()
        return Description("γ", "From panes", (*facts, *selected))

    def history_us(self, member: WindowMember) -> int | None:
        if isinstance(member.operator, RelationAggregate):
            return longest_us(window for _, window in member.operator.windows)
        return longest_us(call.window for call in member.operator.calls)

    def seq_bits(self, member: WindowMember, bits: int, catalog: Catalog) -> int:
        # A user-defined aggregate may return several rows for a window.
        return bits if member.partial else fan_out_bits(bits)

    def holds(self, kept: WindowMember, member: WindowMember) -> bool:
        """Return True if the panes stored for a running query (`kept`) suffice for a new query (`member`).

        sum(v), count(*)   [RANGE 60 SLIDE 10]     stores per pane: rows, count and sum of v
        avg(v)             [RANGE 60 SLIDE 10]     reads per pane: count and sum of v
        """
        if not (kept.partial and member.partial) or kept.conditions != member.conditions:
            return False
        if isinstance(kept.operator, RelationAggregate):
            if not isinstance(member.operator, RelationAggregate):
                return False
            if replace(kept.operator, calls=()) != replace(member.operator, calls=()):
                return False
            return partials_for(member.calls_read) <= partials_for(kept.calls_read)
        if not isinstance(member.operator, WindowAggregate) or _input_columns(kept) != _input_columns(member):
            return False
        same_keys = kept.operator.calls[0].partition_by == member.operator.calls[0].partition_by
        in_time = set(member.windows) <= set(kept.windows)
        return (
            same_keys and in_time and partials_for(member.operator.calls) <= partials_for(kept.operator.calls)
        )


class SharedWindowsKind(OperatorKind[SharedWindows]):
    spec = SharedWindows
    role = Role.STATEFUL
    task = TaskOf.KEYS
    member = WindowMemberKind()
    over_windows = True
    step = "slicemill.operators.window.strategies:window_step"

    def words(self, shared: SharedWindows, node: Node, graph: QueryGraph) -> Description:
        """Return the description for EXPLAIN: the borders of panes, and the partial aggregates of panes."""
        edges = edge_grids(window for member in shared.members for window in member.windows)
        panes = " and ".join(
            f"every {format_us(step)}{f' from {format_us(offset)}' if offset else ''}"
            for step, offset in edges
        )
        kept: dict[str, list[str]] = {}
        for member in shared.members:
            for call in member.operator.calls:
                partials = KEPT[call.name] if member.partial else ("values",)
                found = kept.setdefault(", ".join(render(a) for a in call.arguments) or "*", [])
                found += [partial for partial in partials if partial not in found]
        facts = [("in", f"panes cut {panes}")]
        facts += [("per pane", f"{', '.join(partials)} of {what}") for what, partials in kept.items()]
        facts += partition(shared.keys)
        return Description("γ", f"Windows of {pluralize(len(shared.members), 'aggregate')}", tuple(facts))

    def waits_for_time(self, shared: SharedWindows, kind: TimestampKind) -> bool:
        return True

    def selections(self, shared: SharedWindows, ports: Sequence[int]) -> tuple[Expr | None, ...]:
        return tuple(conjunction(member.conditions) for member in shared.members)

    def columns_read(self, shared: SharedWindows, port: int, wanted: Collection[str]) -> ColumnsRead:
        exprs, names = [*shared.keys], set()
        for member in shared.members:
            exprs += [
                *member.conditions,
                *(part for call in member.operator.calls for part in call.arguments),
            ]
            names |= {column.name for column in member.columns}
        return ColumnsRead(exprs, names)

    def keys(self, shared: SharedWindows) -> tuple[Keys, ...] | None:
        return (shared.keys,)

    def stored(self) -> Mapping[str, type]:
        return {"plan.window_member": WindowMember}


# Panes (M35): borders, and partial aggregates that a pane stores.
#
# RANGE w SLIDE s has windows that end at the multiples of s and begin w earlier. A pane is the interval
# between two neighbouring window borders, over the windows of all queries that share the panes. Such panes
# are never shorter than gcd(w, s), and often much longer:
#
#     RANGE 7 SLIDE 10     ends    0         10        20
#                          begins     3         13        23          4 edges in 20; panes of
#                                                                     gcd 1 would have 20
#
# `KEPT` has the partial aggregates that panes store for each aggregate. For other aggregates, panes store the
# argument values. `slicemill.operators.window.pane_answers` evaluates the aggregates.


PaneCall: TypeAlias = AggregateCall | WindowCall

MEANS = ("avg", "mean")
_SQUARES = ("variance", "var_samp", "var_pop", "stddev", "stddev_samp", "stddev_pop")
KEPT: dict[str, tuple[str, ...]] = {
    "count": ("count",),
    "sum": ("count", "sum"),
    "avg": ("count", "sum"),
    "mean": ("count", "sum"),
    "min": ("least",),
    "max": ("greatest",),
    "first": ("first",),
    "last": ("last",),
    **dict.fromkeys(_SQUARES, ("count", "sum", "sum of squares")),
}
_NO_ORDER = (Kind.PERIOD, Kind.MONTHS, Kind.NULL, Kind.ANY)


def edge_grids(windows: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return the times at which windows begin or end, as grids (step, offset).

    `windows` are pairs (length, slide). A grid has the times step * n + offset. A grid whose times are all in
    another grid is left out.

    >>> edge_grids([(60, 10), (40, 20)]), edge_grids([(7, 10)])
    (((10, 0),), ((10, 0), (10, 3)))
    """
    found = sorted({(slide, offset) for length, slide in windows for offset in (0, -length % slide)})
    return tuple(
        grid
        for grid in found
        if not any(
            finer != grid and grid[0] % finer[0] == 0 and (grid[1] - finer[1]) % finer[0] == 0
            for finer in found
        )
    )


def partials_for(calls: Sequence[PaneCall]) -> set[tuple[str, Expr]]:
    """Return the partial aggregates, such as sum and count, that panes store for some aggregate calls.

    `count(*)` needs none, because the tuple count is always stored.

    >>> from slicemill.catalog.expressions import ColumnRef
    >>> from slicemill.types import BIGINT, DOUBLE, Column
    >>> v = ColumnRef("v", BIGINT)
    >>> total = AggregateCall("sum", (v,), False, (Column("a", BIGINT),))
    >>> mean = AggregateCall("avg", (v,), False, (Column("m", DOUBLE),))
    >>> partials_for([mean]) == partials_for([total])
    True
    """
    return {(kept, argument) for call in calls for argument in call.arguments for kept in KEPT[call.name]}


def combines_panes(call: PaneCall, catalog: Catalog) -> bool:
    """Return True if the results of a call can be combined from partial aggregates of panes."""
    if call.name not in KEPT or call.distinct or catalog.aggregates(call.name) != (None, None):
        return False
    kinds = [argument.type.kind for argument in call.arguments]
    if call.name == "count":
        return True
    if call.name in MEANS:
        # For means of decimals with OVER, the state stores single rows, as in earlier versions.
        decimal = isinstance(call, WindowCall) and kinds[0] is Kind.DECIMAL
        return not decimal and kinds[0] not in (Kind.NULL, Kind.ANY)
    return kinds[0] not in _NO_ORDER


# Specifications of aggregates with OVER, for one query or for several queries.


@dataclass(frozen=True, slots=True)
class WindowAggregate(Operator):
    """Aggregates with OVER of one query, with one result column for each call (M37).

    A row is emitted for each tuple, or at each slide.
    """

    calls: tuple[WindowCall, ...]


@dataclass(frozen=True, slots=True)
class OverMember:
    """Query whose aggregates with OVER share stored rows with other queries.

    `columns` are the output columns that consumers read.
    """

    name: str
    operator: WindowAggregate
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class SharedOver(SharedOperator):
    """Aggregates with OVER of several queries, which share stored rows.

    All queries have the same input and partition keys. All calls read only the rows in their window
    (`is_plain`).
    """

    keys: tuple[Expr, ...]
    members: tuple[OverMember, ...]

    @property
    def calls(self) -> tuple[WindowCall, ...]:
        return tuple(call for member in self.members for call in member.operator.calls)


_COUNTING_FOREVER = ("priority_sample", "approx_count_if")


def is_plain(call: WindowCall) -> bool:
    """Return True if the result of an OVER call depends only on the rows in its window.

    The window must be bounded, and must emit a row for each tuple. The aggregate must not count all tuples
    since the query started.
    """
    window = call.window
    stretch = window.extent is not None and window.slide is None and not window.active
    return stretch and call.name.lower() not in _COUNTING_FOREVER


def _argument_exprs(calls: Iterable[WindowCall]) -> set[Expr]:
    return {expr for call in calls for expr in BUILTINS[call.name.lower()].stored(call.arguments)}


def _is_unbounded(call: WindowCall) -> bool:
    window = call.window
    return window.extent is None and window.slide is None and not window.active and is_by_itself(call)


def has_expiries(calls: Sequence[WindowCall]) -> bool:
    """Return True if rows are also emitted when tuples leave a window."""
    return any(call.window.active for call in calls)


def returns_many(calls: Sequence[WindowCall], catalog: Catalog) -> bool:
    """Return True if a tuple may cause several result rows, because a call is a user-defined aggregate."""
    return any(any(catalog.aggregates(call.name)) for call in calls)


def bits_of_calls(over: WindowAggregate, bits: int, catalog: Catalog, *_: object) -> int:
    bits = rank_bits(bits) if has_expiries(over.calls) else bits
    return fan_out_bits(bits) if returns_many(over.calls, catalog) else bits


def calls_wait(calls: Sequence[WindowCall]) -> bool:
    """Return True if the output of a tuple waits for the watermark.

    Windows with SLIDE emit rows at the end of a slot (time between two slides). Windows with ACTIVE expiry
    also emit rows when tuples leave the window.
    """
    windows = [call.window for call in calls]
    return any(w.active or (w.slide is not None and w.frame is FrameUnit.RANGE) for w in windows)


def _over_columns_read(over: WindowAggregate) -> list[Expr]:
    return [part for call in over.calls for part in (*call.arguments, *call.partition_by)]


class WindowAggregateKind(OperatorKind[WindowAggregate]):
    spec = WindowAggregate
    role = Role.STATEFUL
    task = TaskOf.KEYS
    taken_over = "slicemill.operators.window.state_takeover:windows_taken_over"
    over_windows = True
    step = "slicemill.operators.window.strategies:window_step"

    def words(self, over: WindowAggregate, node: Node, graph: QueryGraph) -> Description:
        return Description("γ", "Window aggregate", window_calls(over.calls))

    def label(self, over: WindowAggregate) -> str:
        return "window"

    def waits_for_time(self, over: WindowAggregate, kind: TimestampKind) -> bool:
        return calls_wait(over.calls)

    def columns_read(self, over: WindowAggregate, port: int, wanted: Collection[str]) -> ColumnsRead:
        return ColumnsRead(_over_columns_read(over), wanted)

    def keys(self, over: WindowAggregate) -> tuple[Keys, ...] | None:
        partitions = {call.partition_by for call in over.calls}
        return tuple(partitions) if len(partitions) == 1 else None

    def history_us(self, over: WindowAggregate, node: Node, graph: QueryGraph) -> int | None:
        return longest_us(call.window for call in over.calls)

    def seq_bits(
        self, over: WindowAggregate, bits: int, catalog: Catalog, node: Node, graph: QueryGraph
    ) -> int:
        return bits_of_calls(over, bits, catalog, node, graph)

    def takes(self, kept: WindowAggregate, over: WindowAggregate) -> Sequence[int] | None:
        """Map each call to a call of the replaced query from which it takes its state.

        Return None unless all windows are unbounded.
        """
        partitions = [list(dict.fromkeys(call.partition_by for call in one.calls)) for one in (kept, over)]
        if partitions[0] != partitions[1] or not all(map(_is_unbounded, (*kept.calls, *over.calls))):
            return None
        return sources_of_calls(kept.calls, over.calls)

    def stored(self) -> Mapping[str, type]:
        return {"plan.window_aggregate": WindowAggregate}


class OverMemberKind(MemberKind[OverMember]):
    def words(self, member: OverMember) -> Description:
        return Description("γ", "Window aggregate", window_calls(member.operator.calls))

    def history_us(self, member: OverMember) -> int | None:
        return longest_us(call.window for call in member.operator.calls)

    def seq_bits(self, member: OverMember, bits: int, catalog: Catalog) -> int:
        return bits_of_calls(member.operator, bits, catalog)

    def holds(self, kept: OverMember, member: OverMember) -> bool:
        """Return True if the rows stored for a running query (`kept`) suffice for a new query (`member`).

        The calls of both queries read only the rows in their window. Each argument of the new query must be
        stored for a window that is at least as long.
        """
        return all(
            any(
                before.window.frame is call.window.frame
                and (before.window.extent or 0) >= (call.window.extent or 0)
                for before in kept.operator.calls
            )
            and _argument_exprs([call])
            <= _argument_exprs(c for c in kept.operator.calls if c.window.frame is call.window.frame)
            for call in member.operator.calls
        )


class SharedOverKind(OperatorKind[SharedOver]):
    spec = SharedOver
    role = Role.STATEFUL
    task = TaskOf.KEYS
    member = OverMemberKind()
    over_windows = True
    step = "slicemill.operators.window.strategies:window_step"

    def words(self, shared: SharedOver, node: Node, graph: QueryGraph) -> Description:
        facts = (*window_calls(shared.calls), *partition(shared.keys))
        return Description("γ", f"Rows of {pluralize(len(shared.members), 'window aggregate')}", facts)

    def columns_read(self, shared: SharedOver, port: int, wanted: Collection[str]) -> ColumnsRead:
        arguments = (argument for call in shared.calls for argument in call.arguments)
        names = {column.name for member in shared.members for column in member.columns}
        return ColumnsRead([*shared.keys, *arguments], names)

    def keys(self, shared: SharedOver) -> tuple[Keys, ...] | None:
        return (shared.keys,)


# Specification of GROUP BY over windows in FROM, for example `FROM s [RANGE 60 SLIDE 10] GROUP BY k`.


GROUP_BITS = 32  # number of bits of the index of a group in its window


@dataclass(frozen=True, slots=True)
class RelationAggregate(Operator):
    """GROUP BY over windows in FROM, evaluated at each slide, or at the arrival of each row.

    `windows` are the windows of the inputs of the join below, each with the column of the input's timestamp.
    The column is None for a single stream. `where` filters the rows in a ROWS window. If rows were filtered
    before the window, the last n rows would be other rows.
    """

    group_by: tuple[SelectItem, ...]
    calls: tuple[AggregateCall, ...]
    windows: tuple[tuple[str | None, Window], ...]
    slide: int | None
    where: Expr | None = None


def describe_windows(aggregate: RelationAggregate) -> Description:
    windows = [window for _, window in aggregate.windows]
    aliases = [(column or "").removesuffix("._ts") for column, _ in aggregate.windows]
    extents = each(aliases, [length_of(window) for window in windows])
    report = "at each arrival"
    if aggregate.slide is not None:
        frame = next(window.frame for window in windows if window.slide is not None)
        report = format_us(aggregate.slide) if frame is FrameUnit.RANGE else f"{aggregate.slide} tuples"
    facts = [*grouping_facts(aggregate.calls, aggregate.group_by), ("window", extents)]
    if aggregate.where is not None:
        facts.append(("where", render(aggregate.where)))
    return Description("γ", "Aggregate", (*facts, ("every", report)))


def keys_of_windows(aggregate: RelationAggregate) -> tuple[Keys, ...] | None:
    """Return the group keys by which the input rows are partitioned.

    Return None for ROWS windows, because they count the rows of all groups. Return None without GROUP BY.
    """
    if aggregate.windows[0][1].frame is not FrameUnit.RANGE or not aggregate.group_by:
        return None
    return (tuple(item.expr for item in aggregate.group_by),)


def numbers_by_group(aggregate: RelationAggregate) -> bool:
    """Return True if the sequence number of a result is the index of its group in the window.

    Such numbers are used for sliding windows over joins that are partitioned by key.
    """
    joined = any(column is not None for column, _ in aggregate.windows)
    return joined and aggregate.slide is not None and keys_of_windows(aggregate) is not None


class RelationAggregateKind(OperatorKind[RelationAggregate]):
    spec = RelationAggregate
    role = Role.STATEFUL
    task = TaskOf.KEYS
    over_windows = True
    step = "slicemill.operators.window.strategies:window_step"
    taken_over = "slicemill.operators.window.state_takeover:taken_over"
    redistribute = "slicemill.operators.window.expiring_rows:redistribute_state"

    def words(self, aggregate: RelationAggregate, node: Node, graph: QueryGraph) -> Description:
        return describe_windows(aggregate)

    def label(self, aggregate: RelationAggregate) -> str:
        return "aggregate"

    def waits_for_time(self, aggregate: RelationAggregate, kind: TimestampKind) -> bool:
        return aggregate.slide is not None and aggregate.windows[0][1].frame is FrameUnit.RANGE

    def columns_read(self, aggregate: RelationAggregate, port: int, wanted: Collection[str]) -> ColumnsRead:
        exprs = [item.expr for item in aggregate.group_by]
        exprs += [argument for call in aggregate.calls for argument in call.arguments]
        exprs += [aggregate.where] if aggregate.where is not None else []
        return ColumnsRead(exprs, {column for column, _ in aggregate.windows if column is not None})

    def keys(self, aggregate: RelationAggregate) -> tuple[Keys, ...] | None:
        return keys_of_windows(aggregate)

    def history_us(self, aggregate: RelationAggregate, node: Node, graph: QueryGraph) -> int | None:
        return longest_us(window for _, window in aggregate.windows)

    def seq_bits(
        self, aggregate: RelationAggregate, bits: int, catalog: Catalog, node: Node, graph: QueryGraph
    ) -> int:
        if numbers_by_group(aggregate):
            return GROUP_BITS
        return SEQ_BITS if keys_of_windows(aggregate) is None else fan_out_bits(rank_bits(bits))

    def stored(self) -> Mapping[str, type]:
        return {"plan.relation_aggregate": RelationAggregate}

    def takes(self, kept: RelationAggregate, aggregate: RelationAggregate) -> Sequence[int] | None:
        """Map each stored argument to its index among the stored arguments of the replaced query.

        Return None if the state of the replaced query does not suffice.
        """
        if replace(kept, calls=()) != replace(aggregate, calls=()):
            return None
        return sources_of_columns(kept.calls, aggregate.calls)


# Translation of GROUP BY over the last rows to calls with OVER.
#
# An aggregate may have a base version, which GROUP BY evaluates, and a window version, which OVER evaluates.
# An aggregate is not translated if the results of the two versions may differ. They may differ for a
# user-defined aggregate with both versions, and for a built-in aggregate whose result depends on expired
# rows.


# Aggregates whose results depend on how many tuples arrived before the window or left the window.
_KNOWS_THE_PAST = ("approx_count_if", "priority_sample")


def same_over(call: AggregateCall, catalog: Catalog) -> bool:
    """Return True if an aggregate call of GROUP BY has the same result when it is evaluated with OVER."""
    base, own = catalog.aggregates(call.name)
    if base is None and own is None:
        return call.name.lower() not in _KNOWS_THE_PAST
    return own is None or (base is not None and base.provider is not None)


def calls_that_run(operator: RelationAggregate, catalog: Catalog) -> tuple[AggregateCall | WindowCall, ...]:
    """Return the aggregate calls that are executed: calls with OVER if they are equivalent (`over_calls`)."""
    window = counting_window(operator, catalog)
    return operator.calls if window is None else over_calls(operator, window)


def counting_window(operator: RelationAggregate, catalog: Catalog) -> Window | None:
    """Return the OVER window over tuple numbers that is equivalent to a ROWS window in FROM.

    Return None if there is no such window.
    """
    _, rows = operator.windows[0]
    if operator.slide is not None or rows.frame is not FrameUnit.ROWS:
        return None
    assert rows.extent is not None, "the binder asks for a window with a beginning"
    same = all(same_over(call, catalog) for call in operator.calls)
    return Window(FrameUnit.RANGE, rows.extent - 1) if same else None


def over_calls(operator: RelationAggregate, window: Window) -> tuple[WindowCall, ...]:
    """Translate the aggregate calls of GROUP BY to calls with OVER.

    The names of the result columns differ from the names of all input columns.
    """
    keys = tuple(item.expr for item in operator.group_by)
    return tuple(
        WindowCall(
            call.name,
            call.arguments,
            call.distinct,
            keys,
            window,
            tuple(Column(_over_name(column), column.type) for column in call.columns),
        )
        for call in operator.calls
    )


def output_items(operator: RelationAggregate) -> tuple[SelectItem, ...]:
    """Return the SELECT items of a translated GROUP BY: group keys and aggregate results.

    In group keys, -0.0 becomes 0.0.
    """
    groups = tuple(SelectItem(item.name, _with_one_zero(item.expr)) for item in operator.group_by)
    columns = (column for call in operator.calls for column in call.columns)
    return (
        *groups,
        *(SelectItem(column.name, ColumnRef(_over_name(column), column.type)) for column in columns),
    )


def _over_name(column: Column) -> str:
    return f"over.{column.name}"


def _with_one_zero(expr: Expr) -> Expr:
    return Call("+", (expr, Literal(0.0, DOUBLE)), DOUBLE) if expr.type.kind is Kind.DOUBLE else expr


# Specification of ORDER BY, LIMIT and ranks among the rows of one timestamp.


@dataclass(frozen=True, slots=True)
class WindowTop(Operator):
    """Top rows of each timestamp and partition, sorted by rank.

    Rows with a rank above `limit` are dropped. Ranks are final when the watermark has passed the timestamp.
    Each row is therefore emitted once, and then leaves the state. `shown` is the name of the output column
    with the rank, if any.
    """

    by: RankedBy
    limit: int | None
    shown: str | None = None


class WindowTopKind(OperatorKind[WindowTop]):
    spec = WindowTop
    role = Role.STATEFUL
    over_windows = True
    step = "slicemill.operators.window.strategies:window_step"

    def words(self, top: WindowTop, node: Node, graph: QueryGraph) -> Description:
        first = [("first", f"{top.by.function} <= {top.limit}")] if top.limit is not None else []
        return Description(
            "τ", "Top of each window", (*partition(top.by.partition_by), order_of(top.by), *first)
        )

    def label(self, top: WindowTop) -> str:
        return "top"

    def waits_for_time(self, top: WindowTop, kind: TimestampKind) -> bool:
        return True

    def columns_read(self, top: WindowTop, port: int, wanted: Collection[str]) -> ColumnsRead:
        exprs = [*top.by.partition_by, *(expr for expr, _ in top.by.order_by)]
        return ColumnsRead(exprs, set(wanted) - {top.shown})

    def seq_bits(self, top: WindowTop, bits: int, catalog: Catalog, node: Node, graph: QueryGraph) -> int:
        return SEQ_BITS


KINDS: tuple[OperatorKind[Any], ...] = (
    SharedWindowsKind(),
    WindowAggregateKind(),
    SharedOverKind(),
    RelationAggregateKind(),
    WindowTopKind(),
)
