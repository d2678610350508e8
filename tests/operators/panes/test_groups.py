"""Figures by group, against a dictionary of groups."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from slicemill.operators.window.spans import first_of_group, least_of_group, sum_by_group

whole = st.one_of(st.integers(-3, 3), st.sampled_from([-(2**63), 2**63 - 1]))


def dense(numbers: list[int]) -> tuple[np.ndarray, int]:
    """Groups numbered from 0 on, none of them empty, in any order."""
    ranks = {number: rank for rank, number in enumerate(sorted(set(numbers)))}
    return np.array([ranks[number] for number in numbers], np.int64), len(ranks)


@given(st.lists(st.tuples(st.integers(0, 5), whole), max_size=20))
@example([])
@example([(0, 2**63 - 1), (0, 2**63 - 1)])
def test_first_least_and_sum_of_each_group(rows: list[tuple[int, int]]) -> None:
    group, count = dense([number for number, _ in rows])
    values = np.array([value for _, value in rows], np.int64)
    members = [[index for index, g in enumerate(group) if g == number] for number in range(count)]
    assert first_of_group(group, count).tolist() == [own[0] for own in members]
    least = [min(own, key=lambda index: (values[index], index)) for own in members]
    assert least_of_group(values, group, count).tolist() == least
    small = np.arange(len(rows)) % 7
    sums = [sum(int(small[index]) for index in own) for own in members]
    assert sum_by_group(small.astype(np.int8), group, count).tolist() == sums


def test_a_group_without_rows_has_no_least_row_and_counts_nothing() -> None:
    nobody = np.array([1], np.int64)
    assert least_of_group(np.array([5]), nobody, 3).tolist() == [-1, 0, -1]
    assert sum_by_group(np.array([5]), nobody, 3).tolist() == [0, 5, 0]
