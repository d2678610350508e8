"""What shared windows keep: few slices, the same entries and keys after any storing, nothing too much."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from operators.panes.brute import same_key
from operators.panes.values import call
from slicemill import types as t
from slicemill.columns.keys import Keys, distinct_keys
from slicemill.columns.pieces import Slice
from slicemill.operators.window import pane_state as state
from slicemill.operators.window.pane_answers import pane_aggregate_of
from slicemill.operators.window.pane_state import MemberState, PaneState, PaneStore, _read_former_keys
from slicemill.operators.window.partial_aggregates import Columns, ValueList
from slicemill.time import BEGINNING, END
from support.stored import stored

SUM = pane_aggregate_of(call("sum", t.BIGINT))
assert SUM is not None
PARTIALS = {partial.name: partial for partial in SUM.partials}
VALUES = {"values": ValueList(call("sum", t.BIGINT).arguments[0])}


def entries(rows: list[tuple[int, int, int]], first: int = 0) -> Columns:
    """One entry of one tuple for each (start, key, pattern); the value is the tuple's number."""
    start, key, pattern = (np.array([row[i] for row in rows], np.int64) for i in range(3))
    numbers = first + np.arange(len(rows))
    made: dict[str, Any] = {"start": start, "key": key, "pattern": pattern, "seq": numbers}
    made["rows"] = np.ones(len(rows), np.int64)
    for name, partial in PARTIALS.items():
        lifted = partial.lift(pa.array(numbers), numbers)
        made |= {f"{name}|{field}": np.asarray(values).astype(np.int64) for field, values in lifted.items()}
    return made


def sums(columns: Columns) -> dict[tuple[int, int, int], tuple[int, int, int]]:
    """By start, key and pattern: rows, first number and sum, of all entries together."""
    (total,) = (columns[name] for name in columns if name.endswith("|s"))
    found: dict[tuple[int, int, int], tuple[int, int, int]] = {}
    names = ("start", "key", "pattern", "rows", "seq")
    for *index, rows, seq, value in zip(
        *(columns[name].tolist() for name in names), total.tolist(), strict=True
    ):
        before = found.get(tuple(index), (0, END, 0))
        found[tuple(index)] = (before[0] + rows, min(before[1], seq), before[2] + value)
    return found


Batch = list[tuple[int, int, int]]


@st.composite
def batches(draw: st.DrawFn) -> list[Batch]:
    """Entries of runs: panes never go back, and the last pane of one run may go on in the next."""
    made, now = [], 0
    for _ in range(draw(st.integers(1, 9))):
        found = {}
        for _ in range(draw(st.integers(1, 6))):
            now += draw(st.sampled_from([0, 0, 0, 1]))
            found[now, draw(st.integers(0, 2)), draw(st.integers(0, 1))] = None
        made.append(list(found))
    return made


@settings(max_examples=50)
@given(batches(), st.booleans())
def test_a_store_has_what_was_appended_each_slice_twice_as_long_as_the_next(
    batches: list[Batch], again: bool
) -> None:
    store, given_rows = PaneStore(), []
    for batch in batches:
        store.append(entries(batch, len(given_rows)), PARTIALS)
        given_rows += batch
        if again:
            store = stored(store)
        sizes = [part.table.num_rows for part in store.slices]
        assert all(older > 2 * newer for older, newer in pairwise(sizes))
    found = store.all(PARTIALS)
    assert (np.diff(found["start"]) >= 0).all() and len(found["start"]) == store.rows
    assert sums(found) == sums(entries(given_rows))


@settings(max_examples=40)
@given(batches())
def test_single_tuples_stay_single_and_in_order(batches: list[Batch]) -> None:
    store, count = PaneStore(single=True), 0
    for batch in batches:
        made = {name: v for name, v in entries(batch, count).items() if "|" not in name}
        made["values|value"] = pa.array(np.arange(count, count + len(batch)))
        store.append(made, VALUES)
        count += len(batch)
    found = stored(store).all(VALUES)
    assert found["seq"].tolist() == found["values|value"].to_pylist() == list(range(count))


@settings(max_examples=50)
@given(batches(), st.integers(0, 20), st.sampled_from([0, 1 << 12]))
@example([[(0, 0, 0)], [(0, 1, 0)], [(0, 0, 1)], [(0, 0, 1)]], 0, 0)
def test_needed_entries_are_kept_and_small_slices_hold_no_others(
    batches: list[Batch], since: int, small: int
) -> None:
    store, rows = PaneStore(), []
    for batch in batches:
        store.append(entries(batch, len(rows)), PARTIALS)
        rows += batch
    before = sums(store.all(PARTIALS))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state, "_SMALL", small)
        store.keep(np.array([since, *[END] * 10]))
    found = sums(store.all(PARTIALS))
    needed = {index: value for index, value in before.items() if index[0] >= since and index[2] == 0}
    # Of others, parts may be left in slices that were not worth writing anew.
    assert needed.items() <= found.items() and found.keys() <= before.keys()
    assert small == 0 or found == needed
    used = [any(index[1] == key for index in found) for key in range(3)]
    assert store.used("key", 3).tolist() == used
    store.renumber("key", np.array([7, 5, 6]))
    assert sums(store.all(PARTIALS)) == {(s, (7, 5, 6)[k], p): v for (s, k, p), v in found.items()}


keys = st.tuples(
    st.none() | st.sampled_from([0.0, -0.0, math.nan, 1.5]), st.none() | st.sampled_from(["", "a", "b"])
)


def columns_of(rows: list[tuple[Any, ...]]) -> list[pa.Array]:
    types = (pa.float64(), pa.string())
    return [pa.array([row[i] for row in rows], types[i]) for i in range(2)]


@settings(max_examples=50)
@given(st.lists(st.lists(keys, max_size=6), max_size=6), st.sets(st.integers(0, 5)))
def test_keys_have_the_same_numbers_after_any_storing(
    runs: list[list[tuple[Any, ...]]], stops: set[int]
) -> None:
    found, known = Keys(), dict[str, int]()
    for number, rows in enumerate(runs):
        columns = columns_of(rows)
        numbers = found.number(distinct_keys(columns, len(rows)), columns).tolist()
        assert numbers == [known.setdefault(same_key(row), len(known)) for row in rows]
        if number in stops:
            found = stored(found)
        assert len(found) == len(known)
    shown = [column.to_pylist() for column in found.values(np.arange(len(found)))] if known else []
    assert [same_key(row) for row in zip(*shown, strict=True)] == list(known)


def test_keys_of_earlier_versions_are_read() -> None:
    slices = [Slice(pa.table({"0": [3, None]})), Slice(pa.table({"0": [7]}))]
    found = _read_former_keys(slices)
    assert isinstance(found, Keys)
    columns = [pa.array([7, 8, None])]
    assert found.number(distinct_keys(columns, 3), columns).tolist() == [2, 3, 1]
    assert len(_read_former_keys([])) == 0


def test_keys_that_are_kept_get_new_numbers() -> None:
    found, columns = Keys(), [pa.array(["a", None, "c"])]
    found.number(distinct_keys(columns, 3), columns)
    assert found.keep(np.array([False, True, True])).tolist() == [-1, 0, 1]
    again = stored(found)
    assert again.values(np.arange(2))[0].to_pylist() == [None, "c"]


def test_without_key_columns_there_is_one_key() -> None:
    found = Keys()
    assert found.number(distinct_keys([], 3), []).tolist() == [0, 0, 0]
    assert found.values(np.array([0])) == []
    assert stored(found).number(distinct_keys([], 2), []).tolist() == [0, 0]


# -- members -----------------------------------------------------------------------------------------------


def test_members_that_stay_go_on_and_others_begin_anew() -> None:
    kept = PaneState()
    kept.adopt({"a": "one", "b": "two"})
    kept.members["a"].closed = kept.members["b"].closed = 7
    assert (kept.pattern(frozenset("ab")), kept.pattern(frozenset("b")), kept.pattern(frozenset("ab"))) == (
        0,
        1,
        0,
    )
    kept.adopt({"a": "one", "b": "changed", "c": "three"})
    assert {name: member.closed for name, member in kept.members.items()} == {
        "a": 7, "b": BEGINNING, "c": BEGINNING,
    }  # fmt: skip
    # What is there belongs to the one that stayed.
    assert kept.patterns == [frozenset("a"), frozenset()]
    assert kept.pattern(frozenset("abc")) == 2
    kept.adopt({})
    assert kept.members == {} and kept.patterns == [frozenset()] * 3


def left_in(kept: PaneState) -> list[tuple[int, int]]:
    """Pattern and start of each entry."""
    return sorted((pattern, start) for start, _, pattern in sums(kept.entries.all(PARTIALS)))


def test_entries_go_when_none_of_their_members_needs_them() -> None:
    kept = PaneState()
    kept.adopt({"a": 1, "b": 2})
    for names in ("a", "b", "ab", ""):
        kept.pattern(frozenset(names))
    kept.entries.append(entries([(s, 0, p) for s in (0, 10, 20) for p in range(4)]), PARTIALS)
    kept.release({"a": 10, "b": 20})
    assert left_in(kept) == [(0, 10), (0, 20), (1, 20), (2, 10), (2, 20)]
    kept.release({"a": 10})  # b has failed
    assert left_in(kept) == [
        (0, 10),
        (0, 20),
        (2, 10),
        (2, 20),
    ]
    kept.release({})
    assert kept.entries.rows == 0


def test_keys_and_patterns_without_entries_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "_FEW", 0)
    kept = PaneState()
    kept.adopt({"a": 1, "w": 2})
    columns = [pa.array(["p", "q", "r", "s", "t", None])]
    kept.keys.number(distinct_keys(columns, 6), columns)
    for number in range(8):
        kept.pattern(frozenset({"a", f"gone {number}"}))
    kept.entries.append(entries([(0, 0, 0), (0, 5, 7)]), PARTIALS)
    kept.entries.append(entries([(30, 5, 7)], 2), PARTIALS)
    waiting = pa.table({"_ts": [1], "_seq": [0], "_slot": [40], "_key": [3]})
    kept.members["w"] = MemberState(2, waiting=waiting)
    kept.release({"a": 20, "w": BEGINNING})
    assert len(kept.keys) == 2
    assert kept.keys.values(np.arange(2))[0].to_pylist() == ["s", None]
    assert kept.members["w"].waiting.column("_key").to_pylist() == [0]  # type: ignore[union-attr]
    assert sums(kept.entries.all(PARTIALS)) == {(30, 1, 0): (1, 2, 2)}
    assert kept.patterns == [frozenset({"a", "gone 7"})]
    again = stored(kept)
    assert again.patterns == kept.patterns and sums(again.entries.all(PARTIALS)) == {(30, 1, 0): (1, 2, 2)}
    assert again.members["w"].waiting.equals(kept.members["w"].waiting)
