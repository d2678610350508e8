"""Faults of a home directory are reported, and no commit is lost."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slicemill.storage.changes import Change
from slicemill.storage.filesystem import StorageFull
from slicemill.storage.home import FormatError, Home, HomeLocked
from slicemill.storage.home_reader import HomeReader
from slicemill.storage.home_state import HomeError
from slicemill.storage.segments import SegmentWriters
from storage.faulty_files import PARTS, FullFiles, MemoryFiles, SpyFiles
from storage.homes import FOLDER, append, commit_rows, memory_files, small_home, view
from storage.tables import COLUMNS


def test_the_torn_end_of_the_journal_is_truncated_and_reported() -> None:
    files = memory_files()
    home = small_home(files)
    for n in range(2):
        home.commit(Change(tasks={"u": {"n": n}}))
    path = FOLDER / "journal" / "000000000000.records"
    whole = files.read(path)
    for cut in range(1, len(whole.splitlines()[1])):
        files.write(path, whole[:-cut])
        files.remove(FOLDER / "journal" / "end")  # as after a crash before this file was written
        told: list[str] = []
        again = Home(FOLDER, files=files)
        again.open(told.append)
        assert again.tasks == {"u": {"n": 0}}
        assert any("did not end" in line for line in told)
        again.commit(Change(tasks={"u": {"n": 7}}))
        assert small_home(files).tasks == {"u": {"n": 7}}


def test_damage_inside_the_journal_is_reported_with_its_byte_position() -> None:
    files = memory_files()
    home = Home(FOLDER, files=files)
    home.open()
    for n in range(3):
        home.commit(Change(tasks={"u": {"n": n}}))
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
        home.commit(Change(tasks={"u": {"n": n}}))
    return home


def test_snapshots_bound_the_number_of_journal_files() -> None:
    files = memory_files()
    many_snapshots(files)
    names = files.names(FOLDER / "journal")
    assert len(names) <= 5 and sum(name.endswith(".snapshot") for name in names) == 2
    assert small_home(files).tasks == {"u": {"n": 59}}


def test_a_damaged_snapshot_is_replaced_by_the_previous_snapshot() -> None:
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


def test_missing_journal_records_are_reported() -> None:
    files = memory_files()
    many_snapshots(files)
    for name in files.names(FOLDER / "journal"):
        if name.endswith(".snapshot"):
            files.remove(FOLDER / "journal" / name)
    with pytest.raises(HomeError, match="no record of epoch 0, but later ones"):
        small_home(files)


@pytest.mark.parametrize("part", PARTS)
def test_a_full_disk_loses_no_commit_and_commits_continue_with_space(part: str) -> None:
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
    """Return a copy of the files as a process would find them that opened the home directory now."""
    return copy.deepcopy(files)


def test_machine_durability_syncs_rows_before_the_record_and_the_record_before_commit_returns() -> None:
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
        ("append", "end"),
    ]


def test_machine_durability_syncs_a_snapshot_before_older_files_are_deleted() -> None:
    files = SpyFiles(memory_files())
    home = small_home(files, durability="machine")
    for n in range(60):
        home.commit(Change(tasks={"u": {"n": n}}))
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


def test_a_failed_sync_blocks_commits_until_the_home_directory_is_reopened() -> None:
    class Unsyncable(SpyFiles):
        broken = False

        def _step_on(self, path: Path, name: str, operation: Callable[..., Any], *arguments: Any) -> Any:
            if name == "fdatasync" and self.broken:
                raise OSError(5, "Input/output error")
            return operation(*arguments)

    files = Unsyncable(memory_files())
    home = small_home(files, durability="machine")
    home.commit(Change(tasks={"u": {"n": 0}}))
    files.broken = True
    with pytest.raises(HomeError, match="cannot be synced"):
        home.commit(Change(tasks={"u": {"n": 1}}))
    files.broken = False
    with pytest.raises(HomeError, match="open the home again"):
        home.commit(Change(tasks={"u": {"n": 2}}))
    again = small_home(files, durability="machine")
    again.commit(Change(tasks={"u": {"n": 3}}))
    assert small_home(files).tasks == {"u": {"n": 3}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("7\n", "FORMAT 7, and this slicemill reads 6: a newer one made it.*slicemill home upgrade"),
        ("1\n", "FORMAT 1, and this slicemill reads 6: run 'slicemill home upgrade"),
        ("one\n", "says 'one', not a number"),
    ],
)
def test_an_unsupported_format_is_reported_before_any_file_changes(
    tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "FORMAT").write_text(text)
    for read in (lambda: Home(tmp_path).open(), lambda: HomeReader(tmp_path)):
        with pytest.raises(FormatError, match=message):
            read()
    assert [path.name for path in tmp_path.iterdir()] == ["FORMAT"]


def test_a_home_directory_without_a_format_file_is_reported_as_format_0(tmp_path: Path) -> None:
    (tmp_path / "logs" / "bid").mkdir(parents=True)
    with pytest.raises(FormatError, match=r"FORMAT 0.*slicemill home upgrade"):
        Home(tmp_path).open()


def test_a_locked_home_directory_is_reported_with_the_process_that_holds_the_lock(tmp_path: Path) -> None:
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


def test_a_closed_home_directory_rejects_commits() -> None:
    home = Home(FOLDER, files=memory_files())
    with pytest.raises(HomeError, match="not open"):
        home.commit(Change(tasks={"u": {}}))
