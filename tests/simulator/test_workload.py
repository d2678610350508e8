from __future__ import annotations

import numpy as np
import pytest

from slicemill_lab.charts.charts import Path, Stage
from slicemill_lab.simulator.workload import Load, draw

PATH = Path("q", (Stage("a", 2.0, 0.5), Stage("b", 1.0, 2.5), Stage("c", 3.0)))


def test_each_tuple_descends_from_the_source_tuple_whose_arrival_it_carries() -> None:
    work = draw([Load(PATH, [0, 5, 9], outputs=[[1, 0, 2], [2, 0, 1], None])], seed=1)
    assert work.first_tuple.tolist() == [0, 3, 6, 9]
    assert work.arrival[work.tuples(1)].tolist() == [0, 9, 9]
    assert work.arrival[work.tuples(2)].tolist() == [0, 0, 9]
    assert work.parent.tolist() == [-1, -1, -1, 0, 2, 2, 3, 3, 5]


def test_mean_times_are_used_if_no_costs_are_given() -> None:
    work = draw([Load(PATH, [0, 1], outputs=[[1, 1], [1, 1], [1, 1]])], seed=1)
    assert work.cost.tolist() == [2, 2, 1, 1, 3, 3]


def test_costs_can_be_fixed_given_per_tuple_or_drawn() -> None:
    costs = [4.0, np.array([1.0, 2.0]), lambda random, count: random.uniform(5, 6, count)]
    work = draw([Load(PATH, [0, 1], costs=costs, outputs=[[1, 1], [1, 1], [1, 1]])], seed=1)
    assert work.cost[:4].tolist() == [4, 4, 1, 2]
    assert np.all((work.cost[4:] >= 5) & (work.cost[4:] <= 6))


def test_selectivity_is_met_on_average_also_above_one() -> None:
    work = draw([Load(PATH, np.zeros(20_000))], seed=1)
    assert work.outputs[work.tuples(0)].mean() == pytest.approx(0.5, abs=0.02)
    assert set(work.outputs[work.tuples(1)].tolist()) == {2, 3}
    assert work.outputs[work.tuples(1)].mean() == pytest.approx(2.5, abs=0.02)


def test_the_same_seed_draws_the_same_work_independent_of_other_paths() -> None:
    def load() -> Load:
        return Load(PATH, np.arange(50), costs=[lambda random, count: random.uniform(1, 2, count), 1.0, 1.0])

    alone, again, other = draw([load()], 7), draw([load()], 7), draw([load()], 8)
    together = draw([load(), load()], 7)
    assert np.array_equal(alone.cost, again.cost)
    assert np.array_equal(alone.outputs, again.outputs)
    assert np.array_equal(alone.cost, together.cost[: alone.steps])
    assert not np.array_equal(alone.cost[:50], other.cost[:50])


def test_arrivals_out_of_order_are_rejected() -> None:
    with pytest.raises(ValueError, match="in order of time"):
        draw([Load(PATH, [2, 1])], seed=1)


def test_a_cost_of_zero_is_rejected() -> None:
    with pytest.raises(ValueError, match="cost some time"):
        draw([Load(PATH, [1], costs=[0.0, 1.0, 1.0])], seed=1)


def test_costs_for_another_number_of_tuples_are_rejected() -> None:
    with pytest.raises(ValueError, match="stage 'a' of path 'q' handles 2 tuples"):
        draw([Load(PATH, [1, 2], costs=[np.ones(3), 1.0, 1.0])], seed=1)
