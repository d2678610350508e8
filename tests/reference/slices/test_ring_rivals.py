"""Alternatives to the ring: equal results at their published cost, and exact relocation (S41-S43)."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_ring import RingCase, anything, cases, counted, definition

from slicemill.operators.join.slices.workload import Member, MemberSide
from slicemill.types import Timed
from slicemill_oracle.ring.atr import AlignedRouting
from slicemill_oracle.ring.ctr import CoordinatedRouting
from slicemill_oracle.ring.join import RingJoin
from slicemill_oracle.ring.machines import RingCosts
from slicemill_oracle.ring.placement import RolePlacement, SlicePlacement
from slicemill_oracle.ring.relocation import after, growth
from slicemill_oracle.ring.ring import Ring, responses


@given(cases(), st.integers(1, 12))
@settings(max_examples=80, deadline=None)
def test_aligned_routing_has_the_results_of_the_definition(case: RingCase, segment: int) -> None:
    routing = AlignedRouting(case.join(), case.nodes, segment, random=Random(case.seed))
    assert counted(routing.run(case.arrived)) == definition(case.members, case.arrived)


@given(cases(), st.integers(1, 12), st.integers(1, 3))
@settings(max_examples=80, deadline=None)
def test_coordinated_routing_has_the_results_of_the_definition(
    case: RingCase, segment: int, copies: int
) -> None:
    routing = CoordinatedRouting(case.join(), case.nodes, copies, segment, random=Random(case.seed))
    assert counted(routing.run(case.arrived)) == definition(case.members, case.arrived)


@given(cases())
@settings(max_examples=60, deadline=None)
def test_in_virtual_time_results_are_equal_and_none_precedes_its_tuple(case: RingCase) -> None:
    costs = RingCosts(join=3e-7, purge=1e-7, insert=1e-7, send=2e-7, hop=1e-6)
    join = case.join()
    for placement in (SlicePlacement(join, case.nodes), RolePlacement(join, case.nodes)):
        results = Ring(join, placement, in_flight=3, costs=costs).run(case.arrived)
        assert counted(results) == definition(case.members, case.arrived)
        assert all(response > 0 for response in responses(results))


@pytest.mark.parametrize(
    ("nodes", "more", "handed", "behind"),
    [
        (3, 1, "1/3 2/3 0", (3,)),
        (3, 2, "2/3 1/3 0", (2, 3)),
        (4, 2, "1/2 0 1/2 0", (2, 4)),
        (5, 2, "2/5 4/5 1/5 3/5 0", (3, 5)),
    ],
)
def test_relocation_equals_the_published_example(
    nodes: int, more: int, handed: str, behind: tuple[int, ...]
) -> None:
    relocation = growth(nodes, more)
    assert relocation.handed_on == tuple(map(Fraction, handed.split()))
    assert relocation.new_behind == behind


@given(st.integers(1, 30), st.integers(1, 30))
def test_relocation_leaves_equal_consecutive_slices(nodes: int, more: int) -> None:
    assert after(nodes, growth(nodes, more)) == [(i, i + 1) for i in range(nodes + more)]


def test_aligned_routing_replicates_as_many_tuples_as_the_formula_predicts() -> None:
    window, segment, nodes = 100, 200, 6
    join = RingJoin([Member("q", (MemberSide(window),) * 3)], lambda *_: False)
    routing = AlignedRouting(join, nodes, segment, random=Random(0))
    routing.run([(stream, Timed(ts, (0,))) for ts in range(4 * nodes * segment) for stream in range(3)])
    # One tuple per time unit: T of the master and T + 2W of each other stream, on every node.
    assert routing.largest == pytest.approx(nodes * (segment + 2 * (segment + 2 * window)), rel=0.2)


def test_a_cover_has_every_segment_once() -> None:
    join = RingJoin([Member("q", (MemberSide(50), MemberSide(50)))], anything)
    routing = CoordinatedRouting(join, 6, 2, 5)
    cover = routing.cover(1, range(12))
    assert sorted(one for segments in cover.values() for one in segments) == list(range(12))
    assert all(node in routing.homes(1, one) for node, segments in cover.items() for one in segments)
