from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicemill_lab.charts.charts import Objective, Path, Stage
from slicemill_lab.charts.tasks import Level, cut
from slicemill_lab.policies.policy import ByPriority, Queue
from slicemill_lab.policies.registry import NAMES, make
from slicemill_lab.simulator.loop import SimulatedRun, simulate
from slicemill_lab.simulator.measures import execution_order, mean_output_latency, output_latencies
from slicemill_lab.simulator.workload import Load, Workload, draw

ORT = Objective.OUTPUT_RESPONSE


class InPython:
    """Policy with the same choices, outside of the compiled loop."""

    def __init__(self, policy: ByPriority) -> None:
        self.choose = policy.choose


def path(name: str, *times: float, selectivity: float = 1) -> Path:
    return Path(name, tuple(Stage(f"{name}{k}", time, selectivity) for k, time in enumerate(times, 1)))


def run(work: Workload, policy: str, level: Level, **options: float) -> SimulatedRun:
    tasks = cut(work.paths, level, ORT)
    return simulate(work, tasks, make(policy, tasks.tasks, **options))


def test_golden_g1_mss_has_a_lower_total_latency_than_greedy() -> None:
    single = Path("first", (Stage("one", 1.0),)), Path("second", (Stage("two", 1.0),))
    costs = np.array([10.0, 1.0]), np.array([9.0])
    work = draw([Load(p, np.zeros(len(c)), costs=[c]) for p, c in zip(single, costs, strict=True)], 1)
    greedy, best = run(work, "greedy", "query"), run(work, "mss", "query")
    assert [output_latencies(greedy, p).tolist() for p in (0, 1)] == [[19, 20], [9]]
    assert [output_latencies(best, p).tolist() for p in (0, 1)] == [[10, 11], [20]]
    assert (3 * mean_output_latency(greedy), 3 * mean_output_latency(best)) == (48, 41)


def test_query_level_processes_each_tuple_through_the_whole_path() -> None:
    work = draw([Load(path("a", 1, 1, 1), [0, 0])], 1)
    assert execution_order(run(work, "component", "query")) == ["a1", "a2", "a3"] * 2


def test_a_discarded_tuple_costs_up_to_and_including_the_discarding_operator() -> None:
    work = draw([Load(path("a", 2, 3, 4), [0, 0], outputs=[[1, 1], [0, 1], [1]])], 1)
    done = run(work, "component", "query")
    assert execution_order(done) == ["a1", "a2", "a1", "a2", "a3"]
    assert output_latencies(done, 0).tolist() == [2 + 3 + 2 + 3 + 4]


def test_output_of_an_expanding_operator_is_processed_depth_first() -> None:
    work = draw([Load(path("a", 1, 1, 1), [0], outputs=[[2], [1, 1], [1, 1]])], 1)
    assert execution_order(run(work, "component", "query")) == ["a1", "a2", "a3", "a2", "a3"]


def test_operator_level_lets_a_steeper_operator_run_between_two_operators() -> None:
    work = draw([Load(path("slow", 4, 4), [0]), Load(path("fast", 1), [1])], 1)
    query = run(work, "component", "query")
    operator = run(work, "component", "operator")
    assert execution_order(query) == ["slow1", "slow2", "fast1"]
    assert execution_order(operator) == ["slow1", "fast1", "slow2"]
    assert output_latencies(operator, 1).tolist() == [4]


def test_round_robin_at_operator_level_with_a_large_quantum_is_breadth_first() -> None:
    work = draw([Load(path("a", 1, 2, 3), [0, 0, 0])], 1)
    order = execution_order(run(work, "rr-k", "operator", quantum=9))
    assert order == ["a1"] * 3 + ["a2"] * 3 + ["a3"] * 3


def test_the_processor_idles_only_without_pending_work() -> None:
    work = draw([Load(path("a", 2), [0, 10]), Load(path("b", 3), [1])], 1)
    assert run(work, "component", "query").finished.tolist() == [2, 12, 5]


def test_overhead_is_paid_once_for_each_decision() -> None:
    work = draw([Load(path("a", 2, 1), [0, 0])], 1)
    for level, decisions in (("query", 2), ("operator", 4)):
        tasks = cut(work.paths, level, ORT)
        done = simulate(work, tasks, make("component", tasks.tasks), overhead=0.5)
        assert done.decisions == decisions
        assert done.finished.max() == 6 + 0.5 * decisions


@st.composite
def workloads(draw_: st.DrawFn) -> Workload:
    """Draw up to three paths of up to three operators, with few distinct times, so that ties are common."""
    loads = []
    for number in range(draw_(st.integers(1, 3))):
        stages = tuple(
            Stage(
                f"{number}.{place}",
                draw_(st.sampled_from([1.0, 2.0, 3.5])),
                draw_(st.sampled_from([0.5, 1, 2])),
            )
            for place in range(draw_(st.integers(1, 3)))
        )
        arrivals = sorted(draw_(st.lists(st.integers(0, 12), min_size=1, max_size=6)))
        loads.append(Load(Path(str(number), stages), arrivals))
    return draw(loads, seed=draw_(st.integers(0, 99)))


LEVELS: Sequence[Level] = ("query", "operator", "chain")


@given(workloads(), st.sampled_from(LEVELS), st.sampled_from([0.0, 0.25]))
def test_compiled_and_plain_loop_take_the_same_steps(work: Workload, level: Level, growth: float) -> None:
    tasks = cut(work.paths, level, ORT)
    base = make("component", tasks.tasks)
    assert isinstance(base, ByPriority)
    policy = ByPriority(base.fixed, tuple(growth * value for value in base.fixed))
    compiled, plain = simulate(work, tasks, policy), simulate(work, tasks, InPython(policy))
    assert compiled.finished.tobytes() == plain.finished.tobytes()
    assert compiled.decisions == plain.decisions


@given(workloads(), st.sampled_from(LEVELS), st.sampled_from(sorted(NAMES)))
def test_every_policy_has_equal_busy_time_and_processes_every_tuple_in_order(
    work: Workload, level: Level, policy: str
) -> None:
    done = run(work, policy, level)
    again = run(work, policy, level)
    assert done.finished.tobytes() == again.finished.tobytes()
    for operator in range(len(work.first_tuple) - 1):
        assert np.all(np.diff(done.finished[work.tuples(operator)]) > 0)
    # One processor: sorted by end, runs do not overlap, and no time is lost while tuples wait.
    order = np.argsort(done.finished)
    starts = done.finished[order] - work.cost[order]
    ends = np.concatenate(([0.0], done.finished[order][:-1]))
    assert np.all(starts >= ends - 1e-9)
    assert done.finished.max() == pytest.approx(run(work, "component", "query").finished.max())


class Nosy:
    """Check the guarantees of the loop before the first task is chosen."""

    def choose(self, ready: Sequence[Queue], now: float) -> int:
        tasks = [queue.task for queue in ready]
        assert tasks == sorted(set(tasks))
        for queue in ready:
            assert len(queue) == len(queue.times) == len(queue.drops) > 0
            assert queue.arrival <= now
            assert queue.head_slope == queue.drops[0] / queue.times[0]
        return tasks[0]


@given(workloads(), st.sampled_from(LEVELS))
def test_a_policy_sees_exactly_the_tasks_with_input_in_order(work: Workload, level: Level) -> None:
    simulate(work, cut(work.paths, level, ORT), Nosy())
