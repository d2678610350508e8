"""Chains of time slices: golden traces, and theorems under random slice borders and schedules."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import duckdb
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
    plain_sides,
    run_at_random,
    run_through,
    same_key,
    seeds,
)

from slicemill.errors import SlicemillError
from slicemill.operators.join.rows import JoinByRows, TimeWindow
from slicemill.operators.join.slices.workload import Member, MemberSide, member, windows
from slicemill.types import Timed
from slicemill_oracle.slices.chain import Chain
from slicemill_oracle.slices.items import Item
from slicemill_oracle.slices.time_slice import ClosedTimeSlice, Condition, TimeSlice
from slicemill_oracle.slices.unshared import one_join


def finest(members: list[Member]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return slice borders at every window, with the shorter list filled up."""
    left, right = windows(members, 0), windows(members, 1)
    longest = max(len(left), len(right))
    return left + left[-1:] * (longest - len(left)), right + right[-1:] * (longest - len(right))


# ----- Golden traces


def trace_one_way(slice_type: type[TimeSlice], schedule: list[str | int]) -> list[str]:
    """Run golden trace 1: an arrival by name runs the first slice, a number runs that slice."""
    chain = Chain([member("q", 4)], ((2, 4), (2, 4)), anything, slice_type=slice_type, one_way=True)
    lines = []
    for now, what in enumerate(schedule, 1):
        if isinstance(what, str):
            chain.arrive("ab".index(what[0]), Timed(now, (what,)))
            chain.run(0)
        else:
            chain.run(what - 1)
        queue = [str(reference.item.row[0]) for reference in reversed(chain.queues[1])]
        states = [[str(item.row[0]) for item in reversed(one.states[0])] for one in chain.slices]
        lines.append(" | ".join([" ".join(states[0]), " ".join(queue), " ".join(states[1])]))
    return lines


def test_golden_trace_1_is_reproduced_with_the_printed_purge_test() -> None:
    schedule: list[str | int] = ["a1", "a2", "a3", "b1", "b2", 2, 2, "a4", 2, 2]
    assert trace_one_way(ClosedTimeSlice, schedule) == [
        "a1 |  | ",
        "a2 a1 |  | ",
        "a3 a2 a1 |  | ",
        "a3 a2 | b1 a1 | ",
        "a3 | b2 a2 b1 a1 | ",
        "a3 | b2 a2 b1 | a1",
        "a3 | b2 a2 | a1",
        "a4 a3 | b2 a2 | a1",
        "a4 a3 | b2 | a2 a1",
        "a4 a3 |  | a2 a1",
    ]


def test_golden_trace_1_is_corrected_with_half_open_windows() -> None:
    schedule: list[str | int] = ["a1", "a2", "a3", "b1", "b2", 2, 2, "a4", 2, 2, 2]
    assert trace_one_way(TimeSlice, schedule) == [
        "a1 |  | ",
        "a2 a1 |  | ",
        "a3 a2 a1 |  | ",
        "a3 | b1 a2 a1 | ",
        " | b2 a3 b1 a2 a1 | ",
        " | b2 a3 b1 a2 | a1",
        " | b2 a3 b1 | a2 a1",
        "a4 | b2 a3 b1 | a2 a1",
        "a4 | b2 a3 | a2 a1",
        "a4 | b2 | a3 a2 a1",
        "a4 |  | a3 a2",
    ]


@pytest.mark.parametrize(
    ("slice_type", "found"),
    [
        (ClosedTimeSlice, {4: "a2b1 a3b1", 5: "a3b2", 7: "a1b1", 10: "a1b2 a2b2"}),
        (TimeSlice, {4: "a3b1", 9: "a1b1 a2b1", 11: "a2b2 a3b2"}),
    ],
)
def test_golden_trace_1_has_the_published_outputs_of_each_slice(
    slice_type: type[TimeSlice], found: dict[int, str]
) -> None:
    outputs: dict[int, str] = {}
    now = 0

    class Recording(slice_type):  # type: ignore[valid-type, misc]
        def partners(self, probe: Item, condition: Condition) -> list[tuple[Item, float]]:
            pairs: list[tuple[Item, float]] = super().partners(probe, condition)
            if pairs:
                outputs[now] = " ".join(f"{item.row[0]}{probe.row[0]}" for item, _ in pairs)
            return pairs

    chain = Chain([member("q", 4)], ((2, 4), (2, 4)), anything, slice_type=Recording, one_way=True)
    arriving = {1: "a1", 2: "a2", 3: "a3", 4: "b1", 5: "b2", 8: "a4"}
    for now in range(1, 12):
        if name := arriving.get(now):
            chain.arrive("ab".index(name[0]), Timed(now, (name,)))
            chain.run(0)
        elif chain.queues[1]:
            chain.run(1)
    assert outputs == found


BINARY_TRACE: list[tuple[int, str, str, str]] = [
    (1, "a1", "a1 | | |", ""),
    (2, "b1", "a1 | b1 | |", "1:a1b1"),
    (3, "a2", "a1 a2 | b1 | |", "1:a2b1"),
    (4, "b2", "a2 | b1 b2 | a1 |", "1:a2b2 2:a1b2"),
    (5, "b3", "| b1 b2 b3 | a2 |", "2:a2b3"),
    (6, "a3", "a3 | b3 | a2 | b2", "1:a3b3 2:a3b2"),
    (7, "a4", "a3 a4 | | a2 | b2 b3", "2:a4b2 2:a4b3"),
    (9, "b4", "| b4 | a3 a4 | b2 b3", "2:a3b4 2:a4b4"),
]


def test_golden_trace_2_is_reproduced() -> None:
    members = [member("short", 2), member("long", 4)]
    chain = Chain(members, ((2, 4), (2, 4)), anything)
    for ts, name, states, output in BINARY_TRACE:
        found = chain.process("ab".index(name[0]), Timed(ts, (name,)))
        held = [" ".join(str(item.row[0]) for item in state) for one in chain.slices for state in one.states]
        assert held == [part.strip() for part in states.split("|")], name
        short = ["1:{}{}".format(*result.row) for query, result in found if query == "short"]
        long = ["{}{}".format(*result.row) for query, result in found if query == "long"]
        assert [f"{1 if f'1:{pair}' in short else 2}:{pair}" for pair in long] == output.split()
        assert set(short) <= set(output.split())


def test_slices_that_do_not_forward_probes_lose_pairs() -> None:
    chain = Chain([member("q", 4)], ((2, 4), (2, 4)), anything)
    found = []
    for ts, name, _, _ in BINARY_TRACE:
        chain.arrive("ab".index(name[0]), Timed(ts, (name,)))
        while chain.queues[0]:
            chain.run(0)
        kept = [reference for reference in chain.queues[1] if not reference.probes]
        chain.queues[1].clear()
        chain.queues[1].extend(kept)
        chain.drain()
        found += ["{}{}".format(*result.row) for _, result in chain.take()]
    everything = [pair.split(":") for *_, output in BINARY_TRACE for pair in output.split()]
    assert found == [pair for number, pair in everything if number == "1"]


# ----- Theorems


@given(arrivals(), st.data(), seeds)
@settings(max_examples=50)
def test_a_one_way_chain_gives_the_results_of_the_one_way_join(
    arrived: list[Arrival], data: st.DataObject, seed: int
) -> None:
    members = data.draw(members_of(plain_sides))
    chain = Chain(members, data.draw(any_ends(members)), same_key, one_way=True)
    found = run_at_random(chain, arrived, seed)
    assert by_query(members, found) == expected(members, arrived, one_way=True)


@given(arrivals(), st.integers(1, 8), st.integers(1, 8))
@settings(max_examples=30)
def test_a_binary_join_is_two_one_way_joins(arrived: list[Arrival], left: int, right: int) -> None:
    regular = JoinByRows([TimeWindow(left), TimeWindow(right)], lambda row: row[0] == row[2])
    whole = Counter(result for stream, tuple_ in arrived for result in regular.process(stream, tuple_))
    there = Chain([Member("q", (MemberSide(left), MemberSide(9)))], ((left,), (9,)), same_key, one_way=True)
    back = Chain([Member("q", (MemberSide(right), MemberSide(9)))], ((right,), (9,)), same_key, one_way=True)
    one = Counter(result for stream, tuple_ in arrived for _, result in there.process(stream, tuple_))
    # The same join seen from the other side: streams and rows are swapped.
    other = Counter(
        Timed(result.ts, result.row[2:] + result.row[:2])
        for stream, tuple_ in arrived
        for _, result in back.process(1 - stream, tuple_)
    )
    assert one + other == whole


@given(arrivals(), st.data(), seeds)
@settings(max_examples=60)
def test_a_binary_chain_gives_each_query_its_join_for_any_slice_borders(
    arrived: list[Arrival], data: st.DataObject, seed: int
) -> None:
    members = data.draw(members_of(filtered_sides))
    found = []
    for ends in (data.draw(any_ends(members)), finest(members)):
        chain = Chain(members, ends, same_key)
        found.append(by_query(members, run_at_random(chain, arrived, seed)))
    assert found[0] == found[1] == expected(members, arrived)


@given(arrivals(), st.data(), seeds)
@settings(max_examples=40)
def test_no_tuple_is_stored_twice_at_any_step(arrived: list[Arrival], data: st.DataObject, seed: int) -> None:
    members = data.draw(members_of(filtered_sides))
    chain = Chain(members, data.draw(any_ends(members)), same_key)

    def each_step() -> None:
        stored = [item.number for _, item in chain.stored()]
        moving = [one.item.number for queue in chain.queues for one in queue if not one.probes]
        assert len(set(stored + moving)) == len(stored + moving)
        for one in chain.slices:
            for state in one.states:
                assert all(a.number < b.number for a, b in pairwise(state))

    run_at_random(chain, arrived, seed, each_step)


@given(arrivals(), st.data(), seeds)
@settings(max_examples=40)
def test_a_probe_meets_exactly_the_tuples_of_the_ages_of_a_slice(
    arrived: list[Arrival], data: st.DataObject, seed: int
) -> None:
    members = data.draw(members_of(filtered_sides))
    seen: dict[int, Item] = {}

    class Watched(TimeSlice):
        def partners(self, probe: Item, condition: Condition) -> list[tuple[Item, float]]:
            side = 1 - probe.side
            span = self.spans[side]
            due = {
                item.number
                for item in seen.values()
                if item.side == side
                and item.number < probe.number
                and span.start <= probe.ts - item.ts < span.end
                and item.mask & span.mask
            }
            assert {item.number for item in self.states[side]} == due
            return super().partners(probe, condition)

    chain = Chain(members, data.draw(any_ends(members)), same_key, slice_type=Watched)

    def each_step() -> None:
        seen.update({one.item.number: one.item for one in chain.queues[0]})

    run_at_random(chain, arrived, seed, each_step)


@given(arrivals(), st.data())
@settings(max_examples=30)
def test_slices_store_and_probe_the_tuples_of_a_single_join(
    arrived: list[Arrival], data: st.DataObject
) -> None:
    members = data.draw(members_of(plain_sides))
    chain, single = Chain(members, data.draw(any_ends(members)), same_key), one_join(members, same_key)
    for stream, tuple_ in arrived:
        chain.process(stream, tuple_)
        single.process(stream, tuple_)
        assert chain.state_size == single.state_size
        assert chain.counters.probe == single.counters.probe


@given(arrivals(), st.data())
@settings(max_examples=50)
def test_every_stored_tuple_is_still_needed(arrived: list[Arrival], data: st.DataObject) -> None:
    members = data.draw(members_of(filtered_sides))
    chain = Chain(members, finest(members), anything)
    for stream, tuple_ in arrived:
        chain.process(stream, tuple_)
    now = chain.last_ts or 0
    # A tuple that satisfies all predicates meets, for some query, every stored tuple, so none is useless.
    for stream in (0, 1):
        wanted = Timed(now, ("wanted", 6))
        found = {result.row for _, result in chain.process(stream, wanted)}
        partners = {row[2:] if stream == 0 else row[:2] for row in found}
        assert partners == {item.row for _, item in chain.stored() if item.side != stream}


@given(arrivals(), st.data(), seeds)
@settings(max_examples=40)
def test_results_of_every_query_are_emitted_in_order_one_step_for_each_probe(
    arrived: list[Arrival], data: st.DataObject, seed: int
) -> None:
    members = data.draw(members_of(plain_sides))
    chain = Chain(members, finest(members), same_key)
    found = run_at_random(chain, arrived, seed)
    for one in members:
        times = [result.ts for query, result in found if query == one.query]
        assert times == sorted(times)
        assert chain.unions[one.query].held == 0
    cuts = chain.cuts
    behind = [one for one in members if one.left.window > cuts[0][0] or one.right.window > cuts[0][1]]
    if all(one.symmetric for one in members):
        assert chain.counters.union == len(behind) * len(arrived)


@given(arrivals(), st.data())
@settings(max_examples=10)
def test_a_chain_equals_sql_over_the_finished_input(arrived: list[Arrival], data: st.DataObject) -> None:
    members = data.draw(members_of(plain_sides))
    chain = Chain(members, finest(members), same_key)
    found = by_query(members, run_through(chain, arrived))
    rows = [(stream, tuple_.ts, *tuple_.row) for stream, tuple_ in arrived] or [(2, 0, 0, 0)]
    values = ", ".join(str(row) for row in rows)
    with duckdb.connect() as database:
        for one in members:
            due = database.execute(
                f"""WITH arrived(stream, ts, k, n) AS (VALUES {values})
                SELECT greatest(a.ts, b.ts), a.k, a.n, b.k, b.n
                FROM arrived a JOIN arrived b ON a.stream = 0 AND b.stream = 1 AND a.k = b.k
                WHERE (a.n < b.n AND b.ts - a.ts < {one.left.window})
                   OR (b.n < a.n AND a.ts - b.ts < {one.right.window})"""
            ).fetchall()
            assert found[one.query] == Counter(Timed(ts, tuple(row)) for ts, *row in due)


# ----- Details


def test_tuples_pass_through_a_slice_of_length_zero_on_their_stream() -> None:
    chain = Chain([member("q", 2)], ((1, 2, 2), (1, 1, 2)), anything)
    chain.process(1, Timed(0, ("b",)))
    assert chain.process(0, Timed(1, ("a",))) == [("q", Timed(1, ("a", "b")))]


def test_a_window_longer_than_all_slices_is_rejected() -> None:
    with pytest.raises(SlicemillError, match="no slice reaches"):
        Chain([member("q", 5)], ((2, 4), (2, 4)), anything)


def test_input_out_of_order_is_rejected() -> None:
    chain = Chain([member("q", 4)], ((4,), (4,)), anything)
    chain.arrive(0, Timed(5, ("a",)))
    with pytest.raises(SlicemillError, match="in order"):
        chain.arrive(1, Timed(4, ("b",)))


def test_a_probe_that_ends_early_is_closed_by_the_next_complete_probe() -> None:
    # The left window of the query ends in the first slice, its right window in the second: only left tuples
    # reach the second slice.
    chain = Chain([Member("q", (MemberSide(2), MemberSide(6)))], ((2, 2), (2, 6)), anything)
    for stream, ts in ((0, 0), (1, 1), (0, 2)):
        assert chain.take() == []
        chain.arrive(stream, Timed(ts, (ts,)))
        while ready := chain.ready():
            chain.run(ready[0])
    assert [result.row for _, result in chain.take()] == [(0, 1), (2, 1)]
    assert chain.counters.union == 2


def test_a_predicate_that_is_no_function_needs_an_evaluator() -> None:
    chain = Chain([member("q", 4, "price > 3", 0.5)], ((4,), (4,)), anything)
    with pytest.raises(TypeError, match="say how"):
        chain.arrive(0, Timed(0, (1,)))
    told = Chain([member("q", 4, 3, 0.5)], ((4,), (4,)), anything, evaluate=lambda least, row: row[0] > least)
    told.arrive(0, Timed(0, (4,)))
    assert told.ready() == [0]
