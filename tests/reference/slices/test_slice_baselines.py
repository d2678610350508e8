"""Joins without slices: equal results, and the costs of the model for all methods (S6-S8, S15, P5)."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slice_cases import (
    Arrival,
    any_ends,
    arrivals,
    by_query,
    expected,
    filtered_sides,
    is_even,
    members_of,
    run_through,
    same_key,
)

from slicemill.operators.join.rows import CountWindow, JoinByRows
from slicemill.operators.join.slices.cuts import mem_opt
from slicemill.operators.join.slices.workload import ChainCost, JoinWorkload, Member, member
from slicemill.types import Row, Timed
from slicemill_oracle.engine import Engine
from slicemill_oracle.graph import OperatorSpec, SinkSpec
from slicemill_oracle.operators.stateless import Select
from slicemill_oracle.slices.chain import Chain
from slicemill_oracle.slices.count_slice import CountSlice
from slicemill_oracle.slices.operator import SlicedJoinOperator
from slicemill_oracle.slices.unshared import IsolatedJoins, PushDown, QueriesJoin, pull_up
from slicemill_oracle.sources import Arrival as Arriving
from slicemill_oracle.sources import ScheduledSource


@given(arrivals(), st.data())
@settings(max_examples=50)
def test_every_method_gives_every_query_its_own_join(arrived: list[Arrival], data: st.DataObject) -> None:
    members = data.draw(members_of(filtered_sides))
    ways: list[QueriesJoin] = [
        IsolatedJoins(members, same_key),
        pull_up(members, same_key),
        PushDown(members, same_key),
        Chain(members, data.draw(any_ends(members)), same_key),
    ]
    wanted = expected(members, arrived)
    for way in ways:
        assert by_query(members, run_through(way, arrived)) == wanted


@given(arrivals(), st.data())
@settings(max_examples=40)
def test_count_slices_give_every_query_its_last_tuples(arrived: list[Arrival], data: st.DataObject) -> None:
    members = data.draw(members_of(filtered_sides))
    chain = Chain(members, data.draw(any_ends(members)), same_key, slice_type=CountSlice)
    found = by_query(members, run_through(chain, arrived))
    for one in members:
        left, right = (side.predicate for side in one.sides)

        def wanted(row: Row, left: object = left, right: object = right) -> bool:
            halves = ((left, row[:2]), (right, row[2:]))
            return row[0] == row[2] and all(p(half) for p, half in halves if callable(p))

        alone = JoinByRows([CountWindow(int(side.window)) for side in one.sides], wanted)
        due = [result for stream, tuple_ in arrived for result in alone.process(stream, tuple_)]
        assert sorted(found[one.query].elements()) == sorted(due)


def matches_one_in_ten(left: Row, right: Row) -> bool:
    return Random(hash((left[0], right[0]))).random() < 0.1


def test_measured_comparisons_and_state_equal_those_of_the_model() -> None:
    # One tuple of each stream per time unit, of which a third of the left tuples is selected.
    members = (member("q1", 20), member("q2", 60, lambda row: int(str(row[0])) % 3 == 0, 1 / 3))
    workload = JoinWorkload(members, (1, 1), 0.1)
    plan = mem_opt(workload)
    ways: dict[str, tuple[QueriesJoin, ChainCost]] = {
        "sliced": (Chain(members, plan.ends, matches_one_in_ten), plan.expected),
        "pull-up": (pull_up(members, matches_one_in_ten), plan.baselines["pull-up"]),
        "push-down": (PushDown(members, matches_one_in_ten), plan.baselines["push-down"]),
        "isolated": (IsolatedJoins(members, matches_one_in_ten), plan.baselines["isolated"]),
    }
    for name, (way, model) in ways.items():
        for ts in range(400):
            if ts == 100:
                start = way.counters + type(way.counters)()
            for stream in (0, 1):
                way.process(stream, Timed(ts, (2 * ts + stream if stream else ts,)))
        spent = {
            part: (getattr(way.counters, part) - getattr(start, part)) / 300
            for part in ("probe", "purge", "route", "select", "split", "union")
        }
        assert way.state_size == pytest.approx(model.memory, rel=0.1), name
        for part in ("probe", "route", "select", "split"):
            assert spent[part] == pytest.approx(getattr(model, part), rel=0.15), (name, part)
        # In the model, tuples that a selection removes purge and punctuate nevertheless.
        assert 0.6 * model.purge <= spent["purge"] <= model.purge
        assert 0.6 * model.union <= spent["union"] <= model.union * 1.15


def test_a_shared_join_is_an_operator_of_the_engine() -> None:
    members = [member("all", 2_000), member("even", 5_000, is_even, 0.5)]
    join = SlicedJoinOperator(Chain(members, ((2_000, 5_000), (2_000, 5_000)), same_key))
    engine = Engine(
        [
            ScheduledSource("A"),
            ScheduledSource("B"),
            OperatorSpec("join", join, ("A", "B")),
            OperatorSpec("of all", Select(lambda row: row[-1] == "all"), ("join",)),
            OperatorSpec("of even", Select(lambda row: row[-1] == "even"), ("join",)),
            SinkSpec("all", "of all"),
            SinkSpec("even", "of even"),
        ],
        seed=1,
    )
    engine.feed("A", [Arriving(at=0, row=("k", 1)), Arriving(at=1_000, row=("k", 2))])
    engine.feed("B", [Arriving(at=500, row=("k", 3)), Arriving(at=4_000, row=("k", 4))])
    engine.run()
    found = {name: [one.row[:-1] for one in engine.sink(name).sink.rows] for name in ("all", "even")}
    assert found == {
        "all": [("k", 1, "k", 3), ("k", 2, "k", 3)],
        "even": [("k", 2, "k", 3), ("k", 2, "k", 4)],
    }


def test_push_down_needs_a_join_per_pair_of_parts() -> None:
    members: list[Member] = [
        member("q0", 1),
        member("q1", 2, "x", 0.5),
        member("q2", 3, "y", 0.5),
        member("q3", 4, "z", 0.5),
    ]
    assert len(PushDown(members, same_key, evaluate=lambda _, __: True).joins) == 8
