from __future__ import annotations

from simulator.queues import queue
from slicemill_lab.policies.greedy import Greedy


def test_greedy_runs_the_cheapest_head_whatever_is_behind_it() -> None:
    assert Greedy().choose([queue(0, [10, 1]), queue(1, [9])], 0.0) == 1


def test_greedy_weighs_what_the_head_brings_against_what_it_takes() -> None:
    dear = queue(0, [10])
    dear.drops[0] = 20
    assert Greedy().choose([dear, queue(1, [1])], 0.0) == 0
