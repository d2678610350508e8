from __future__ import annotations

import math

import numpy as np
import pytest

from slicemill_lab.charts.charts import Objective, Path, Stage
from slicemill_lab.charts.tasks import cut
from slicemill_lab.policies.registry import make
from slicemill_lab.simulator.loop import SimulatedRun, simulate
from slicemill_lab.simulator.measures import (
    buffered_size_time,
    input_completion_times,
    mean_memory,
    mean_output_latency,
    objectives,
    output_latencies,
    record,
)
from slicemill_lab.simulator.workload import Load, draw

PATH = Path("q", (Stage("a", 1.0, size_in=4, size_out=2), Stage("b", 2.0, size_in=2)))


def burst(level: str, tuples: int) -> tuple[float, float]:
    """Return mean latency and buffered size over time of a burst at time 0, depth first or breadth first."""
    work = draw([Load(PATH, np.zeros(tuples))], 1)
    tasks = cut([PATH], "query" if level == "depth" else "operator", Objective.OUTPUT_RESPONSE)
    policy = make("component", tasks.tasks) if level == "depth" else make("rr-k", tasks.tasks, quantum=tuples)
    done = simulate(work, tasks, policy)
    return mean_output_latency(done), buffered_size_time(done)


def test_depth_first_beats_breadth_first_by_the_smoothed_areas_of_a_path() -> None:
    n = 1000
    depth, breadth = burst("depth", n)[0] * n, burst("breadth", n)[0] * n
    assert math.isclose(depth, 0.5 * n**2 * (1 + 2), rel_tol=1e-2)
    assert math.isclose(breadth, n**2 * 1 + 0.5 * n**2 * 2, rel_tol=1e-2)


def test_a_tuple_occupies_its_buffer_until_its_operator_has_processed_it() -> None:
    # Depth first with two tuples: 4 for 1, 2 for 2; the second waits 3 at size 4, then the same.
    assert burst("depth", 2)[1] == (4 * 1 + 2 * 2) * 2 + 4 * 3


def test_an_input_is_complete_if_none_of_its_descendants_is_pending() -> None:
    work = draw([Load(PATH, [0, 0, 0], outputs=[[0, 2, 1], [1, 0, 1]])], 1)
    tasks = cut([PATH], "query", Objective.INPUT_COMPLETION)
    done = simulate(work, tasks, make("component", tasks.tasks))
    assert input_completion_times(done, 0).tolist() == [1, 1 + 1 + 2 + 2, 6 + 1 + 2]
    assert output_latencies(done, 0).tolist() == [4, 9]


def test_mean_latency_without_outputs_is_nan() -> None:
    work = draw([Load(PATH, [0], outputs=[[0], []])], 1)
    tasks = cut([PATH], "query", Objective.OUTPUT_RESPONSE)
    assert math.isnan(mean_output_latency(simulate(work, tasks, make("component", tasks.tasks))))


def two_queries() -> SimulatedRun:
    """Return a run of two tuples at 0 and 10 through `a`, which takes 1, and `b`, which takes 3."""
    paths = Path("a", (Stage("x", 1.0),), weight=1.0), Path("b", (Stage("y", 3.0),), weight=0.25)
    work = draw([Load(path, [0.0, 10.0]) for path in paths], 1)
    tasks = cut(paths, "query", Objective.OUTPUT_RESPONSE)
    return simulate(work, tasks, make("hr", tasks.tasks))


def test_objectives_of_two_queries_equal_hand_computed_values() -> None:
    found = objectives(two_queries())
    assert (found["mean response"], found["longest response"]) == (2.5, 4.0)
    assert found["mean slowdown"] == pytest.approx((1 + 4 / 3) / 2)
    # Until 14, a is stale for 1 and 1, and b for 4 and 4; weighted, b counts a quarter.
    assert found["staleness"] == pytest.approx((2 / 14 + 8 / 14) / 2)
    assert found["weighted staleness"] == pytest.approx((2 / 14 + 8 / 14 / 4) / 1.25)
    assert found["mean memory"] == pytest.approx((1 + 4 + 1 + 4) / 14) == mean_memory(two_queries())


def test_staleness_and_memory_are_recorded_by_time_bucket() -> None:
    kept = record(two_queries(), bucket=2.5)
    # a waits from 0 to 1 and from 10 to 11, and b to 4 and to 14.
    by_bucket = {number: kept.of_bucket(number) for number in range(7)}
    assert [figures.stale for figures in by_bucket.values()] == pytest.approx([3.5, 1.5, 0, 0, 3.5, 1.5, 0])
    assert [figures.waited for figures in by_bucket.values()] == pytest.approx([3.5, 1.5, 0, 0, 3.5, 1.5, 0])
    assert kept.of_query("a").stale == pytest.approx(2)
    assert kept.overall().waited == pytest.approx(14 * mean_memory(two_queries()))


def test_paths_without_results_are_left_out() -> None:
    found = objectives(two_queries(), {1: 2.0})
    assert (found["mean response"], found["mean slowdown"]) == (4.0, 2.0)


def test_a_record_has_results_by_class_and_by_arrival() -> None:
    kept = record(two_queries(), 10.0, {0: "cheap"})
    assert kept.of_class("cheap").response.total == 2.0
    assert [kept.of_bucket(number).response.count for number in range(3)] == [2, 2, 0]
    assert kept.of_query("b").slowdown.mean == pytest.approx(4 / 3)
