"""Cost formulas of chains and baselines against the corrected published figures (S7, S8, S15, S18, P11)."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.operators.join.slices.cuts import (
    baselines,
    build_chain,
    mean_predicate_tests,
    mem_opt,
    merge_saving,
    pull_up,
    push_down,
    routing_tests,
    separate_joins,
    share,
    span_cost,
)
from slicemill.operators.join.slices.workload import (
    ChainCost,
    JoinWorkload,
    Member,
    MemberSide,
    count_predicate_tests,
    member,
    parts,
    span,
)
from slicemill_lab.slice.analysis import savings

shares = st.floats(0.01, 0.99)


def two_queries(rate: float, w1: float, w2: float, ss: float, sj: float) -> JoinWorkload:
    return JoinWorkload((member("q1", w1), member("q2", w2, "hot", ss)), (rate, rate), sj)


@pytest.mark.parametrize(
    ("workload", "above", "below", "sliced"),
    [
        (two_queries(50, 10, 30, 0.5, 0.1), (3000, 180100), (3000, 112700), (2500, 105350)),
        (two_queries(10, 60, 3600, 0.01, 0.1), (72000, 864020), (37554, 21040), (36954, 20350)),
    ],
)
def test_the_published_two_query_costs(
    workload: JoinWorkload, above: object, below: object, sliced: object
) -> None:
    def pair(cost: ChainCost) -> object:
        return pytest.approx((cost.memory, cost.cpu))

    assert above == pair(pull_up(workload))
    assert below == pair(push_down(workload))
    assert sliced == pair(mem_opt(workload).expected)


@given(rate=st.floats(1, 100), w1=st.floats(1, 9), w2=st.floats(10, 99), ss=shares, sj=shares)
@settings(max_examples=50)
def test_two_queries_give_the_published_formulas_term_by_term(
    rate: float, w1: float, w2: float, ss: float, sj: float
) -> None:
    workload = two_queries(rate, w1, w2, ss, sj)
    pairs = 2 * rate**2
    above = ChainCost(
        memory=2 * rate * w2,
        probe=pairs * w2,
        purge=2 * rate,
        route=pairs * w2 * sj,
        select=pairs * w2 * sj,
    )
    below = ChainCost(
        memory=(2 - ss) * rate * w1 + (1 + ss) * rate * w2,
        split=rate,
        probe=(1 - ss) * pairs * w1 + ss * pairs * w2,
        purge=3 * rate,
        route=ss * pairs * w2 * sj,
        union=pairs * w1 * sj,
    )
    sliced = ChainCost(
        memory=2 * rate * w1 + (1 + ss) * rate * (w2 - w1),
        probe=pairs * w1 + ss * pairs * (w2 - w1),
        purge=4 * rate,
        select=rate + pairs * sj * w1,
        union=2 * rate,
    )
    for ours, printed in (
        (pull_up(workload), above),
        (push_down(workload), below),
        (mem_opt(workload).expected, sliced),
    ):
        for name in ("memory", "probe", "purge", "route", "select", "split", "union"):
            assert getattr(ours, name) == pytest.approx(getattr(printed, name)), name


@pytest.mark.parametrize(
    ("rho", "ss", "sj", "expected"),
    [
        (0.5, 0.5, 0.1, (0.1250, 0.2222, 0.3333, 0.0588)),
        (0.5, 0.5, 0.4, (0.1250, 0.2222, 0.4722, 0.1739)),
        (1 / 3, 0.5, 0.025, (0.1667, 0.1667, 0.3571, 0.0182)),
        (0.1, 0.1, 0.1, (0.4050, 0.0775, 0.8333, 0.0476)),
        (1 / 60, 0.01, 0.1, (0.4868, 0.0160, 0.9765, 0.0343)),
        (0.5, 1, 0.1, (0, 0.2, 0.125, 0.0870)),
    ],
)
def test_the_published_savings(rho: float, ss: float, sj: float, expected: tuple[float, ...]) -> None:
    assert expected == pytest.approx(all_savings(rho, ss, sj), abs=5.1e-5)


@given(rho=shares, ss=shares, sj=shares)
@settings(max_examples=60)
def test_savings_are_what_the_full_formulas_differ_by_without_linear_terms(
    rho: float, ss: float, sj: float
) -> None:
    # The terms linear in the rate vanish as the rate grows.
    workload = two_queries(1e9, rho, 1, ss, sj)
    sliced, above, below = mem_opt(workload).expected, pull_up(workload), push_down(workload)
    expected = (
        1 - sliced.memory / above.memory,
        1 - sliced.memory / below.memory,
        1 - sliced.cpu / above.cpu,
        1 - sliced.cpu / below.cpu,
    )
    found = all_savings(rho, ss, sj)
    assert found == pytest.approx(expected, abs=1e-5)
    assert min(found) >= 0


@given(
    windows=st.lists(st.integers(1, 50), min_size=2, max_size=7, unique=True).map(sorted),
    rates=st.tuples(st.floats(1, 80), st.floats(1, 80)),
    overhead=st.floats(0, 20),
    data=st.data(),
)
@settings(max_examples=40)
def test_merging_slices_saves_what_its_formula_says(
    windows: list[int], rates: tuple[float, float], overhead: float, data: st.DataObject
) -> None:
    workload = JoinWorkload(tuple(member(str(w), w) for w in windows), rates, 0.1, overhead)
    i = data.draw(st.integers(1, len(windows) - 1))
    j = data.draw(st.integers(i + 1, len(windows)))
    merged = (*windows[: i - 1], *windows[j - 1 :])

    def without_unions(ends: tuple[float, ...]) -> float:
        cost = build_chain(workload, ends, ends).expected
        return cost.cpu - cost.union

    saved = without_unions(tuple(windows)) - without_unions(merged)
    assert saved == pytest.approx(merge_saving(workload, i, j), abs=1e-6)
    published = merge_saving(workload, i, j, published=True)
    assert published - merge_saving(workload, i, j) == pytest.approx(overhead * sum(rates))


def test_a_filter_on_each_stream_and_windows_of_two_lengths() -> None:
    members = (
        Member("q1", (MemberSide(10, "a1", 0.5), MemberSide(30))),
        Member("q2", (MemberSide(20, "a2", 0.4), MemberSide(5, "b2", 0.1))),
    )
    workload = JoinWorkload(members, (2, 3), 0.1)
    # Left tuples older than 10 are q2's alone, so only what both of its predicates pass meets there.
    assert span_cost(workload, 0, 10, 20) == ChainCost(
        memory=pytest.approx(2 * 0.4 * 10), probe=pytest.approx(8 * 3 * 0.1), purge=3, select=2
    )
    # Right tuples older than 5 are q1's alone; it has no predicate on them, and its own on the left is
    # proved.
    assert span_cost(workload, 1, 5, 30) == ChainCost(
        memory=pytest.approx(3 * 25), probe=pytest.approx(75 * 2 * 0.5), purge=2
    )
    # Of the young left tuples either query may want some: both predicates pass independently of each other,
    # and each result is looked at for a1, a2 and b2 again.
    young = span_cost(workload, 0, 0, 10)
    assert young.memory == pytest.approx(2 * (1 - 0.5 * 0.6) * 10)
    assert young.probe == pytest.approx(young.memory * 3)
    assert young.select == pytest.approx(2 + 3 * young.probe * 0.1)


def test_parts_of_a_split_stream_add_up_whatever_the_overlap() -> None:
    members = (member("q1", 1, "x", 0.25), member("q2", 2, "y", 0.25))
    overlapping = JoinWorkload(members, (1, 1), 0.1, any_of=lambda known: 0.25 if len(known) == 1 else 0.3)
    found = {queries: share(overlapping, 0, holding) for holding, queries in parts(members, 0).items()}
    assert found == pytest.approx({0b01: 0.05, 0b10: 0.05, 0b11: 0.2})
    assert share(overlapping, 0, frozenset()) == pytest.approx(0.7)


@given(
    wanted=st.lists(
        st.tuples(st.integers(1, 9), st.sampled_from([None, "x", "y"]), st.sampled_from([None, "z"])),
        min_size=1,
        max_size=5,
    ),
    age=st.integers(0, 8),
    end=st.integers(9, 10),
)
@settings(max_examples=40)
def test_looks_are_the_predicates_still_open_at_each_age(
    wanted: list[tuple[int, str | None, str | None]], age: int, end: int
) -> None:
    members = [
        Member(str(i), (MemberSide(w, p, 0.5 if p else 1), MemberSide(w, q, 0.5 if q else 1)))
        for i, (w, p, q) in enumerate(wanted)
    ]
    piece = span(members, 0, age, end)
    per_age = [count_predicate_tests(members, piece.mask, piece.queries_at(one)) for one in range(age, end)]
    assert mean_predicate_tests(members, 0, piece, piece.mask) == pytest.approx(sum(per_age) / len(per_age))


def test_push_down_is_left_out_where_it_is_out_of_reach() -> None:
    few, many = (tuple(member(str(i), i + 1, i, 0.5) for i in range(count)) for count in (6, 7))
    assert "push-down" in baselines(JoinWorkload(few, (1, 1), 0.1))
    assert list(baselines(JoinWorkload(many, (1, 1), 0.1))) == ["isolated", "pull-up"]


def test_isolated_queries_cost_the_sum_of_their_joins() -> None:
    cost = separate_joins(two_queries(50, 10, 30, 0.5, 0.1))
    assert cost.memory == 50 * (20 + 45)
    assert cost.probe == 2 * 2500 * (10 + 15)


def test_early_exit_never_costs_more_tests_and_more_merging_never_fewer() -> None:
    for width in range(1, 9):
        assert routing_tests(width, early_exit=True) <= routing_tests(width)
    assert all(routing_tests(a, True) < routing_tests(b, True) for a, b in pairwise(range(1, 9)))


@pytest.mark.parametrize(
    ("windows", "selectivity", "expected"),
    [
        ((5, 10, 30), 0.2, (40, 60, 45)),
        ((5, 10, 30), 0.5, (47.5, 60, 52.5)),
        ((5, 10, 30), 0.8, (55, 60, 60)),
        ((10, 20, 30), 0.2, (44, 60, 54)),
        ((10, 20, 30), 0.5, (50, 60, 60)),
        ((10, 20, 30), 0.8, (56, 60, 66)),
        ((20, 25, 30), 0.2, (52, 60, 72)),
        ((20, 25, 30), 0.5, (55, 60, 75)),
        ((20, 25, 30), 0.8, (58, 60, 78)),
    ],
)
def test_state_of_the_three_query_experiment_by_the_model(
    windows: tuple[int, int, int], selectivity: float, expected: tuple[float, float, float]
) -> None:
    members = tuple(
        member(f"q{w}", w, "hot" if i else None, selectivity if i else 1) for i, w in enumerate(windows)
    )
    plan = mem_opt(JoinWorkload(members, (1, 1), 0.1))
    found = (plan.expected.memory, plan.baselines["pull-up"].memory, plan.baselines["push-down"].memory)
    assert found == pytest.approx(expected)


def all_savings(rho: float, ss: float, sj: float) -> tuple[float, float, float, float]:
    return (
        savings.memory_against_pull_up(rho, ss),
        savings.memory_against_push_down(rho, ss),
        savings.cpu_against_pull_up(rho, ss, sj),
        savings.cpu_against_push_down(rho, ss, sj),
    )
