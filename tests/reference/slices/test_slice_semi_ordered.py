"""Inputs that are ordered only one by one: lazy purge (S44, P18) and the symmetric hash join (P3)."""

from __future__ import annotations

from collections import Counter
from itertools import product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slice_cases import Arrival, arrivals, members_on, run_through, seeds

from slicemill.errors import SlicemillError
from slicemill.operators.join.slices.workload import Member, MemberSide
from slicemill.types import Row, Timed
from slicemill_oracle.slices.semi_ordered import JoinResult, ResultSorter, SemiOrderedJoin
from slicemill_oracle.slices.symmetric_hash import SymmetricHashJoin


def interleaved(arrived: list[Arrival], seed: int, streams: int) -> list[Arrival]:
    """Interleave the streams at random; each stream stays in order."""
    random = Random(seed)
    queues = [[tuple_ for stream, tuple_ in arrived if stream == one] for one in range(streams)]
    mixed = []
    while any(queues):
        stream = random.choice([one for one, queue in enumerate(queues) if queue])
        mixed.append((stream, queues[stream].pop(0)))
    return mixed


def same_keys(row: Row) -> bool:
    return len(set(row[::2])) == 1


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[Member], list[Arrival]]:
    streams = draw(st.integers(2, 3))
    return draw(members_on(streams, most=3)), draw(arrivals(streams, most=16))


@given(cases(), seeds)
@settings(max_examples=60)
def test_any_interleaving_gives_every_combination_once_in_an_order_that_can_be_restored(
    case: tuple[list[Member], list[Arrival]], seed: int
) -> None:
    members, arrived = case
    streams = len(members[0].sides)
    join = SemiOrderedJoin(members, same_keys)
    found = run_through(join, interleaved(arrived, seed, streams))
    assert Counter(found) == definition(members, arrived, streams)

    order = ResultSorter()
    ordered = [one for result in found for one in order.add(result)] + order.finish()
    assert Counter(ordered) == Counter(found)
    assert [one.ts for one in ordered] == sorted(one.ts for one in found)
    # Of two results the later has a later tuple, because no two tuples of a stream have the same number.
    numbers = [tuple(int(str(value)) for value in one.row[1::2]) for one in found]
    assert all(any(a < b for a, b in zip(*pair, strict=True)) for pair in ordered_pairs(numbers))


def ordered_pairs(numbers: list[tuple[int, ...]]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    return [(a, b) for index, b in enumerate(numbers) for a in numbers[:index]]


def definition(members: list[Member], arrived: list[Arrival], streams: int) -> Counter[JoinResult]:
    found: Counter[JoinResult] = Counter()
    for parts in product(*([tuple_ for s, tuple_ in arrived if s == one] for one in range(streams))):
        row: Row = tuple(value for part in parts for value in part.row)
        latest = max(part.ts for part in parts)
        queries = sum(
            1 << bit
            for bit, one in enumerate(members)
            if all(
                latest - part.ts < side.window
                and (side.predicate is None or (callable(side.predicate) and side.predicate(part.row)))
                for part, side in zip(parts, one.sides, strict=True)
            )
        )
        if queries and same_keys(row):
            found[JoinResult(tuple(part.ts for part in parts), row, queries)] += 1
    return found


def test_a_tuple_stays_until_the_watermarks_of_all_other_streams_have_passed_it() -> None:
    join = SemiOrderedJoin([Member("q", (MemberSide(3), MemberSide(3), MemberSide(3)))], same_keys)
    join.process(0, Timed(0, ("k", 1)))
    join.process(1, Timed(100, ("k", 2)))
    assert len(join.states[0]) == 1
    join.process(2, Timed(2, ("k", 3)))
    assert len(join.states[0]) == 1
    join.process(2, Timed(3, ("k", 4)))
    assert len(join.states[0]) == 0


def test_a_result_waits_only_while_an_earlier_result_is_possible() -> None:
    order = ResultSorter()
    assert order.add(JoinResult((5, 9), (), 1)) == []
    assert order.add(JoinResult((8, 7), (), 1)) == []
    assert order.held == 2
    assert [one.ts for one in order.add(JoinResult((9, 10), (), 1))] == [8]
    assert [one.ts for one in order.finish()] == [9, 10]


@given(arrivals(), st.integers(0, 6), seeds)
@settings(max_examples=50)
def test_the_hash_join_gives_the_pairs_of_its_closed_window_in_any_interleaving(
    arrived: list[Arrival], window: int, seed: int
) -> None:
    join = SymmetricHashJoin(window, lambda row: row[0], lambda row: row[0])
    mixed = interleaved(arrived, seed, 2)
    found = Counter(result for stream, tuple_ in mixed for result in join.process(stream, tuple_))
    left, right = ([tuple_ for stream, tuple_ in arrived if stream == one] for one in (0, 1))
    assert found == Counter(
        Timed(max(a.ts, b.ts), a.row + b.row)
        for a, b in product(left, right)
        if a.row[0] == b.row[0] and abs(a.ts - b.ts) <= window
    )


def test_the_hash_join_drops_tuples_that_the_other_input_has_passed() -> None:
    join = SymmetricHashJoin(5, lambda row: row[0], lambda row: row[0])
    for ts in range(10):
        join.process(0, Timed(ts, ("k", ts)))
    assert len(join.process(1, Timed(12, ("k", 99)))) == 3
    assert join.state_size == 3 + 1


def test_a_stream_out_of_order_is_rejected() -> None:
    lazy = SemiOrderedJoin([Member("q", (MemberSide(3), MemberSide(3)))], same_keys)
    hashed = SymmetricHashJoin(5, lambda row: row[0], lambda row: row[0])
    for join in (lazy, hashed):
        join.process(0, Timed(5, ("k", 1)))
        join.process(1, Timed(3, ("k", 2)))
        with pytest.raises(SlicemillError, match="not in order"):
            join.process(0, Timed(4, ("k", 3)))
