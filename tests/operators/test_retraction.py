"""The retraction protocol: changes from the last emitted version of a row to the next."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicemill.columns.arrow_schema import ARRIVAL, SEQ, TS
from slicemill.columns.changelog import ops_of
from slicemill.columns.keys import RowsByNumber, distinct_numbers
from slicemill.columns.ranges import by_partition
from slicemill.operators.changelog.retraction import (
    IncomingChanges,
    changes_between,
    replace_emitted,
    row_changes,
    version_changes,
)
from slicemill.types import OPS, Row


def causes_of(count: int, first: int = 0) -> pa.Table:
    numbers = np.arange(first, first + count)
    return pa.table({TS: numbers * 10, SEQ: numbers, ARRIVAL: numbers})


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (None, (1, 2.0), [("insert", 1, 2.0)]),
        ((1, 2.0), (1, 3.0), [("update_before", 1, 2.0), ("update_after", 1, 3.0)]),
        ((1, 3.0), None, [("delete", 1, 3.0)]),
        ((1, None), (1, None), []),
        ((1, float("nan")), (1, float("nan")), []),
        ((0.0,), (-0.0,), []),
        (None, None, []),
    ],
)
def test_rows_and_columns_have_the_same_changes(
    before: Row | None, now: Row | None, expected: list[Row]
) -> None:
    assert list(row_changes(before, now)) == expected
    width = max(len(row) for row in (before, now, ()) if row is not None)
    names = [f"c{index}" for index in range(width)]
    rows = [row for row in (before, now) if row is not None]
    versions = pa.table({name: [row[index] for row in rows] for index, name in enumerate(names)})
    positions = np.array([0 if before is not None else -1]), np.array([len(rows) - 1 if now else -1])
    made = version_changes(causes_of(1), versions, *positions, names)
    columns = [made.column(name).to_pylist() for name in names]
    shown = [(OPS[op], *row) for op, *row in zip(ops_of(made).tolist(), *columns, strict=True)]
    assert [repr(row) for row in shown] == [repr(row) for row in expected]


def test_both_rows_of_an_update_have_the_system_columns_of_its_cause() -> None:
    versions = pa.table({"v": [1, 2, 3]})
    made = version_changes(causes_of(2, 5), versions, np.array([0, -1]), np.array([1, 2]))
    assert made.column_names == [TS, SEQ, ARRIVAL, "_op", "v"]
    assert made.column(SEQ).to_pylist() == [5, 5, 6] and made.column("v").to_pylist() == [1, 2, 3]


@given(st.lists(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2)), max_size=8), max_size=5))
def test_emitted_versions_are_those_of_the_previous_row_of_each_group(
    runs: list[list[tuple[int, int]]],
) -> None:
    emitted, stored = RowsByNumber(), dict[int, int]()
    for run in runs:
        groups = np.array([group for group, _ in run], np.int32)
        numbers, local = distinct_numbers(groups)
        order, sorted_groups, _ = by_partition(local, len(numbers))
        emitted.reach(5)
        new = pa.table({"v": pa.array([value for _, value in run], pa.int64())})
        versions, before, after = replace_emitted(emitted, numbers, sorted_groups, order, new)
        back = np.argsort(order)
        made = version_changes(causes_of(len(run)), versions, before[back], after[back], ["v"])
        expected: list[Row] = []
        for group, value in run:
            known = stored.get(group)
            expected += row_changes(None if known is None else (known,), (value,))
            stored[group] = value
        values = made.column("v").to_pylist()
        assert [(OPS[op], v) for op, v in zip(ops_of(made).tolist(), values, strict=True)] == expected


def test_deletes_precede_updates_and_updates_precede_inserts() -> None:
    changes = changes_between({1: ("a",), 2: ("b",), 3: ("c",)}, {4: ("d",), 3: ("c",), 2: ("e",)})
    assert list(changes) == [("delete", "a"), ("update_before", "b"), ("update_after", "e"), ("insert", "d")]


def test_an_update_is_read_when_both_of_its_rows_have_arrived() -> None:
    incoming = IncomingChanges(retracts=True)
    assert incoming.read(("insert", 1)) == (None, ("insert", 1))
    assert incoming.read(("update_before", 1)) is None
    assert incoming.read(("update_after", 2)) == (("update_before", 1), ("update_after", 2))
    assert incoming.read(("delete", 2)) == (("delete", 2), None)
    assert IncomingChanges(retracts=False).read((7,)) == (None, (7,))
