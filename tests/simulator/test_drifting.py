"""Drifting data, and statistics that adapt to it (P21)."""

from __future__ import annotations

import numpy as np
import pytest

from slicemill_lab.charts.charts import Objective, Path, Stage
from slicemill_lab.charts.tasks import cut
from slicemill_lab.policies.registry import make
from slicemill_lab.simulator.loop import Adapting, simulate
from slicemill_lab.simulator.measures import objectives, output_latencies
from slicemill_lab.simulator.workload import Load, draw
from slicemill_lab.testbeds.drifting import drifting


@pytest.mark.parametrize("policy", ["hr", "hnr", "brt", "bsd"])
def test_unchanged_statistics_change_no_choice(policy: str) -> None:
    work = drifting(0.9, 1, 10.0, queries=8, intervals=5, tuples_per_interval=20)
    tasks = cut(work.paths, "query", Objective.OUTPUT_RESPONSE)

    def finished(adapting: Adapting | None) -> bytes:
        return simulate(work, tasks, make(policy, tasks.tasks), adapting=adapting).finished.tobytes()

    static = finished(None)
    assert finished(Adapting(window=1000)) == static  # a window that is never full
    assert finished(Adapting(window=10, alpha=0.5)) != static


def test_the_generated_work_has_the_configured_utilisation() -> None:
    work = drifting(0.8, 2, 5.0, queries=20, intervals=10, tuples_per_interval=20)
    assert work.cost.sum() / work.arrival.max() == pytest.approx(0.8)
    # With narrow data, the selectivity depends on the mean.
    passed = [
        work.outputs[work.tuples(int(leaf))].reshape(10, 20).mean(axis=1) for leaf in work.first_operator[:-1]
    ]
    assert max(share.std() for share in passed) > 0.2


def test_a_wrong_initial_selectivity_is_corrected_after_a_window() -> None:
    """Two queries of equal cost; the query with the lower assumed selectivity emits all results."""
    paths = Path("few", (Stage("f", 1.0, 0.9),)), Path("many", (Stage("m", 1.0, 0.1),))
    times = np.repeat(np.arange(40) * 4.0, 2)
    work = draw(
        [Load(paths[0], times, outputs=[np.zeros(80)]), Load(paths[1], times, outputs=[np.ones(80)])], 1
    )
    tasks = cut(paths, "query", Objective.OUTPUT_RESPONSE)
    static, adaptive = (
        output_latencies(simulate(work, tasks, make("hr", tasks.tasks), adapting=adapting), 1)
        for adapting in (None, Adapting(window=10, alpha=0.5))
    )
    assert static.mean() == 3.5  # both tuples of the other query run first
    assert adaptive[:8].tolist() == static[:8].tolist()
    assert adaptive[-40:].mean() == 1.5


def test_a_starved_query_is_measured_again() -> None:
    """`late` emits no results for long, then only results; meanwhile `steady` keeps the system busy."""
    paths = Path("late", (Stage("l", 1.0, 0.9),)), Path("steady", (Stage("s", 1.0, 0.5),))
    quiet, busy = np.arange(100) * 3.0, 300.0 + np.arange(200)
    times = np.concatenate((quiet, busy))
    late, steady = (times >= 300).astype(float), np.tile([1.0, 0.0], 150)
    work = draw([Load(paths[0], times, outputs=[late]), Load(paths[1], times, outputs=[steady])], 1)
    tasks = cut(paths, "query", Objective.OUTPUT_RESPONSE)
    starved, seen = (
        output_latencies(
            simulate(work, tasks, make("hr", tasks.tasks), adapting=Adapting(10, 0.5, decays)), 0
        )
        for decays in (False, True)
    )
    assert starved.mean() > 100
    assert seen.mean() < starved.mean() / 3


def test_filter_ranges_are_spread_so_that_no_part_of_the_data_is_much_more_expensive() -> None:
    work = drifting(0.95, 3, 5.0, queries=40, intervals=100, tuples_per_interval=20)
    leaves = work.first_operator[:-1]
    cost = np.zeros(100)
    for path, leaf in enumerate(leaves):
        each = np.repeat(np.arange(100), 20)
        for place in range(3):
            tuples = work.tuples(work.operator(path, place))
            np.add.at(cost, each, work.cost[tuples])
            each = np.repeat(each, work.outputs[tuples])
        assert leaf == work.operator(path, 0)
    smooth = np.convolve(cost, np.ones(10) / 10, "valid")
    assert smooth.max() / smooth.mean() < 1.1


def test_adaptation_improves_the_response_on_drifting_data() -> None:
    work = drifting(0.95, 1, 5.0, queries=25, intervals=30)
    tasks = cut(work.paths, "query", Objective.OUTPUT_RESPONSE)
    static, adaptive = (
        objectives(simulate(work, tasks, make("hr", tasks.tasks), adapting=adapting))["mean response"]
        for adapting in (None, Adapting())
    )
    assert adaptive < static
