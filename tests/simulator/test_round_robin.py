from __future__ import annotations

import pytest

from simulator.queues import queue, task
from slicemill_lab.policies.round_robin import round_robin


def visits(quantum: int, pending: list[int], times: list[float]) -> list[int]:
    policy = round_robin([task(time) for time in times], quantum)
    order = []
    while ready := [queue(number) for number, count in enumerate(pending) if count]:
        chosen = policy.choose(ready, 0.0)
        pending[chosen] -= 1
        order.append(chosen)
    return order


def test_round_robin_starts_with_the_steepest_task_and_takes_up_to_k_tuples_a_visit() -> None:
    assert visits(2, [3, 3, 3], [5, 1, 2]) == [1, 1, 2, 2, 0, 0, 1, 2, 0]


def test_round_robin_skips_tasks_without_input() -> None:
    assert visits(1, [2, 0, 2], [1, 1, 1]) == [0, 2, 0, 2]


def test_round_robin_visits_the_only_task_with_input_repeatedly() -> None:
    assert visits(2, [0, 5], [1, 2]) == [1] * 5


def test_round_robin_gives_a_full_visit_after_an_interrupted_visit() -> None:
    policy = round_robin([task(1), task(2)], 3)
    both = [queue(0), queue(1)]
    assert policy.choose(both, 0.0) == 0
    assert policy.choose([queue(1)], 0.0) == 1
    assert [policy.choose(both, 0.0) for _ in range(3)] == [1, 1, 0]


def test_round_robin_needs_a_quantum_of_at_least_one_tuple() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        round_robin([task(1)], 0)
