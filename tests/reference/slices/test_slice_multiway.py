"""Shared joins of several streams: golden 3, and bitmaps against the definition (S45-S50, P15, P16)."""

from __future__ import annotations

from collections import Counter
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st
from slice_cases import Arrival, arrivals, members_on, run_through

from slicemill.operators.join.slices.workload import Member, MemberSide, queries_reaching
from slicemill.types import Row, Timed
from slicemill_oracle.slices.multiway import MultiwayJoin


def anything(stream: int, row: Row, other: int, other_row: Row) -> bool:
    return True


def same_key(stream: int, row: Row, other: int, other_row: Row) -> bool:
    return row[0] == other_row[0]


def test_golden_3_is_reproduced_by_a_multiway_join() -> None:
    one_query = [Member("q", (MemberSide(4), MemberSide(4), MemberSide(4)))]
    # A probes B then C, B probes A then C, C probes B then A; two slices on each stream.
    join = MultiwayJoin(one_query, anything, orders=[[1, 2], [0, 2], [1, 0]], ends=[(2, 4)] * 3)
    found: dict[str, list[tuple[list[str], tuple[int, ...]]]] = {}
    held: dict[str, list[dict[str, list[str]]]] = {}
    for ts, name in enumerate(["b1", "c1", "b2", "a1", "c2"], 1):
        results = join.process("abc".index(name[0]), Timed(ts, (name,)))
        found[name] = [([str(item.row[0]) for item in one.items], one.found_in) for one in results]
        held[name] = [
            {
                stream: names
                for stream, slices in zip("ABC", join.states, strict=True)
                if (names := [str(item.row[0]) for item in slices[number]])
            }
            for number in (0, 1)
        ]
    assert found.pop("a1") == [(["a1", "b2", "c1"], (0, 1)), (["a1", "b1", "c1"], (1, 1))]
    # (b2, c2) is found in the second slice, a1 in the first.
    assert found.pop("c2") == [(["c2", "b2", "a1"], (1, 0))]
    assert not any(found.values())
    assert held["a1"] == [{"A": ["a1"], "B": ["b2"]}, {"B": ["b1"], "C": ["c1"]}]
    assert held["c2"] == [{"A": ["a1"], "C": ["c2"]}, {"B": ["b2"], "C": ["c1"]}]


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[Member], list[Arrival], list[list[int]]]:
    streams = draw(st.integers(2, 4))
    members = draw(members_on(streams, most=4))
    orders = [
        draw(st.permutations([other for other in range(streams) if other != one])) for one in range(streams)
    ]
    return members, draw(arrivals(streams, most=16)), orders


def wants(side: MemberSide, tuple_: Timed) -> bool:
    return side.predicate is None or (callable(side.predicate) and bool(side.predicate(tuple_.row)))


def definition(members: list[Member], arrived: list[Arrival]) -> Counter[tuple[Row, int]]:
    """Return combinations of one tuple per stream, with the queries that they satisfy."""
    streams = len(members[0].sides)
    found: Counter[tuple[Row, int]] = Counter()
    for parts in product(*([tuple_ for s, tuple_ in arrived if s == one] for one in range(streams))):
        latest = max(part.ts for part in parts)
        if len({part.row[0] for part in parts}) > 1:
            continue
        queries = sum(
            1 << bit
            for bit, one in enumerate(members)
            if all(
                latest - part.ts < side.window and wants(side, part)
                for part, side in zip(parts, one.sides, strict=True)
            )
        )
        if queries:
            found[tuple(value for part in parts for value in part.row), queries] += 1
    return found


@given(cases())
@settings(max_examples=60)
def test_the_bits_of_a_result_name_the_queries_whose_windows_contain_all_its_tuples(
    case: tuple[list[Member], list[Arrival], list[list[int]]],
) -> None:
    members, arrived, orders = case
    join = MultiwayJoin(members, same_key, orders=orders)
    found = Counter((one.in_stream_order(), one.queries) for one in run_through(join, arrived))
    assert found == definition(members, arrived)


@given(cases())
@settings(max_examples=40)
def test_only_useful_partial_results_are_probed_and_only_in_useful_slices(
    case: tuple[list[Member], list[Arrival], list[list[int]]],
) -> None:
    members, arrived, orders = case
    join = MultiwayJoin(members, same_key, orders=orders)
    probes = 0
    for index, (stream, tuple_) in enumerate(arrived):
        join.process(stream, tuple_)
        probes += fewest_probes(members, arrived[: index + 1], orders[stream])
        assert join.counters.probe == probes


def fewest_probes(members: list[Member], arrived: list[Arrival], order: list[int]) -> int:
    """Return pairs of a useful partial result and a stored tuple whose slice serves a common query."""
    stream, newest = arrived[-1]
    mask = sum(1 << bit for bit, one in enumerate(members) if wants(one.sides[stream], newest))
    partials = [([newest], mask)] if mask else []
    probes = 0
    for probed in order:
        longer = []
        for parts, queries in partials:
            for other, tuple_ in arrived[:-1]:
                if other != probed:
                    continue
                age = newest.ts - tuple_.ts
                # A window that reaches this age reaches the start of its slice, because no window ends
                # between.
                here = queries_reaching(members, probed, age)
                wanted = sum(1 << bit for bit, one in enumerate(members) if wants(one.sides[probed], tuple_))
                if not here & wanted:
                    continue  # This tuple is no longer stored.
                if here & queries:
                    probes += 1
                    if here & queries & wanted and tuple_.row[0] == newest.row[0]:
                        longer.append(([*parts, tuple_], here & queries & wanted))
        partials = longer
    return probes


@given(cases())
@settings(max_examples=40)
def test_every_stored_tuple_serves_a_query_at_its_age(
    case: tuple[list[Member], list[Arrival], list[list[int]]],
) -> None:
    members, arrived, orders = case
    join = MultiwayJoin(members, same_key, orders=orders)
    for stream, tuple_ in arrived:
        join.process(stream, tuple_)
        if not any(wants(one.sides[stream], tuple_) for one in members):
            continue  # No query selects the tuple, so it purges no tuples.
        for probed, slices in enumerate(join.states):
            for item in (item for state in slices for item in state):
                age = tuple_.ts - item.ts
                assert item.mask & queries_reaching(members, probed, age)
    longest = [max(one.sides[s].window for one in members) for s in range(len(join.states))]
    assert [cut[-1].end for cut in join.spans] == longest


def test_a_probe_without_a_useful_query_is_omitted_as_published() -> None:
    # q1 has the shorter window on B, and q2 on C. Partial results of a beyond q1's window on B serve only q2,
    # so they do not probe C beyond q2's window.
    members = [
        Member("q1", (MemberSide(9), MemberSide(2), MemberSide(6))),
        Member("q2", (MemberSide(9), MemberSide(6), MemberSide(2))),
    ]
    join = MultiwayJoin(members, anything)
    for stream, ts, name in ((1, 0, "b"), (2, 0, "c old"), (2, 2, "c new")):
        join.process(stream, Timed(ts, (name,)))
    before = join.counters.probe
    (result,) = join.process(0, Timed(3, ("a",)))
    assert [item.row for item in result.items] == [("a",), ("b",), ("c new",)]
    assert result.queries == 0b10
    assert join.counters.probe - before == 2
