"""Operators shared by queries in the simulator (P26, P27)."""

from __future__ import annotations

import numpy as np
import pytest

from slicemill_lab.charts.charts import Objective, Path
from slicemill_lab.charts.tasks import cut
from slicemill_lab.policies.registry import make
from slicemill_lab.simulator.loop import simulate
from slicemill_lab.simulator.measures import objectives, output_latencies
from slicemill_lab.simulator.workload import Load, Workload, draw
from slicemill_lab.testbeds.shared_selects import Rate, SharedBed, Strategy, shared_selects, simulate_shared

STRATEGIES: tuple[Strategy, ...] = ("max", "sum", "pdt")


def unshared(bed: SharedBed) -> Workload:
    """Return the same queries with a separate select each."""
    loads = []
    for select, readers in bed.readers.items():
        for reader in readers:
            stages = bed.work.paths[select].stages + bed.work.paths[reader].stages
            operators = [bed.work.operator(select, 0), *(bed.work.operator(reader, k) for k in (0, 1))]
            outputs = [bed.work.outputs[bed.work.tuples(operator)] for operator in operators]
            times = bed.work.arrival[bed.work.tuples(operators[0])]
            loads.append(Load(Path(f"q{reader}", stages), times, outputs=outputs))
    return draw(loads, 1)


@pytest.mark.parametrize("policy", ["hr", "hnr", "brt", "bsd"])
def test_in_groups_of_one_the_tree_equals_the_query(policy: Rate) -> None:
    bed = shared_selects(0.9, 3, queries=6, group=1, tuples=60)
    shared = simulate_shared(bed, policy, "pdt")
    work = unshared(bed)
    tasks = cut(work.paths, "query", Objective.OUTPUT_RESPONSE)
    alone = simulate(work, tasks, make(policy, tasks.tasks))
    for number, path in enumerate(bed.ideal_times):
        assert output_latencies(shared, path) == pytest.approx(output_latencies(alone, number))


@pytest.mark.parametrize("policy", ["hr", "bsd"])
def test_sharing_strategies_differ_only_in_order(policy: Rate) -> None:
    bed = shared_selects(0.9, 1, queries=20, group=5, tuples=80)
    runs = [simulate_shared(bed, policy, strategy) for strategy in STRATEGIES]
    assert len({run.finished.tobytes() for run in runs}) == 3
    for run in runs:
        assert run.finished.max() == pytest.approx(runs[0].finished.max())  # equal work without idle time
        for operator in range(len(bed.work.first_tuple) - 1):
            assert np.all(np.diff(run.finished[bed.work.tuples(operator)]) > 0)
        for select, readers in bed.readers.items():
            shared = bed.work.tuples(select)
            passed = run.finished[shared][bed.work.outputs[shared] == 1]
            for reader in readers:
                leaf = bed.work.tuples(bed.work.operator(reader, 0))
                assert np.all(run.finished[leaf] > passed)  # no tuple is read before it is written
    counts = {len(output_latencies(run, path)) for run in runs for path in [max(bed.ideal_times)]}
    assert len(counts) == 1


def test_the_generated_work_has_the_configured_load() -> None:
    bed = shared_selects(0.9, 5, queries=100, tuples=400)
    assert bed.work.cost.sum() / 400 == pytest.approx(0.9, rel=0.1)


def test_the_defining_tree_is_the_best_strategy() -> None:
    bed = shared_selects(0.95, 2, queries=100, tuples=200)
    found = {
        s: objectives(simulate_shared(bed, "hr", s), bed.ideal_times)["mean response"] for s in STRATEGIES
    }
    assert min(found, key=lambda strategy: found[strategy]) == "pdt"
