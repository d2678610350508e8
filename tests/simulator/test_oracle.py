"""Policies that know which pending tuples will produce results (P28)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.queues import FixedQueue, task
from slicemill_lab.charts.charts import Objective
from slicemill_lab.charts.tasks import cut
from slicemill_lab.policies.policy import TupleChooser
from slicemill_lab.policies.registry import make
from slicemill_lab.simulator.loop import simulate
from slicemill_lab.testbeds.quality import quality_of_service


class InPython:
    """Policy with the same choices, outside of the compiled loop."""

    def __init__(self, policy: TupleChooser) -> None:
        self.choose = policy.choose


def test_the_rate_of_a_queue_is_that_of_its_best_prefix() -> None:
    late = FixedQueue(0, np.ones(5), np.array([0.0, 0, 0, 0, 1]))  # 1/5 with the fifth tuple
    dear = FixedQueue(1, np.array([4.9]), np.ones(1))
    assert make("hr-o", [task(1), task(4.9)]).choose([late, dear], 0.0) == 1
    assert make("hr-o", [task(1), task(5.1)]).choose([late, FixedQueue(1, np.array([5.1]))], 0.0) == 0
    # Normalised, the result of the cheap query counts more.
    assert make("hnr-o", [task(1), task(4.9)]).choose([late, dear], 0.0) == 0


def test_queues_without_results_are_ordered_by_mean_costs() -> None:
    nothing = [FixedQueue(number, np.ones(1), np.zeros(1)) for number in range(3)]
    assert make("hr-o", [task(3), task(1), task(2)]).choose(nothing, 0.0) == 1


@settings(max_examples=15)
@given(st.sampled_from(["mss", "hr-o", "hnr-o"]), st.sampled_from(["query", "operator"]), st.integers(1, 50))
def test_compiled_and_plain_form_make_the_same_choices(name: str, level: str, seed: int) -> None:
    work = quality_of_service(0.97, seed, queries=5, tuples=25).work
    tasks = cut(work.paths, level, Objective.OUTPUT_RESPONSE)
    policies = make(name, tasks.tasks), InPython(make(name, tasks.tasks))
    compiled, plain = (simulate(work, tasks, policy) for policy in policies)
    assert compiled.finished.tobytes() == plain.finished.tobytes()


def test_adaptive_statistics_need_a_compiled_form() -> None:
    from slicemill_lab.simulator.loop import Adapting

    work = quality_of_service(0.5, 1, queries=2, tuples=5).work
    tasks = cut(work.paths, "query", Objective.OUTPUT_RESPONSE)
    with pytest.raises(ValueError, match="compiled form"):
        simulate(work, tasks, make("greedy", tasks.tasks), adapting=Adapting())
    operators = cut(work.paths, "operator", Objective.OUTPUT_RESPONSE)
    with pytest.raises(ValueError, match="whole queries"):
        simulate(work, operators, make("hr", operators.tasks), adapting=Adapting())
