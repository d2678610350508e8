from __future__ import annotations

import pytest

from simulator.queues import queue, task
from slicemill.scheduling.policies import UnknownPolicyError
from slicemill_lab.policies.registry import NAMES, make


@pytest.mark.parametrize("name", NAMES)
def test_every_policy_chooses_a_task_with_input(name: str) -> None:
    policy = make(name, [task(time) for time in (3, 1, 2, 5)])
    assert policy.choose([queue(1), queue(3)], 0.0) in {1, 3}


@pytest.mark.parametrize("name", NAMES)
def test_every_policy_runs_the_only_task_with_input(name: str) -> None:
    policy = make(name, [task(1), task(2)])
    assert [policy.choose([queue(1)], float(now)) for now in range(3)] == [1, 1, 1]


def test_options_reach_the_policy() -> None:
    policy = make("rr-k", [task(1), task(2)], quantum=2)
    assert [policy.choose([queue(0), queue(1)], 0.0) for _ in range(4)] == [0, 0, 1, 1]


def test_an_unknown_policy_is_reported_with_a_similar_name() -> None:
    with pytest.raises(UnknownPolicyError, match="did you mean greedy"):
        make("gredy", [])
    with pytest.raises(UnknownPolicyError, match=r"there are fcfs, rr, srpt, .* component, greedy, "):
        make("zzz", [])
