"""Published policies: worked examples, and the objective that each policy minimises (P12-P16, P32-P34)."""

from __future__ import annotations

from itertools import permutations
from math import sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.errors import SlicemillError
from slicemill.metrics.quality_of_service import Summary
from slicemill.scheduling import priorities as fas
from slicemill_lab.charts.charts import Objective, Path, Stage
from slicemill_lab.charts.segments import SegmentFigures
from slicemill_lab.charts.tasks import cut
from slicemill_lab.policies.policy import SimulatedTask, TupleChooser
from slicemill_lab.policies.registry import NAMES, OBJECTIVES, asked, make
from slicemill_lab.simulator.loop import simulate
from slicemill_lab.simulator.measures import objectives, output_latencies
from slicemill_lab.simulator.workload import Load, draw
from slicemill_lab.testbeds.quality import quality_of_data, quality_of_service

EXAMPLE = (Path("Q1", (Stage("o1", 5.0, 1.0),)), Path("Q2", (Stage("o2", 2.0, 1 / 3),)))


def tasks_of(*figures: tuple[float, float, float]) -> list[SimulatedTask]:
    """Return tasks with these values of (S, C̄, T)."""
    piece = cut(EXAMPLE, "query", Objective.OUTPUT_RESPONSE).tasks[0].piece
    return [SimulatedTask(f"u{i}", piece, SegmentFigures(*f)) for i, f in enumerate(figures)]


def priorities(name: str, tasks: list[SimulatedTask], wait: float = 0.0) -> list[float]:
    fixed, growth = asked(name, tasks).by_wait()
    return list(fixed + growth * wait)


def fas_priority(
    selectivity: float, cost: float, pending: int, weight: float = 1.0, beta: float = 1.0
) -> float:
    return float(fas.value(float(pending), min(selectivity, 1 - 1e-16), 0.0, cost, weight, 1.0, beta))


def test_golden_g5_hr_and_hnr_have_the_published_responses_and_slowdowns() -> None:
    load = [Load(EXAMPLE[0], [0, 0, 0]), Load(EXAMPLE[1], [0, 0, 0], outputs=[[0, 1, 0]])]
    work = draw(load, 1)
    tasks = cut(EXAMPLE, "query", Objective.OUTPUT_RESPONSE)
    found = {}
    for name in ("hr", "hnr"):
        run = simulate(work, tasks, make(name, tasks.tasks))
        by_query = [output_latencies(run, path) for path in (0, 1)]
        response, slowdown = Summary(), Summary()
        for latencies, ideal in zip(by_query, (5.0, 2.0), strict=True):
            response.add(latencies)
            slowdown.add(latencies / ideal)
        assert [latencies.tolist() for latencies in by_query] == (
            [[5, 10, 15], [19]] if name == "hr" else [[11, 16, 21], [4]]
        )
        found[name] = [
            response.mean,
            slowdown.mean,
            response.largest,
            slowdown.largest,
            response.l2,
            slowdown.l2,
        ]
    assert found["hr"] == pytest.approx([12.25, 3.875, 19, 9.5, 26.6646, 10.2103], rel=1e-5)
    assert found["hnr"] == pytest.approx([13.0, 2.9, 21, 4.2, 28.8791, 6.0597], rel=1e-5)
    assert priorities("hr", list(tasks.tasks)) == pytest.approx([0.2, 1 / 6])
    assert priorities("hnr", list(tasks.tasks)) == pytest.approx([0.04, 1 / 12])


def test_golden_g6_balance_slowdown_has_the_published_priorities() -> None:
    tasks = list(cut(EXAMPLE, "query", Objective.OUTPUT_RESPONSE).tasks)
    assert priorities("bsd", tasks, wait=10) == pytest.approx([0.08, 0.416667], rel=1e-5)
    assert priorities("bsd", tasks, wait=1) == pytest.approx([0.008, 0.0416667], rel=1e-5)


FIGURES = st.tuples(st.floats(0.05, 2), st.floats(0.5, 10), st.floats(0.5, 20))


@settings(max_examples=60)
@given(st.lists(st.tuples(FIGURES, st.floats(0, 50)), min_size=2, max_size=5))
def test_rate_and_normalised_rate_minimise_their_sums(
    cases: list[tuple[tuple[float, float, float], float]],
) -> None:
    figures = [figure for figure, _ in cases]
    waits = [wait for _, wait in cases]

    def total(order: tuple[int, ...], normalised: bool) -> float:
        start = cost = 0.0
        for i in order:
            s, c, t = figures[i]
            cost += s * (t + waits[i] + start) / (t if normalised else 1)
            start += c
        return cost

    for name, normalised in (("hr", False), ("hnr", True)):
        ranked = priorities(name, tasks_of(*figures))
        order = tuple(sorted(range(len(figures)), key=lambda i: -ranked[i]))
        best = min(total(other, normalised) for other in permutations(range(len(figures))))
        assert total(order, normalised) == pytest.approx(best)


@given(st.lists(st.floats(0.5, 20), min_size=2, max_size=6))
def test_with_all_selectivities_one_three_policies_agree(times: list[float]) -> None:
    tasks = tasks_of(*((1.0, t, t) for t in times))
    orders = [np.argsort(priorities(name, tasks), kind="stable").tolist() for name in ("hr", "hnr", "srpt")]
    assert [times[i] for i in orders[0]] == [times[i] for i in orders[1]] == [times[i] for i in orders[2]]


@given(FIGURES, FIGURES, st.floats(0, 100), st.floats(0, 100))
def test_balance_slowdown_follows_its_exact_rule(
    one: tuple[float, float, float], two: tuple[float, float, float], wait1: float, wait2: float
) -> None:
    """The rule picks the order of two with the lesser ℓ2 norm; BSD is its limit for long waits."""

    def norm(
        first: tuple[float, float, float], w1: float, then: tuple[float, float, float], w2: float
    ) -> float:
        return sqrt(
            first[0] * ((w1 + first[2]) / first[2]) ** 2
            + then[0] * ((w2 + first[1] + then[2]) / then[2]) ** 2
        )

    phi1, phi2 = (s / (c * t * t) for s, c, t in (one, two))
    left = phi2 * (2 * wait2 + 2 * two[2] + one[1])
    right = phi1 * (2 * wait1 + 2 * one[2] + two[1])
    if abs(left - right) > 1e-6 * max(left, right):
        better = norm(one, wait1, two, wait2) < norm(two, wait2, one, wait1)
        assert (left < right) == better


GOLDEN_17 = [
    ((0.5, 4, 1), 0.125), ((0.5, 4, 2), 0.09375), ((0.5, 4, 10), 0.024976), ((1, 2, 1), 0.5),
    ((1, 2, 10), 0.05), ((0.1, 1, 1), 0.1), ((0.1, 1, 10), 0.065132), ((0.01, 1, 10), 0.009562),
]  # fmt: skip


@pytest.mark.parametrize(("given_", "expected"), GOLDEN_17)
def test_golden_g17_freshness_has_the_published_priorities(
    given_: tuple[float, float, int], expected: float
) -> None:
    assert fas_priority(*given_) == pytest.approx(expected, rel=1e-4)


def test_golden_g18_freshness_with_beta_has_the_published_priorities() -> None:
    for beta, first, second in (
        (0, 0.125, 0.5),
        (0.25, 0.0996, 0.28117),
        (0.5, 0.07023, 0.15811),
        (1, 0.02498, 0.05),
    ):
        assert fas_priority(0.5, 4, 10, beta=beta) == pytest.approx(first, rel=1e-3)
        assert fas_priority(1, 2, 10, beta=beta) == pytest.approx(second, rel=1e-3)


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.floats(0.01, 1), st.floats(0.5, 10), st.integers(1, 9), st.floats(0.1, 1)),
        min_size=2,
        max_size=5,
    )
)
def test_freshness_minimises_expected_weighted_staleness(
    cases: list[tuple[float, float, int, float]],
) -> None:
    def lost(order: tuple[int, ...]) -> float:
        start = total = 0.0
        for i in order:
            s, c, n, weight = cases[i]
            total += weight * (1 - (1 - s) ** n) * start
            start += n * c
        return total

    order = tuple(sorted(range(len(cases)), key=lambda i: -fas_priority(*cases[i])))
    assert lost(order) == pytest.approx(
        min(lost(other) for other in permutations(range(len(cases)))), abs=1e-9
    )


def test_freshness_needs_a_beta_between_0_and_1() -> None:
    with pytest.raises(SlicemillError, match="between 0"):
        make("fas", tasks_of((1, 1, 1)), beta=2.0)


class InPython:
    """Policy with the same choices, outside of the compiled loop."""

    def __init__(self, policy: TupleChooser) -> None:
        self.choose = policy.choose


@pytest.mark.parametrize("name", ["fas", "slices", "bsd", "hnr", "fcfs"])
def test_compiled_and_plain_form_make_the_same_choices(name: str) -> None:
    bed = quality_of_data(0.9, 3, queries=12, streams=3, tuples=60, bursty=2)
    tasks = cut(bed.work.paths, "query", Objective.OUTPUT_RESPONSE)
    runs = [simulate(bed.work, tasks, policy) for policy in (
        make(name, tasks.tasks), InPython(make(name, tasks.tasks))
    )]  # fmt: skip
    assert np.array_equal(runs[0].finished, runs[1].finished) and runs[0].decisions == runs[1].decisions


@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize("utilisation", [0.7, 0.97])
def test_each_policy_is_best_at_its_own_objective(utilisation: float, seed: int) -> None:
    """In the seven by seven matrix of policies and objectives, the diagonal is best."""
    bed = quality_of_service(utilisation, seed, queries=200, tuples=300)
    tasks = cut(bed.work.paths, "query", Objective.OUTPUT_RESPONSE)
    found = {
        name: objectives(simulate(bed.work, tasks, make(name, tasks.tasks))) for name in OBJECTIVES.values()
    }
    for objective, own in OBJECTIVES.items():
        values = {name: figures[objective] for name, figures in found.items()}
        assert min(values, key=lambda name: values[name]) == own, (objective, values)


def test_every_objective_names_a_policy() -> None:
    assert set(OBJECTIVES.values()) <= set(NAMES)
