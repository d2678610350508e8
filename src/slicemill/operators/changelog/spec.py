"""Specifications of operators that emit a changelog, and of DISTINCT."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slicemill.catalog.catalog import Catalog, TimestampKind
from slicemill.catalog.expressions import ColumnRef, Expr, columns_of, transform
from slicemill.catalog.queries import AggregateCall, JoinKind, LateTuples, RankedBy, SelectItem, SessionWindow
from slicemill.columns.sequence_bits import SEQ_BITS, fan_out_bits, rank_bits
from slicemill.functions.render import render
from slicemill.operators.protocol import (
    ColumnsRead,
    Description,
    Fact,
    Keys,
    KeysBelow,
    Operator,
    OperatorKind,
    Role,
    TaskOf,
    grouping_facts,
    partition,
)
from slicemill.operators.session.spec import describe_session
from slicemill.operators.window.accumulators import accumulator_of, sources_of_calls
from slicemill.time import format_us
from slicemill.types import OP, Column, Kind, Schema

if TYPE_CHECKING:
    from slicemill.operators.graph import Node, QueryGraph


@dataclass(frozen=True, slots=True)
class GroupChanges(Operator):
    """GROUP BY aggregates over all history, emitted after each change of a group.

    If `retracts` is set, the input is a changelog.
    """

    group_by: tuple[SelectItem, ...]
    calls: tuple[AggregateCall, ...]
    retracts: bool = False

    @property
    def by_rows(self) -> bool:
        """True if rows are processed one by one, because no kernel supports the types of the arguments."""
        kinds = {argument.type.kind for call in self.calls for argument in call.arguments}
        return not kinds.isdisjoint((Kind.ANY, Kind.NULL, Kind.PERIOD))

    @property
    def one_subtask(self) -> bool:
        """True if a single subtask has all groups, and assigns new sequence numbers to result rows."""
        return self.retracts or self.by_rows


class GroupChangesKind(OperatorKind[GroupChanges]):
    spec = GroupChanges
    role = Role.STATEFUL
    task = TaskOf.KEYS
    taken_over = "slicemill.operators.changelog.group:taken_over"
    step = "slicemill.operators.changelog.group:group_changes"

    def words(self, group: GroupChanges, node: Node, graph: QueryGraph) -> Description:
        facts = (*grouping_facts(group.calls, group.group_by), ("over", "all history"), ("gives", "changes"))
        return Description("γ", "Aggregate", facts)

    def label(self, group: GroupChanges) -> str:
        return "aggregate"

    def columns_read(self, group: GroupChanges, port: int, wanted: Collection[str]) -> ColumnsRead:
        arguments = [argument for call in group.calls for argument in call.arguments]
        return ColumnsRead([*(item.expr for item in group.group_by), *arguments], (OP,) * group.retracts)

    def keys(self, group: GroupChanges) -> tuple[Keys, ...] | None:
        """Return the expressions by whose values input rows are partitioned; None for a single subtask.

        Over a changelog, the two rows of an update may belong to different groups, and must be read together.
        """
        return None if group.one_subtask else (tuple(item.expr for item in group.group_by),)

    def keys_below(self, group: GroupChanges, node: Node, graph: QueryGraph, keys: Keys) -> KeysBelow | None:
        """Rewrite keys over the group columns as keys over the columns of the input."""
        groups = {item.name: item.expr for item in group.group_by}
        read = {name for key in keys for name in columns_of(key)}
        if group.one_subtask or not read <= groups.keys():
            return None
        below = tuple(
            transform(k, lambda e: groups[e.name] if isinstance(e, ColumnRef) else None) for k in keys
        )
        return ((node.inputs[0], below),)

    def history_us(self, group: GroupChanges, node: Node, graph: QueryGraph) -> int | None:
        return None

    def seq_bits(
        self, group: GroupChanges, bits: int, catalog: Catalog, node: Node, graph: QueryGraph
    ) -> int:
        # The two rows of an update have the sequence number of the input row that causes the update.
        return SEQ_BITS if group.one_subtask else bits

    def takes(self, kept: GroupChanges, group: GroupChanges) -> Sequence[int] | None:
        """Map each call to a call of the replaced query that has the same accumulator.

        Return None unless all calls have accumulators, because only accumulators can emit the whole table
        again.
        """
        if kept.one_subtask or group.one_subtask or kept.group_by != group.group_by:
            return None
        if not all(map(accumulator_of, group.calls)):
            return None
        return sources_of_calls(kept.calls, group.calls)


# Windows with early and late emissions: EMIT EARLY … LATE ….
# The arrows show when the result row of the group is inserted and updated.
#
#     rows of a group          x     x  x        x                       x, late
#     window                [─────────────────────────)
#     EARLY EVERY d            ·     ↑insert     ↑update   ↑update at the end
#     LATE d                                                              ↑update, up to d after the end
#
# The result is the changelog of a table with a row per group and window. Changes are emitted when the
# watermark passes a multiple of d, and when it passes the end of the window. A late row updates the result at
# once. The clock does not trigger emissions.


@dataclass(frozen=True, slots=True)
class WindowChanges(Operator):
    """Group aggregates over tumbling, hopping or cumulative windows, with early and late emissions.

    A window ends at each multiple of the slide, and is `extent_us` long. `every_us` is the interval of early
    emissions. If `late` is set, the input also has late rows, at the time of their arrival. Late rows update
    windows that ended at most `late.within_us` ago. If `grow` is set, a window begins at the last multiple of
    the extent before its end (CUMULATE).
    """

    group_by: tuple[SelectItem, ...]
    calls: tuple[AggregateCall, ...]
    extent_us: int
    slide_us: int
    every_us: int | None
    late: LateTuples | None
    grow: bool = False

    def ends(self, ts: int) -> range:
        """Return the ends of all windows that contain a row with the timestamp `ts`."""
        extent, slide = self.extent_us, self.slide_us
        last = (ts // extent + 1) * extent if self.grow else ts + extent
        return range((ts // slide + 1) * slide, last + 1, slide)

    def start(self, end: int) -> int:
        return (end - 1) // self.extent_us * self.extent_us if self.grow else end - self.extent_us


class WindowChangesKind(OperatorKind[WindowChanges]):
    spec = WindowChanges
    role = Role.STATEFUL
    step = "slicemill.operators.changelog.window:window_changes"

    def words(self, windows: WindowChanges, node: Node, graph: QueryGraph) -> Description:
        facts: list[Fact] = [
            *grouping_facts(windows.calls, windows.group_by),
            ("window", f"{format_us(windows.extent_us)}, every {format_us(windows.slide_us)}"),
        ]
        if windows.every_us is not None:
            facts.append(("early", f"every {format_us(windows.every_us)}"))
        if windows.late is not None:
            facts.append(("late", f"up to {format_us(windows.late.within_us)} after the end"))
        return Description("γ", "Aggregate of windows", (*facts, ("gives", "changes")))

    def label(self, windows: WindowChanges) -> str:
        return "windows"

    def waits_for_time(self, windows: WindowChanges, kind: TimestampKind) -> bool:
        return True

    def history_us(self, windows: WindowChanges, node: Node, graph: QueryGraph) -> int | None:
        return windows.extent_us + (windows.late.within_us if windows.late else 0)

    def seq_bits(
        self, windows: WindowChanges, bits: int, catalog: Catalog, node: Node, graph: QueryGraph
    ) -> int:
        return SEQ_BITS


# Sessions with early emissions: FROM S [SESSION gap] … EMIT EARLY EVERY d.
# The arrows show when the result row of the session is inserted and updated.
#
#     rows of a group       x   x     x                         x
#     session               [──────────────────)                [─────
#     EARLY EVERY d             ↑insert  ↑update                      ↑insert
#
# The result is the changelog of a table with a row per group and session. Its key is the group and the
# start of the session. The end of a session changes while rows arrive.


@dataclass(frozen=True, slots=True)
class SessionChanges(Operator):
    """Aggregates over the sessions of each group, with early emissions.

    A changed session is emitted when the watermark passes a multiple of `every_us`, and when the session has
    ended.
    """

    group_by: tuple[SelectItem, ...]
    calls: tuple[AggregateCall, ...]
    session: SessionWindow
    every_us: int


class SessionChangesKind(OperatorKind[SessionChanges]):
    spec = SessionChanges
    role = Role.STATEFUL
    step = "slicemill.operators.changelog.session:session_changes"

    def words(self, sessions: SessionChanges, node: Node, graph: QueryGraph) -> Description:
        facts: list[Fact] = [
            *grouping_facts(sessions.calls, sessions.group_by),
            ("session", describe_session(sessions.session)),
            ("early", f"every {format_us(sessions.every_us)}"),
        ]
        return Description("γ", "Sessions", (*facts, ("gives", "changes")))

    def label(self, sessions: SessionChanges) -> str:
        return "sessions"

    def waits_for_time(self, sessions: SessionChanges, kind: TimestampKind) -> bool:
        return True

    def history_us(self, sessions: SessionChanges, node: Node, graph: QueryGraph) -> int | None:
        return None

    def seq_bits(
        self, sessions: SessionChanges, bits: int, catalog: Catalog, node: Node, graph: QueryGraph
    ) -> int:
        return SEQ_BITS


# Joins of a changelog with another changelog, or with all rows of a stream so far.
#
#     sold            (clock, 10) ─────────────► (clock, 15)            a changelog
#     shop            (clock, 'Oslo')       (clock, 'Rome')             another one, or a stream
#     result  insert  (clock, 10, 'Oslo')
#             insert             (clock, 10, 'Rome')
#             update                  (clock, 10 → 15, 'Oslo'), (clock, 10 → 15, 'Rome')
#
# The result is a changelog. If its changes up to a time are applied, the table is the join at that time.


@dataclass(frozen=True, slots=True)
class JoinChanges(Operator):
    """Join of changelogs; output columns are the operation and `alias.column`.

    `condition` is an expression over the output columns. `keys` are the equal expressions in `condition`,
    over the columns of each input. `retracts` is True for each input that is a changelog. The state has the
    rows of both inputs until their retraction.
    """

    aliases: tuple[str, str]
    keys: tuple[Keys, Keys]
    condition: Expr | None
    kind: JoinKind
    retracts: tuple[bool, bool]


class JoinChangesKind(OperatorKind[JoinChanges]):
    spec = JoinChanges
    role = Role.STATEFUL
    step = "slicemill.operators.changelog.join:join_changes"

    def words(self, join: JoinChanges, node: Node, graph: QueryGraph) -> Description:
        title = "Join" if join.kind is JoinKind.INNER else f"{join.kind.value.capitalize()} join"
        on = "every row" if join.condition is None else render(join.condition)
        facts: list[Fact] = [("on", on), ("over", "all history"), ("gives", "changes")]
        return Description("⋈", f"{title} of tables that change", tuple(facts))

    def label(self, join: JoinChanges) -> str:
        return "join"

    def by_position(self, join: JoinChanges) -> bool:
        return True

    def waits_for_time(self, join: JoinChanges, kind: TimestampKind) -> bool:
        return True

    def alias(self, join: JoinChanges, port: int) -> str:
        return join.aliases[port]

    def history_us(self, join: JoinChanges, node: Node, graph: QueryGraph) -> int | None:
        return None

    def seq_bits(self, join: JoinChanges, bits: int, catalog: Catalog, node: Node, graph: QueryGraph) -> int:
        return SEQ_BITS


# Specification of top-n: queries with `ROW_NUMBER() OVER (…) <= n` or with ORDER BY … LIMIT n.


@dataclass(frozen=True, slots=True)
class TopN(Operator):
    """Rows whose rank in their partition is at most `limit`.

    `shown` is the rank column, if any. If `retracts` is set, the input is a changelog. The output is a
    changelog too, unless rows are ordered by time, because then the first rows never change (`appends`).
    """

    by: RankedBy
    limit: int
    shown: str | None = None
    retracts: bool = False

    @property
    def updates_by_position(self) -> bool:
        """True if result rows are identified by rank.

        A row that gets the rank of another row is then emitted as an update of the other row.
        """
        return self.by.is_keyed_by_rank(self.limit, self.shown, Schema((), self.retracts))

    @property
    def appends(self) -> bool:
        return self.by.oldest_first and not self.retracts

    @property
    def one_each(self) -> bool:
        """True for top-1 without retractions: a row is replaced only by a row with a better rank."""
        return self.limit == 1 and self.by.function == "row_number" and not self.retracts

    @property
    def several(self) -> bool:
        """True if a partition has several result rows with distinct ranks, and none is retracted."""
        return self.by.function == "row_number" and not (self.appends or self.one_each or self.retracts)


def order_of(by: RankedBy) -> Fact:
    words = [f"{render(expr)}{' DESC' if falls else ''}" for expr, falls in by.order_by]
    return "order by", ", ".join(words)


class TopNKind(OperatorKind[TopN]):
    spec = TopN
    role = Role.STATEFUL
    task = TaskOf.KEYS
    step = "slicemill.operators.changelog.topn:top"

    def words(self, top: TopN, node: Node, graph: QueryGraph) -> Description:
        facts = [
            *partition(top.by.partition_by),
            order_of(top.by),
            ("first", f"{top.by.function} <= {top.limit}"),
        ]
        return Description("τ", "Top", (*facts, ("gives", "rows" if top.appends else "changes")))

    def label(self, top: TopN) -> str:
        return "top"

    def by_position(self, top: TopN) -> bool:
        return not (top.appends or top.one_each or top.several)

    def columns_read(self, top: TopN, port: int, wanted: Collection[str]) -> ColumnsRead:
        exprs = [*top.by.partition_by, *(expr for expr, _ in top.by.order_by)]
        assert isinstance(wanted, (set, frozenset, list, tuple, dict))
        return ColumnsRead(exprs, {*wanted, OP} if top.retracts else set(wanted) - {OP, top.shown})

    def keys(self, top: TopN) -> tuple[Keys, ...] | None:
        return None if top.retracts else (top.by.partition_by,)

    def keys_below(self, top: TopN, node: Node, graph: QueryGraph, keys: Keys) -> KeysBelow | None:
        """Return the output keys as keys of the input; None if a key reads the rank column."""
        below = set(graph[node.inputs[0]].schema.own.names)
        read = {name for key in keys for name in columns_of(key)}
        return ((node.inputs[0], keys),) if read <= below and not top.retracts else None

    def history_us(self, top: TopN, node: Node, graph: QueryGraph) -> int | None:
        return None

    def seq_bits(self, top: TopN, bits: int, catalog: Catalog, node: Node, graph: QueryGraph) -> int:
        if top.appends or top.one_each:
            return bits
        if top.several:
            return fan_out_bits(bits)
        return SEQ_BITS if top.retracts or not top.by.partition_by else fan_out_bits(rank_bits(bits))


# Specification of EMIT EVERY and EMIT FINAL: net changes of a changelog.


@dataclass(frozen=True, slots=True)
class Emit(Operator):
    """EMIT EVERY and EMIT FINAL: emits the net changes of each interval at its end.

    `every` is the interval in microseconds. If `every` is None, the whole table is emitted at the end of
    input. `key` has the key columns of the changelog, if any.
    """

    every: int | None
    key: tuple[Column, ...] = ()


class EmitKind(OperatorKind[Emit]):
    spec = Emit
    role = Role.STATEFUL
    task = TaskOf.KEYS
    keeps_keys = True
    last_words = True
    step = "slicemill.operators.changelog.emit:emit"

    def words(self, emit: Emit, node: Node, graph: QueryGraph) -> Description:
        when = "at the end of input" if emit.every is None else f"every {format_us(emit.every)}"
        return Description("", "Emit", (("net changes", when),))

    def label(self, emit: Emit) -> str:
        return "emit"

    def waits_for_time(self, emit: Emit, kind: TimestampKind) -> bool:
        return emit.every is not None

    def keys(self, emit: Emit) -> tuple[Keys, ...] | None:
        return (tuple(ColumnRef.to(column) for column in emit.key),) if emit.key else None

    def history_us(self, emit: Emit, node: Node, graph: QueryGraph) -> int | None:
        return None

    def seq_bits(self, emit: Emit, bits: int, catalog: Catalog, node: Node, graph: QueryGraph) -> int:
        return bits if emit.key else SEQ_BITS


# Specification of SELECT DISTINCT over insert-only input.


@dataclass(frozen=True, slots=True)
class Distinct(Operator):
    """SELECT DISTINCT: emits a row if no earlier row has the same values.

    `columns` are all columns of the row.
    """

    columns: tuple[Column, ...]


class DistinctKind(OperatorKind[Distinct]):
    spec = Distinct
    role = Role.STATEFUL
    task = TaskOf.KEYS
    keeps_keys = True
    step = "slicemill.operators.changelog.distinct:distinct"

    def words(self, distinct: Distinct, node: Node, graph: QueryGraph) -> Description:
        return Description("δ", "Distinct", (("of", ", ".join(column.name for column in distinct.columns)),))

    def label(self, distinct: Distinct) -> str:
        return "distinct"

    def columns_read(self, distinct: Distinct, port: int, wanted: Collection[str]) -> ColumnsRead:
        return ColumnsRead([ColumnRef.to(c) for c in distinct.columns], ())

    def keys(self, distinct: Distinct) -> tuple[Keys, ...] | None:
        return (tuple(ColumnRef.to(column) for column in distinct.columns),)

    def history_us(self, distinct: Distinct, node: Node, graph: QueryGraph) -> int | None:
        return None


KINDS: tuple[OperatorKind[Any], ...] = (
    GroupChangesKind(),
    WindowChangesKind(),
    SessionChangesKind(),
    JoinChangesKind(),
    TopNKind(),
    EmitKind(),
    DistinctKind(),
)
