"""Comparisons by age, and how far back a share of them reaches."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicemill.shedding.ages import PARTS, AgeCounter, Compared, ComparedByAge

COUNTS = st.lists(st.integers(0, 1000), min_size=PARTS, max_size=PARTS).map(tuple)
CELLS = st.lists(st.tuples(COUNTS, COUNTS), min_size=1, max_size=4)
WINDOWS = st.tuples(st.floats(0.05, 1.0), st.floats(0.05, 1.0))


@given(st.lists(st.tuples(st.floats(-0.1, 1.2), st.floats(0, 0.5), st.integers(0, 10_000)), max_size=20))
def test_what_slices_count_is_kept_within_their_ages(slices: list[tuple[float, float, int]]) -> None:
    counter = AgeCounter(1)
    for youngest, length, count in slices:
        counter.add(0, youngest, youngest + length, count)
    assert sum(map(sum, counter.found())) == sum(count for *_, count in slices)
    alone = AgeCounter(1)
    alone.add(0, 0.5, 0.75, 1000)
    (parts,) = alone.found()
    assert [part for part, count in enumerate(parts) if count] == [8, 9, 10, 11]
    assert set(parts) == {0, 250}


@given(CELLS, st.integers(1, 100))
def test_cells_are_added_up_whatever_their_number(cells: list[Compared], rows: int) -> None:
    apart, together = ComparedByAge(), ComparedByAge()
    whole = tuple(tuple(map(sum, zip(*sides, strict=True))) for sides in zip(*cells, strict=True))
    apart.add(cells, rows)
    together.add([whole], rows)
    assert np.allclose(apart.parts, together.parts)


@given(CELLS, WINDOWS, st.floats(0.01, 1.0))
def test_a_reach_has_its_share_of_the_comparisons(
    cells: list[Compared], windows: tuple[float, float], share: float
) -> None:
    known = ComparedByAge()
    known.add(cells, 10)
    whole = known.within(windows, 1.0)
    reach = known.reach(windows, share)
    assert 0 <= reach <= 1
    if whole > 0:
        assert known.within(windows, reach) == pytest.approx(share * whole, rel=1e-5, abs=1e-5)
    else:
        assert reach == share


@given(CELLS, WINDOWS)
def test_more_work_reaches_further_back(cells: list[Compared], windows: tuple[float, float]) -> None:
    known = ComparedByAge()
    known.add(cells, 10)
    reaches = [known.reach(windows, share / 10) for share in range(1, 11)]
    assert all(less <= more for less, more in pairwise(reaches))


def test_what_is_not_looked_at_stays_known() -> None:
    known = ComparedByAge()
    known.add([((100,) * PARTS, (0,) * PARTS)], 10)
    half = ((100,) * (PARTS // 2) + (0,) * (PARTS // 2), (0,) * PARTS)
    for _ in range(50):
        known.add([half], 10, looked=0.5)
    assert np.allclose(known.parts[0], 10)
    assert known.reach((1.0, 1.0), 0.25) == pytest.approx(0.25)


def test_young_pairs_that_are_most_of_the_work_shorten_the_reach() -> None:
    known = ComparedByAge()
    known.add([((700, 100, *(0,) * 13, 200), (0,) * PARTS)], 10)
    assert known.reach((1.0, 1.0), 0.8) == pytest.approx(2 / PARTS, abs=1e-3)
    assert known.reach((1.0, 1.0), 0.35) == pytest.approx(0.5 / PARTS, abs=1e-3)
