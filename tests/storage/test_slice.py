"""State slices from storage are opened once, on first access."""

from __future__ import annotations

import pyarrow as pa

from slicemill.columns.pieces import Slice


def test_a_slice_of_rows_is_in_memory_and_not_stored() -> None:
    table = pa.table({"n": [1, 2]})
    assert Slice(table).table is table and Slice(table).stored is None


def test_a_stored_slice_is_opened_once() -> None:
    opened: list[pa.Table] = []

    def open_() -> pa.Table:
        opened.append(pa.table({"n": [1]}))
        return opened[-1]

    slice_ = Slice(open_, stored="where it lies")
    assert slice_.stored == "where it lies" and not opened
    assert slice_.table is slice_.table is opened[0] and len(opened) == 1
