"""Which rows can be among the first when they come, against sorting all that came before."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from slicemill.operators.changelog.topn import among_first


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 6)), max_size=30),
    st.integers(1, 4),
    st.booleans(),
)
def test_a_row_is_a_candidate_if_fewer_than_the_limit_come_before_it(
    drawn: list[tuple[int, int]], limit: int, differ: bool
) -> None:
    rows = sorted(drawn, key=lambda row: row[0])
    partitions = np.array([partition for partition, _ in rows], np.int32)
    indices = np.array([index for _, index in rows], np.int64)
    met: dict[int, list[int]] = defaultdict(list)
    expected = []
    for partition, index in rows:
        before = [other for other in met[partition] if other < index]
        expected.append(len(set(before) if differ else before) < limit)
        met[partition].append(index)
    assert among_first(partitions, indices, limit, differ).tolist() == expected
