"""A home holds what was committed, tells who has it, and keeps its files few."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.storage.changes import Appended, Change
from slicemill.storage.files import StorageFull
from slicemill.storage.home import Home, HomeError
from slicemill.storage.home_format import FormatError
from slicemill.storage.home_lock import HomeLocked
from slicemill.storage.home_reader import HomeReader
from slicemill.storage.home_state import HomeState
from slicemill.storage.segments import Extent, SegmentWriters
from storage.faulty_files import PARTS, FullFiles, MemoryFiles, SpyFiles
from storage.homes import FOLDER, append, commit_rows, memory_files, small_home, view
from storage.tables import COLUMNS, rows


def test_a_new_home_has_its_folders_and_a_format(tmp_path: Path) -> None:
    home = Home(tmp_path / "new" / "home")
    home.open()
    assert (tmp_path / "new" / "home" / "FORMAT").read_text() == "1\n"
    assert (home.epoch, home.logs, home.units, home.streams, home.statements) == (-1, {}, {}, {}, [])
    home.close()


def test_commits_are_numbered_and_an_empty_one_is_none() -> None:
    home = small_home(memory_files())
    assert home.commit(Change()) == -1
    assert home.commit(Change(units={"u": {"a": 1}})) == 0
    assert home.commit(Change()) == 0
    assert home.commit(Change(catalog=[{"text": "CREATE STREAM bid (n INT)", "by": "ann", "at": 3}])) == 1


def test_fields_are_merged_and_none_removes_one() -> None:
    files = memory_files()
    home = small_home(files)
    home.commit(Change(units={"u": {"a": 1, "b": [1, {"c": None}]}}, streams={"s": {"watermark": 5}}))
    held = home.units["u"]
    home.commit(Change(units={"u": {"a": None, "d": "x"}, "v": {}}, streams={"s": {"watermark": 6}}))
    assert held == {"a": 1, "b": [1, {"c": None}]}, "who has an older version keeps it"
    for each in (home, small_home(files)):
        assert each.units == {"u": {"b": [1, {"c": None}], "d": "x"}, "v": {}}
        assert each.streams == {"s": {"watermark": 6}}


def test_what_is_in_memory_does_not_change_with_what_the_caller_gave() -> None:
    home = small_home(memory_files())
    cursors = {"bid": 3}
    home.commit(Change(units={"u": {"cursors": cursors, "pair": (1, 2)}}))
    cursors["bid"] = 4
    assert home.units["u"] == {"cursors": {"bid": 3}, "pair": [1, 2]}


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
        (Change(units={"u": 3}), "u: fields must be a dictionary"),  # type: ignore[dict-item]
    ],
)
def test_a_change_that_does_not_fit_is_refused_and_nothing_is_written(change: Change, message: str) -> None:
    files = memory_files()
    home = small_home(files)
    home.commit(Change(created={"bid": COLUMNS}))
    with pytest.raises(HomeError, match=message):
        home.commit(change)
    assert view(small_home(files)) == view(home)


def test_a_commit_that_is_interrupted_does_not_let_the_next_one_write_its_epoch_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = memory_files()
    home = small_home(files)

    def interrupted(state: HomeState, record: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(HomeState, "apply", interrupted)
        home.commit(Change(units={"u": {"n": 1}}))
    with pytest.raises(HomeError, match="open the home again"):
        home.commit(Change(units={"u": {"n": 2}}))
    assert small_home(files).units == {"u": {"n": 1}}


def test_a_log_that_is_dropped_and_made_again_has_nothing_of_the_old_one() -> None:
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
def test_a_home_holds_what_a_model_in_memory_holds_whenever_it_is_opened_again(
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
                home.free([writers._writer])
            case ("remove files", False):
                home.sweep([writers._writer])
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
        assert sorted(files.names(log.folder)) == sorted(log.used_segments())


def plain(home: Home | HomeReader) -> dict[str, Any]:
    found = view(home)
    return {
        "units": found["units"],
        "statements": found["statements"],
        "logs": {name: log["tuples"] for name, log in found["logs"].items()},
    }


class Model:
    """The same as a home, in plain dictionaries."""

    def __init__(self) -> None:
        self.epoch = -1
        self.logs: dict[str, list[tuple[int, ...]]] = {}
        self.units: dict[str, dict[str, Any]] = {}
        self.statements: list[dict[str, Any]] = []

    def view(self) -> dict[str, Any]:
        return {"units": self.units, "statements": self.statements, "logs": self.logs}

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
                unit = self.units.setdefault(name, {})
                unit[field] = value
                if value is None:
                    del unit[field]
                return Change(units={name: {field: value}})
            case ("drop unit", name):
                self.units.pop(name, None)
                return Change(dropped_units=[name])
            case ("statement", text):
                self.statements.append({"text": text})
                return Change(catalog=[{"text": text}])
            case ("free", name, back) if name in self.logs:
                first = self.epoch - back
                self.logs[name] = [row for row in self.logs[name] if row[0] >= first]
                return Change(freed={name: first})
        return Change()


def test_a_segment_goes_when_its_rows_are_freed_but_not_while_its_writer_may_append() -> None:
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


def test_what_a_dead_writer_left_goes_and_what_the_others_write_stays() -> None:
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


def test_checkpoint_files_go_when_the_next_checkpoint_does_not_name_them() -> None:
    files = memory_files()
    home = small_home(files)
    folder = home.checkpoint_folder("a unit")
    files.make_folder(folder)
    for name in ("one", "two", "three", "under way"):
        files.write(folder / name, b"state")
    home.commit(Change(units={"a unit": {"checkpoint": {"0": [["one", 1, 5], ["two", 1, 5]]}, "rows": 3}}))
    home.commit(Change(units={"a unit": {"checkpoint": {"0": [["two", 1, 5]], "1": [["three", 1, 5]]}}}))
    assert home.free(["w"]) == 1
    assert sorted(files.names(folder)) == ["three", "two", "under way"]
    home.commit(Change(units={"a unit": {"rows": 4}}))
    assert home.free(["w"]) == 0
    reopened = small_home(files)
    assert sorted(files.names(folder)) == ["three", "two"]
    reopened.commit(Change(dropped_units=["a unit"]))
    assert reopened.free() == 2
    assert files.names(FOLDER / "checkpoints") == []


def test_the_torn_end_of_the_journal_is_cut_and_told() -> None:
    files = memory_files()
    home = small_home(files)
    for n in range(2):
        home.commit(Change(units={"u": {"n": n}}))
    path = FOLDER / "journal" / "000000000000.records"
    whole = files.read(path)
    for cut in range(1, len(whole.splitlines()[1])):
        files.write(path, whole[:-cut])
        told: list[str] = []
        again = Home(FOLDER, files=files)
        again.open(told.append)
        assert again.units == {"u": {"n": 0}}
        assert any("did not end" in line for line in told)
        again.commit(Change(units={"u": {"n": 7}}))
        assert small_home(files).units == {"u": {"n": 7}}


def test_damage_in_the_middle_of_the_journal_is_told_with_its_place() -> None:
    files = memory_files()
    home = Home(FOLDER, files=files)
    home.open()
    for n in range(3):
        home.commit(Change(units={"u": {"n": n}}))
    path = FOLDER / "journal" / "000000000000.records"
    whole = files.read(path)
    middle = whole.index(b"\n") + 20
    files.write(path, whole[:middle] + b"?" + whole[middle + 1 :])
    for read in (lambda: Home(FOLDER, files=files).open(), lambda: HomeReader(FOLDER, files)):
        with pytest.raises(HomeError, match=r"damaged at byte \d+: the record of epoch 1 .* restore it"):
            read()
    lines = whole.splitlines(keepends=True)
    files.write(path, lines[0] + lines[2])
    with pytest.raises(HomeError, match="epoch 2 follows 0"):
        Home(FOLDER, files=files).open()


def many_snapshots(files: MemoryFiles) -> Home:
    home = small_home(files)
    for n in range(60):
        home.commit(Change(units={"u": {"n": n}}))
    return home


def test_snapshots_keep_the_number_of_files_bounded() -> None:
    files = memory_files()
    many_snapshots(files)
    names = files.names(FOLDER / "journal")
    assert len(names) <= 5 and sum(name.endswith(".snapshot") for name in names) == 2
    assert small_home(files).units == {"u": {"n": 59}}


def test_a_damaged_snapshot_is_replaced_by_the_one_before_it() -> None:
    files = memory_files()
    home = many_snapshots(files)
    newest = max(name for name in files.names(FOLDER / "journal") if name.endswith(".snapshot"))
    path = FOLDER / "journal" / newest
    for damaged in (b"", files.read(path)[:-1], files.read(path).replace(b"u", b"v", 1)):
        files.write(path, damaged)
        told: list[str] = []
        again = Home(FOLDER, files=files)
        again.open(told.append)
        assert view(again) == view(home)
        assert any("the one before it" in line for line in told)


def test_records_that_are_missing_are_told() -> None:
    files = memory_files()
    many_snapshots(files)
    for name in files.names(FOLDER / "journal"):
        if name.endswith(".snapshot"):
            files.remove(FOLDER / "journal" / name)
    with pytest.raises(HomeError, match="no record of epoch 0, but later ones"):
        small_home(files)


@pytest.mark.parametrize("part", PARTS)
def test_a_full_disk_loses_nothing_and_commits_go_on_later(part: str) -> None:
    for room in (0, 1, 2, 3, 5, 8, 20, 33):
        memory = memory_files()
        files = FullFiles(memory, part=part)
        home = small_home(files)
        writers = SegmentWriters("w", files=files)
        home.commit(Change(created={"bid": COLUMNS}))
        reader = HomeReader(FOLDER, memory)
        files.room = room
        expected = []
        for n in range(20):
            before = view(home)
            try:
                commit_rows(home, writers, "bid", n, seq=n)
                expected.append(n)
            except StorageFull as problem:
                assert "no space is left" in str(problem)
                assert view(home) == before
                assert view(small_home(memory_copy(memory))) == before
                if files.refused > 3:
                    files.room = None
            reader.poll()
            assert view(reader) == view(home)
        assert len(expected) >= 16
        assert [tuples[1] for tuples in view(small_home(memory))["logs"]["bid"]["tuples"]] == expected


def memory_copy(files: MemoryFiles) -> MemoryFiles:
    """What a process would find that opened the home now, without changing it for others."""
    return copy.deepcopy(files)


def test_with_durability_machine_rows_are_synced_before_the_record_and_the_record_before_commit_returns() -> (
    None
):
    files = SpyFiles(memory_files())
    home = small_home(files, durability="machine")
    home.commit(Change(created={"bid": COLUMNS}))
    writers = SegmentWriters("w", files=files)
    files.seen.clear()
    change = Change(logs={"bid": append(home, writers, "bid", 1)})
    writers.sync()
    home.commit(change)
    assert files.seen == [
        ("open", "w-0.arrows"),
        ("append", "w-0.arrows"),
        ("append", "w-0.arrows"),
        ("fdatasync", "w-0.arrows"),
        ("sync", "bid"),
        ("append", "000000000000.records"),
        ("fdatasync", "000000000000.records"),
    ]


def test_with_durability_machine_a_snapshot_is_safe_before_older_files_go() -> None:
    files = SpyFiles(memory_files())
    home = small_home(files, durability="machine")
    for n in range(60):
        home.commit(Change(units={"u": {"n": n}}))
    for position, (operation, name) in enumerate(files.seen):
        if operation == "remove" and name.endswith((".records", ".snapshot")):
            before = files.seen[:position]
            replaced = max(i for i, (done, _) in enumerate(before) if done == "replace")
            temporary = before[replaced][1]
            assert ("sync", temporary) in before[:replaced]
            assert ("sync", "journal") in before[replaced:]
    assert any(operation == "remove" for operation, _ in files.seen)
    assert not any(operation == "fdatasync" for operation, _ in _unsynced().seen)


def _unsynced() -> SpyFiles:
    files = SpyFiles(memory_files())
    many_snapshots(files)  # type: ignore[arg-type]
    return files


def test_a_failing_sync_stops_commits_until_the_home_is_opened_again() -> None:
    class Unsyncable(SpyFiles):
        broken = False

        def _step_on(self, path: Path, name: str, operation: Callable[..., Any], *arguments: Any) -> Any:
            if name == "fdatasync" and self.broken:
                raise OSError(5, "Input/output error")
            return operation(*arguments)

    files = Unsyncable(memory_files())
    home = small_home(files, durability="machine")
    home.commit(Change(units={"u": {"n": 0}}))
    files.broken = True
    with pytest.raises(HomeError, match="cannot be synced"):
        home.commit(Change(units={"u": {"n": 1}}))
    files.broken = False
    with pytest.raises(HomeError, match="open the home again"):
        home.commit(Change(units={"u": {"n": 2}}))
    again = small_home(files, durability="machine")
    again.commit(Change(units={"u": {"n": 3}}))
    assert small_home(files).units == {"u": {"n": 3}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2\n", "FORMAT 2, and this slicemill reads 1: a newer one made it.*slicemill home upgrade"),
        ("0\n", "FORMAT 0, and this slicemill reads 1: run 'slicemill home upgrade"),
        ("one\n", "says 'one', not a number"),
    ],
)
def test_a_home_of_another_format_is_told_before_anything_is_touched(
    tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "FORMAT").write_text(text)
    for read in (lambda: Home(tmp_path).open(), lambda: HomeReader(tmp_path)):
        with pytest.raises(FormatError, match=message):
            read()
    assert [path.name for path in tmp_path.iterdir()] == ["FORMAT"]


def test_a_home_from_before_there_was_a_format_is_told(tmp_path: Path) -> None:
    (tmp_path / "logs" / "bid").mkdir(parents=True)
    with pytest.raises(FormatError, match=r"FORMAT 0.*slicemill home upgrade"):
        Home(tmp_path).open()


def test_a_home_that_another_process_has_is_told_with_who_that_is(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from slicemill.storage.home import Home\n"
        "home = Home(Path(sys.argv[1])); home.lock(); print('locked', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        with pytest.raises(HomeLocked, match=rf"another mill \(process {other.pid} on .*, since 2.*stop it"):
            Home(tmp_path).lock()
        other.kill()
    home = Home(tmp_path)
    home.lock()
    home.lock()
    with pytest.raises(HomeLocked):
        Home(tmp_path).open()
    home.unlock()
    again = Home(tmp_path)
    again.open()
    again.close()


def test_a_home_that_is_not_open_takes_no_commits() -> None:
    home = Home(FOLDER, files=memory_files())
    with pytest.raises(HomeError, match="not open"):
        home.commit(Change(units={"u": {}}))


def test_snapshots_in_the_background_hold_the_same(tmp_path: Path) -> None:
    home = Home(tmp_path, snapshot_every=(2_000, 4_000))
    home.open()
    for n in range(500):
        home.commit(Change(units={f"u{n % 7}": {"n": n}}))
    held = view(home)
    home.close()
    names = [path.name for path in (tmp_path / "journal").iterdir()]
    assert any(name.endswith(".snapshot") for name in names) and len(names) < 12
    again = Home(tmp_path)
    again.open()
    assert view(again) == held
    again.close()
