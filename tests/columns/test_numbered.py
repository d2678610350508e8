"""Arrays and rows by number, compared with a dictionary, for any sequence of runs."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicemill.columns import keys as numbered
from slicemill.columns.keys import GrowingRows, RowsByNumber, distinct_numbers, extend_array
from slicemill.operators.window.running import RunningCount
from slicemill.storage.state_size import state_bytes
from support.stored import stored

runs = st.lists(st.dictionaries(st.integers(0, 12), st.integers(0, 99), min_size=1), max_size=12)


@given(runs, st.data())
def test_rows_by_number_equal_those_of_a_dictionary(runs: list[dict[int, int]], data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numbered, "_SMALL", data.draw(st.sampled_from([0, 4, 4_096])))
        patch.setattr(numbered, "_STEP", data.draw(st.sampled_from([1, 2, 8])))
        patch.setattr(numbered, "_MANY_UNUSED", data.draw(st.sampled_from([0, 3, 1_024])))
        rows, expected, count = RowsByNumber(), dict[int, str](), 0
        for run in runs:
            count = max(count, *(number + 1 for number in run))
            rows.reach(count)
            rows.replace(np.array(list(run)), pa.table({"v": [f"of {value}" for value in run.values()]}))
            expected |= {number: f"of {value}" for number, value in run.items()}
            assert rows.added.rows - rows.used <= max(rows.used, numbered._MANY_UNUSED)
            if data.draw(st.booleans()):
                rows = stored(rows)
            if data.draw(st.integers(0, 3)) == 0:
                alive = np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)), np.bool_)
                rows.keep(alive)
                left = np.flatnonzero(alive).tolist()
                expected = {new: expected[old] for new, old in enumerate(left) if old in expected}
                count = len(left)
        asked = np.array(
            data.draw(st.lists(st.sampled_from(sorted(expected)), max_size=20)) if expected else []
        )
        found = rows.added.behind(rows.indices[asked.astype(np.int64)], pa.table({"v": ["new"]}))
        assert found.column("v").to_pylist() == [*(expected[number] for number in asked.tolist()), "new"]
        assert [index >= 0 for index in rows.indices] == [number in expected for number in range(count)]


def test_growing_rows_have_few_pieces_and_correct_positions() -> None:
    rows = GrowingRows()
    for run in range(3_000):
        rows.add(pa.table({"v": np.arange(10 * run, 10 * run + 10)}))
    assert len(rows.pieces) <= 3
    indices = np.array([29_999, 0, 17, 17, 12_345])
    assert rows.at(indices).column("v").to_pylist() == indices.tolist()


def test_a_growing_array_is_extended_in_place_until_its_capacity_is_full() -> None:
    figures, copies = np.zeros(0, np.int64), 0
    for count in range(1, 10_000):
        before = figures
        figures = extend_array(figures, count, -1)
        assert len(figures) == count and figures[-1] == -1
        copies += not np.shares_memory(before, figures)
        figures[-1] = count
    assert figures.tolist() == list(range(1, 10_000))
    assert copies < 20
    assert extend_array(figures, 5) is figures


def test_the_spare_capacity_of_an_array_counts_as_memory() -> None:
    figures = extend_array(np.zeros(0, np.int64), 1_000)
    assert isinstance(figures.base, np.ndarray)
    counts = RunningCount(extend_array(figures, 1_001))
    assert state_bytes({"": counts}) >= figures.base.nbytes > figures.nbytes


def test_distinct_numbers_of_a_run_are_sorted() -> None:
    numbers, rows = distinct_numbers(np.array([7, 3, 7, 9], np.int32))
    assert numbers.tolist() == [3, 7, 9] and rows.tolist() == [1, 0, 1, 2]
