"""One pass for all gaps finds what a pass for each gap finds."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from slicemill.operators.session.state import FOREVER, sessions_of_gaps, sessions_until, to_the_end

STEPS = st.lists(st.tuples(st.booleans(), st.integers(0, 6), st.booleans()), max_size=30)


@given(
    STEPS, st.sets(st.integers(1, 5) | st.just(FOREVER), min_size=1), st.integers(0, 9), st.integers(0, 30)
)
def test_one_pass_for_all_gaps_finds_what_a_pass_for_each_finds(
    steps: list[tuple[bool, int, bool]], some: set[int], after: int, closed: int
) -> None:
    keys = np.cumsum([other for other, _, _ in steps], dtype=np.int64)
    times = np.zeros(len(steps), np.int64)
    for i in range(1, len(steps)):
        times[i] = steps[i][1] + (times[i - 1] if keys[i] == keys[i - 1] else 0)
    closes = np.array([closing for _, _, closing in steps], np.bool_)
    now = int(times.max(initial=0)) + after
    gaps = np.array(sorted(some))
    found = sessions_of_gaps(keys, times, closes, gaps, now, closed)
    open_rows = np.zeros(len(steps), np.bool_)
    for index, gap in enumerate(gaps.tolist()):
        ends = np.full(len(times), FOREVER) if gap == FOREVER else times + gap
        alone = sessions_until(keys, times, ends, closes, now, closed)
        own = found.ended.gaps == index
        for name in ("starts", "stops", "until"):
            assert getattr(found.ended, name)[own].tolist() == getattr(alone.ended, name).tolist()
        assert found.held[index] == alone.held[0]
        open_rows |= alone.is_open
    assert found.is_open.tolist() == open_rows.tolist()


def test_what_stays_of_a_key_is_its_end() -> None:
    order, keys = np.array([0, 2, 4, 1, 3]), np.array([7, 8, 7, 8, 7])
    needed = np.array([False, False, True, False, False])
    assert to_the_end(order, keys, needed).tolist() == [False, False, True, False, True]
