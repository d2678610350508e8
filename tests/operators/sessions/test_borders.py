"""One pass for all gaps finds what a pass for each gap finds."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from slicemill.kernels.arrays import Int64s
from slicemill.operators.session.state import (
    FOREVER,
    OpenSessions,
    SessionRows,
    SessionSegments,
    sessions_of_gaps,
    sessions_until,
)
from slicemill.time import END

STEPS = st.lists(st.tuples(st.booleans(), st.integers(0, 6), st.booleans()), max_size=30)


@given(
    STEPS, st.sets(st.integers(1, 5) | st.just(FOREVER), min_size=1), st.integers(0, 9), st.integers(0, 30)
)
def test_one_pass_for_all_gaps_finds_what_a_pass_for_each_finds(
    steps: list[tuple[bool, int, bool]], some: set[int], after: int, closed: int
) -> None:
    keys = np.cumsum([0, *(other for other, _, _ in steps[1:])], dtype=np.int64)[: len(steps)]
    times = np.zeros(len(steps), np.int64)
    for i in range(1, len(steps)):
        times[i] = steps[i][1] + (times[i - 1] if keys[i] == keys[i - 1] else 0)
    closes = np.array([closing for _, _, closing in steps], np.bool_)
    now = int(times.max(initial=0)) + after
    gaps = np.array(sorted(some))
    found = sessions_of_gaps(keys, times, closes, gaps, now, closed)
    open_rows = np.zeros(len(steps), np.bool_)
    every = np.unique(keys)
    held = held_by(every, found, gaps, now)
    for index, gap in enumerate(gaps.tolist()):
        ends = np.full(len(times), FOREVER) if gap == FOREVER else times + gap
        alone = sessions_until(keys, times, ends, closes, now, closed)
        own = found.ended.gaps == index
        for name in ("starts", "stops", "until"):
            assert getattr(found.ended, name)[own].tolist() == getattr(alone.ended, name).tolist()
        assert held[index] == held_by(every, alone, np.zeros(1, np.int64), now)[0]
        open_rows |= alone.is_open
    assert found.is_open.tolist() == open_rows.tolist()


def held_by(keys: Int64s, found: SessionSegments, gaps: Int64s, now: int) -> list[int | None]:
    """Return the earliest end of an open session by gap."""
    sessions, ends = OpenSessions(gaps, 0), np.full(len(keys), END)
    sessions.update(keys, found, ends, now)
    held = sessions.held(now)
    assert min(ends.tolist(), default=END) == min((end for end in held if end is not None), default=END)
    return held


def rows_of_keys(keys: list[int], first: int = 0) -> pa.Table:
    return pa.table({"k": keys, "n": range(first, first + len(keys))})


def test_rows_after_the_first_needed_row_of_a_key_stay_linked() -> None:
    rows = SessionRows(["k"])
    rows.add(rows_of_keys([7, 8, 7]))
    assert rows.add(rows_of_keys([8, 7], 3)).tolist() == [1, 0]
    found = rows.of(np.arange(2))
    assert found.positions.tolist() == [0, 2, 4, 1, 3] and found.keys.tolist() == [0, 0, 0, 1, 1]
    assert not rows.unlink(found, np.array([False, True, False, False, False]))
    assert rows.of(np.arange(2)).positions.tolist() == [2, 4] and rows.linked == 2


def test_unlinked_rows_and_their_keys_are_dropped_when_they_are_many() -> None:
    rows = SessionRows(["k"])
    rows.add(rows_of_keys(list(range(3_000))))
    found = rows.of(np.arange(3_000))
    assert rows.unlink(found, found.positions % 1_000 == 1)
    assert rows.rows.at(np.arange(3)).column("n").to_pylist() == [1, 1_001, 2_001]
    assert rows.add(rows_of_keys([2_001, 5], 3_000)).tolist() == [2, 3]
    for number in range(1_100):
        found = rows.of(np.arange(len(rows.last)))
        rows.unlink(found, np.zeros(len(found.keys), np.bool_))
        rows.add(rows_of_keys([number]))
    assert rows.linked == 1 and rows.rows.rows <= 1_100


@given(st.lists(st.integers(0, 60), min_size=1, max_size=120), st.sets(st.integers(0, 60), max_size=4))
def test_a_few_keys_are_read_by_their_links_and_many_keys_by_a_sort(keys: list[int], some: set[int]) -> None:
    rows = SessionRows(["k"])
    for first in range(0, len(keys), 7):
        rows.add(rows_of_keys(keys[first : first + 7], first))
    known = list(dict.fromkeys(keys))
    chosen = np.array(sorted(known.index(key) for key in some if key in known), np.int64)
    found = rows.of(chosen)
    of = range(len(known)) if rows.is_dense(chosen) else chosen.tolist()
    expected = [(number, n) for number in of for n, key in enumerate(keys) if key == known[number]]
    assert list(zip(found.keys.tolist(), found.positions.tolist(), strict=True)) == expected
    assert found.table.column("n").take(pa.array(found.order)).to_pylist() == found.positions.tolist()
