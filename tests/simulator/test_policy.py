from __future__ import annotations

from simulator.queues import queue, task
from slicemill_lab.policies.component import component
from slicemill_lab.policies.policy import ByPriority


def test_component_runs_the_task_with_the_steepest_mean_line() -> None:
    policy = component([task(5), task(1), task(2, drop=1.5)])
    assert policy.fixed == (0.2, 1.0, 0.75)
    assert policy.choose([queue(0), queue(1), queue(2)], 9.0) == 1
    assert policy.choose([queue(0), queue(2)], 9.0) == 2


def test_equal_priorities_prefer_the_oldest_head_and_then_the_first_task() -> None:
    policy = component([task(1), task(1), task(1)])
    assert policy.choose([queue(0, arrival=4), queue(1, arrival=3), queue(2, arrival=3)], 9.0) == 1


def test_a_priority_can_grow_with_the_wait_of_the_head() -> None:
    policy = ByPriority(fixed=(1.0, 0.0), per_wait=(0.0, 0.25))
    heads = [queue(0), queue(1)]
    assert [policy.choose(heads, now) for now in (0.0, 3.0, 5.0)] == [0, 0, 1]
