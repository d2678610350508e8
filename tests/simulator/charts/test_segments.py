from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from simulator.strategies import TIMES
from slicemill_lab.charts.charts import Stage
from slicemill_lab.charts.segments import SegmentFigures, derive

SELECTIVITIES = st.builds(Fraction, st.integers(1, 9), st.integers(1, 9))
STAGES = st.builds(Stage, st.just("stage"), TIMES, SELECTIVITIES)


def test_golden_testbed_query_has_the_published_segment_values() -> None:
    stages = [Stage("select", 2, 0.5), Stage("join", 2, 0.5), Stage("project", 2)]
    assert derive(stages)[0] == SegmentFigures(selectivity=0.25, cost=3.5, ideal_time=6)


def test_segments_of_all_operators_end_at_the_root_and_share_the_ideal_time() -> None:
    stages = [Stage("O1", 1, 0.5), Stage("O3", 2, 3), Stage("O4", 4, 0.25)]
    assert derive(stages) == [
        SegmentFigures(0.375, 1 + 0.5 * 2 + 1.5 * 4, 7),
        SegmentFigures(0.75, 2 + 3 * 4, 7),
        SegmentFigures(0.25, 4, 7),
    ]


@given(st.lists(STAGES, min_size=1, max_size=6))
def test_output_rates_strictly_rise_towards_the_root(stages: list[Stage]) -> None:
    rates = [Fraction(figures.selectivity) / Fraction(figures.cost) for figures in derive(stages)]
    assert all(a < b for a, b in pairwise(rates))


@given(st.lists(TIMES, min_size=1, max_size=6))
def test_expected_cost_is_the_ideal_time_if_every_tuple_passes(times: list[Fraction]) -> None:
    leaf = derive([Stage("stage", time) for time in times])[0]
    assert leaf.cost == leaf.ideal_time


@given(st.lists(STAGES, min_size=1, max_size=6))
def test_with_filters_the_expected_cost_is_at_most_the_ideal_time(stages: list[Stage]) -> None:
    filters = [Stage(s.name, s.time, min(s.selectivity, Fraction(1))) for s in stages]
    assert derive(filters)[0].cost <= derive(filters)[0].ideal_time
