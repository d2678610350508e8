"""Slice borders and queries that change while a chain runs (S21-S23, P9)."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slice_cases import (
    Arrival,
    any_ends,
    anything,
    arrivals,
    by_query,
    expected,
    filtered_sides,
    members_of,
    run_at_random,
    run_through,
    same_key,
    seeds,
)

from slicemill.errors import SlicemillError
from slicemill.operators.join.slices.workload import Member, MemberSide, member
from slicemill.types import Row, Timed
from slicemill_oracle.slices.chain import Chain
from slicemill_oracle.slices.changing import add_query, merge, remove_query, reshape, split
from slicemill_oracle.slices.count_slice import CountSlice
from slicemill_oracle.slices.time_slice import TimeSlice


def change_at_random(chain: Chain, random: Random) -> None:
    """Split a random slice at a random age, or merge two slices whose queue is empty."""
    number = random.randrange(len(chain.cuts))
    if random.random() < 0.5:
        (a, b), (c, d) = chain.start(number), chain.cuts[number]
        at = (random.randint(int(a), int(c)), random.randint(int(b), int(d)))
        if at not in (chain.start(number), chain.cuts[number]):
            split(chain, number, at)
    elif number + 1 < len(chain.cuts) and not chain.queues[number + 1]:
        merge(chain, number)


@given(arrivals(), st.data(), seeds)
@settings(max_examples=60)
def test_random_splits_and_merges_change_no_result(
    arrived: list[Arrival], data: st.DataObject, seed: int
) -> None:
    members = data.draw(members_of(filtered_sides))
    chain = Chain(members, data.draw(any_ends(members)), same_key)
    found = run_at_random(chain, arrived, seed, meanwhile=lambda random: change_at_random(chain, random))
    assert by_query(members, found) == expected(members, arrived)
    for one in members:
        times = [result.ts for query, result in found if query == one.query]
        assert times == sorted(times)


@given(arrivals(), st.data(), seeds, st.sampled_from([TimeSlice, CountSlice]))
@settings(max_examples=40)
def test_a_transition_to_other_slice_borders_changes_no_result(
    arrived: list[Arrival], data: st.DataObject, seed: int, slice_type: type[TimeSlice]
) -> None:
    members = data.draw(members_of(filtered_sides))
    ends = data.draw(any_ends(members))
    chain = Chain(members, ends, same_key, slice_type=slice_type)
    still = Chain(members, ends, same_key, slice_type=slice_type)
    plans = [list(zip(*data.draw(any_ends(members)), strict=True)) for _ in range(3)]

    def meanwhile(random: Random) -> None:
        if random.random() < 0.3:
            cuts = random.choice(plans)
            reshape(chain, cuts)
            assert chain.cuts == cuts

    found = run_at_random(chain, arrived, seed, meanwhile=meanwhile)
    assert by_query(members, found) == by_query(members, run_at_random(still, arrived, seed))


@given(arrivals(), st.data(), st.booleans())
@settings(max_examples=60)
def test_a_query_added_later_is_complete_from_its_announced_time(
    arrived: list[Arrival], data: st.DataObject, cut: bool
) -> None:
    members = data.draw(members_of(filtered_sides, most=3))
    late = Member("late", data.draw(st.tuples(filtered_sides, filtered_sides)))
    index = data.draw(st.integers(0, len(arrived)))
    chain = Chain(members, data.draw(any_ends(members)), same_key)
    before = run_through(chain, arrived[:index])
    complete_from = add_query(chain, late, cut)
    after = run_through(chain, arrived[index:])
    found = by_query([*members, late], [*before, *after])
    whole = expected([*members, late], arrived)
    assert {q: found[q] for q in found if q != "late"} == {q: whole[q] for q in whole if q != "late"}
    since = {tuple_.row for _, tuple_ in arrived[index:]}
    due = {r: n for r, n in whole["late"].items() if {r.row[:2], r.row[2:]} & since}
    assert found["late"].keys() <= due.keys()
    assert {r for r in due if r.ts >= complete_from} <= found["late"].keys()
    if cut:
        assert all(any(c[s] == late.sides[s].window for c in chain.cuts) for s in (0, 1))


@given(arrivals(), st.data())
@settings(max_examples=40)
def test_removal_of_a_query_drops_only_its_own_state(arrived: list[Arrival], data: st.DataObject) -> None:
    members = data.draw(members_of(filtered_sides).filter(lambda found: len(found) > 1))
    index = data.draw(st.integers(0, len(arrived)))
    leaving, *staying = data.draw(st.permutations(members))
    chain = Chain(members, data.draw(any_ends(members)), same_key)
    found = run_through(chain, arrived[:index])
    remove_query(chain, leaving.query)
    for number, item in chain.stored():
        assert any(
            wanted.window > chain.start(number)[item.side]
            and (wanted.predicate is None or (callable(wanted.predicate) and wanted.predicate(item.row)))
            for wanted in (one.sides[item.side] for one in staying)
        )
    rest = run_through(chain, arrived[index:])
    assert leaving.query not in {query for query, _ in rest}
    found = [one for one in [*found, *rest] if one.query != leaving.query]
    assert by_query(staying, found) == expected(staying, arrived)
    longest = tuple(max(one.sides[side].window for one in staying) for side in (0, 1))
    assert chain.cuts[-1] == longest


def test_a_window_that_ends_at_an_existing_border_needs_no_new_slice() -> None:
    chain = Chain([member("q1", 2), member("q2", 4)], ((2, 4), (2, 4)), anything)
    chain.process(0, Timed(10, ("a",)))
    assert add_query(chain, member("q3", 4)) == 10
    assert chain.cuts == [(2, 2), (4, 4)]
    assert [query for query, _ in chain.process(1, Timed(11, ("b",)))] == ["q1", "q2", "q3"]


def test_a_longer_window_is_complete_after_the_difference_of_the_windows() -> None:
    chain = Chain([member("q1", 2)], ((2,), (2,)), anything)
    chain.process(0, Timed(10, ("a",)))
    assert add_query(chain, member("q2", 7)) == 10 + 5
    assert chain.cuts == [(2, 2), (7, 7)]


def test_a_looser_predicate_needs_its_whole_window_to_warm_up() -> None:
    def hot(row: Row) -> bool:
        return row[0] == "hot"

    chain = Chain([member("q1", 9, hot, 0.1)], ((9,), (9,)), anything)
    chain.process(0, Timed(10, ("cold",)))
    assert add_query(chain, member("tight", 9, hot, 0.1)) == 10
    assert add_query(chain, member("loose", 6)) == 10 + 6


def test_without_a_new_border_a_router_serves_the_new_window() -> None:
    chain = Chain([member("q1", 8)], ((8,), (8,)), anything)
    add_query(chain, member("q2", 3), cut=False)
    assert chain.cuts == [(8, 8)]
    for ts, stream in ((0, 0), (2, 0), (4, 1)):
        found = chain.process(stream, Timed(ts, (ts,)))
    assert found == [("q1", Timed(4, (0, 4))), ("q1", Timed(4, (2, 4))), ("q2", Timed(4, (2, 4)))]
    assert chain.counters.route == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda chain: split(chain, 0, (5, 5)), "cannot be cut"),
        (lambda chain: split(chain, 1, (2, 2)), "cannot be cut"),
        (lambda chain: merge(chain, 0), "until its queue is empty"),
        (lambda chain: add_query(chain, member("q2", 3)), "already"),
        (lambda chain: remove_query(chain, "q9"), "no query"),
        (lambda chain: (remove_query(chain, "q1"), remove_query(chain, "q2")), "last query"),
    ],
)
def test_impossible_changes_are_rejected(change: object, message: str) -> None:
    assert callable(change)
    chain = Chain([member("q1", 2), member("q2", 4)], ((2, 4), (2, 4)), anything)
    chain.arrive(0, Timed(0, ("a",)))
    chain.run(0)
    with pytest.raises(SlicemillError, match=message):
        change(chain)


def test_a_new_border_in_an_asymmetric_chain_keeps_the_borders_of_the_other_stream_in_order() -> None:
    chain = Chain([Member("q", (MemberSide(8), MemberSide(3)))], ((8,), (3,)), anything)
    add_query(chain, Member("other", (MemberSide(5), MemberSide(7))))
    assert chain.cuts == [(5, 3), (8, 3), (8, 7)]
