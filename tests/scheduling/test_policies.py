"""Policies over batches of rows, and the choice of tasks, in the dispatcher and in the simulator."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from simulator.queues import queue
from slicemill.scheduling.batches import Batches, rows_within
from slicemill.scheduling.chooser import Chooser
from slicemill.scheduling.policies import POLICIES, UnknownPolicyError, policy_named
from slicemill.scheduling.portions import TaskColumns
from slicemill_lab.charts.charts import Objective, Path, Piece, Stage
from slicemill_lab.charts.segments import SegmentFigures
from slicemill_lab.charts.tasks import cut
from slicemill_lab.policies.asked import AskedPolicy
from slicemill_lab.policies.component import component
from slicemill_lab.policies.policy import SimulatedTask
from slicemill_lab.policies.registry import asked
from slicemill_lab.simulator.compiled import compiled_form, next_task, queue_priority
from slicemill_lab.simulator.deadlines import DeadlineRule, Instant, choose_instant, play


def batches(n: int, **columns: object) -> Batches:
    """Return batches of equal tasks without sharing, except for the given columns."""
    plain = {
        "rows": 1.0,
        "wait": 1.0,
        "selectivity": 1.0,
        "overhead": 0.0,
        "per_row": 1.0,
        "weight": 1.0,
        "outputs": 1.0,
        "slack": np.inf,
        "idle": 1.0,
    }
    made = {name: np.broadcast_to(columns.get(name, value), n).astype(float) for name, value in plain.items()}
    ideal = columns.get("ideal_time", made["overhead"] + made["per_row"])
    figures = TaskColumns.without_readers(
        made["selectivity"], made["overhead"], made["per_row"], ideal, made["weight"], made["outputs"]
    )
    rows, wait, slack, idle = (made[name] for name in ("rows", "wait", "slack", "idle"))
    return Batches(np.arange(n), figures, rows, rows, rows, wait, slack, idle)


def priorities(policy: str, given_batches: Batches) -> list[float]:
    return list(policy_named(policy).priority(given_batches))


def test_a_run_takes_a_quantum_or_five_times_its_overhead_and_at_least_one_row() -> None:
    assert rows_within(0.02, 0.002, 0.001).tolist() == pytest.approx(18)
    assert rows_within(0.02, 0.006, 0.001).tolist() == pytest.approx(24)
    assert rows_within(0.02, 0.0, [0.05, 0.0]).tolist() == [1, np.inf]
    assert rows_within(np.inf, 0.002, 0.001).tolist() == np.inf


def test_one_row_without_overhead_has_the_tuple_wise_priorities() -> None:
    # G5 and G6: cost 5 with selectivity 1, and cost 2 with selectivity 1/3, after a wait of 10.
    two = batches(2, per_row=[5, 2], selectivity=[1, 1 / 3], wait=10)
    assert priorities("hr", two) == pytest.approx([0.2, 1 / 6])
    assert priorities("hnr", two) == pytest.approx([0.04, 1 / 12])
    assert priorities("bsd", two) == pytest.approx([0.08, 0.0416667 * 10], rel=1e-5)
    assert priorities("brt", two) == pytest.approx([2, 10 / 6])
    assert priorities("lsf", two) == pytest.approx([2, 5])
    assert priorities("srpt", two) == pytest.approx([0.2, 0.5])
    assert priorities("fcfs", two) == [10, 10]


@pytest.mark.parametrize("beta", [0, 0.25, 0.5, 1])
def test_freshness_of_a_batch_follows_that_of_single_tuples(beta: float) -> None:
    given_batches = batches(3, selectivity=[0.5, 1, 0.01], per_row=[4, 2, 1], rows=10)
    counted = 10**beta
    expected = [(1 - (1 - s) ** counted) / (counted * c) for s, c in ((0.5, 4), (1, 2), (0.01, 1))]
    assert priorities(f"fas({beta})", given_batches) == pytest.approx(expected)


def test_freshness_counts_each_query_of_a_task() -> None:
    one, three = batches(1, selectivity=0.5, rows=4), batches(1, selectivity=1.5, rows=4, outputs=3)
    assert priorities("fas", three)[0] == pytest.approx(3 * priorities("fas", one)[0])


figure = st.floats(0.05, 20)


@st.composite
def some_batches(draw: st.DrawFn, least: int = 1, most: int = 5) -> Batches:
    n = draw(st.integers(least, most))
    column = st.lists(figure, min_size=n, max_size=n)
    rows = [max(1, round(value)) for value in draw(column)]
    selectivity = [min(value, 20) / 20 for value in draw(column)]
    names = ("wait", "overhead", "per_row", "weight", "slack", "idle")
    return batches(n, rows=rows, selectivity=selectivity, **{name: draw(column) for name in names})


@given(some_batches())
@settings(max_examples=60)
def test_descending_priority_is_the_best_order_for_the_aim_of_a_policy(given_batches: Batches) -> None:
    """Smith's rule with batch times: the sum over batches of weight times start time is minimal."""
    time, figures = given_batches.time, given_batches.figures
    results = figures.selectivity * given_batches.rows
    stale = 1 - (1 - figures.selectivity) ** given_batches.rows
    counted = {
        "hr": figures.weight * results,
        "hnr": figures.weight * results / given_batches.ideal_time,
        "fas": figures.weight * stale,
        "chain": given_batches.rows,
        "srpt": np.ones(len(given_batches)),
    }

    def cost(order: tuple[int, ...] | list[int], weights: np.ndarray) -> float:
        starts = np.concatenate([[0], np.cumsum(time[list(order)])[:-1]])
        return float(weights[list(order)] @ starts)

    for name, weights in counted.items():
        chosen = Chooser(policy_named(name)).choose(given_batches, len(given_batches))
        best = min(cost(order, weights) for order in permutations(range(len(given_batches))))
        assert cost(chosen, weights) == pytest.approx(best, rel=1e-9, abs=1e-9)


@example(batches(2, wait=[1, 2], slack=2.0, per_row=2.0, selectivity=[0.05, 0.1]))
@given(some_batches(most=8))
@settings(max_examples=60)
def test_the_hybrid_policy_picks_the_same_order_as_its_definition_with_lists(given_batches: Batches) -> None:
    """The rule of P25, head by head, against the single sort over all batches.

    Among equal batches, the longest wait decides.
    """
    left = list(range(len(given_batches)))
    work, rate, wait = given_batches.time, policy_named("hr").priority(given_batches), given_batches.wait
    expected = []
    while left:
        late = sorted(
            (i for i in left if work[i] > given_batches.slack[i]), key=lambda i: (-rate[i], -wait[i])
        )
        timely = sorted((i for i in left if i not in late), key=lambda i: (given_batches.slack[i], -wait[i]))
        late_first = late and (not timely or work[late[0]] < given_batches.slack[timely[0]])
        expected.append(late[0] if late_first else timely[0])
        left.remove(expected[-1])
    chosen = Chooser(policy_named("hybrid")).choose(given_batches, len(given_batches))
    keys = [(rate[i], given_batches.slack[i], work[i]) for i in chosen]
    assert keys == [(rate[i], given_batches.slack[i], work[i]) for i in expected]


one_tuple = st.tuples(
    st.floats(0.01, 2), st.floats(0.1, 10), st.floats(0.1, 30), st.floats(0.1, 5), st.integers(0, 40)
)


@given(
    st.lists(one_tuple, min_size=1, max_size=6),
    st.sampled_from([*POLICIES, "fas(0.5)"]),
    st.lists(st.integers(0, 5), max_size=6),
)
def test_dispatcher_and_simulator_choose_the_same_task_for_single_tuples(
    tuples: list[tuple[float, float, float, float, int]], name: str, ran_before: list[int]
) -> None:
    """Compares the dispatcher's batches, a tuple-wise form in Python, and the compiled simulator."""
    now, policy = 50.0, policy_named(name)
    tasks = [
        SimulatedTask(f"u{i}", Piece(c, 1), SegmentFigures(s, c, t), a)
        for i, (s, c, t, a, _) in enumerate(tuples)
    ]
    selectivity, cost, ideal, weight, arrival = np.array(tuples, float).T
    simulated, ran = AskedPolicy(policy, tasks), np.zeros(len(tasks))
    for time, task in enumerate(ran_before, 1):
        if task < len(tasks):
            simulated.choose([queue(task)], float(time))
            ran[task] = time
    columns = {"selectivity": selectivity, "per_row": cost, "weight": weight, "wait": now - arrival}
    dispatched = batches(len(tasks), **columns, ideal_time=ideal, idle=now - ran)
    chosen = Chooser(policy, patience=np.inf).choose(dispatched)
    compiled = compiled_form(AskedPolicy(policy, tasks), len(tasks))
    if compiled is not None:
        waiting = np.array(
            [
                queue_priority(compiled, i, (0, 1), 0.0, False, np.ones(1), np.ones(1))
                for i in range(len(tasks))
            ]
        )
        assert next_task(compiled, np.ones(len(tasks), np.int64), arrival, waiting, now) == chosen[0]
    heads = [queue(task, arrival=came) for task, came in enumerate(arrival)]
    assert simulated.choose(heads, now) == chosen[0]


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(-20, 60)), min_size=1, max_size=6),
    st.sampled_from(
        [("edf", DeadlineRule.EDF), ("hr", DeadlineRule.HIGHEST_RATE), ("hybrid", DeadlineRule.HYBRID)]
    ),
)
def test_aggregate_instants_are_chosen_like_batches(
    jobs: list[tuple[int, int]], rule: tuple[str, DeadlineRule]
) -> None:
    """One result for each batch; with whole numbers all computations agree to the last bit."""
    now = 8.0
    cost, deadline = np.array(jobs, float).T
    given_batches = batches(len(jobs), per_row=cost, slack=deadline - now)
    assert [choose_instant(rule[1], cost, deadline, now)] == Chooser(policy_named(rule[0])).choose(
        given_batches
    )


def test_chain_priority_is_the_slope_of_a_path_that_is_not_cut() -> None:
    path = Path("q", (Stage("filter", 2.0, 0.5), Stage("project", 3.0)))
    tasks = cut([path], "query", Objective.MEMORY).tasks
    assert asked("chain", tasks).by_wait()[0].tolist() == list(component(tasks).fixed)


def test_the_hybrid_policy_agrees_with_its_form_for_aggregate_instants() -> None:
    """G12: with one result for each batch, the highest rate is the least work."""
    jobs = [(1, 100), (4, 1), (10, 0.5), (2, 9)]
    given_batches = batches(4, per_row=[c for c, _ in jobs], slack=[d for _, d in jobs])
    first = Chooser(policy_named("hybrid")).choose(given_batches)
    assert first == play([Instant(c, d) for c, d in jobs], DeadlineRule.HYBRID)[0][:1] == [1]


def test_the_hybrid_policy_counts_all_pending_rows_until_the_deadline() -> None:
    """P25: the work of the whole backlog counts, not that of one run; 30 rows are late, and 2 are in time."""
    given_batches = batches(2, rows=2, slack=[10, 20])
    assert Chooser(policy_named("hybrid")).choose(given_batches) == [0]
    backlogged = replace(given_batches, pending=np.array([30.0, 2.0]))
    assert Chooser(policy_named("hybrid")).choose(backlogged) == [1]


def test_equal_priorities_are_ordered_by_wait_and_the_count_is_respected() -> None:
    given_batches = batches(3, wait=[1, 3, 2])
    assert Chooser(policy_named("hr")).choose(given_batches, 2) == [1, 2]
    assert Chooser(policy_named("hr")).choose(batches(0)) == []


@pytest.mark.parametrize("name", ["hr", "hnr", "bsd", "fas", "srpt", "edf"])
def test_the_starvation_guard_runs_every_task_within_a_bound(name: str) -> None:
    """Three tasks always have pending rows; one emits no results, is slow and has no deadline."""
    chooser, clock = Chooser(policy_named(name), patience=5, guarded_every=4), 0.0
    came = np.zeros(3)
    waits = []
    for _ in range(60):
        clock += 1
        given_batches = batches(
            3, wait=clock - came, selectivity=[1, 1, 0], per_row=[1, 1, 50], slack=[1, 1, np.inf]
        )
        chosen = chooser.choose(given_batches)[0]
        if chosen == 2:
            waits.append(clock - came[2])
        came[chosen] = clock
    assert waits and max(waits) <= 5 + 4
    assert len(waits) <= 60 / 4


def test_a_component_with_its_own_policy_orders_only_its_own_turns() -> None:
    """Of five batches, 1, 2 and 4 are a component with policy hr; all other batches have policy fcfs."""
    given_batches = batches(5, wait=[5, 4, 3, 2, 1], selectivity=[0.1, 0.2, 0.3, 0.4, 0.5])
    chooser, members = Chooser(policy_named("fcfs")), np.array([1, 2, 4])
    assert chooser.choose(given_batches, 5) == [0, 1, 2, 3, 4]
    assert chooser.choose(given_batches, 5, [(policy_named("hr"), members)]) == [0, 4, 2, 3, 1]
    assert chooser.choose(given_batches, 2, [(policy_named("hr"), members)]) == [0, 4]
    assert chooser.choose(given_batches, 1, [(policy_named("hr"), members)]) == [0]


@given(some_batches(most=8))
@settings(max_examples=30)
def test_min_latency_orders_tasks_like_the_rate(given_batches: Batches) -> None:
    """C̄/S, the work until the next result, against S/C̄ (P11); without weights it is the highest rate."""
    least, rate = (Chooser(policy_named(name)).choose(given_batches, 8) for name in ("ml", "rb"))
    assert least == rate
    plain = batches(
        len(given_batches),
        rows=given_batches.rows,
        selectivity=given_batches.figures.selectivity,
        per_row=given_batches.cost()[1],
        wait=given_batches.wait,
    )
    assert priorities("rb", plain) == pytest.approx(priorities("hr", plain))


def test_policy_names_are_found_and_errors_have_hints() -> None:
    assert all(policy_named(name.upper()) is policy for name, policy in POLICIES.items())
    assert policy_named(" fas ( 0.5 ) ").name == "fas(0.5)"
    for wrong, message in (
        ("hrn", "did you mean"),
        ("fas(2)", "is out of range"),
        ("hr(1)", "has no parameter"),
        ("", "there is no policy"),
        ("quick; please", "there is no policy"),
    ):
        with pytest.raises(UnknownPolicyError, match=message):
            policy_named(wrong)
