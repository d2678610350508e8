"""The scheduling loop over clusters of queries (P18-P20)."""

from __future__ import annotations

import numpy as np
import pytest

from slicemill_lab.charts.charts import Objective, Path, Stage
from slicemill_lab.charts.tasks import cut
from slicemill_lab.policies.registry import asked
from slicemill_lab.simulator.clustered_loop import simulate_clusters
from slicemill_lab.simulator.clusters import Clusters, apart, logarithmic
from slicemill_lab.simulator.loop import simulate
from slicemill_lab.simulator.measures import execution_order, objectives
from slicemill_lab.simulator.workload import Load, draw
from slicemill_lab.testbeds.quality import quality_of_service

BED = quality_of_service(0.95, 3, queries=30, tuples=80)
UNITS = cut(BED.work.paths, "query", Objective.OUTPUT_RESPONSE)
GROWTH = asked("bsd", UNITS.tasks).by_wait()[1].tolist()


@pytest.mark.parametrize("pruned", [False, True])
def test_clusters_of_one_query_equal_the_policy_itself(pruned: bool) -> None:
    exact = simulate(BED.work, UNITS, asked("bsd", UNITS.tasks))
    found = simulate_clusters(BED.work, GROWTH, apart(GROWTH), pruned=pruned)
    norms = [objectives(run)["l2 slowdown"] for run in (exact, found)]
    assert norms[1] == pytest.approx(norms[0], rel=1e-9)
    assert found.decisions == exact.decisions


def test_one_cluster_is_first_come_first_served() -> None:
    run = simulate_clusters(BED.work, GROWTH, Clusters((0,) * 30, (1.0,)))
    assert run.decisions == 80
    done = np.array([run.finished[BED.work.tuples(int(leaf))] for leaf in BED.work.first_operator[:-1]])
    assert np.all(done[:, :-1].max(axis=0) < done[:, 1:].min(axis=0))


def test_golden_g8_a_tuple_is_processed_cluster_by_cluster() -> None:
    """Two clusters of two queries: the expensive cluster waits while the cheap cluster has a longer wait."""
    paths = tuple(Path(name, (Stage(name, 1.0),)) for name in ("x1", "x2", "y1", "y2"))
    work = draw([Load(path, [0.0, 1.0, 2.0]) for path in paths], 1)
    clusters = Clusters((0, 0, 1, 1), (3.0, 1.0))
    run = simulate_clusters(work, [4.0, 3.0, 2.0, 1.0], clusters)
    # Both clusters have t1 first, and the first cluster has the greater priority. At time 2 ⟨t2, Cx⟩ is 3·1
    # against 1·2 for ⟨t1, Cy⟩; at time 4 ⟨t3, Cx⟩ is 3·2 against 1·4; then t1, t2 and t3 remain for Cy.
    assert execution_order(run) == ["x1", "x2"] * 3 + ["y1", "y2"] * 3


def test_decisions_cost_time_and_each_optimisation_saves_some() -> None:
    ways = {
        "naive": (apart(GROWTH), False, False),
        "clusters": (logarithmic(GROWTH, 6), False, False),
        "together": (logarithmic(GROWTH, 6), True, True),
    }
    ends = [
        simulate_clusters(
            BED.work, GROWTH, clusters, operation=BED.task_cost, pruned=pruned, together=together
        ).finished.max()
        for clusters, pruned, together in ways.values()
    ]
    assert ends == sorted(ends, reverse=True)
    assert ends[-1] > simulate_clusters(BED.work, GROWTH, apart(GROWTH)).finished.max()


def test_clusters_need_one_common_stream() -> None:
    paths = tuple(Path(name, (Stage(name, 1.0),)) for name in "ab")
    work = draw([Load(paths[0], [0.0]), Load(paths[1], [1.0])], 1)
    with pytest.raises(ValueError, match="one stream"):
        simulate_clusters(work, [1.0, 2.0], apart([1.0, 2.0]))
