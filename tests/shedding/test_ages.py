"""Comparisons by age of stored rows, and the age up to which a share of the comparisons lies."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicemill.shedding.load import PARTS, ComparisonCounter, Comparisons, ComparisonsByAge

COUNTS = st.lists(st.integers(0, 1000), min_size=PARTS, max_size=PARTS).map(tuple)
OLDEST = (PARTS - 1, PARTS - 1)  # windows are full
SUBTASKS = st.lists(
    st.builds(Comparisons, st.tuples(COUNTS, COUNTS), st.just(OLDEST)), min_size=1, max_size=4
)
NOTHING = (0,) * PARTS
WINDOWS = st.tuples(st.floats(0.05, 1.0), st.floats(0.05, 1.0))


@given(st.lists(st.tuples(st.floats(-0.1, 1.2), st.floats(0, 0.5), st.integers(0, 10_000)), max_size=20))
def test_comparisons_of_slices_count_within_the_ages_of_the_slices(
    slices: list[tuple[float, float, int]],
) -> None:
    counter = ComparisonCounter(1)
    for youngest, length, count in slices:
        counter.add(0, youngest, youngest + length, count)
    assert counter.found().total == sum(count for *_, count in slices)
    alone = ComparisonCounter(1)
    alone.add(0, 0.5, 0.75, 1000)
    (parts,), oldest = alone.found().parts, alone.found().oldest
    assert oldest == (12,)
    assert [part for part, count in enumerate(parts) if count] == [8, 9, 10, 11]
    assert set(parts) == {0, 250}


@given(SUBTASKS, st.integers(1, 100))
def test_comparisons_of_subtasks_add_up(subtasks: list[Comparisons], rows: int) -> None:
    apart, together = ComparisonsByAge(), ComparisonsByAge()
    sides = zip(*(subtask.parts for subtask in subtasks), strict=True)
    whole = tuple(tuple(map(sum, zip(*parts, strict=True))) for parts in sides)
    apart.add(subtasks, rows)
    together.add([Comparisons(whole, OLDEST)], rows)
    assert np.allclose(apart.parts, together.parts)


@given(SUBTASKS, WINDOWS, st.floats(0.01, 1.0))
def test_a_reach_covers_its_share_of_the_comparisons(
    subtasks: list[Comparisons], windows: tuple[float, float], share: float
) -> None:
    known = ComparisonsByAge()
    known.add(subtasks, 10)
    whole = known.within(windows, 1.0)
    reach = known.reach(windows, share)
    assert 0 <= reach <= 1
    if whole > 0:
        assert known.within(windows, reach) == pytest.approx(share * whole, rel=1e-5, abs=1e-5)
    else:
        assert reach == share


@given(SUBTASKS, WINDOWS)
def test_a_greater_share_reaches_further_back(
    subtasks: list[Comparisons], windows: tuple[float, float]
) -> None:
    known = ComparisonsByAge()
    known.add(subtasks, 10)
    reaches = [known.reach(windows, share / 10) for share in range(1, 11)]
    assert all(less <= more for less, more in pairwise(reaches))


def test_ages_beyond_the_reach_keep_their_counts() -> None:
    known = ComparisonsByAge()
    known.add([Comparisons(((100,) * PARTS, NOTHING), OLDEST)], 10)
    half = Comparisons(((100,) * (PARTS // 2) + (0,) * (PARTS // 2), NOTHING), OLDEST)
    for _ in range(50):
        known.add([half], 10, searched=0.5)
    assert np.allclose(known.parts[0], 10)
    assert known.reach((1.0, 1.0), 0.25) == pytest.approx(0.25)


def test_a_constant_share_has_a_constant_reach() -> None:
    """Under load from the start, ages that are never probed count as much as probed ages."""
    known, looked = ComparisonsByAge(), 1.0
    known.add([Comparisons((NOTHING, NOTHING), (-1, -1))], 10)  # no rows are stored yet
    for step in range(40):
        looked = known.reach((1.0, 1.0), 0.5)
        assert looked == pytest.approx(0.5, abs=1 / PARTS)
        old = min(step, PARTS - 1)
        counts = tuple(100 if (part + 1) / PARTS <= looked and part <= old else 0 for part in range(PARTS))
        known.add([Comparisons((counts, counts), (old, old))], 10, looked)


def test_many_comparisons_with_young_rows_shorten_the_reach() -> None:
    known = ComparisonsByAge()
    known.add([Comparisons(((700, 100, *(0,) * 13, 200), NOTHING), OLDEST)], 10)
    assert known.reach((1.0, 1.0), 0.8) == pytest.approx(2 / PARTS, abs=1e-3)
    assert known.reach((1.0, 1.0), 0.35) == pytest.approx(0.5 / PARTS, abs=1e-3)
