"""Rows are ordered by (_ts, _seq), and copied only where tables overlap."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicemill.columns.merge import OrderError, in_order, merge_sorted, time_range
from storage.tables import rows, stored

KEYS = st.tuples(st.integers(0, 6), st.integers(0, 6), st.just(0), st.integers(0, 99))


@given(
    st.lists(st.lists(KEYS, max_size=6).map(lambda part: sorted(part, key=lambda row: row[:2])), min_size=1)
)
def test_merge_sorts_rows_by_timestamp_and_sequence_number(
    parts: list[list[tuple[int, int, int, int]]],
) -> None:
    merged = merge_sorted([stored(part) for part in parts])
    expected = sorted((row for part in parts for row in part), key=lambda row: row[:2])
    assert [tuple(row.values()) for row in merged.to_pylist()] == expected


@given(st.lists(KEYS, max_size=30))
def test_rows_in_any_order_can_be_sorted(tuples: list[tuple[int, int, int, int]]) -> None:
    expected = sorted(tuples, key=lambda row: row[:2])
    assert in_order(stored(tuples)).equals(stored(expected))


def test_tables_with_disjoint_time_ranges_are_not_copied() -> None:
    parts = [rows(1, 2, seq=0), rows(2, 3, seq=2), rows(seq=9), rows(3, seq=4)]
    merged = merge_sorted(parts)
    assert merged.column("_ts").num_chunks == 3
    assert merged.column("_seq").to_pylist() == [0, 1, 2, 3, 4]
    assert (
        merged.column("n").chunk(0).buffers()[1].address == parts[0].column("n").chunk(0).buffers()[1].address
    )


def test_many_tables_with_disjoint_time_ranges_are_not_copied() -> None:
    parts = [rows(ts, ts + 1, seq=2 * ts) for ts in range(100)]
    merged = merge_sorted(parts)
    assert merged.column("_ts").num_chunks == 100
    swapped = merge_sorted([*parts[50:], *parts[:50]])
    assert swapped.equals(merged)


def test_rows_with_equal_timestamps_are_merged_by_sequence_number() -> None:
    assert merge_sorted([rows(5, seq=7), rows(5, seq=2)]).column("_seq").to_pylist() == [2, 7]


def test_a_column_that_one_table_lacks_is_null_for_its_rows() -> None:
    merged = merge_sorted([rows(1), rows(2).drop_columns("n")])
    assert merged.column("n").to_pylist() == [0, None]


@pytest.mark.parametrize("run_rows", [1, 300, 5_000])
@pytest.mark.parametrize("step", [0, 1, 7])
def test_short_and_long_sorted_sequences_are_merged_in_the_same_order(run_rows: int, step: int) -> None:
    runs = [np.arange(run_rows, dtype=np.int64) * step + first for first in (9_000, 0, 40_000, 0, 100)]
    times = np.concatenate(runs)
    table = pa.table({"_ts": times, "_seq": np.arange(len(times))})
    assert in_order(table).equals(table.take(np.argsort(times, kind="stable")))


def test_the_time_range_of_a_sorted_table_is_its_first_and_last_timestamp() -> None:
    assert time_range(rows(3, 3, 8)) == (3, 8)
    assert time_range(rows()) == (None, None)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (rows(2, 1), "sorted"),
        (stored([(1, 5, 0, 0), (1, 4, 0, 0)]), "sorted"),
        (pa.table({"_ts": pa.array([1, None], pa.int64())}), "without NULL"),
        (pa.table({"_ts": pa.array([1], pa.int32())}), "int64"),
    ],
)
def test_a_table_out_of_order_or_without_timestamps_is_rejected(table: pa.Table, message: str) -> None:
    with pytest.raises(OrderError, match=message):
        time_range(table)
