"""Python objects by key behave like a dictionary, and each snapshot has the objects at its time."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from slicemill.codec.registry import StorageError
from slicemill.columns import objects_by_key, pace
from slicemill.columns.objects_by_key import ObjectsByKey
from slicemill.columns.pace import keep_pace, paced
from slicemill.storage.checkpoints import EncodedStates, encode_states, read_checkpoint, write
from slicemill.storage.state_size import state_bytes

KEYS = st.sampled_from([("a",), ("b", 1), (None,), (2.5,), ("c",)])
PARTS = st.sampled_from([1, 2, "three"])
Plain = dict[Any, dict[Any, Any]]


class _Interrupted(Exception):
    """Raised to stop the writing thread."""


@dataclass
class Numbers:
    """Object that is changed in place. Its encoding fails if `fails` returns True."""

    values: list[int]
    fails: Callable[[], bool] = lambda: False


def _plain(numbers: Numbers) -> list[int]:
    if numbers.fails():
        raise _Interrupted
    return numbers.values


def objects() -> ObjectsByKey[Any, Numbers]:
    return ObjectsByKey(_plain, Numbers)


def contents(kept: ObjectsByKey[Any, Numbers]) -> Plain:
    found = {part: {key: list(one.values) for key, one in kept.items(part)} for part in kept.parts}
    return {part: content for part, content in found.items() if content}


def in_order(plain: Plain) -> list[Any]:
    return [(part, list(content.items())) for part, content in plain.items() if content]


def restored(folder: Path, snapshot: EncodedStates) -> ObjectsByKey[Any, Numbers]:
    found = read_checkpoint(folder, write(folder, snapshot))["objects"]
    assert isinstance(found, ObjectsByKey)
    return found.opened(_plain, Numbers)


class Snapshots(RuleBasedStateMachine):
    """Changes of objects, and snapshots that are written later, in any order, or are interrupted."""

    folder: Path

    def __init__(self) -> None:
        super().__init__()
        self.left_to_encode: int | None = None
        self.kept = objects()
        self.model: Plain = {}
        self.taken: list[tuple[EncodedStates, Plain]] = []

    def _fails(self) -> bool:
        if self.left_to_encode is None:
            return False
        self.left_to_encode -= 1
        return self.left_to_encode < 0

    @rule(key=KEYS, part=PARTS, value=st.integers(0, 9))
    def put(self, key: Any, part: Any, value: int) -> None:
        self.kept.put(key, Numbers([value], self._fails), part)
        self.model.setdefault(part, {})[key] = [value]

    @rule(key=KEYS, part=PARTS, value=st.integers(0, 9))
    def change(self, key: Any, part: Any, value: int) -> None:
        found = self.kept.change(key, part)
        assert (found is None) == (key not in self.model.get(part, {}))
        if found is not None:
            found.values.append(value)
            self.model[part][key].append(value)

    @rule(key=KEYS, part=PARTS)
    def remove(self, key: Any, part: Any) -> None:
        if key in self.model.get(part, {}):
            removed = self.kept.remove(key, part)
            assert removed.values == self.model[part].pop(key)
            removed.values.append(-1)  # A change after the removal must be in no snapshot.

    @rule(part=PARTS)
    def drop(self, part: Any) -> None:
        self.kept.drop(part)
        self.model.pop(part, None)

    @rule()
    def snapshot(self) -> None:
        self.taken.append((encode_states({"objects": self.kept}), copy.deepcopy(self.model)))

    @precondition(lambda self: self.taken)
    @rule(which=st.integers(0, 99))
    def write(self, which: int) -> None:
        snapshot, then = self.taken.pop(which % len(self.taken))
        assert contents(restored(self.folder, snapshot)) == contents_of(then)

    @precondition(lambda self: self.taken)
    @rule(which=st.integers(0, 99), after=st.integers(0, 3))
    def interrupt(self, which: int, after: int) -> None:
        snapshot, _ = self.taken[which % len(self.taken)]
        self.left_to_encode = after
        try:
            for piece in snapshot.slices:
                _ = piece.table
        except _Interrupted:
            pass
        finally:
            self.left_to_encode = None

    @precondition(lambda self: self.taken)
    @rule(which=st.integers(0, 99))
    def crash(self, which: int) -> None:
        """Continue from a snapshot."""
        snapshot, then = self.taken[which % len(self.taken)]
        self.taken = []
        self.kept, self.model = restored(self.folder, snapshot), then
        for part in self.kept.parts:
            for _, one in self.kept.items(part):
                one.fails = self._fails

    @rule()
    def hand_over(self) -> None:
        """Give the objects to a new operator without a checkpoint."""

        def made(values: list[int]) -> Numbers:
            return Numbers(list(values), self._fails)

        self.kept = self.kept.opened(_plain, made)

    def teardown(self) -> None:
        assert in_order(contents(self.kept)) == in_order(contents_of(self.model))
        assert len(self.kept) == sum(len(content) for content in self.model.values())
        for snapshot, then in self.taken:
            assert in_order(contents(restored(self.folder, snapshot))) == in_order(contents_of(then))


def contents_of(model: Plain) -> Plain:
    return {part: content for part, content in model.items() if content}


@pytest.mark.parametrize("small", [0, 8, 4_096])
def test_a_snapshot_written_later_contains_the_objects_at_its_time(
    small: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects_by_key, "_SMALL", small)
    monkeypatch.setattr(objects_by_key, "_BATCH", 2)
    Snapshots.folder = tmp_path
    state_machine = Snapshots.TestCase()
    state_machine.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
    state_machine.runTest()


def test_a_thread_writes_snapshots_while_the_objects_change(tmp_path: Path) -> None:
    kept, rng = objects(), np.random.default_rng(3)
    expected: list[dict[int, list[int]]] = []
    found: list[Any] = []
    model: dict[int, list[int]] = {}
    for _ in range(6):
        for key in rng.integers(0, 3_000, 4_000).tolist():
            if (known := kept.change(key)) is not None:
                known.values.append(len(expected))
                model[key].append(len(expected))
            else:
                kept.put(key, Numbers([len(expected)]))
                model[key] = [len(expected)]
        snapshot = encode_states({"objects": kept})
        expected.append(copy.deepcopy(model))

        def work(taken: EncodedStates = snapshot) -> None:
            with paced():
                found.append(dict(contents(restored(tmp_path, taken))[None]))

        thread = threading.Thread(target=work)
        thread.start()
        while thread.is_alive():
            for key in rng.integers(0, 3_000, 20).tolist():
                if (known := kept.change(key)) is not None:
                    known.values.append(-len(expected))
                    model[key].append(-len(expected))
        thread.join()
    assert found == expected


def test_a_piece_waits_for_an_object_that_the_worker_is_still_encoding() -> None:
    begun, goes_on = threading.Event(), threading.Event()

    def plain(numbers: Numbers) -> list[int]:
        if threading.current_thread() is worker:
            begun.set()
            assert goes_on.wait(30)
        return list(numbers.values)

    kept: ObjectsByKey[int, Numbers] = ObjectsByKey(plain, Numbers)
    kept.put(1, Numbers([1]))
    snapshot = encode_states({"objects": kept})
    worker = threading.Thread(target=kept.change, args=(1,))
    worker.start()
    assert begun.wait(30)
    rows: list[int] = []
    writer = threading.Thread(target=lambda: rows.append(snapshot.slices[0].table.num_rows))
    writer.start()
    writer.join(0.1)  # The writer has to wait for the worker.
    goes_on.set()
    writer.join(30)
    worker.join(30)
    assert rows == [1]


def test_a_snapshot_encodes_only_changed_objects(tmp_path: Path) -> None:
    encoded = []

    def plain(value: list[int]) -> list[int]:
        encoded.append(value[0])
        return value

    kept: ObjectsByKey[int, list[int]] = ObjectsByKey(plain, list)
    for key in range(10_000):
        kept.put(key, [key])
    files = write(tmp_path, encode_states({"objects": kept}))
    assert len(encoded) == 10_000
    encoded.clear()
    assert write(tmp_path, encode_states({"objects": kept}))[1:] == files[1:]
    assert encoded == []
    for key in (3, 5):
        assert kept.change(key) is not None
    write(tmp_path, encode_states({"objects": kept}))
    assert sorted(encoded) == [3, 5]


def test_encoding_is_left_to_the_writer_of_a_snapshot() -> None:
    def plain(_: int) -> int:
        raise AssertionError("encoded by the snapshot")

    kept: ObjectsByKey[int, int] = ObjectsByKey(plain, int)
    kept.put(1, 1)
    encode_states({"objects": kept})
    kept.put(2, 2)
    encode_states({"objects": kept})


def test_pieces_of_a_snapshot_stay_few_and_short(tmp_path: Path) -> None:
    kept = objects()
    for number in range(200):
        for key in range(100):
            kept.put((number % 50, key), Numbers([number]))
        snapshot = encode_states({"objects": kept})
        write(tmp_path, snapshot)
    assert len(snapshot.slices) <= 8
    assert sum(piece.table.num_rows for piece in snapshot.slices) <= 4 * len(kept) + 4_096
    for key in [key for key, _ in kept.items()]:
        kept.remove(key)
    snapshot = encode_states({"objects": kept})
    assert sum(piece.table.num_rows for piece in snapshot.slices) == 0


def test_objects_with_long_values_survive_a_round_trip(tmp_path: Path) -> None:
    kept: ObjectsByKey[str, Any] = ObjectsByKey(lambda value: value, lambda plain: plain)
    kept.put("bytes", b"x" * 1_000)
    kept.put("array", np.arange(1_000))
    found: Any = read_checkpoint(tmp_path, write(tmp_path, encode_states({"objects": kept})))["objects"]
    assert found.get("bytes") == b"x" * 1_000
    assert found.get("array").tolist() == list(range(1_000))


def test_an_object_that_cannot_be_stored_fails_the_checkpoint_but_not_the_run(tmp_path: Path) -> None:
    kept: ObjectsByKey[int, Any] = ObjectsByKey(lambda value: value, lambda plain: plain)
    kept.put(1, [object()])
    snapshot = encode_states({"objects": kept})
    with pytest.raises(StorageError, match="cannot be stored"):
        write(tmp_path, snapshot)
    changed = kept.change(1)
    changed.append(2)
    with pytest.raises(StorageError, match="cannot be stored"):
        write(tmp_path, encode_states({"objects": kept}))


def test_stored_pieces_are_read_from_their_files(tmp_path: Path) -> None:
    kept = objects()
    kept.put(1, Numbers([1]))
    snapshot = encode_states({"objects": kept})
    (piece,) = snapshot.slices
    write(tmp_path, snapshot)
    size = piece.table.nbytes
    for path in tmp_path.iterdir():
        path.unlink()  # as after the deletion of an uncommitted checkpoint
    assert piece.table.nbytes == size
    assert contents(restored(tmp_path, encode_states({"objects": kept}))) == {None: {1: [1]}}


def test_sizes_are_estimated_without_encoding_pieces() -> None:
    encoded: list[int] = []

    def plain(numbers: Numbers) -> list[int]:
        encoded.append(1)
        return numbers.values

    kept: ObjectsByKey[int, Numbers] = ObjectsByKey(plain, Numbers)
    empty = state_bytes({"objects": kept})
    for key in range(10_000):
        kept.put(key, Numbers(list(range(1_000, 1_010))))
    snapshot = encode_states({"objects": kept})
    size = state_bytes({"objects": kept}) - empty
    assert 0 < len(encoded) < 100
    encoded.clear()
    assert 10_000 * 10 * 36 < size < 10_000 * 1_200
    assert encoded == []
    assert snapshot.slices[0].table.num_rows == len(encoded) == 10_000


def test_a_background_thread_sleeps_after_each_millisecond_of_work(monkeypatch: pytest.MonkeyPatch) -> None:
    now, rests = [0.0], []
    monkeypatch.setattr(pace, "perf_counter", lambda: now[0])
    monkeypatch.setattr(pace, "sleep", rests.append)

    def work() -> None:
        for _ in range(100):
            now[0] += 0.000_1
            keep_pace()

    work()
    assert not rests
    with paced():
        work()
    assert 9 <= len(rests) <= 10
    work()
    assert len(rests) <= 10
