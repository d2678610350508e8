"""Generator of a synthetic highway (M57)."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.connectors.generators.highway import SLOT_US, SLOTS_PER_DAY, Highway, highway_of
from slicemill.errors import SlicemillError


@settings(max_examples=20)
@given(st.lists(st.integers(0, 2 * SLOTS_PER_DAY), max_size=4))
def test_rows_generated_in_parts_equal_rows_generated_at_once(edges: list[int]) -> None:
    road = Highway(segments=2, days=2, seed=5)
    assert road.slots is not None
    whole = road.rows(0, road.slots)
    parts = [road.rows(first, last) for first, last in pairwise(sorted({0, road.slots, *edges}))]
    for name, column in whole.items():
        assert np.concatenate([part[name] for part in parts]).tolist() == column.tolist()


def test_every_segment_has_a_row_in_every_slot() -> None:
    rows = Highway(segments=3, first_day=2).rows(10, 12)
    assert rows["segment"].tolist() == [1, 2, 3, 1, 2, 3]
    first = (2 * SLOTS_PER_DAY + 10) * SLOT_US
    assert rows["at"].tolist() == [first] * 3 + [first + SLOT_US] * 3
    # Each segment has the speeds of the segments ahead and behind.
    assert rows["speed_ahead"][0] == rows["speed"][1]
    assert rows["speed_behind"][1] == rows["speed"][0]


def test_zero_slots_have_no_rows() -> None:
    assert Highway().rows(0, 0)["at"].tolist() == []


def test_a_later_start_day_only_shifts_the_timestamps() -> None:
    early, late = Highway(segments=1), Highway(segments=1, first_day=3)
    day = SLOTS_PER_DAY
    assert early.rows(3 * day, 4 * day)["speed"].tolist() == late.rows(0, day)["speed"].tolist()
    assert early.rows(3 * day, 4 * day)["at"].tolist() == late.rows(0, day)["at"].tolist()


def test_traffic_jams_occur_at_rush_hours_on_weekdays() -> None:
    road = Highway(segments=4)
    rows = road.rows(0, 14 * SLOTS_PER_DAY)
    day, hour = rows["at"] // (SLOTS_PER_DAY * SLOT_US), rows["hour"]
    weekday = day % 7 < 5
    rush, night = np.abs(hour - 17.3) < 1, hour < 4
    assert rows["jam"][weekday & rush].mean() > 0.3
    assert rows["jam"][night].mean() < 0.05
    assert rows["jam"][~weekday & rush].mean() < rows["jam"][weekday & rush].mean()


@pytest.mark.parametrize(
    ("stream", "options", "message"),
    [
        ("rail", {}, "highway:// has no stream 'rail'; it has road"),
        ("road", {"lanes": "2"}, "highway:// has no option lanes"),
        ("road", {"days": "two"}, "highway:// takes integers"),
        ("road", {"days": "-1"}, "highway:// takes days and first from 0 on"),
        ("road", {"segments": "0"}, "highway:// takes 1 to 1000 segments, not 0"),
    ],
)
def test_the_options_of_a_url_are_checked(stream: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(SlicemillError, match=message):
        highway_of(stream, options)


def test_a_url_determines_the_parameters_of_the_road() -> None:
    options = {"Segments": "2", "days": "3", "first": "4", "seed": "5", "speed": "rate-limited"}
    road = highway_of("road", options, frozenset(("speed",)))
    assert road == Highway(segments=2, days=3, first_day=4, seed=5)
