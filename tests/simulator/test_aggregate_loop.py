"""Aggregates with deadlines in the simulator (P24, P25)."""

from __future__ import annotations

import numpy as np
import pytest

from slicemill_lab.simulator.aggregate_loop import AggregateWork, simulate_aggregates, sliding_aggregates
from slicemill_lab.simulator.deadlines import DeadlineRule


def test_an_instant_is_as_late_as_its_last_tuple() -> None:
    # Slides of 10: two tuples due at 10, the second ends at 7 + 2·4 = 15; one tuple due at 20, in time.
    work = AggregateWork(np.array([7.0, 8.0, 12.0]), np.array([10.0]), np.array([4.0]))
    for rule in DeadlineRule:
        assert simulate_aggregates(work, rule).tolist() == [5.0, 0.0]


def test_the_rules_differ_if_a_late_instant_competes() -> None:
    """An expensive query that is late in any case, and a cheap query that can be in time."""
    work = AggregateWork(np.array([0.0]), np.array([1.0, 9.0]), np.array([10.0, 2.0]))
    late = {rule: simulate_aggregates(work, rule).sum() for rule in DeadlineRule}
    assert late == {DeadlineRule.EDF: 9.0 + 3.0, DeadlineRule.HIGHEST_RATE: 11.0, DeadlineRule.HYBRID: 11.0}


def test_there_is_one_instant_for_each_slide_with_a_tuple() -> None:
    work = sliding_aggregates(0.5, 3, queries=5, tuples=60)
    expected = sum(len(np.unique(work.times // slide)) for slide in work.slide)
    assert [len(simulate_aggregates(work, rule)) for rule in DeadlineRule] == [expected] * 3


def test_with_little_load_all_instants_are_in_time() -> None:
    work = sliding_aggregates(0.01, 1, queries=5, tuples=60)
    assert simulate_aggregates(work, DeadlineRule.EDF).max() == pytest.approx(0.0, abs=0.05)


def test_the_generated_work_has_the_configured_load() -> None:
    work = sliding_aggregates(0.7, 1, queries=20, tuples=500)
    assert work.cost.sum() * 500 / work.times[-1] == pytest.approx(0.7)
