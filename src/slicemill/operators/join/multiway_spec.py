"""Specification of multi-way joins, with one state per stream."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from slicemill.catalog.catalog import Catalog, TimestampKind
from slicemill.catalog.expressions import ColumnRef, Expr, columns_of, transform
from slicemill.columns.sequence_bits import fan_out_bits, rank_bits
from slicemill.functions.render import render
from slicemill.operators.join.slices.workload import Statistics
from slicemill.operators.join.spec import JoinMember, longest_of, stream_ranks
from slicemill.operators.protocol import (
    ColumnsRead,
    Description,
    Fact,
    InnerJoin,
    Keys,
    KeysBelow,
    MemberKind,
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
class MultiJoinMember(JoinMember):
    """Join of one query in a shared multi-way join.

    Sides are in FROM order. `inputs` has the name of the input of each side. `equal` are sets of expressions
    that must have equal values, as (side, expression), with at most one expression per side. `why` is shown
    by EXPLAIN: the reason why the join is not a tree of two-way joins.
    """

    inputs: tuple[str, ...] = ()
    equal: tuple[tuple[tuple[int, Expr], ...], ...] = ()
    why: str = field(default="", compare=False)

    def side_of(self, other: JoinMember, side: int) -> int | None:
        """Return the side that reads the same input as `other`'s `side`."""
        assert isinstance(other, MultiJoinMember), "they share a node"
        wanted = other.inputs[side]
        return self.inputs.index(wanted) if wanted in self.inputs else None


@dataclass(frozen=True, slots=True)
class SharedMultiJoin(SharedOperator):
    """Joins of several queries over the same inputs, executed as one operator.

    A query may use only some of the inputs. `inputs` are the names of the inputs, in the order of the node's
    inputs. `measured` is shown by EXPLAIN.
    """

    inputs: tuple[str, ...]
    members: tuple[MultiJoinMember, ...]
    measured: Statistics | None = field(default=None, compare=False)


def _measurement_facts(join: SharedMultiJoin) -> tuple[Fact, ...]:
    """Return the statistics and the cost of both forms, for EXPLAIN."""
    from slicemill.operators.join.multiway_form import (
        forms_from_measures,  # cyclic import
    )

    forms = forms_from_measures(join)
    if forms is None or join.measured is None:
        return ()
    rates = ", ".join(f"{rate:,.0f}" for rate in join.measured.rates)
    figures = f"{rates} tuples/s, {join.measured.matching:.3g} of pairs match"
    return (("measured", figures), ("by that it", forms.why))


def _own_part(member: MultiJoinMember) -> tuple[Fact, ...]:
    """Return the facts of one query's join, for EXPLAIN.

    Columns are shown as `0.column`, `1.column`, … in FROM order.
    """
    sets = (" = ".join(f"{side}.{render(key)}" for side, key in equal) for equal in member.equal)
    facts = [("on", " AND ".join(sets) or "every combination")]
    facts.append(("windows", each([str(n) for n in range(len(member.windows))], [*map(str, member.windows)])))
    facts += [(f"where {n}", render(e)) for n, e in enumerate(member.selections) if e is not None]
    facts += [("and", render(member.residual))] if member.residual is not None else []
    facts += [("form", member.why)] if member.why else []
    return tuple(facts)


def _equal_in_all_streams(member: MultiJoinMember) -> list[tuple[tuple[int, Expr], ...]]:
    """Return the sets of equal expressions that cover every stream."""
    return [equal for equal in member.equal if len(equal) == len(member.inputs)]


def one_key(member: MultiJoinMember) -> dict[str, Expr] | None:
    """Return the only key of a join, by input.

    None if there are several keys, or if the key does not include all streams.
    """
    return (
        _by_input(member, member.equal[0])
        if len(member.equal) == 1 == len(_equal_in_all_streams(member))
        else None
    )


def _by_input(member: MultiJoinMember, equal: tuple[tuple[int, Expr], ...]) -> dict[str, Expr]:
    return {member.inputs[side]: key for side, key in equal}


def inner_join_of(join: SharedMultiJoin) -> InnerJoin | None:
    """Describe the join for the planner.

    None unless all queries use all inputs. Output columns are mapped to input columns only if the join has a
    single query.
    """
    if any(set(member.inputs) != set(join.inputs) for member in join.members):
        return None
    first, *others = (_equal(join, member) for member in join.members)
    windows = tuple(
        longest_of([member.windows[side] for member, side in _users(join, port)])
        for port in range(len(join.inputs))
    )
    columns = {
        name: (join.inputs.index(member.inputs[side]), column)
        for member in join.members[: 1 if not others else 0]
        for name, side, column in member.columns
    }
    return InnerJoin(windows, tuple(one for one in first if all(one in other for other in others)), columns)


def _equal(join: SharedMultiJoin, member: MultiJoinMember) -> list[tuple[tuple[int, Expr], ...]]:
    """Return the sets of equal expressions of a query, by input number."""
    ports = [join.inputs.index(name) for name in member.inputs]
    return [
        tuple(sorted(((ports[side], key) for side, key in equal), key=lambda part: part[0]))
        for equal in member.equal
    ]


def _keys_of_inputs(join: SharedMultiJoin, member: MultiJoinMember, keys: Keys) -> tuple[Keys, ...] | None:
    """Map keys of the results to keys of all inputs.

    None if an input has no such key.
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


def _users(join: SharedMultiJoin, port: int) -> list[tuple[MultiJoinMember, int]]:
    """Return the queries that join an input, with its side."""
    name = join.inputs[port]
    return [(member, member.inputs.index(name)) for member in join.members if name in member.inputs]


def seq_bits(member: MultiJoinMember, bits: int) -> int:
    """Return the bits of the results' sequence numbers."""
    return fan_out_bits(rank_bits(bits, stream_ranks(len(member.inputs))))


class MultiJoinMemberKind(MemberKind[MultiJoinMember]):
    def words(self, member: MultiJoinMember) -> Description:
        return Description("⋈", "From states", _own_part(member))

    def history_us(self, member: MultiJoinMember) -> int | None:
        return longest_us(member.windows)

    def seq_bits(self, member: MultiJoinMember, bits: int, catalog: Catalog) -> int:
        return seq_bits(member, bits)

    def keys_below(
        self, join: SharedMultiJoin, member: MultiJoinMember, keys: Keys
    ) -> tuple[Keys, ...] | None:
        return _keys_of_inputs(join, member, keys)

    def columns_stored(self, member: MultiJoinMember) -> Iterable[object] | None:
        return member.columns


class SharedMultiJoinKind(OperatorKind[SharedMultiJoin]):
    spec = SharedMultiJoin
    role = Role.STATEFUL
    task = TaskOf.PARTS
    ties = True
    redistribute = "slicemill.operators.join.multiway_state:redistribute_state"
    member = MultiJoinMemberKind()
    step = "slicemill.operators.join.multiway:shared_multi_join"

    def words(self, join: SharedMultiJoin, node: Node, graph: QueryGraph) -> Description:
        if len(join.members) == 1:
            (member,) = join.members
            title, facts = f"Join of {len(member.inputs)} streams", _own_part(member)
        else:
            title = f"{pluralize(len(join.members), 'join')} of several streams"
            facts = (("one state each", ", ".join(name.removeprefix("log ") for name in join.inputs)),)
        return Description("⋈", title, (*facts, *_measurement_facts(join)))

    def waits_for_time(self, join: SharedMultiJoin, kind: TimestampKind) -> bool:
        return True

    def selections(self, join: SharedMultiJoin, ports: Sequence[int]) -> tuple[Expr | None, ...]:
        return tuple(member.selections[side] for port in ports for member, side in _users(join, port))

    def columns_read(self, join: SharedMultiJoin, port: int, wanted: Collection[str]) -> ColumnsRead:
        """Return the expressions and columns that the joins read of one input."""
        exprs: list[Expr] = []
        names: set[str] = set()
        for member, side in _users(join, port):
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

    def keys(self, join: SharedMultiJoin) -> tuple[Keys, ...] | None:
        """Return the keys by which all inputs can be partitioned, by input.

        Every query must have these keys on all of its streams. None if there are no such keys.
        """
        by_member = [
            [_by_input(member, equal) for equal in _equal_in_all_streams(member)] for member in join.members
        ]
        if all(len(own) == 1 for own in by_member):
            # Queries over different streams are compatible if they use the same key on each common stream.
            # They may have no common stream at all.
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

    def joins(self, join: SharedMultiJoin) -> InnerJoin | None:
        return inner_join_of(join)

    def keys_below(
        self, join: SharedMultiJoin, node: Node, graph: QueryGraph, keys: Keys
    ) -> KeysBelow | None:
        """Return the input keys that correspond to keys of the results.

        None if the join has several queries. Their `Part` nodes return the keys instead.
        """
        below = None if graph.has_parts(node.id) else _keys_of_inputs(join, join.members[0], keys)
        return None if below is None else tuple(zip(node.inputs, below, strict=True))

    def history_us(self, join: SharedMultiJoin, node: Node, graph: QueryGraph) -> int | None:
        """Return the history of the only query.

        0 if the join has several queries.
        """
        return 0 if graph.has_parts(node.id) else longest_us(join.members[0].windows)

    def seq_bits(
        self, join: SharedMultiJoin, bits: int, catalog: Catalog, node: Node, graph: QueryGraph
    ) -> int:
        return max(seq_bits(member, bits) for member in join.members)

    def stored(self) -> Mapping[str, type]:
        return {"plan.multi_join_member": MultiJoinMember}


KINDS = (SharedMultiJoinKind(),)


# Equal expressions, which connect the streams and form the keys of their states.
#
#     a.k = b.k AND b.k = c.k AND b.x = c.x       two sets: k over a, b and c; x over b and c
#
# Sets over the same streams form one key. The state of a stream has an index for each of its keys. If a
# partial result has several keys in common with a state, one key is looked up and the other keys are
# compared.


@dataclass(frozen=True, slots=True)
class Link:
    """Equality of keys of input `of` and input `to`.

    Input `of` is already joined. `of_key` and `to_key` are indexes into the keys of each input.
    """

    of: int
    of_key: int
    to: int
    to_key: int


class KeyTable:
    """Keys of all inputs, which connect the inputs of queries."""

    def __init__(self, inputs: Sequence[str], members: Sequence[MultiJoinMember]) -> None:
        self.keys: list[list[Keys]] = [[] for _ in inputs]
        numbers = {name: number for number, name in enumerate(inputs)}
        self._joined: dict[str, list[dict[int, int]]] = {}  # by query, for each key: its index by input
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
        """Return the links from joined inputs to `target`, by key."""
        found = []
        for indices in self._joined[member]:
            of = next((one for one in bound if one in indices), None)
            if target in indices and of is not None:
                found.append(Link(of, indices[of], target, indices[target]))
        return tuple(found)

    def queries_requiring(self, input_: int, key: int) -> list[str]:
        """Return the queries for which this key must not be NULL."""
        return [
            name for name, keys in self._joined.items() if any(indices.get(input_) == key for indices in keys)
        ]


def keys_by_side(member: MultiJoinMember) -> list[dict[int, Keys]]:
    """Return the keys of a join by side, most streams first.

    The result does not depend on the order of FROM.
    """
    sets: dict[frozenset[int], list[dict[int, Expr]]] = {}
    for equal in member.equal:
        by_side = dict(equal)
        sets.setdefault(frozenset(by_side), []).append(by_side)
    found = []
    for sides, parts in sets.items():
        parts.sort(key=lambda part: sorted((member.inputs[side], render(e)) for side, e in part.items()))
        found.append({side: tuple(part[side] for part in parts) for side in sorted(sides)})
    return sorted(found, key=lambda by_side: (-len(by_side), sorted(member.inputs[side] for side in by_side)))
