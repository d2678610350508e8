from __future__ import annotations

from simulator.queues import queue
from slicemill_lab.policies.greedy import Greedy


def test_greedy_runs_the_cheapest_head_regardless_of_later_tuples() -> None:
    assert Greedy().choose([queue(0, [10, 1]), queue(1, [9])], 0.0) == 1


def test_greedy_divides_the_output_of_the_head_by_its_cost() -> None:
    dear = queue(0, [10])
    dear.drops[0] = 20
    assert Greedy().choose([dear, queue(1, [1])], 0.0) == 0
