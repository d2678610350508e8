"""Simulation of the dispatcher in virtual time: hand-computed cases, closed forms and invariants."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.scheduling.capacity import Costs, Output, TaskCost
from slicemill.scheduling.chooser import Chooser
from slicemill.scheduling.policies import POLICIES, policy_named
from slicemill.scheduling.rehearsal import Outcome, Poll, Traffic, polls, simulate_arrivals, total_rows


def task(name: str, row_s: float, per_row: float = 1.0, reads: str = "s", splits: bool = False) -> TaskCost:
    return TaskCost(name, (reads,), (Output(f"q{name}", per_row),), splits, 0.0, 0.0, row_s)


def played(costs: Costs, arrivals: list[Poll], policy: str = "fcfs", cores: int = 1) -> Outcome:
    return simulate_arrivals(costs, cores, Chooser(policy_named(policy)), arrivals)


def test_rows_that_arrive_during_a_job_wait_for_the_next_job() -> None:
    outcome = played(Costs(1.0, (task("a", 0.1),)), [Poll(0.0, "s", 10), Poll(1.0, "s", 20)])
    # The first job ends at 2 with 10 results, the second reads 20 rows and ends at 5.
    figures = outcome.overall()
    assert (outcome.jobs, outcome.lasted_s, outcome.behind_s) == (2, pytest.approx(5.0), pytest.approx(4.0))
    assert figures.response.mean == pytest.approx((10 * 2 + 20 * 4) / 30)
    assert figures.response.largest == pytest.approx(4.0)
    assert figures.slowdown.mean == pytest.approx((10 * 2 + 20 * 4) / 30 / 1.1)
    assert outcome.queries["qa"].staleness == pytest.approx(1.0)
    assert outcome.most_waiting == 30
    assert outcome.mean_waiting == pytest.approx((10 * 2 + 20 * 4) / 5)


def test_time_without_pending_rows_counts_as_fresh() -> None:
    outcome = played(Costs(1.0, (task("a", 0.1),)), [Poll(0.0, "s", 10), Poll(6.0, "s", 10)])
    assert outcome.lasted_s == pytest.approx(8.0)
    assert outcome.queries["qa"].staleness == pytest.approx(0.5)
    assert outcome.busy_s == pytest.approx(4.0)


def test_the_policy_determines_the_next_task() -> None:
    """G5: HR runs the expensive and productive query first, HNR the cheap query."""
    costs = Costs(0.0, (task("dear", 5.0), task("cheap", 2.0, 1 / 3)))
    at_once = [Poll(0.0, "s", 3)]
    responses = {
        policy: {
            name: query.figures.response.mean
            for name, query in played(costs, at_once, policy).queries.items()
        }
        for policy in ("hr", "hnr")
    }
    assert responses["hr"] == {"qdear": pytest.approx(15.0), "qcheap": pytest.approx(21.0)}
    assert responses["hnr"] == {"qdear": pytest.approx(21.0), "qcheap": pytest.approx(6.0)}


def test_a_run_takes_at_most_a_quantum_while_other_tasks_wait() -> None:
    """Ten polls of an expensive task wait when a row arrives for a cheap task, which has a higher rate."""
    costs = Costs(0.0, (task("dear", 0.01, 0.5), task("cheap", 0.001, reads="t")))
    arrivals = [*(Poll(0.0, "s", 1) for _ in range(10)), Poll(0.0, "t", 1), Poll(0.015, "t", 1)]
    outcome = played(costs, arrivals, "hr")
    # Two jobs take the row of the cheap task and two rows of the expensive task. The second row of the cheap
    # task waits for the end of the first job and joins the next job. Then the expensive task waits alone, and
    # takes the rest.
    assert outcome.queries["qcheap"].figures.response.largest == pytest.approx(0.042 - 0.015)
    assert outcome.queries["qdear"].figures.response.largest == pytest.approx(0.102)
    alone = played(costs, [*(Poll(0.0, "s", 1) for _ in range(10))], "hr")
    assert alone.jobs == 1, "who waits alone takes all"


def test_cheap_tasks_share_a_job_until_its_quantum_is_full() -> None:
    tasks = tuple(task(str(n), 0.004) for n in range(12))
    outcome = played(Costs(0.001, tasks), [Poll(0.0, "s", 1)])
    assert outcome.jobs == 3
    ended = sorted(query.figures.response.mean for query in outcome.queries.values())
    assert ended == pytest.approx([0.021] * 5 + [0.042] * 5 + [0.051] * 2)
    two = played(Costs(0.001, tasks), [Poll(0.0, "s", 1)], cores=2)
    assert two.jobs == 2 and two.lasted_s == pytest.approx(0.021 + 0.005)


def test_tasks_of_a_job_run_in_parallel_and_commit_together() -> None:
    outcome = played(Costs(0.0, (task("a", 1.0), task("b", 3.0))), [Poll(0.0, "s", 1)], cores=2)
    assert outcome.jobs == 1
    assert [query.figures.response.mean for query in outcome.queries.values()] == [3.0, 3.0]


def test_results_of_a_derived_stream_keep_their_arrival_time() -> None:
    first = TaskCost("a", ("s",), (Output("d", 0.5, is_query=False),), False, 0.0, 0.0, 1.0)
    outcome = played(Costs(0.0, (first, task("b", 1.0, reads="d"))), [Poll(0.0, "s", 4)])
    # Four rows take 4 s, and the two rows of the derived stream 2 s.
    assert outcome.overall().response.mean == pytest.approx(6.0)
    assert outcome.overall().response.count == 2
    assert outcome.overall().slowdown.mean == pytest.approx(6.0 / 2.0)


def test_a_simulation_without_rows_has_no_metrics() -> None:
    outcome = played(Costs(1.0, (task("a", 0.1),)), [])
    assert outcome.overall().response.count == 0
    assert math.isnan(outcome.overall().response.mean)
    assert outcome.lasted_s == 0


def test_below_capacity_each_poll_is_one_batch() -> None:
    """D/D/1: if jobs are shorter than the poll interval, the response is the time of the job."""
    outcome = played(Costs(0.05, (task("a", 0.001),)), polls({"s": Traffic(100.0)}, 0.5, 60.0))
    assert outcome.overall().response.mean == pytest.approx(0.05 + 0.05)
    assert outcome.overall().response.largest == pytest.approx(0.05 + 0.05)
    assert outcome.busy_s / outcome.lasted_s == pytest.approx(0.2, rel=0.01)


def test_batches_grow_until_they_carry_the_load() -> None:
    """With a + b·N per job and λ rows a second, work and rows balance in a cycle of a / (1 - λb)."""
    rate, fixed, per_row = 800.0, 0.05, 0.001
    costs = Costs(fixed, (task("a", per_row),))
    outcome = played(costs, polls({"s": Traffic(rate)}, 0.002, 100.0))
    cycle = fixed / (1 - rate * per_row)
    assert outcome.busy_s / outcome.jobs == pytest.approx(cycle, rel=0.02)
    # A row waits half a cycle for its job on average, and then through the job.
    assert outcome.overall().response.mean == pytest.approx(1.5 * cycle, rel=0.02)


def test_random_single_rows_wait_as_in_a_bulk_service_queue() -> None:
    """M/D/1 with bulk service of fixed time D: many rows respond in 1.5 D, few rows in little more than D."""
    costs = Costs(1.0, (task("a", 0.0),))
    random = np.random.default_rng(5)

    def response(rate: float, rows: int) -> float:
        times = np.cumsum(random.exponential(1 / rate, rows)).tolist()
        return played(costs, [Poll(at, "s", 1) for at in times]).overall().response.mean

    many, few = response(50.0, 8_000), response(0.02, 8_000)
    assert many == pytest.approx(1.5, rel=0.02)
    # To first order in λD, a row meets a running job with probability λD, and then waits half of it.
    assert few == pytest.approx(1.0 + 0.02 / 2, rel=0.01)


COSTS = st.builds(
    Costs,
    st.floats(0.001, 0.2),
    st.lists(
        st.tuples(st.floats(1e-5, 1e-2), st.floats(0.0, 2.0), st.booleans()), min_size=1, max_size=6
    ).map(lambda drawn: tuple(task(str(n), *given_[:2], splits=given_[2]) for n, given_ in enumerate(drawn))),
)
ARRIVALS = st.lists(st.tuples(st.floats(0, 20), st.integers(1, 200)), min_size=1, max_size=20).map(
    lambda drawn: sorted(Poll(at, "s", rows) for at, rows in drawn)
)


@settings(max_examples=40)
@given(COSTS, ARRIVALS, st.integers(1, 3))
def test_every_policy_gives_the_same_results_and_idles_no_core_while_rows_wait(
    costs: Costs, arrivals: list[Poll], cores: int
) -> None:
    rows = total_rows(arrivals)
    for policy in POLICIES:
        outcome = played(costs, arrivals, policy, cores)
        for source, output in costs.queries():
            figures = outcome.queries[output.log].figures
            assert figures.response.count == math.floor(output.per_row * rows + 1e-9)
            if figures.response.count:
                # No query is served faster than alone.
                assert figures.response.mean >= costs.alone(source, cores).ideal_time - 1e-9
                assert figures.slowdown.mean >= 1 - 1e-9
        # Work is conserved: after the first arrival the dispatcher stops only without waiting rows, and a
        # stretch without a job ends at the next arrival.
        gaps = [b.at - a.at for a, b in pairwise(arrivals)]
        assert outcome.lasted_s - arrivals[0].at - outcome.busy_s <= sum(gaps) + 1e-9
        assert outcome.most_waiting <= rows * len(costs.tasks)
        assert 0 <= outcome.staleness <= 1


@settings(max_examples=40)
@given(COSTS, ARRIVALS)
def test_on_one_core_the_order_of_tasks_does_not_change_the_work_for_rows(
    costs: Costs, arrivals: list[Poll]
) -> None:
    for policy in ("fcfs", "hnr", "fas"):
        outcome = played(costs, arrivals, policy)
        of_rows = outcome.busy_s - outcome.jobs * costs.job_s
        assert of_rows == pytest.approx(sum(u.row_s for u in costs.tasks) * total_rows(arrivals))


@pytest.mark.parametrize("policy", POLICIES)
def test_the_starvation_guard_prevents_starvation_under_every_policy(policy: str) -> None:
    """A task without results has no priority under most policies, and the other tasks always have work."""
    costs = Costs(0.01, (*(task(name, 0.0015) for name in "abc"), task("empty", 1e-5, 0.0)))
    arrivals = polls({"s": Traffic(210.0)}, 0.25, 120.0)
    guarded = simulate_arrivals(costs, 1, Chooser(policy_named(policy), patience=5.0), arrivals)
    # The patience, then up to three tasks that have waited longer: ten jobs for each task.
    assert guarded.queries["qempty"].most_waiting < 210 * 40
    if policy in ("hr", "hnr", "brt", "bsd", "fas"):
        alone = simulate_arrivals(costs, 1, Chooser(policy_named(policy), patience=math.inf), arrivals)
        assert alone.queries["qempty"].most_waiting > 2 * guarded.queries["qempty"].most_waiting


def test_two_simulations_merge_into_the_metrics_of_both() -> None:
    costs = Costs(1.0, (task("a", 0.1),))
    both = played(costs, [Poll(0.0, "s", 10)])  # lasts 2 s, all of them stale
    both.merge(played(costs, [Poll(4.0, "s", 10)]))  # lasts 6 s, two of them stale
    query = both.queries["qa"]
    assert (both.lasted_s, both.busy_s, both.jobs) == (8.0, 4.0, 2)
    assert (query.figures.response.count, query.figures.response.mean) == (20, 2.0)
    assert query.staleness == pytest.approx(4 / 8)
    assert both.mean_waiting == query.mean_waiting == pytest.approx(10 * 4 / 8)


def test_a_load_above_capacity_ends_with_a_backlog() -> None:
    costs = Costs(0.05, (task("a", 0.01),))
    fits = played(costs, polls({"s": Traffic(80.0)}, 0.25, 100.0))
    exceeds = played(costs, polls({"s": Traffic(150.0)}, 0.25, 100.0))
    assert costs.utilisation({"s": 150.0}, 1) == pytest.approx(1.5)
    assert fits.behind_s < 2
    assert exceeds.behind_s == pytest.approx(50.0, rel=0.05)


def shared_streams(seed: int, groups: int = 8, readers: int = 6, load: float = 0.9) -> Costs:
    """Return groups of queries behind derived streams, on a stream of 20 rows a second (E18)."""
    random = np.random.default_rng(seed)
    head_cost, cost = 2.0 ** random.integers(0, 5, groups), 2.0 ** random.integers(0, 5, (groups, readers))
    head_share, share = random.uniform(0.1, 1, groups), random.uniform(0.1, 1, (groups, readers))
    row_s = load / 20 / float((head_cost + head_share * cost.sum(axis=1)).sum())
    heads = [
        TaskCost(f"h{g}", ("s",), (Output(f"d{g}", head_share[g], is_query=False),), False, 0, 0, row_s * c)
        for g, c in enumerate(head_cost)
    ]
    behind = [
        task(f"{g}-{i}", row_s * cost[g, i], share[g, i], f"d{g}")
        for g in range(groups)
        for i in range(readers)
    ]
    return Costs(0.0, (*heads, *behind))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_each_policy_is_best_at_its_own_aim_also_behind_derived_streams(seed: int) -> None:
    """With one ideal time for all downstream queries, HNR and BSD had more slowdown than HR."""
    costs, arrivals = shared_streams(seed), polls({"s": Traffic(20.0, "bursty")}, 0.05, 30.0, seed)
    names = ("hr", "hnr", "fcfs", "lsf", "brt", "bsd", "fas", "chain")
    found = {
        name: simulate_arrivals(costs, 1, Chooser(policy_named(name), patience=math.inf), arrivals)
        for name in names
    }
    felt = {name: outcome.overall() for name, outcome in found.items()}
    aims = {
        "hr": {name: figures.response.mean for name, figures in felt.items()},
        "hnr": {name: figures.slowdown.mean for name, figures in felt.items()},
        "fcfs": {name: figures.response.largest for name, figures in felt.items()},
        "lsf": {name: figures.slowdown.largest for name, figures in felt.items()},
        "brt": {name: figures.response.l2 for name, figures in felt.items()},
        "bsd": {name: figures.slowdown.l2 for name, figures in felt.items()},
        "fas": {name: outcome.staleness for name, outcome in found.items()},
        "chain": {name: outcome.mean_waiting for name, outcome in found.items()},
    }
    for best, by_policy in aims.items():
        assert by_policy[best] == min(by_policy.values()), (best, by_policy)


def test_rows_of_a_derived_stream_wait_since_their_original_arrival() -> None:
    """First come, first served: a row emitted by another task is older than a row that has just arrived."""
    first = TaskCost("a", ("s",), (Output("d", 1.0, is_query=False),), False, 0.0, 0.0, 1.0)
    costs = Costs(0.0, (first, task("late", 1.0, reads="d"), task("other", 1.0, reads="t")))
    outcome = played(costs, [Poll(0.0, "s", 1), Poll(0.5, "t", 1)])
    assert outcome.queries["qlate"].figures.response.mean == pytest.approx(2.0)
    assert outcome.queries["qother"].figures.response.mean == pytest.approx(2.5)
