"""Ranges of rows that windows cover, compared with a scan of every row."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from slicemill.columns.ranges import by_partition, ends_until, last_of_each, running_totals, starts_from

Row = tuple[int, int, int]  # partition, time, length of the window

rows = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 9), st.sampled_from([0, 1, 3, 20])), max_size=15
).map(lambda found: sorted(found, key=lambda row: row[1]))


def sorted_rows(rows: list[Row]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the partitions, heads, times and window lengths of the rows by partition."""
    partitions = np.array([row[0] for row in rows], np.int32)
    order, by_partitions, heads = by_partition(partitions, 5)
    times, lengths = (np.array([row[i] for row in rows], np.int64)[order] for i in (1, 2))
    return by_partitions, heads, times, lengths


@given(rows)
@example([])
@example([(3, 0, 0)])
def test_rows_of_a_partition_stay_in_order(rows: list[Row]) -> None:
    order, partitions, heads = by_partition(np.array([row[0] for row in rows], np.int32), 5)
    expected = sorted(range(len(rows)), key=lambda index: rows[index][0])
    assert order.tolist() == expected
    assert partitions.tolist() == [rows[index][0] for index in expected]
    assert heads.tolist() == [partitions.tolist().index(partition) for partition in partitions]


@given(rows, st.sampled_from([0, 3, 20]))
@example([(0, 0, 0), (0, 5, 0), (1, 1, 0)], 3)
def test_a_window_starts_at_the_first_row_after_its_lower_bound(rows: list[Row], length: int) -> None:
    """Windows never start before those of earlier rows; a window may start after its own row."""
    partitions, heads, times, _ = sorted_rows(rows)
    for shift in (0, 2):
        lower = times - length + shift
        found = starts_from(heads, times, lower).tolist()
        for index, start in enumerate(found):
            own = [p for p in range(index + 1) if partitions[p] == partitions[index]]
            assert start == next((p for p in own if times[p] >= lower[index]), index + 1)


@given(rows, st.sampled_from([0, 1, 3, 20]))
def test_a_window_ends_after_the_last_row_before_its_upper_bound(rows: list[Row], length: int) -> None:
    partitions, heads, times, _ = sorted_rows(rows)
    found = ends_until(heads, times, times + length).tolist()
    for index, end in enumerate(found):
        own = [p for p in range(len(rows)) if partitions[p] == partitions[index]]
        assert end == 1 + max(p for p in own if times[p] <= times[index] + length)


@given(rows, st.lists(st.integers(0, 5), min_size=5, max_size=5))
def test_running_totals_continue_from_earlier_runs(rows: list[Row], before: list[int]) -> None:
    partitions, _, _, lengths = sorted_rows(rows)
    for counted in (lengths, lengths > 0):
        found = running_totals(partitions, counted, np.array(before, np.int64)).tolist()
        for index, total in enumerate(found):
            own = [int(counted[p]) for p in range(index + 1) if partitions[p] == partitions[index]]
            assert total == before[partitions[index]] + sum(own)


@given(rows)
@example([])
def test_each_partition_has_one_last_row(rows: list[Row]) -> None:
    partitions, *_ = sorted_rows(rows)
    found = last_of_each(partitions).tolist()
    assert found == [partition not in partitions[index + 1 :] for index, partition in enumerate(partitions)]
