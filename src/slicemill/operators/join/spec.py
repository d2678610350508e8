"""Specifications of window joins: join of one query, shared join of several queries, and result order.

A shared join has two or more inputs. Its queries join some of these inputs, or all of them. A join of two
streams is a shared join whose inputs are named "0" and "1".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, TypeAlias, TypeGuard

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


# expressions of several streams whose values are equal in every result, as pairs (side, expression)
Equal: TypeAlias = tuple[tuple[int, Expr], ...]


@dataclass(frozen=True, slots=True)
class AgeLimit:
    """Load shedding of a join: skip pairs of rows that are far apart in time (S55)."""

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


# names of the two inputs of a two-way join
SIDES: tuple[str, ...] = ("0", "1")


@dataclass(frozen=True, slots=True)
class JoinMember:
    """Specification of one query's join, which a shared join executes with joins of other queries.

    Sides are the streams of the query in the order of FROM (S14, S19). `inputs` has the name of the input of
    each side. `selections` are conditions on one side each. `equal` are sets of expressions that must have
    equal values, as (side, expression), with at most one expression per side. `residual` is the rest of the
    join condition. It names the columns of side 0 `0.column`, and the timestamp of its row `0._ts`. `columns`
    are the output columns as (name, side, column of the input). `_ts` is the timestamp of the input row, and
    `_number` its sequence number. `why` is shown by EXPLAIN: the reason why a join of several streams is not
    a tree.
    """

    name: str
    windows: tuple[Window, ...]
    selections: tuple[Expr | None, ...]
    residual: Expr | None
    columns: tuple[tuple[str, int, str], ...]
    limit: AgeLimit | None = None
    kind: JoinKind = JoinKind.INNER
    inputs: tuple[str, ...] = SIDES
    equal: tuple[Equal, ...] = ()
    why: str = field(default="", compare=False)

    @property
    def history_us(self) -> int | None:
        """Return the age in microseconds up to which input rows affect join results, or None.

        The result is None if a window is unbounded. An outer join emits an unmatched row one window later, so
        its results depend on the sum of both windows.
        """
        if self.kind is JoinKind.INNER:
            return longest_us(self.windows)
        extents = [longest_us([window]) for window in self.windows]
        known = [extent for extent in extents if extent is not None]
        return sum(known) if len(known) == len(extents) else None

    def side_of(self, input_: str) -> int | None:
        """Return the position in FROM of an input, or None if the query does not join the input."""
        return self.inputs.index(input_) if input_ in self.inputs else None

    def window_of(self, input_: str) -> Window:
        """Return the window that the query has on one of its inputs."""
        return self.windows[self.inputs.index(input_)]


@dataclass(frozen=True, slots=True)
class SharedJoin(SharedOperator):
    """Joins of several queries over the same inputs, executed as one operator.

    A query may use only some of the inputs. `inputs` are the names of the inputs, in the order of the node's
    inputs. `deadlines` is set in a chain of two-way joins, where rows of input 0 are results of another join.
    It has pairs of a timestamp column of a joined row, and the length of that row's window in microseconds
    (S2). `measured` is shown by EXPLAIN.
    """

    members: tuple[JoinMember, ...]
    inputs: tuple[str, ...] = SIDES
    deadlines: tuple[tuple[str, int], ...] = ()
    measured: Statistics | None = field(default=None, compare=False)

    @property
    def two_way(self) -> bool:
        """Return True if all queries join the same two streams on the same keys in the same FROM order.

        Only these joins may be outer joins, count rows, be part of a chain, or spread heavy keys.
        """
        return self.inputs == SIDES

    @property
    def keys(self) -> tuple[Keys, Keys]:
        """Return the join keys of a two-way join: the equal expressions of input 0 and of input 1."""
        equal = self.members[0].equal
        return tuple(left for (_, left), _ in equal), tuple(right for _, (_, right) in equal)

    @property
    def counts_rows(self) -> bool:
        """Return True if a window of the join counts rows instead of time."""
        windows = (window for member in self.members for window in member.windows)
        return any(window.frame is FrameUnit.ROWS for window in windows)

    @property
    def expires_rows(self) -> bool:
        """Return True if a window of the join names an expiry column."""
        return any(window.expires is not None for member in self.members for window in member.windows)

    @property
    def tracks_matches(self) -> bool:
        """Return True if the join tracks which stored rows have found a match.

        All possible partners of a row must then be in one subtask.
        """
        return any(member.kind is not JoinKind.INNER for member in self.members)

    def ports(self, member: JoinMember) -> tuple[int, ...]:
        """Return the number of the join input for each stream in the FROM clause of a query."""
        return tuple(self.inputs.index(name) for name in member.inputs)

    def users(self, port: int) -> list[tuple[JoinMember, int]]:
        """Return each query that joins input number `port`, and the position of the input in its FROM."""
        sides = ((member, member.side_of(self.inputs[port])) for member in self.members)
        return [(member, side) for member, side in sides if side is not None]


def is_two_way(operator: Operator) -> TypeGuard[SharedJoin]:
    return isinstance(operator, SharedJoin) and operator.two_way


@dataclass(frozen=True, slots=True)
class InOrder(Operator):
    """Order the results of a chain of two-way joins like the results of one join of all streams.

    `members` has, for each stream in the order of FROM, the columns with the timestamp and the sequence
    number of the joined row. Results are ordered by the latest joined row, then by the numbers of the other
    rows. `why` is shown by EXPLAIN: the reason why the join is a chain.
    """

    members: tuple[tuple[str, str], ...]
    why: str = field(default="", compare=False)


def _title(kind: JoinKind) -> str:
    return "Join" if kind is JoinKind.INNER else f"{kind.value.capitalize()} join"


def _describe_shared_join(join: SharedJoin) -> Description:
    if len(join.members) == 1:
        (only,) = join.members
        title = _title(only.kind) if join.two_way else f"Join of {len(only.inputs)} streams"
        facts = (("on", _condition(join)), *_own_part(only)) if join.two_way else _own_part(only)
    elif join.two_way:
        title = f"{pluralize(len(join.members), 'join')} in slices"
        facts = (("on", _condition(join)), *_chain(join))
    else:
        title = f"{pluralize(len(join.members), 'join')} of several streams"
        facts = (("one state each", ", ".join(name.removeprefix("log ") for name in join.inputs)),)
    return Description("⋈", title, facts if join.two_way else (*facts, *_measurement_facts(join)))


def _condition(join: SharedJoin) -> str:
    """Return the equalities of a two-way join's keys as text, for EXPLAIN."""
    equal = [f"{render(left)} = {render(right)}" for left, right in zip(*join.keys, strict=True)]
    return " AND ".join(equal) or "every combination"


def _chain(join: SharedJoin) -> tuple[Fact, ...]:
    """Return the slice borders of a two-way join and its expected costs, for EXPLAIN.

    The costs of plans that use no state slices are shown for comparison.
    """
    # A module-level import of this function would be cyclic.
    from slicemill.operators.join.slices.cuts import chain_of_join

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


def _measurement_facts(join: SharedJoin) -> tuple[Fact, ...]:
    """Return measured statistics of a join of several streams, and the costs of its two forms.

    EXPLAIN shows the costs of the multi-way join and of a tree of two-way joins.
    """
    # A module-level import of this function would be cyclic.
    from slicemill.operators.join.form import forms_from_measures

    forms = forms_from_measures(join)
    if forms is None or join.measured is None:
        return ()
    rates = ", ".join(f"{rate:,.0f}" for rate in join.measured.rates)
    figures = f"{rates} tuples/s, {join.measured.matching:.3g} of pairs match"
    return (("measured", figures), ("by that it", forms.why))


def _describe_part(member: JoinMember) -> Description:
    if member.inputs != SIDES:
        return Description("⋈", "From states", _own_part(member))
    inner = member.kind is JoinKind.INNER
    title = "From slices" if inner else f"{_title(member.kind)}, from slices"
    return Description("⋈", title, _own_part(member))


def _own_part(member: JoinMember) -> tuple[Fact, ...]:
    """Return the keys, windows and conditions of one query's join, for EXPLAIN.

    Columns are shown as `0.column`, `1.column`, … in FROM order. The equalities of a two-way join are shown
    once for all queries.
    """
    facts: list[Fact] = []
    if member.inputs != SIDES:
        sets = (" = ".join(f"{side}.{render(key)}" for side, key in equal) for equal in member.equal)
        facts.append(("on", " AND ".join(sets) or "every combination"))
    sides = [str(side) for side in range(len(member.windows))]
    facts.append(("windows", each(sides, [str(window) for window in member.windows])))
    facts += [(f"where {n}", render(e)) for n, e in enumerate(member.selections) if e is not None]
    facts += [("and", render(member.residual))] if member.residual is not None else []
    facts += [("form", member.why)] if member.why else []
    return tuple(facts)


def _keys(join: SharedJoin) -> tuple[Keys, ...] | None:
    """Return the keys by which each input of a join can be partitioned, or None.

    Every query must have these keys on all of its streams. The result is None if there are no such keys, or
    if a window counts rows, because such a window counts the rows of all keys.
    """
    by_member = [
        [_by_input(member, equal) for equal in _equal_in_all_streams(member)] for member in join.members
    ]
    if join.counts_rows:
        return None
    if all(len(own) == 1 for own in by_member):
        # Queries over different streams are compatible if they use the same key on each common stream.
        # Queries that have no common stream are therefore compatible too.
        found: list[dict[str, Expr]] = [{}]
        for (own,) in by_member:
            if any(found[0].setdefault(name, key) != key for name, key in own.items()):
                return None
    else:
        found = by_member[0]
        for others in by_member[1:]:
            found = [one for one in found if one in others]
    keys = tuple(tuple(one[name] for one in found if name in one) for name in join.inputs)
    return keys if len({len(by) for by in keys}) == 1 and keys[0] else None


def _equal_in_all_streams(member: JoinMember) -> list[Equal]:
    """Return the sets of equal expressions that have an expression of every stream of the query."""
    return [equal for equal in member.equal if len(equal) == len(member.inputs)]


def one_key(member: JoinMember) -> dict[str, Expr] | None:
    """Return the join key of each input if the join has exactly one key, or None.

    The result is None if the join has several keys, or if the key does not include all streams.
    """
    alone = len(member.equal) == 1 == len(_equal_in_all_streams(member))
    return _by_input(member, member.equal[0]) if alone else None


def _by_input(member: JoinMember, equal: Equal) -> dict[str, Expr]:
    return {member.inputs[side]: key for side, key in equal}


def inner_join_of(join: SharedJoin) -> InnerJoin | None:
    """Return the windows, keys and columns of a shared join, for the planner, or None.

    The result is None unless all queries use all inputs. Output columns are mapped to input columns only if
    the join has a single query.
    """
    if any(set(member.inputs) != set(join.inputs) for member in join.members):
        return None
    first, *others = (_equal(join, member) for member in join.members)
    windows = tuple(
        _longest_of([member.windows[side] for member, side in join.users(port)])
        for port in range(len(join.inputs))
    )
    columns = {
        name: (join.inputs.index(member.inputs[side]), column)
        for member in join.members[: 1 if not others else 0]
        for name, side, column in member.columns
    }
    return InnerJoin(windows, tuple(one for one in first if all(one in other for other in others)), columns)


def _equal(join: SharedJoin, member: JoinMember) -> list[Equal]:
    """Return the sets of equal expressions of a query, as pairs (number of the join input, expression)."""
    ports = join.ports(member)
    return [
        tuple(sorted(((ports[side], key) for side, key in equal), key=lambda part: part[0]))
        for equal in member.equal
    ]


def _longest_of(windows: Sequence[Window]) -> Window:
    counted = [window for window in windows if window.frame is FrameUnit.ROWS]
    return max(counted or windows, key=lambda window: inf if window.extent is None else window.extent)


def _keys_of_inputs(join: SharedJoin, member: JoinMember, keys: Keys) -> tuple[Keys, ...] | None:
    """Translate keys of one query's join results into keys of each join input, or return None.

    The result is None unless every key is a join key of all inputs. Join keys are equal on all sides, so all
    inputs can be partitioned by them. Any other key says nothing about the rows of the other inputs.
    """
    if len(member.inputs) < len(join.inputs):
        return None
    taken = {name: (side, column) for name, side, column in member.columns}
    found: list[dict[str, Expr]] = []
    for key in keys:
        names = columns_of(key)
        if not names or not names <= taken.keys():
            return None
        own = transform(
            key, lambda e: replace(e, name=taken[e.name][1]) if isinstance(e, ColumnRef) else None
        )
        sides = {taken[name][0] for name in names}
        same = [
            equal for equal in _equal_in_all_streams(member) if {(side, own) for side in sides} <= set(equal)
        ]
        if len(sides) != 1 or not same:
            return None
        found.append(_by_input(member, same[0]))
    return tuple(tuple(one[name] for one in found) for name in join.inputs)


def result_bits(member: JoinMember, bits: int) -> int:
    """Return the number of bits in the sequence numbers of a query's join results.

    The number is counted before `order.fan_out`, which makes the sequence numbers distinct. `bits` is the
    number of bits in the sequence numbers of input rows. An outer join needs an additional rank, which orders
    unmatched rows before pairs of the same timestamp.
    """
    ranked = rank_bits(bits, stream_ranks(len(member.inputs)))
    return ranked if member.kind is JoinKind.INNER else rank_bits(ranked)


def _seq_bits(member: JoinMember, bits: int) -> int:
    return fan_out_bits(result_bits(member, bits))


def stream_ranks(members: int) -> int:
    """Return the number of bits that are needed to number `members` joined streams."""
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
        return _describe_part(member)

    def history_us(self, member: JoinMember) -> int | None:
        return member.history_us

    def seq_bits(self, member: JoinMember, bits: int, catalog: Catalog) -> int:
        return _seq_bits(member, bits)

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
        return _describe_shared_join(join)

    def waits_for_time(self, join: SharedJoin, kind: TimestampKind) -> bool:
        return True

    def selections(self, join: SharedJoin, ports: Sequence[int]) -> tuple[Expr | None, ...]:
        return tuple(member.selections[side] for port in ports for member, side in join.users(port))

    def columns_read(self, join: SharedJoin, port: int, wanted: Collection[str]) -> ColumnsRead:
        """Return the expressions and columns of one input that the joins of all queries read."""
        exprs: list[Expr] = []
        names: set[str] = set()
        for member, side in join.users(port):
            exprs += [key for equal in member.equal for of, key in equal if of == side]
            selection = member.selections[side]
            exprs += [selection] if selection is not None else []
            names |= {column for _, of, column in member.columns if of == side}
            expires = member.windows[side].expires
            names |= set() if expires is None else {expires.column}
            if member.residual is not None:
                mine = f"{side}."
                names |= {n.removeprefix(mine) for n in columns_of(member.residual) if n.startswith(mine)}
        return ColumnsRead(exprs, names)

    def keys(self, join: SharedJoin) -> tuple[Keys, ...] | None:
        return _keys(join)

    def joins(self, join: SharedJoin) -> InnerJoin | None:
        return inner_join_of(join)

    def keys_below(self, join: SharedJoin, node: Node, graph: QueryGraph, keys: Keys) -> KeysBelow | None:
        """Translate keys of the join results into keys of the join's inputs, or return None.

        The result is None if the join has several queries. Their `Part` nodes return the keys instead.
        """
        below = None if graph.has_parts(node.id) else _keys_of_inputs(join, join.members[0], keys)
        return None if below is None else tuple(zip(node.inputs, below, strict=True))

    def history_us(self, join: SharedJoin, node: Node, graph: QueryGraph) -> int | None:
        """Return the age in microseconds up to which input rows affect the results of the only query.

        The result is 0 if the join has several queries. Their `Part` nodes return the age instead.
        """
        return 0 if graph.has_parts(node.id) else join.members[0].history_us

    def seq_bits(self, join: SharedJoin, bits: int, catalog: Catalog, node: Node, graph: QueryGraph) -> int:
        return max(_seq_bits(member, bits) for member in join.members)

    def stored(self) -> Mapping[str, type]:
        # Older states name the members of joins of three or more streams `plan.multi_join_member`.
        return {
            "plan.multi_join_member": JoinMember,
            "plan.join_member": JoinMember,
            "plan.age_limit": AgeLimit,
        }


class InOrderKind(OperatorKind[InOrder]):
    spec = InOrder
    keeps_state = False
    ties = True
    keeps_keys = True
    step = "slicemill.operators.join.emit:in_order_step"

    def words(self, in_order: InOrder, node: Node, graph: QueryGraph) -> Description:
        return Description("", "In order", _order_facts(in_order))

    def numbered_by(self, in_order: InOrder, node: Node, graph: QueryGraph) -> Iterable[str]:
        """Return the joined streams, because the sequence numbers of their rows order the join results."""
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


# Each set of expressions that a join condition makes equal connects the streams of these expressions:
#
#     a.k = b.k AND b.k = c.k AND b.x = c.x       two sets: k over a, b and c; x over b and c
#
# Sets of equal expressions over the same streams together form one join key.
# The stored rows of a stream have an index for each join key of the stream.
# If a partial result has several keys in common with stored rows, one key is looked up.
# The other common keys are then compared.


@dataclass(frozen=True, slots=True)
class Link:
    """Join key that input `to` has in common with an input `of` that is already joined.

    `of_key` and `to_key` are indexes into the keys of each input.
    """

    of: int
    of_key: int
    to: int
    to_key: int


class KeyTable:
    """Join keys of each input of a shared join, and the keys by which each query connects its inputs."""

    def __init__(self, inputs: Sequence[str], members: Sequence[JoinMember]) -> None:
        self.keys: list[list[Keys]] = [[] for _ in inputs]
        numbers = {name: number for number, name in enumerate(inputs)}
        # join keys of each query, each as a map from input number to the index of the key in `keys`
        self._joined: dict[str, list[dict[int, int]]] = {}
        for member in members:
            found = []
            for by_side in keys_by_side(member):
                indices = {}
                for side, key in by_side.items():
                    known = self.keys[numbers[member.inputs[side]]]
                    if key not in known:
                        known.append(key)
                    indices[numbers[member.inputs[side]]] = known.index(key)
                found.append(indices)
            self._joined[member.name] = found

    def links(self, member: str, bound: Sequence[int], target: int) -> tuple[Link, ...]:
        """Return one link for each key that input `target` has in common with the joined inputs `bound`."""
        found = []
        for indices in self._joined[member]:
            of = next((one for one in bound if one in indices), None)
            if target in indices and of is not None:
                found.append(Link(of, indices[of], target, indices[target]))
        return tuple(found)

    def queries_requiring(self, input_: int, key: int) -> list[str]:
        """Return the queries for which this key of an input must not be NULL in a match."""
        return [
            name for name, keys in self._joined.items() if any(indices.get(input_) == key for indices in keys)
        ]


def keys_by_side(member: JoinMember) -> list[dict[int, Keys]]:
    """Return the join keys of a query, each as a map from side to expressions, most streams first.

    The keys of a join of three or more streams do not depend on the order of FROM.
    """
    sets: dict[frozenset[int], list[dict[int, Expr]]] = {}
    for equal in member.equal:
        by_side = dict(equal)
        sets.setdefault(frozenset(by_side), []).append(by_side)
    found = []
    for sides, parts in sets.items():
        if len(member.inputs) > 2:
            parts.sort(key=lambda part: sorted((member.inputs[side], render(e)) for side, e in part.items()))
        found.append({side: tuple(part[side] for part in parts) for side in sorted(sides)})
    return sorted(found, key=lambda by_side: (-len(by_side), sorted(member.inputs[side] for side in by_side)))
