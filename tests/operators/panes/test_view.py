"""Views: the entries of chosen patterns by key and time, against a sort in plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from operators.panes.values import call
from slicemill import types as t
from slicemill.operators.window.pane_answers import PaneView, by_key, pane_aggregate_of, view_of
from slicemill.operators.window.partial_aggregates import Columns

COUNT = pane_aggregate_of(call("count", t.INT))
assert COUNT is not None
PARTIALS = {partial.name: partial for partial in COUNT.partials}
(KNOWN,) = PARTIALS
Entry = tuple[int, int, int]  # start, key, pattern

entries = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(0, 2)), max_size=20).map(
    lambda found: sorted(found, key=lambda entry: entry[0])
)
selections = st.lists(st.booleans(), min_size=3, max_size=3)


def columns_of(entries: list[Entry]) -> Columns:
    """Entry n has n + 1 rows, of which n are known; its first tuple is the one with this number."""
    start, key, pattern = (np.array([entry[i] for entry in entries], np.int64) for i in range(3))
    numbers = np.arange(len(entries))
    own = {"start": start, "key": key, "pattern": pattern, "seq": numbers, "rows": numbers + 1}
    return {**own, f"{KNOWN}|n": numbers}


@given(entries)
def test_entries_of_a_key_stay_in_order(found: list[Entry]) -> None:
    ordered = by_key(columns_of(found), 4)
    assert ordered["seq"].tolist() == sorted(range(len(found)), key=lambda index: found[index][1])


@given(entries, selections, st.integers(-1, 5), st.booleans())
@example([(0, 1, 0), (0, 1, 1), (0, 1, 0)], [True, True, False], 0, False)
@example([], [True, True, True], 0, False)
@example([(0, 0, 2)], [True, True, False], 0, False)
def test_a_view_has_the_entries_of_its_patterns_one_per_key_and_pane(
    found: list[Entry], selected: list[bool], since: int, single: bool
) -> None:
    groups: dict[tuple[int, int, int], list[int]] = {}
    for index, (start, key, pattern) in enumerate(found):
        if selected[pattern] and start >= since:
            groups.setdefault((key, start, index if single else 0), []).append(index)
    expected = [(key, start, groups[key, start, own]) for key, start, own in sorted(groups)]
    view = view_of(by_key(columns_of(found), 4), np.array(selected), since, PARTIALS, single)
    assert view.start.tolist() == [start for _, start, _ in expected]
    assert view.columns["seq"].tolist() == [indices[0] for *_, indices in expected]
    assert view.columns["rows"].tolist() == [sum(index + 1 for index in indices) for *_, indices in expected]
    assert view.columns[f"{KNOWN}|n"].tolist() == [sum(indices) for *_, indices in expected]
    keys = [key for key, _, _ in expected]
    assert view.keys.tolist() == sorted(set(keys))
    assert np.repeat(view.keys, np.diff(view.begin)).tolist() == keys
    asked = np.array([3, 0, 7, 1, 2])
    ranks = {key: rank for rank, key in enumerate(sorted(set(keys)))}
    assert view.ranks(asked).tolist() == [ranks.get(key, -1) for key in asked.tolist()]


def test_an_index_is_made_once() -> None:
    view = view_of(by_key(columns_of([(0, 0, 0)]), 1), np.array([True]), 0, PARTIALS)
    assert view.index(KNOWN) is view.index(KNOWN) and view.index("") is view.index("")


def test_keys_are_asked_for_once_and_have_one_zero() -> None:
    asked: list[list[int]] = []

    def values(numbers: Any) -> list[pa.Array]:
        asked.append(numbers.tolist())
        return [pa.array([-0.0, 1.5]), pa.array(["b", None])]

    view = PaneView(np.array([3, 5]), np.array([0, 1, 2]), columns_of([(0, 3, 0), (0, 5, 0)]), PARTIALS)
    for _ in range(2):
        assert str([column.to_pylist() for column in view.output_keys(values)]) == "[[0.0, 1.5], ['b', None]]"
    assert asked == [[3, 5]]
