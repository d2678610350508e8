"""Checkpoints: head files and state slices are written once, and all earlier versions stay readable."""

from __future__ import annotations

import json
import struct
import threading
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from slicemill.codec.registry import StorageError, registered_names
from slicemill.columns.keys import Keys
from slicemill.columns.pieces import Slice
from slicemill.operators.join.state import JoinState
from slicemill.storage.checkpoints import (
    CheckpointDamaged,
    CheckpointFiles,
    SliceFile,
    describe,
    encode_states,
    read_checkpoint,
    write,
    write_checkpoint,
)
from slicemill.storage.filesystem import LocalFiles
from slicemill.storage.state_size import state_bytes
from storage.golden_states import GOLDEN, LISTED, golden_checkpoints


def rows(*values: int) -> pa.Table:
    return pa.table({"x": list(values)})


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_an_unchanged_slice_is_written_once_and_referenced_by_later_checkpoints(tmp_path: Path) -> None:
    old = Slice(rows(1, 2))
    first = write_checkpoint(tmp_path, {"join": {"left": [old], "again": old, "count": 2}})
    assert len(first) == 2 and [(crc, size) for _, crc, size in first] == [
        (zlib.crc32(content), len(content)) for p, _, _ in first for content in [(tmp_path / p).read_bytes()]
    ]
    assert json.loads(json.dumps(first)) == first

    loaded = read_checkpoint(tmp_path, first)["join"]
    assert loaded["count"] == 2 and loaded["left"][0] is loaded["again"]
    assert loaded["again"].table.equals(old.table)

    new = Slice(rows(3))
    second = write_checkpoint(tmp_path, {"join": [loaded["again"], new]})
    assert second[1] == first[1] and len(second) == 3
    assert names(tmp_path) == {path for path, _, _ in [*first, *second]}
    kept = read_checkpoint(tmp_path, second)["join"]
    assert [part.table.column("x").to_pylist() for part in kept] == [[1, 2], [3]]


def test_a_slice_file_is_opened_on_first_access(tmp_path: Path) -> None:
    files = write_checkpoint(tmp_path, {"node": Slice(rows(1, 2))})
    content = (tmp_path / files[1][0]).read_bytes()
    (tmp_path / files[1][0]).unlink()
    slice_ = read_checkpoint(tmp_path, files)["node"]
    assert isinstance(slice_, Slice) and isinstance(slice_.stored, SliceFile)
    assert slice_.stored.file_entry() == files[1]
    with pytest.raises(StorageError, match="cannot be read"):
        _ = slice_.table
    (tmp_path / files[1][0]).write_bytes(content)
    assert slice_.table.equals(rows(1, 2))


def test_a_slice_whose_file_was_deleted_is_written_again(tmp_path: Path) -> None:
    state = {"node": Slice(rows(1, 2))}
    for path, _, _ in write_checkpoint(tmp_path, state):
        (tmp_path / path).unlink()
    again = write_checkpoint(tmp_path, state)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    moved = write_checkpoint(elsewhere, state)
    for folder, files in ((tmp_path, again), (elsewhere, moved)):
        assert read_checkpoint(folder, files)["node"].table.equals(rows(1, 2))  # type: ignore[attr-defined]


def test_a_checkpoint_without_states_has_no_files(tmp_path: Path) -> None:
    assert write_checkpoint(tmp_path, {}) == []
    assert read_checkpoint(tmp_path, []) == {}
    assert names(tmp_path) == set()


def test_a_checkpoint_contains_the_states_at_the_time_of_encoding(tmp_path: Path) -> None:
    array, waiting, slices = np.arange(4), [1], [Slice(rows(1))]
    encoded = encode_states({"node": {"array": array, "waiting": waiting, "slices": slices}})
    array[:] = -1
    waiting.append(2)
    slices.clear()
    done: list[object] = []
    thread = threading.Thread(target=lambda: done.append(write(tmp_path, encoded)))
    thread.start()
    thread.join()
    state = read_checkpoint(tmp_path, done[0])["node"]  # type: ignore[arg-type]
    assert state["array"].tolist() == [0, 1, 2, 3] and state["waiting"] == [1]  # type: ignore[index]
    assert state["slices"][0].table.equals(rows(1))  # type: ignore[index]
    state["array"][0] = 7  # type: ignore[index]


def test_encoded_states_are_released_while_they_are_written(tmp_path: Path) -> None:
    encoded = encode_states({"node": {"array": np.arange(4)}})
    files = write(tmp_path, encoded)
    assert read_checkpoint(tmp_path, files)["node"]["array"].tolist() == [0, 1, 2, 3]  # type: ignore[index]
    with pytest.raises(StorageError, match="written once"):
        write(tmp_path, encoded)


def test_an_object_shared_by_two_nodes_is_one_object_after_a_restore(tmp_path: Path) -> None:
    keys = Keys()
    back = read_checkpoint(tmp_path, write_checkpoint(tmp_path, {"a": [keys], "b": (keys,)}))
    assert back["a"][0] is back["b"][0]  # type: ignore[index]


def test_tables_of_a_head_file_are_memory_mapped(tmp_path: Path) -> None:
    table = pa.table({"x": np.arange(1000.0), "s": [str(i) for i in range(1000)]})
    files = write_checkpoint(tmp_path, {"n": {"a": np.arange(3), "t": table, "z": np.zeros(0)}})
    mapped: list[pa.Buffer] = []

    class Noting(LocalFiles):
        def map(self, path: Path) -> pa.Buffer:
            mapped.append(super().map(path))
            return mapped[-1]

    state = read_checkpoint(tmp_path, files, Noting())["n"]
    column = state["t"].column("x").chunk(0).buffers()[1]  # type: ignore[index]
    (head,) = mapped
    assert head.address <= column.address < head.address + head.size
    assert state["t"].equals(table) and state["z"].shape == (0,)  # type: ignore[index]


def test_the_content_of_a_head_file_can_be_described_as_json(tmp_path: Path) -> None:
    files = write_checkpoint(tmp_path, {"joins of A and B": JoinState()})
    shown = describe(tmp_path, files)
    assert shown["states"]["classes"]["join"] == registered_names()["join"]
    assert "joins of A and B" in shown["states"]["value"]["$map"]
    assert b'"joins of A and B"' in (tmp_path / files[0][0]).read_bytes()


@pytest.mark.parametrize(
    ("place", "content", "message"),
    [
        (0, b"ARROW1\0\0", "is no checkpoint"),
        (8, struct.pack("<I", 2), "has format 2, and this slicemill reads 1.*slicemill home upgrade"),
        (30, b"#", "is damaged: its checksum differs"),
    ],
)
def test_a_damaged_file_or_an_unknown_format_is_reported(
    tmp_path: Path, place: int, content: bytes, message: str
) -> None:
    files = write_checkpoint(tmp_path, {"node": {"a": np.arange(9)}})
    path = tmp_path / files[0][0]
    data = path.read_bytes()
    path.write_bytes(data[:place] + content + data[place + len(content) :])
    for listed in (files, without_checksums(files)):
        with pytest.raises(StorageError, match=message):
            read_checkpoint(tmp_path, listed)


def without_checksums(files: CheckpointFiles) -> CheckpointFiles:
    """Return the files in the form of FORMAT 5, without checksums."""
    return [[path, size] for path, _, size in files]


def test_a_truncated_or_missing_checkpoint_file_is_reported(tmp_path: Path) -> None:
    files = write_checkpoint(tmp_path, {"node": {"a": np.arange(99)}})
    path = tmp_path / files[0][0]
    data = path.read_bytes()
    for length, message in ((5, "no checkpoint"), (50, "damaged"), (len(data) - 64, "shorter than it says")):
        path.write_bytes(data[:length])
        with pytest.raises(StorageError, match=message):
            read_checkpoint(tmp_path, without_checksums(files))
        with pytest.raises(StorageError, match=r"damaged|no checkpoint"):
            read_checkpoint(tmp_path, files)
    path.unlink()
    with pytest.raises(StorageError, match="is gone"):
        read_checkpoint(tmp_path, files)


def test_every_bit_flip_in_a_checkpoint_is_detected(tmp_path: Path) -> None:
    files = write_checkpoint(tmp_path, {"node": {"a": np.arange(9), "slice": Slice(rows(1, 2))}})
    assert len(files) == 2
    for name, _, size in files:
        path = tmp_path / name
        data = path.read_bytes()
        for index in range(0, size, 7):
            path.write_bytes(data[:index] + bytes([data[index] ^ (1 << index % 8)]) + data[index + 1 :])
            with pytest.raises(StorageError, match=r"is damaged|is no checkpoint|has format"):
                read_checkpoint(tmp_path, files, whole=True)
        path.write_bytes(data)
    slice_ = read_checkpoint(tmp_path, files)["node"]["slice"]  # type: ignore[index]
    (tmp_path / files[1][0]).write_bytes(b"?" * files[1][2])
    with pytest.raises(CheckpointDamaged, match=r"cannot be read: it is damaged.*home repair"):
        _ = slice_.table


def test_durable_checkpoint_files_are_synced_before_they_are_referenced(tmp_path: Path) -> None:
    steps: list[tuple[str, str]] = []

    class Noting(LocalFiles):
        def write(self, path: Path, data: bytes | pa.Buffer) -> None:
            steps.append(("write", path.suffix))
            super().write(path, data)

        def sync(self, path: Path) -> None:
            steps.append(("sync", path.suffix))
            super().sync(path)

    write(tmp_path, encode_states({"node": Slice(rows(1))}), Noting(), durable=True)
    assert steps == [
        ("sync", ""),  # the parent folder of the checkpoint folder
        *(("write", ".arrow"), ("sync", ".arrow")),
        *(("write", ".state"), ("sync", ".state")),
        ("sync", ""),
    ]


def test_state_sizes_are_estimated_without_encoding(tmp_path: Path) -> None:
    table = pa.table({"x": np.arange(10_000)})
    big = {"t": table, "a": np.zeros(1000), "s": Slice(table), "l": list(range(5000)), "text": ["ab"] * 10}
    estimate = state_bytes({"node": big})
    exact = 2 * table.nbytes + 8000 + 5000 * (8 + 28)
    assert exact <= estimate < 1.1 * exact
    files = write_checkpoint(tmp_path, {"node": big})
    assert state_bytes(read_checkpoint(tmp_path, files)) == pytest.approx(estimate, rel=0.1)
    assert state_bytes({"node": JoinState()}) < 10_000


# -- Golden files -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(path.parent.name for path in GOLDEN.glob(f"*/{LISTED}")))
def test_a_golden_checkpoint_can_be_read_and_written_again(name: str, tmp_path: Path) -> None:
    states = golden_checkpoints()[name]
    again = write_checkpoint(tmp_path, states)
    back = read_checkpoint(tmp_path, again)
    assert {key: type(state) for key, state in back.items()} == {
        key: type(state) for key, state in states.items()
    }
    shown = describe(tmp_path, again)["states"]
    assert json.dumps(describe(tmp_path, write_checkpoint(tmp_path, back))["states"]) == json.dumps(shown)


def test_every_kind_of_state_has_a_golden_checkpoint() -> None:
    found: dict[str, set[int]] = {}
    for path in GOLDEN.glob(f"*/{LISTED}"):
        content = describe(path.parent, json.loads(path.read_text(encoding="utf-8")))
        for name, version in content["states"]["classes"].items():
            found.setdefault(name, set()).add(version)
    missing = {
        name: version
        for name, version in registered_names().items()
        if not name.startswith("test.") and version not in found.get(name, ())
    }
    assert not missing, "write golden files of these: tests/storage/golden_states.py says how"
