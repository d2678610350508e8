"""Where chains are cut: goldens of S18, and P8 against all ways to cut."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.operators.join.slices.cuts import (
    Ends,
    PlannedChain,
    build_chain,
    by_cpu,
    cost_objective,
    cpu_opt,
    mem_opt,
    span_cost,
)
from slicemill.operators.join.slices.workload import (
    ChainCost,
    JoinWorkload,
    Member,
    MemberSide,
    member,
    spans,
)

WINDOWS = {
    "uniform": [2.5 * i for i in range(1, 13)],
    "mostly small": [*range(1, 11), 20, 30],
    "small and large": [*range(1, 7), *range(25, 31)],
}


@pytest.mark.parametrize(
    ("windows", "rate", "overhead", "slices", "best", "finest", "one_join"),
    [
        ("uniform", 20, 0, 12, 480, 480, 6640),
        ("uniform", 20, 2, 6, 1320, 1440, 6720),
        ("uniform", 20, 8, 4, 2640, 4320, 6960),
        ("mostly small", 20, 2, 6, 1040, 1440, 6720),
        ("mostly small", 20, 8, 4, 2240, 4320, 6960),
        ("small and large", 20, 2, 5, 1000, 1440, 6720),
        ("small and large", 20, 8, 3, 2080, 4320, 6960),
        ("mostly small", 80, 8, 7, 13280, 17280, 107040),
        ("small and large", 80, 8, 6, 13120, 17280, 107040),
    ],
)
def test_the_golden_costs(
    windows: str, rate: int, overhead: int, slices: int, best: int, finest: int, one_join: int
) -> None:
    members = tuple(member(str(w), w) for w in WINDOWS[windows])
    workload = JoinWorkload(members, (rate, rate), 0.025, overhead)
    plan = cpu_opt(workload)
    assert apart_from_probing(plan.expected) == pytest.approx(best)
    assert apart_from_probing(mem_opt(workload).expected) == pytest.approx(finest)
    assert apart_from_probing(plan.baselines["pull-up"]) == pytest.approx(one_join)
    assert len(plan.slices) == slices
    assert plan.expected.memory == pytest.approx(mem_opt(workload).expected.memory)


def apart_from_probing(cost: ChainCost) -> float:
    """The golden costs leave out what is the same for all chains."""
    return cost.purge + cost.route + cost.overhead


sides = st.builds(
    lambda window, predicate: MemberSide(window, predicate, 1 if predicate is None else 0.3),
    st.integers(1, 9),
    st.sampled_from([None, None, "x", "y"]),
)
members_of_two = st.lists(st.tuples(sides, sides), min_size=1, max_size=4).map(
    lambda pairs: tuple(Member(f"q{i}", pair) for i, pair in enumerate(pairs))
)
symmetric = st.lists(
    st.tuples(st.integers(1, 9), st.sampled_from([None, "x", "y"])), min_size=1, max_size=6
).map(
    lambda wanted: tuple(
        member(f"q{i}", w, predicate, 1 if predicate is None else 0.4)
        for i, (w, predicate) in enumerate(wanted)
    )
)
workloads = st.builds(
    JoinWorkload,
    members=members_of_two | symmetric,
    rates=st.tuples(st.floats(0.1, 50), st.floats(0.1, 50)),
    join_selectivity=st.floats(0, 1),
    overhead=st.floats(0, 30),
)


@given(workloads, st.sampled_from([by_cpu, cost_objective(1, 5), cost_objective(0, 1)]))
@settings(max_examples=30)
def test_no_other_way_to_cut_is_cheaper(workload: JoinWorkload, objective: object) -> None:
    assert callable(objective)

    def of_slices(plan: PlannedChain) -> float:
        return float(sum(objective(one.expected) for one in plan.slices))

    best = of_slices(cpu_opt(workload, objective))
    left, right = mem_opt(workload).ends
    pairs = (
        ((ends, ends) for ends in all_ways(left))
        if workload.symmetric
        else ((a, b) for a in all_ways(trimmed(left)) for b in all_ways(trimmed(right)))
    )
    least = min(of_slices(build_chain(workload, a, b)) for a, b in pairs)
    assert best == pytest.approx(least)
    assert best <= of_slices(mem_opt(workload)) * (1 + 1e-9)


def all_ways(ends: Ends) -> list[Ends]:
    return [(*inner, ends[-1]) for size in range(len(ends)) for inner in combinations(ends[:-1], size)]


def trimmed(ends: Ends) -> Ends:
    """Without the empty slices that only make both streams' lists equally long."""
    return tuple(sorted(set(ends)))


@given(symmetric, st.floats(0.1, 50), st.floats(0.1, 10))
@settings(max_examples=30)
def test_without_matches_one_join_is_best_and_with_many_a_slice_per_window(
    members: tuple[Member, ...], rate: float, overhead: float
) -> None:
    bare = tuple(member(one.query, one.left.window) for one in members)
    assert len(cpu_opt(JoinWorkload(bare, (rate, rate), 0, overhead)).slices) == 1
    busy = JoinWorkload(bare, (rate * 1e4, rate * 1e4), 1, 0)
    assert cpu_opt(busy).ends == mem_opt(busy).ends


@given(workloads)
@settings(max_examples=40)
def test_a_cut_at_every_window_needs_least_state(workload: JoinWorkload) -> None:
    least = mem_opt(workload).expected.memory
    assert least <= cpu_opt(workload).expected.memory * (1 + 1e-9)
    assert cpu_opt(workload, cost_objective(0, 1)).expected.memory == pytest.approx(least)
    if all(side.predicate is None for one in workload.members for side in one.sides):
        longest = [max(one.sides[s].window for one in workload.members) for s in (0, 1)]
        assert least == pytest.approx(sum(r * w for r, w in zip(workload.rates, longest, strict=True)))


def test_weights_lead_from_the_leanest_chain_to_the_quickest() -> None:
    # Merging across the filter saves purging and overhead but keeps, and probes, what the filter would
    # remove.
    members = (member("all", 10), member("few", 20, "hot", 0.2))
    workload = JoinWorkload(members, (0.2, 0.2), 0.1, overhead=20)
    memories = [cpu_opt(workload, cost_objective(1, price)).expected.memory for price in (0, 1, 10, 100)]
    assert memories == sorted(memories, reverse=True)
    assert (memories[0], memories[-1]) == (
        cpu_opt(workload).expected.memory,
        mem_opt(workload).expected.memory,
    )
    assert memories[0] > memories[-1]


@given(workloads)
@settings(max_examples=30)
def test_a_plan_says_who_needs_each_slice_and_what_stands_before_it(workload: JoinWorkload) -> None:
    plan = cpu_opt(workload)
    for side, ends in enumerate(plan.ends):
        for number, piece in enumerate(one.sides[side] for one in plan.slices):
            wanting = [one for one in plan.members if one.sides[side].window > piece.start]
            if piece.length:
                assert {one.query for one in wanting} <= set(plan.queries(number))
                first = wanting[0].sides[side].predicate
                if all(one.sides[side].predicate == first for one in wanting):
                    assert plan.filters(number, side) == (() if first is None else (first,))
                assert piece == spans(plan.members, side, ends)[number]
    total = sum((one.expected for one in plan.slices), ChainCost())
    assert total.cpu + plan.expected.union == pytest.approx(plan.expected.cpu)
    assert total.memory == pytest.approx(plan.expected.memory)
    assert span_cost(workload, 0, 0, plan.ends[0][0]).purge == workload.rates[1]
