"""Commits to a home directory, and the removal of files that no commit needs."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.storage.changes import Appended, Change
from slicemill.storage.home import Home
from slicemill.storage.home_reader import HomeReader
from slicemill.storage.home_state import HomeError, HomeState
from slicemill.storage.segments import Extent, SegmentWriters
from storage.homes import FOLDER, append, commit_rows, memory_files, small_home, view
from storage.tables import COLUMNS, rows


def test_a_new_home_directory_has_its_folders_and_a_format(tmp_path: Path) -> None:
    home = Home(tmp_path / "new" / "home")
    home.open()
    assert (tmp_path / "new" / "home" / "FORMAT").read_text() == "6\n"
    assert (home.epoch, home.logs, home.tasks, home.streams, home.statements) == (-1, {}, {}, {}, [])
    home.close()


def test_a_home_directory_is_private_and_a_warning_names_open_permissions(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home = Home(tmp_path / "new" / "home")
    home.open()
    home.commit(Change(created={"bid": COLUMNS}))
    home.close()
    inside = [home.folder, *home.folder.rglob("*")]
    assert {path.stat().st_mode & 0o077 for path in inside} == {0} and len(inside) > 5
    assert not caplog.records
    home.folder.chmod(0o750)
    again = Home(home.folder)
    again.open()
    again.close()
    assert home.folder.stat().st_mode & 0o777 == 0o750
    [record] = caplog.records
    assert record.message == (
        f"home {home.folder} has the rights 750: others can look into it; "
        f"chmod 700 {home.folder} keeps them out"
    )


def test_commits_are_numbered_and_an_empty_change_makes_no_commit() -> None:
    home = small_home(memory_files())
    assert home.commit(Change()) == -1
    assert home.commit(Change(tasks={"u": {"a": 1}})) == 0
    assert home.commit(Change()) == 0
    assert home.commit(Change(catalog=[{"text": "CREATE STREAM bid (n INT)", "by": "ann", "at": 3}])) == 1


def test_fields_of_a_change_are_merged_and_none_removes_a_field() -> None:
    files = memory_files()
    home = small_home(files)
    home.commit(Change(tasks={"u": {"a": 1, "b": [1, {"c": None}]}}, streams={"s": {"watermark": 5}}))
    held = home.tasks["u"]
    home.commit(Change(tasks={"u": {"a": None, "d": "x"}, "v": {}}, streams={"s": {"watermark": 6}}))
    assert held == {"a": 1, "b": [1, {"c": None}]}, "who has an older version keeps it"
    for each in (home, small_home(files)):
        assert each.tasks == {"u": {"b": [1, {"c": None}], "d": "x"}, "v": {}}
        assert each.streams == {"s": {"watermark": 6}}


def test_later_changes_of_a_callers_dictionary_do_not_change_a_commit() -> None:
    home = small_home(memory_files())
    cursors = {"bid": 3}
    home.commit(Change(tasks={"u": {"cursors": cursors, "pair": (1, 2)}}))
    cursors["bid"] = 4
    assert home.tasks["u"] == {"cursors": {"bid": 3}, "pair": [1, 2]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (Change(logs={"ask": Appended([], None, None, 0)}), "no log ask .* created first"),
        (Change(freed={"ask": 1}), "no log ask"),
        (Change(created={"bid": COLUMNS}), "log bid .* already"),
        (Change(dropped_logs=["ask"]), "no log ask .* to drop"),
        (Change(dropped_logs=["bid"], freed={"bid": 1}), "no log bid"),
        (Change(logs={"bid": Appended([], 1.5, 2, 0)}), "log bid: .* 64-bit integers"),  # type: ignore[arg-type]
        (Change(logs={"bid": Appended([], 2**63, 2, 0)}), "log bid: .* 64-bit integers"),
        (Change(logs={"bid": Appended([Extent("w-0.arrows", 1, "2", 3)], 1, 2, 0)}), "log bid"),  # type: ignore[arg-type]
        (Change(tasks={"u": 3}), "u: fields must be a dictionary"),  # type: ignore[dict-item]
    ],
)
def test_an_invalid_change_is_rejected_and_not_written(change: Change, message: str) -> None:
    files = memory_files()
    home = small_home(files)
    home.commit(Change(created={"bid": COLUMNS}))
    with pytest.raises(HomeError, match=message):
        home.commit(change)
    assert view(small_home(files)) == view(home)


def test_an_interrupted_commit_does_not_reuse_its_epoch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = memory_files()
    home = small_home(files)

    def interrupted(state: HomeState, record: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(HomeState, "apply", interrupted)
        home.commit(Change(tasks={"u": {"n": 1}}))
    with pytest.raises(HomeError, match="open the home again"):
        home.commit(Change(tasks={"u": {"n": 2}}))
    assert small_home(files).tasks == {"u": {"n": 1}}


def test_a_recreated_log_has_no_rows_of_the_dropped_log() -> None:
    files = memory_files()
    home = small_home(files)
    writers = SegmentWriters("w", files=files)
    home.commit(Change(created={"bid": COLUMNS}))
    commit_rows(home, writers, "bid", 1, 2)
    old = home.logs["bid"].folder
    other = pa.schema([("m", pa.string())])
    home.commit(Change(dropped_logs=["bid"], created={"bid": other}))
    assert home.logs["bid"].columns == other and home.logs["bid"].rows == 0
    assert home.logs["bid"].folder != old, "who still writes to the old one does not disturb"
    writers.append(old, rows(3))
    assert home.free(["w"]) == 1
    assert files.names(old) == []
    assert view(small_home(files)) == view(home)


OPERATIONS = st.one_of(
    st.tuples(st.just("create"), st.sampled_from("abc")),
    st.tuples(st.just("drop"), st.sampled_from("abc")),
    st.tuples(st.just("append"), st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), max_size=3)),
    st.tuples(st.just("unit"), st.sampled_from("uv"), st.sampled_from("xy"), st.none() | st.integers()),
    st.tuples(st.just("drop unit"), st.sampled_from("uv")),
    st.tuples(st.just("statement"), st.text(max_size=5)),
    st.tuples(st.just("free"), st.sampled_from("abc"), st.integers(0, 9)),
    st.tuples(st.just("remove files"), st.booleans()),
    st.tuples(st.just("reopen")),
    st.tuples(st.just("poll")),
)


@given(st.lists(OPERATIONS, max_size=40))
@settings(max_examples=150)
def test_a_reopened_home_directory_equals_a_model_in_memory_after_random_operations(
    operations: list[tuple[Any, ...]],
) -> None:
    files = memory_files()
    home, model = small_home(files), Model()
    reader = HomeReader(FOLDER, files)
    writers = SegmentWriters("w0", roll_bytes=1_000, files=files)
    for turn, operation in enumerate(operations):
        match operation:
            case ("reopen",):
                home = small_home(files)
                writers = SegmentWriters(f"w{turn}", roll_bytes=1_000, files=files)
            case ("poll",):
                reader.poll()
                assert plain(reader) == model.view()
            case ("remove files", True):
                home.free([writers.name])
            case ("remove files", False):
                home.sweep([writers.name])
            case _:
                change = model.change(operation, turn, home, writers)
                if change:
                    assert home.commit(change) == model.epoch
        assert plain(home) == model.view()
    reopened = small_home(files)
    assert view(reopened) == view(home)
    reader.poll()
    assert view(reader) == view(home)
    for log in reopened.logs.values():
        assert sorted(files.names(log.folder)) == sorted(log.segments_in_use())


def plain(home: Home | HomeReader) -> dict[str, Any]:
    found = view(home)
    return {
        "units": found["units"],
        "statements": found["statements"],
        "logs": {name: log["tuples"] for name, log in found["logs"].items()},
    }


class Model:
    """Model of a home directory in plain dictionaries."""

    def __init__(self) -> None:
        self.epoch = -1
        self.logs: dict[str, list[tuple[int, ...]]] = {}
        self.tasks: dict[str, dict[str, Any]] = {}
        self.statements: list[dict[str, Any]] = []

    def view(self) -> dict[str, Any]:
        return {"units": self.tasks, "statements": self.statements, "logs": self.logs}

    def change(self, operation: tuple[Any, ...], turn: int, home: Home, writers: SegmentWriters) -> Change:
        change = self._change(operation, turn, home, writers)
        self.epoch += bool(change)
        return change

    def _change(self, operation: tuple[Any, ...], turn: int, home: Home, writers: SegmentWriters) -> Change:
        match operation:
            case ("create", name):
                dropped = [name] if name in self.logs else []
                self.logs.pop(name, None)
                self.logs[name] = []
                return Change(created={name: COLUMNS}, dropped_logs=dropped)
            case ("drop", name) if name in self.logs:
                del self.logs[name]
                return Change(dropped_logs=[name])
            case ("append", parts):
                added = {}
                for name, count in parts:
                    if name in self.logs and name not in added:
                        times = range(turn, turn + count)
                        added[name] = append(home, writers, name, *times, seq=turn)
                        self.logs[name] += [
                            (self.epoch + 1, ts, turn + i, 0, (turn + i) * 10) for i, ts in enumerate(times)
                        ]
                return Change(logs=added)
            case ("unit", name, field, value):
                task = self.tasks.setdefault(name, {})
                task[field] = value
                if value is None:
                    del task[field]
                return Change(tasks={name: {field: value}})
            case ("drop unit", name):
                self.tasks.pop(name, None)
                return Change(dropped_tasks=[name])
            case ("statement", text):
                self.statements.append({"text": text, "epoch": self.epoch + 1})
                return Change(catalog=[{"text": text}])
            case ("free", name, back) if name in self.logs:
                first = self.epoch - back
                self.logs[name] = [row for row in self.logs[name] if row[0] >= first]
                return Change(freed={name: first})
        return Change()


def test_a_segment_is_deleted_after_its_rows_are_freed_and_its_writer_has_moved_on() -> None:
    files = memory_files()
    home = small_home(files)
    home.commit(Change(created={"bid": COLUMNS}))
    folder = home.logs["bid"].folder
    writers = SegmentWriters("w", roll_bytes=800, files=files)
    for ts in range(6):
        commit_rows(home, writers, "bid", ts)
    assert sorted(files.names(folder)) == ["w-0.arrows", "w-1.arrows", "w-2.arrows"]
    home.commit(Change(freed={"bid": 4}))
    assert home.free(["w"]) == 1 and sorted(files.names(folder)) == ["w-1.arrows", "w-2.arrows"]
    home.commit(Change(freed={"bid": home.epoch + 1}))
    pending = append(home, writers, "bid", 9)
    assert home.free(["w"]) == 1 and sorted(files.names(folder)) == ["w-2.arrows", "w-3.arrows"]
    assert home.sweep(["w"]) == 0, "what its writer has written in them may still be committed"
    home.commit(Change(logs={"bid": pending}))
    assert home.free(["w"]) == 1 and files.names(folder) == ["w-3.arrows"]
    assert [row[1] for row in view(home)["logs"]["bid"]["tuples"]] == [9]
    home.commit(Change(freed={"bid": home.epoch + 1}))
    assert home.free(["w"]) == 0 and home.free(["v"]) == 1, "its writer is gone"
    assert files.names(folder) == []


def test_segments_of_a_dead_writer_are_deleted_and_those_of_live_writers_stay() -> None:
    files = memory_files()
    home = small_home(files)
    home.commit(Change(created={"bid": COLUMNS}))
    folder = home.logs["bid"].folder
    dead, alive = (SegmentWriters(name, files=files) for name in ("dead", "alive"))
    commit_rows(home, dead, "bid", 1)
    for writers in (SegmentWriters("lost", files=files), alive):
        append(home, writers, "bid", 2)
    assert home.sweep(["alive"]) == 1
    assert sorted(files.names(folder)) == ["alive-0.arrows", "dead-0.arrows"]
    assert small_home(files).logs["bid"].rows == 1
    assert files.names(folder) == ["dead-0.arrows"]


def test_checkpoint_files_are_deleted_when_the_next_checkpoint_does_not_reference_them() -> None:
    now_us = 0
    files = memory_files()
    files.clock = lambda: now_us
    home = Home(FOLDER, files=files, clock=lambda: now_us)
    home.open()
    folder = home.checkpoint_folder("a unit")
    files.make_folder(folder)
    for name in ("one", "two", "three", "never named"):
        files.write(folder / name, b"state")
    now_us = 100_000_000
    files.write(folder / "under way", b"state")
    home.commit(Change(tasks={"a unit": {"rows": 4}}))
    assert home.free(["w"]) == 0, "there is no checkpoint yet"
    home.commit(
        Change(tasks={"a unit": {"checkpoint": {"0": [["one", 5], ["two", 5]], "1": [["three", 5]]}}})
    )
    assert home.free(["w"]) == 1
    assert sorted(files.names(folder)) == ["one", "three", "two", "under way"]
    home.commit(Change(tasks={"a unit": {"checkpoint": {"0": [["two", 5]], "1": [["three", 5]]}}}))
    assert home.free(["w"]) == 1
    assert sorted(files.names(folder)) == ["three", "two", "under way"]
    reopened = small_home(files)
    assert sorted(files.names(folder)) == ["three", "two"]
    reopened.commit(Change(dropped_tasks=["a unit"]))
    assert reopened.free() == 2
    assert files.names(FOLDER / "checkpoints") == []


def test_a_log_folder_is_not_reused_while_workers_may_hold_its_segments_open() -> None:
    files = memory_files()
    home = small_home(files)
    folders = []
    for _ in range(3):
        home.commit(Change(created={"bid": COLUMNS}))
        folders.append(home.logs["bid"].folder.name)
        home.commit(Change(dropped_logs=["bid"]))
        home.free(["w"])
    assert folders == ["bid", "bid~2", "bid~4"]
    assert files.names(FOLDER / "logs") == []


def test_threads_can_commit_and_read_concurrently(tmp_path: Path) -> None:
    home = Home(tmp_path, snapshot_every=(3_000, 6_000))
    home.open()
    home.commit(Change(created={"bid": COLUMNS}))
    numbers: list[int] = []
    problems: list[BaseException] = []

    def work(thread: int) -> None:
        try:
            writers = SegmentWriters(f"w{thread}")
            for n in range(100):
                log = f"{thread}.{n % 10}"
                change = Change(
                    logs={"bid": append(home, writers, "bid", n)}, tasks={f"{thread}.{n}": {"n": n}}
                )
                if n < 10:
                    change.created[log] = COLUMNS
                numbers.append(home.commit(change))
                assert len(home.logs["bid"].epochs()) <= home.logs["bid"].rows
                assert sum(log.rows for log in home.logs.values()) <= 400
                assert all("n" in task for task in home.tasks.values())
                home.commit(Change(freed={"bid": home.epoch - 50}))
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert len(set(numbers)) == 400 and home.epoch == 800 and len(home.tasks) == 400
    held = view(home)
    home.close()
    again = Home(tmp_path)
    again.open()
    assert view(again) == held
    again.close()


def test_background_snapshots_contain_the_committed_state(tmp_path: Path) -> None:
    home = Home(tmp_path, snapshot_every=(2_000, 4_000))
    home.open()
    for n in range(500):
        home.commit(Change(tasks={f"u{n % 7}": {"n": n}}))
    held = view(home)
    home.close()
    names = [path.name for path in (tmp_path / "journal").iterdir()]
    assert any(name.endswith(".snapshot") for name in names) and len(names) < 12
    again = Home(tmp_path)
    again.open()
    assert view(again) == held
    again.close()
