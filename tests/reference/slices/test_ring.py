"""A ring join gives the results of the definition under any schedule (S25-S34, slice-P12 to slice-P14)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slice_cases import Arrival, arrivals, members_on

from slicemill.operators.join.slices.workload import Member, MemberSide
from slicemill.types import Row, Timed
from slicemill_oracle.ring.join import RingJoin, RingResult
from slicemill_oracle.ring.node import Intermediate, Probe
from slicemill_oracle.ring.placement import RolePlacement, SlicePlacement
from slicemill_oracle.ring.ring import Ring

Found = Counter[tuple[Row, int]]


def anything(stream: int, row: Row, other: int, other_row: Row) -> bool:
    return True


def same_key(stream: int, row: Row, other: int, other_row: Row) -> bool:
    return row[0] == other_row[0]


@dataclass(frozen=True)
class RingCase:
    """Queries over streams, arrivals, the orders of probing, a number of nodes and a schedule."""

    members: list[Member]
    arrived: list[Arrival]
    orders: list[list[int]]
    nodes: int
    seed: int

    def join(self) -> RingJoin:
        return RingJoin(self.members, same_key, orders=self.orders)


@st.composite
def cases(draw: st.DrawFn) -> RingCase:
    streams = draw(st.integers(2, 4))
    orders = [
        draw(st.permutations([other for other in range(streams) if other != one])) for one in range(streams)
    ]
    return RingCase(
        draw(members_on(streams, most=3)),
        draw(arrivals(streams, most=14)),
        orders,
        draw(st.integers(1, 5)),
        draw(st.integers(0, 10_000)),
    )


def wants(side: MemberSide, tuple_: Timed) -> bool:
    return side.predicate is None or (callable(side.predicate) and bool(side.predicate(tuple_.row)))


def definition(members: Sequence[Member], arrived: Sequence[Arrival]) -> Found:
    """Return combinations of one tuple per stream, with the queries that they satisfy."""
    found: Found = Counter()
    by_stream = ([tuple_ for s, tuple_ in arrived if s == one] for one in range(len(members[0].sides)))
    for parts in product(*by_stream):
        latest = max(part.ts for part in parts)
        queries = sum(
            1 << bit
            for bit, one in enumerate(members)
            if all(
                latest - part.ts < side.window and wants(side, part)
                for part, side in zip(parts, one.sides, strict=True)
            )
        )
        if queries and len({part.row[0] for part in parts}) == 1:
            found[tuple(value for part in parts for value in part.row), queries] += 1
    return found


def counted(results: Sequence[RingResult]) -> Found:
    return Counter((one.in_stream_order(), one.queries) for one in results)


class WatchedRing(Ring):
    """Ring that checks, after every purge, the content of a node and the order of ENDs at the start node."""

    def __init__(self, join: RingJoin, placement: SlicePlacement, *, random: Random) -> None:
        super().__init__(join, placement, random=random)
        self.ended: set[tuple[int, int]] = set()

    def _begin(self, node: int, probe: Probe) -> None:
        super()._begin(node, probe)
        for stream, state in enumerate(self.nodes[node].states):
            low, high = self.placement.ages(node, stream)
            assert all(low <= probe.item.ts - item.ts < high for item in state.items), "Lemma 7"

    def _pass(self, node: int, partial: Intermediate) -> None:
        if node == partial.probe.start:
            schema = partial.probe.item.number, partial.length
            assert schema not in self.ended, "Lemma 8"
            if partial.end:
                self.ended.add(schema)
        super()._pass(node, partial)


def test_golden_3_is_reproduced_on_a_ring_of_two_nodes() -> None:
    query = [Member("q", (MemberSide(4), MemberSide(4), MemberSide(4)))]
    join = RingJoin(query, anything, orders=[[1, 2], [0, 2], [1, 0]])
    ring = Ring(join, SlicePlacement(join, 2), random=Random(0))
    found: dict[str, set[tuple[str, ...]]] = {}
    held: dict[str, list[dict[str, list[str]]]] = {}
    for ts, name in enumerate(["b1", "c1", "b2", "a1", "c2"], 1):
        results = ring.run([("abc".index(name[0]), Timed(ts, (name,)))])
        found[name] = {tuple(str(item.row[0]) for item in one.items) for one in results}
        held[name] = [
            {
                stream: names
                for stream, state in zip("ABC", node.states, strict=True)
                if (names := [str(item.row[0]) for item in state.items])
            }
            for node in ring.nodes
        ]
    assert held["a1"] == [{"A": ["a1"], "B": ["b2"]}, {"B": ["b1"], "C": ["c1"]}]
    assert found.pop("a1") == {("a1", "b2", "c1"), ("a1", "b1", "c1")}
    assert held["c2"] == [{"A": ["a1"], "C": ["c2"]}, {"B": ["b2"], "C": ["c1"]}]
    assert found.pop("c2") == {("c2", "b2", "a1")}
    assert not any(found.values())


@given(cases())
@settings(max_examples=120, deadline=None)
def test_a_ring_has_the_results_of_the_definition_under_any_schedule(case: RingCase) -> None:
    join = case.join()
    ring = WatchedRing(join, SlicePlacement(join, case.nodes), random=Random(case.seed))
    assert counted(ring.run(case.arrived)) == definition(case.members, case.arrived)


@pytest.mark.parametrize("seed", range(12))
def test_the_last_result_of_each_schema_arrives_last_even_with_many_matches(seed: int) -> None:
    random = Random(seed)
    members = [Member("q", tuple(MemberSide(random.randint(3, 9)) for _ in range(random.randint(3, 4))))]
    join = RingJoin(members, same_key)
    arrived = [(random.randrange(join.streams), Timed(ts, (0, ts))) for ts in range(30)]
    ring = WatchedRing(join, SlicePlacement(join, random.randint(1, 5)), random=random)
    assert counted(ring.run(arrived)) == definition(members, arrived)


@given(cases(), st.integers(2, 8))
@settings(max_examples=120, deadline=None)
def test_several_tuples_in_flight_meet_each_stored_tuple_once(case: RingCase, in_flight: int) -> None:
    join = case.join()
    ring = Ring(join, SlicePlacement(join, case.nodes), in_flight=in_flight, random=Random(case.seed))
    assert counted(ring.run(case.arrived)) == definition(case.members, case.arrived)
    stored = [item.number for node in ring.nodes for state in node.states for item in state.items]
    assert len(stored) == len(set(stored)), "copies are gone when nothing is under way"


@given(cases(), st.integers(1, 8), st.data())
@settings(max_examples=120, deadline=None)
def test_with_moving_roles_a_tuple_stays_on_one_node(
    case: RingCase, in_flight: int, data: st.DataObject
) -> None:
    join = case.join()
    lengths = data.draw(st.lists(st.integers(1, 4), min_size=case.nodes, max_size=case.nodes))
    ring = Ring(join, RolePlacement(join, case.nodes, lengths), in_flight=in_flight, random=Random(case.seed))
    homes: dict[int, int] = {}
    found: Found = Counter()
    for arrival in case.arrived:
        found += counted(ring.run([arrival]))
        for index, node in enumerate(ring.nodes):
            for state in node.states:
                assert all(homes.setdefault(item.number, index) == index for item in state.items)
    assert found == definition(case.members, case.arrived)
    again = Ring(
        join, RolePlacement(join, case.nodes, lengths), in_flight=in_flight, random=Random(case.seed)
    )
    assert counted(again.run(case.arrived)) == found, "the same when tuples are under way together"


def test_the_head_moves_to_the_node_whose_tuples_have_just_expired() -> None:
    join = RingJoin([Member("q", (MemberSide(12), MemberSide(12)))], anything)
    ring = Ring(join, RolePlacement(join, 4), random=Random(1))
    for ts in range(60):
        ring.run([(ts % 2, Timed(ts, (ts,)))])
        for node in ring.nodes:
            for state in node.states:
                live = [item.ts for item in state.items if ts - item.ts < 12]
                # Three time units on each node; a node that is head and tail at once has the ends of both.
                assert not live or max(live) - min(live) < 3 or max(live) - min(live) >= 12 - 3


@given(cases(), st.data())
@settings(max_examples=150, deadline=None)
@pytest.mark.parametrize("kind", [SlicePlacement, RolePlacement])
def test_a_change_of_the_ring_changes_no_result(
    kind: type[SlicePlacement] | type[RolePlacement], case: RingCase, data: st.DataObject
) -> None:
    join = case.join()
    capacity = data.draw(st.sampled_from([1, 2, 3, float("inf")]))
    ring = Ring(join, kind(join, case.nodes, capacity=capacity), random=Random(case.seed))
    found: Found = Counter()
    rest = list(case.arrived)
    while rest:
        cut = data.draw(st.integers(1, len(rest)))
        found += counted(ring.run(rest[:cut]))
        rest = rest[cut:]
        change = data.draw(st.sampled_from([ring.spread_over, ring.relocate]))
        change(data.draw(st.integers(1, 5)))
    assert found == definition(case.members, case.arrived)


def test_slices_do_not_change_while_several_tuples_are_in_flight() -> None:
    join = RingJoin([Member("q", (MemberSide(4), MemberSide(4)))], anything)
    ring = Ring(join, SlicePlacement(join, 2), in_flight=2)
    with pytest.raises(ValueError, match="one tuple is under way"):
        ring.relocate(3)


def test_state_does_not_grow_with_the_number_of_nodes() -> None:
    join = RingJoin([Member("q", (MemberSide(50),) * 3)], same_key)
    arrived = [(ts % 3, Timed(ts, (ts % 7,))) for ts in range(300)]
    sizes = {}
    for nodes in (1, 2, 5, 10):
        ring = Ring(join, SlicePlacement(join, nodes), random=Random(3))
        ring.run(arrived)
        sizes[nodes] = ring.size
    assert set(sizes.values()) == {50}
