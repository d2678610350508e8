"""Grouping, theft and duplicates against the rules in words (M42, M43, M47, G19-G21, X14)."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.extensions.rfid import case_numbers, door_alarms, is_new

TIMES = st.lists(st.integers(0, 30), max_size=15).map(sorted)


def test_g20_a_gap_of_more_than_two_seconds_starts_a_new_case() -> None:
    assert case_numbers(np.array([0, 1_000, 2_500, 6_000, 7_000]), 2_000).tolist() == [1, 1, 1, 2, 2]
    assert case_numbers(np.array([], np.int64), 2_000).tolist() == []


@settings(max_examples=40)
@given(TIMES, st.integers(0, 5))
def test_readings_without_a_longer_gap_are_in_one_case(times: list[int], longest: int) -> None:
    cases, number = [], 1
    for index, at in enumerate(times):
        if index and at - times[index - 1] > longest:
            number += 1
        cases.append(number)
    assert case_numbers(np.array(times, np.int64), longest).tolist() == cases


def test_g19_an_item_without_a_person_nearby_is_stolen() -> None:
    at = np.array([0, 3, 20, 40, 44, 50, 55.5]) * 1_000_000
    authorised = np.array([False, True, False, True, False, False, True])
    assert door_alarms(at.astype(np.int64), authorised, 5_000_000).tolist() == [2, 5]


@settings(max_examples=40)
@given(TIMES, st.data(), st.integers(0, 5))
def test_an_item_is_stolen_if_no_person_is_read_in_time(
    times: list[int], data: st.DataObject, near: int
) -> None:
    size = len(times)
    authorised = data.draw(st.lists(st.booleans(), min_size=size, max_size=size))
    persons = [at for at, person in zip(times, authorised, strict=True) if person]
    alone = [
        i for i in range(size) if not authorised[i] and not any(abs(p - times[i]) <= near for p in persons)
    ]
    assert door_alarms(np.array(times, np.int64), np.array(authorised, np.bool_), near).tolist() == alone


def test_g21_a_reading_close_to_the_previous_reading_of_its_key_is_a_duplicate() -> None:
    assert np.flatnonzero(is_new(np.array([0, 50, 90, 300]), np.full(4, 7), 60)).tolist() == [0, 3]


@settings(max_examples=40)
@given(TIMES, st.data(), st.integers(0, 5))
def test_a_reading_is_new_if_its_key_was_not_read_shortly_before(
    times: list[int], data: st.DataObject, distance: int
) -> None:
    keys = data.draw(st.lists(st.integers(1, 3), min_size=len(times), max_size=len(times)))
    last: dict[int, int] = {}
    new = []
    for key, at in zip(keys, times, strict=True):
        new.append(key not in last or at - last[key] > distance)
        last[key] = at
    assert is_new(np.array(times, np.int64), np.array(keys, np.int64), distance).tolist() == new
