from __future__ import annotations

import math

import numpy as np

from slicemill.scheduling.charts import Objective, Path, Stage
from slicemill.scheduling.loop import simulate
from slicemill.scheduling.measures import (
    buffered_size_time,
    input_completion_times,
    mean_output_latency,
    output_latencies,
)
from slicemill.scheduling.registry import make
from slicemill.scheduling.units import cut
from slicemill.scheduling.workload import Load, draw

PATH = Path("q", (Stage("a", 1.0, size_in=4, size_out=2), Stage("b", 2.0, size_in=2)))


def burst(level: str, tuples: int) -> tuple[float, float]:
    """Mean latency and buffered size over time of a burst at time 0, depth first or breadth first."""
    work = draw([Load(PATH, np.zeros(tuples))], 1)
    units = cut([PATH], "query" if level == "depth" else "operator", Objective.OUTPUT_RESPONSE)
    policy = make("component", units.units) if level == "depth" else make("rr", units.units, quantum=tuples)
    done = simulate(work, units, policy)
    return mean_output_latency(done), buffered_size_time(done)


def test_depth_first_beats_breadth_first_by_the_smoothed_areas_of_a_path() -> None:
    n = 1000
    depth, breadth = burst("depth", n)[0] * n, burst("breadth", n)[0] * n
    assert math.isclose(depth, 0.5 * n**2 * (1 + 2), rel_tol=1e-2)
    assert math.isclose(breadth, n**2 * 1 + 0.5 * n**2 * 2, rel_tol=1e-2)


def test_a_tuple_occupies_its_buffer_until_its_operator_has_finished_it() -> None:
    # Depth first with two tuples: 4 for 1, 2 for 2; the second waits 3 at size 4, then the same.
    assert burst("depth", 2)[1] == (4 * 1 + 2 * 2) * 2 + 4 * 3


def test_an_input_is_complete_when_nothing_of_it_is_left() -> None:
    work = draw([Load(PATH, [0, 0, 0], outputs=[[0, 2, 1], [1, 0, 1]])], 1)
    units = cut([PATH], "query", Objective.INPUT_COMPLETION)
    done = simulate(work, units, make("component", units.units))
    assert input_completion_times(done, 0).tolist() == [1, 1 + 1 + 2 + 2, 6 + 1 + 2]
    assert output_latencies(done, 0).tolist() == [4, 9]


def test_mean_latency_of_no_outputs_is_not_a_number() -> None:
    work = draw([Load(PATH, [0], outputs=[[0], []])], 1)
    units = cut([PATH], "query", Objective.OUTPUT_RESPONSE)
    assert math.isnan(mean_output_latency(simulate(work, units, make("component", units.units))))
