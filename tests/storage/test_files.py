"""Files appear whole or not at all, on a real file system and on the one that tests break."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from slicemill.storage.files import LOCAL, FileSystem, create_whole, ensure_folder, remove_old, write_whole
from storage.faulty_files import Crashed, MemoryFiles, crashes_of


@pytest.fixture(params=["local", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[FileSystem, Path]:
    if request.param == "local":
        return LOCAL, tmp_path
    files = MemoryFiles()
    ensure_folder(files, Path("/home/of/tests"))
    return files, Path("/home/of/tests")


def test_the_file_system_in_memory_and_the_real_one_behave_alike(place: tuple[FileSystem, Path]) -> None:
    files, folder = place
    files.write(folder / "a", b"one")
    files.write(folder / "a", b"other")
    files.link(folder / "a", folder / "b")
    with pytest.raises(FileExistsError):
        files.link(folder / "a", folder / "b")
    files.replace(folder / "a", folder / "c")
    assert sorted(files.names(folder)) == ["b", "c"]
    assert files.read(folder / "b") == files.map(folder / "c").to_pybytes() == b"other"
    assert files.stat(folder / "b").bytes == 5
    files.remove(folder / "b")
    files.remove(folder / "b")
    assert files.names(folder) == ["c"]
    for missing in (files.read, files.map, files.stat):
        with pytest.raises(FileNotFoundError):
            missing(folder / "b")
    with pytest.raises(FileNotFoundError):
        files.make_folder(folder / "x" / "y")
    files.make_folder(folder / "x")
    files.make_folder(folder / "x")
    files.sync(folder)
    files.sync(folder / "c")
    assert files.names(folder / "nowhere") == files.names(folder / "x") == []


def test_a_write_that_dies_at_any_step_leaves_the_old_content_or_the_new(
    place: tuple[FileSystem, Path],
) -> None:
    files, folder = place
    seen = set()
    for crashing in crashes_of(files):
        write_whole(files, folder / "a", b"old")
        try:
            write_whole(crashing, folder / "a", b"new, and longer", durable=True)
        except Crashed:
            seen.add(files.read(folder / "a"))
        else:
            assert files.read(folder / "a") == b"new, and longer"
    assert seen == {b"old", b"new, and longer"}


def test_a_file_that_is_created_whole_is_never_seen_in_part(place: tuple[FileSystem, Path]) -> None:
    files, folder = place
    for crashing in crashes_of(files):
        files.remove(folder / "a")
        try:
            create_whole(crashing, folder / "a", b"content", durable=True)
        except Crashed:
            assert "a" not in files.names(folder) or files.read(folder / "a") == b"content"
        else:
            assert files.read(folder / "a") == b"content"


def test_only_the_first_of_two_creates_a_file_and_the_second_leaves_no_trace(
    place: tuple[FileSystem, Path],
) -> None:
    files, folder = place
    create_whole(files, folder / "a", b"mine")
    with pytest.raises(FileExistsError):
        create_whole(files, folder / "a", b"yours")
    assert files.names(folder) == ["a"]
    assert files.read(folder / "a") == b"mine"


@pytest.mark.parametrize("seed", range(50))
def test_a_durable_write_outlives_a_loss_of_power(seed: int) -> None:
    files = MemoryFiles()
    folder = Path("/home/of/tests")
    ensure_folder(files, folder, durable=True)
    write_whole(files, folder / "a", b"first", durable=True)
    write_whole(files, folder / "a", b"second", durable=True)
    create_whole(files, folder / "b", b"third", durable=True)
    files.lose_power(random.Random(seed))
    assert files.read(folder / "a") == b"second"
    assert files.read(folder / "b") == b"third"


def test_only_files_older_than_the_limit_are_removed() -> None:
    now_us = 5
    files = MemoryFiles(clock=lambda: now_us)
    files.write(Path("/old"), b"")
    now_us = 9
    files.write(Path("/new"), b"")
    assert remove_old(files, Path("/"), ["old", "new", "gone"], modified_before_us=8) == ["old"]
    assert files.names(Path("/")) == ["new"]


def test_a_real_file_knows_when_it_was_written(tmp_path: Path) -> None:
    LOCAL.write(tmp_path / "a", b"")
    assert LOCAL.stat(tmp_path / "a").modified_us == (tmp_path / "a").stat().st_mtime_ns // 1_000
