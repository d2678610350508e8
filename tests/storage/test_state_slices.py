"""State goes to storage and comes back; a slice is written once, however often it is kept."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from slicemill.kernels.slice import Slice
from slicemill.storage.state import SLICES
from slicemill.storage.state_slices import load_state, store_state


def _files(folder: Path) -> int:
    return len(list((folder / SLICES).glob("*")))


def test_slices_are_written_once_and_opened_when_looked_at(tmp_path: Path) -> None:
    (tmp_path / SLICES).mkdir()
    old = Slice(pa.table({"_ts": [1, 2], "x": ["a", "b"]}))
    first = store_state(tmp_path, {"join": {"left": [old], "again": old, "count": 2}})
    assert _files(tmp_path) == 2
    loaded = load_state(tmp_path, first)["join"]
    assert isinstance(loaded, dict)
    assert loaded["left"][0] is loaded["again"] and loaded["count"] == 2
    assert loaded["again"].table.to_pydict() == {"_ts": [1, 2], "x": ["a", "b"]}

    new = Slice(pa.table({"_ts": [3], "x": ["c"]}))
    second = store_state(tmp_path, {"join": [loaded["again"], new]})
    assert _files(tmp_path) == 4, "the small part and the new slice, not the old one"
    assert second[1] == first[1]
    kept = load_state(tmp_path, second)["join"]
    assert isinstance(kept, list)
    assert [part.table.column("x").to_pylist() for part in kept] == [["a", "b"], ["c"]]


def test_nothing_to_keep_writes_nothing(tmp_path: Path) -> None:
    assert store_state(tmp_path, {}) == ()
    assert load_state(tmp_path, ()) == {}
