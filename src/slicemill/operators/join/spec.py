"""Specifications of window joins: one query, several queries, and order of results."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING

from slicemill.catalog.catalog import Catalog, TimestampKind
from slicemill.catalog.expressions import ColumnRef, Expr, columns_of, transform
from slicemill.catalog.queries import FrameUnit, JoinKind, LoadBudget, Window
from slicemill.columns.sequence_bits import SEQ_BITS, fan_out_bits, rank_bits
from slicemill.functions.render import render
from slicemill.operators.join.slices.workload import ASSUMED, Statistics
from slicemill.operators.protocol import (
    ColumnsRead,
    Description,
    Fact,
    InnerJoin,
    Keys,
    KeysBelow,
    MemberKind,
    Operator,
    OperatorKind,
    Role,
    SharedOperator,
    TaskOf,
    each,
    longest_us,
    pluralize,
)

if TYPE_CHECKING:
    from slicemill.operators.graph import Node, QueryGraph


@dataclass(frozen=True, slots=True)
class AgeLimit:
    """Load shedding: skip pairs that are far apart in time (S55)."""

    budget: LoadBudget
    weight: float


@dataclass(frozen=True, slots=True)
class WindowJoin(Operator):
    """Join of two or more streams, each over a window.

    Output columns are named `alias.column`. With `member_times`, the join also outputs `alias._ts` for each
    input: the timestamps of the joined rows (S1). An aggregate uses these columns to know when a joined row
    leaves the windows. With two inputs, `kind` may be an outer join. An outer join emits an unmatched row
    with NULLs at the end of the row's own window, because no match is possible after that time.
    """

    aliases: tuple[str, ...]
    windows: tuple[Window, ...]
    condition: Expr | None
    member_times: bool = False
    limit: AgeLimit | None = None
    kind: JoinKind = JoinKind.INNER


@dataclass(frozen=True, slots=True)
class JoinMember:
    """Join of one query, inside a shared chain of state slices (S14, S19).

    `selections` are conditions on one input each, by input. `residual` is the join condition without the key
    equalities. It names the inputs' columns `0.column` and `1.column`, and their timestamps `0._ts` and
    `1._ts`. `columns` are the output columns as (name, input, column of the input). `_ts` is the timestamp of
    the input row, and `_number` its sequence number.
    """

    name: str
    windows: tuple[Window, ...]
    selections: tuple[Expr | None, ...]
    residual: Expr | None
    columns: tuple[tuple[str, int, str], ...]
    limit: AgeLimit | None = None
    kind: JoinKind = JoinKind.INNER

    @property
    def history_us(self) -> int | None:
        """Return the age in microseconds up to which input rows affect results.

        None if a window is unbounded. An outer join emits an unmatched row one window later, so its results
        depend on the sum of both windows.
        """
        if self.kind is JoinKind.INNER:
            return longest_us(self.windows)
        extents = [longest_us([window]) for window in self.windows]
        known = [extent for extent in extents if extent is not None]
        return sum(known) if len(known) == len(extents) else None

    def side_of(self, _: JoinMember, side: int) -> int | None:
        """Return the side with the same input as `side` of another join."""
        return side


@dataclass(frozen=True, slots=True)
class SharedJoin(SharedOperator):
    """Joins of two inputs on equal `keys`, executed as one operator.

    `keys` are expressions over the columns of each input. `deadlines` is set in a chain of joins, where rows
    of input 0 are results of another join. It has pairs of a timestamp column of a joined row, and the length
    of that row's window in microseconds (S2). `measured` is shown by EXPLAIN.
    """

    keys: tuple[tuple[Expr, ...], tuple[Expr, ...]]
    members: tuple[JoinMember, ...]
    deadlines: tuple[tuple[str, int], ...] = ()
    measured: Statistics | None = field(default=None, compare=False)

    @property
    def counts_rows(self) -> bool:
        """Return True if a window counts rows instead of time."""
        windows = (window for member in self.members for window in member.windows)
        return any(window.frame is FrameUnit.ROWS for window in windows)

    @property
    def expires_rows(self) -> bool:
        """Return True if a window has an expiry column."""
        return any(window.expires is not None for member in self.members for window in member.windows)

    @property
    def tracks_matches(self) -> bool:
        """Return True if the join tracks which rows have a match.

        All possible partners of a row must then be in one subtask.
        """
        return any(member.kind is not JoinKind.INNER for member in self.members)


@dataclass(frozen=True, slots=True)
class InOrder(Operator):
    """Order the results of chained joins like a single join.

    `members` has, for each stream in the order of FROM, the columns with the timestamp and the sequence
    number of the joined row. Results are ordered by the latest joined row, then by the numbers of the other
    rows. `why` is shown by EXPLAIN: the reason why the join is a chain.
    """

    members: tuple[tuple[str, str], ...]
    why: str = field(default="", compare=False)


def _title(kind: JoinKind) -> str:
    return "Join" if kind is JoinKind.INNER else f"{kind.value.capitalize()} join"


def _chain(join: SharedJoin) -> tuple[Fact, ...]:
    """Return the ends of the slices and the expected costs, for EXPLAIN.

    The costs of plans without slices are shown for comparison.
    """
    from slicemill.operators.join.slices.cuts import chain_of_join  # cyclic import

    chain = chain_of_join(join)
    if chain is None:
        return ()
    ends = [", ".join(f"{end:g} s" for end in dict.fromkeys(side)) for side in chain.ends]
    costs = {"slices": chain.expected, **chain.baselines}
    kept = ", ".join(f"{name} {cost.memory:,.0f}" for name, cost in costs.items())
    compared = ", ".join(f"{name} {cost.cpu:,.0f}" for name, cost in costs.items())
    known = join.measured or ASSUMED
    rates = " and ".join(f"{rate:,.0f}" for rate in known.rates)
    passing = {
        f"{known.passing.get((member.name, side), known.selected):.3g}"
        for member in join.members
        for side, selection in enumerate(member.selections)
        if selection is not None
    }
    selected = f"of which {' or '.join(sorted(passing))} pass a condition, " if passing else ""
    return (
        ("slices end at", ends[0] if ends[0] == ends[1] else f"0: {ends[0]}; 1: {ends[1]}"),
        ("tuples kept", kept),
        ("comparisons/s", compared),
        (
            "measured" if known.measured else "assuming",
            f"{rates} tuples/s, {selected}{known.matching:.3g} of pairs match",
        ),
    )


def _part_title(kind: JoinKind) -> str:
    return "From slices" if kind is JoinKind.INNER else f"{_title(kind)}, from slices"


def _own_part(member: JoinMember) -> tuple[Fact, ...]:
    """Return the facts of one query's join, for EXPLAIN.

    Columns of the inputs are shown as `0.column` and `1.column`.
    """
    facts = [("windows", each(("0", "1"), [str(window) for window in member.windows]))]
    facts += [(f"where {n}", render(e)) for n, e in enumerate(member.selections) if e is not None]
    facts += [("and", render(member.residual))] if member.residual is not None else []
    return tuple(facts)


def longest_of(windows: Sequence[Window]) -> Window:
    counted = [window for window in windows if window.frame is FrameUnit.ROWS]
    return max(counted or windows, key=lambda window: inf if window.extent is None else window.extent)


def _keys_of_inputs(join: SharedJoin, member: JoinMember, keys: Keys) -> tuple[Keys, ...] | None:
    """Map keys of the results to keys of both inputs.

    None unless every key is a join key. Join keys are equal on both sides, so both inputs can be partitioned
    by them. Any other key says nothing about the rows of the other input.
    """
    taken = {name: (side, column) for name, side, column in member.columns}

    def in_its_input(part: Expr) -> Expr | None:
        return replace(part, name=taken[part.name][1]) if isinstance(part, ColumnRef) else None

    found: list[tuple[Expr, Expr]] = []
    for key in keys:
        sides = {taken[name][0] for name in columns_of(key) if name in taken}
        if len(sides) != 1 or not columns_of(key) <= taken.keys():
            return None
        (side,) = sides
        own = transform(
            key, lambda e: replace(e, name=taken[e.name][1]) if isinstance(e, ColumnRef) else None
        )
        if own not in join.keys[side]:
            return None
        number = join.keys[side].index(own)
        found.append((join.keys[0][number], join.keys[1][number]))
    return tuple(left for left, _ in found), tuple(right for _, right in found)


def pair_bits(member: JoinMember, bits: int) -> int:
    """Return the bits of the sequence numbers of results.

    `bits` is the number of bits in the sequence numbers of input rows. An outer join needs an additional
    rank, which orders unmatched rows before pairs of the same timestamp.
    """
    ranked = rank_bits(bits)
    return fan_out_bits(ranked if member.kind is JoinKind.INNER else rank_bits(ranked))


def stream_ranks(members: int) -> int:
    """Return the bits that are needed to number the joined streams."""
    return (members - 1).bit_length()


def _order_facts(in_order: InOrder) -> tuple[Fact, ...]:
    facts: tuple[Fact, ...] = (("by", "the latest of the joined tuples"),)
    return (*facts, ("form", in_order.why)) if in_order.why else facts


class WindowJoinKind(OperatorKind[WindowJoin]):
    spec = WindowJoin
    role = Role.STATEFUL
    step = "slicemill.operators.join.rows:join_by_rows"

    def words(self, join: WindowJoin, node: Node, graph: QueryGraph) -> Description:
        condition = "every combination" if join.condition is None else render(join.condition)
        windows = each(join.aliases, [str(window) for window in join.windows])
        return Description("⋈", _title(join.kind), (("on", condition), ("windows", windows)))

    def label(self, join: WindowJoin) -> str:
        return "join"

    def by_position(self, join: WindowJoin) -> bool:
        return True

    def waits_for_time(self, join: WindowJoin, kind: TimestampKind) -> bool:
        return True

    def alias(self, join: WindowJoin, port: int) -> str:
        return join.aliases[port]

    def columns_read(self, join: WindowJoin, port: int, wanted: Collection[str]) -> ColumnsRead:
        return ColumnsRead([] if join.condition is None else [join.condition], wanted)

    def history_us(self, join: WindowJoin, node: Node, graph: QueryGraph) -> int | None:
        return longest_us(join.windows)

    def seq_bits(self, join: WindowJoin, bits: int, catalog: Catalog, node: Node, graph: QueryGraph) -> int:
        return SEQ_BITS


class JoinMemberKind(MemberKind[JoinMember]):
    def words(self, member: JoinMember) -> Description:
        return Description("⋈", _part_title(member.kind), _own_part(member))

    def history_us(self, member: JoinMember) -> int | None:
        return member.history_us

    def seq_bits(self, member: JoinMember, bits: int, catalog: Catalog) -> int:
        return pair_bits(member, bits)

    def keys_below(self, join: SharedJoin, member: JoinMember, keys: Keys) -> tuple[Keys, ...] | None:
        return _keys_of_inputs(join, member, keys)

    def columns_stored(self, member: JoinMember) -> Iterable[object] | None:
        return member.columns


class SharedJoinKind(OperatorKind[SharedJoin]):
    spec = SharedJoin
    role = Role.STATEFUL
    task = TaskOf.PARTS
    ties = True
    redistribute = "slicemill.operators.join.rescale:redistribute_state"
    member = JoinMemberKind()
    step = "slicemill.operators.join.step:shared_join"

    def words(self, join: SharedJoin, node: Node, graph: QueryGraph) -> Description:
        equal = [f"{render(left)} = {render(right)}" for left, right in zip(*join.keys, strict=True)]
        facts: tuple[Fact, ...] = (("on", " AND ".join(equal) or "every combination"),)
        if len(join.members) == 1:
            (only,) = join.members
            return Description("⋈", _title(only.kind), (*facts, *_own_part(only)))
        return Description("⋈", f"{pluralize(len(join.members), 'join')} in slices", (*facts, *_chain(join)))

    def waits_for_time(self, join: SharedJoin, kind: TimestampKind) -> bool:
        return True

    def selections(self, join: SharedJoin, ports: Sequence[int]) -> tuple[Expr | None, ...]:
        return tuple(member.selections[port] for member in join.members for port in ports)

    def columns_read(self, join: SharedJoin, port: int, wanted: Collection[str]) -> ColumnsRead:
        """Return the expressions and columns that a join reads of one input."""
        exprs = list(join.keys[port])
        names: set[str] = set()
        for member in join.members:
            selection = member.selections[port]
            exprs += [selection] if selection is not None else []
            names |= {column for _, side, column in member.columns if side == port}
            expires = member.windows[port].expires
            names |= set() if expires is None else {expires.column}
            if member.residual is not None:
                mine = f"{port}."
                names |= {n.removeprefix(mine) for n in columns_of(member.residual) if n.startswith(mine)}
        return ColumnsRead(exprs, names)

    def keys(self, join: SharedJoin) -> tuple[Keys, ...] | None:
        """Return the partitioning keys of both inputs.

        None if a window counts rows, because such a window counts the rows of all keys.
        """
        return None if join.counts_rows or not join.keys[0] else join.keys

    def joins(self, join: SharedJoin) -> InnerJoin | None:
        """Describe the join for the planner.

        Output columns are mapped to input columns only if the join has a single query.
        """
        windows = tuple(longest_of([member.windows[side] for member in join.members]) for side in (0, 1))
        equal = tuple(((0, left), (1, right)) for left, right in zip(*join.keys, strict=True))
        only = join.members[0] if len(join.members) == 1 else None
        columns = {name: (side, own) for name, side, own in only.columns} if only is not None else {}
        return InnerJoin(windows, equal, columns)

    def keys_below(self, join: SharedJoin, node: Node, graph: QueryGraph, keys: Keys) -> KeysBelow | None:
        """Return the input keys that correspond to keys of the results.

        None if the join has several queries. Their `Part` nodes return the keys instead.
        """
        below = None if graph.has_parts(node.id) else _keys_of_inputs(join, join.members[0], keys)
        return None if below is None else tuple(zip(node.inputs, below, strict=True))

    def history_us(self, join: SharedJoin, node: Node, graph: QueryGraph) -> int | None:
        """Return the history of the only query.

        0 if the join has several queries.
        """
        return 0 if graph.has_parts(node.id) else join.members[0].history_us

    def seq_bits(self, join: SharedJoin, bits: int, catalog: Catalog, node: Node, graph: QueryGraph) -> int:
        return max(pair_bits(member, bits) for member in join.members)

    def stored(self) -> Mapping[str, type]:
        return {"plan.join_member": JoinMember, "plan.age_limit": AgeLimit}


class InOrderKind(OperatorKind[InOrder]):
    spec = InOrder
    keeps_state = False
    ties = True
    keeps_keys = True
    step = "slicemill.operators.join.pairs:in_order_step"

    def words(self, in_order: InOrder, node: Node, graph: QueryGraph) -> Description:
        return Description("", "In order", _order_facts(in_order))

    def numbered_by(self, in_order: InOrder, node: Node, graph: QueryGraph) -> Iterable[str]:
        """Return the joined streams. Their sequence numbers order the results."""
        found = []
        for _ in in_order.members[1:]:
            node = graph[node.inputs[0]]
            found.append(node.inputs[1])
        return [*found, node.inputs[0]]

    def seq_bits(self, in_order: InOrder, bits: int, catalog: Catalog, node: Node, graph: QueryGraph) -> int:
        return fan_out_bits(rank_bits(bits, stream_ranks(len(in_order.members))))


KINDS = (
    WindowJoinKind(),
    SharedJoinKind(),
    InOrderKind(),
)
