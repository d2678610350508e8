"""The calendar queue (P35)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicemill.scheduling.calendar_queue import CalendarQueue


@given(st.lists(st.tuples(st.integers(0, 9), st.floats(1e-4, 1e4)), min_size=1, max_size=30))
def test_with_many_buckets_the_greatest_comes_first(puts: list[tuple[int, float]]) -> None:
    queue = CalendarQueue[int](1e-4, 1e4, 10_000)
    wanted = dict[int, float]()
    for item, priority in puts:
        queue.put(item, priority)
        wanted[item] = priority
    queue.discard(puts[0][0])
    wanted.pop(puts[0][0], None)
    while wanted:
        item = queue.pop()
        assert wanted[item] >= max(wanted.values()) * 0.99
        del wanted[item]
    assert len(queue) == 0
    with pytest.raises(IndexError):
        queue.pop()
