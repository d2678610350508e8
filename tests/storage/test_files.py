"""Atomic writes of files, on a real file system and on one in memory that fails on request."""

from __future__ import annotations

import errno
import random
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slicemill.storage.filesystem import (
    LOCAL,
    FileSystem,
    StorageFull,
    ensure_folder,
    folder_name,
    raise_storage_full,
    write_atomically,
)
from storage.faulty_files import Crashed, FullFiles, MemoryFiles, crashes_of


@pytest.fixture(params=["local", "memory"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[FileSystem, Path]:
    if request.param == "local":
        return LOCAL, tmp_path
    files = MemoryFiles()
    ensure_folder(files, Path("/home/of/tests"))
    return files, Path("/home/of/tests")


def test_the_file_system_in_memory_behaves_like_the_real_file_system(index: tuple[FileSystem, Path]) -> None:
    files, folder = index
    files.write(folder / "a", b"one")
    files.write(folder / "a", b"other")
    files.replace(folder / "a", folder / "c")
    assert files.names(folder) == ["c"]
    assert files.read(folder / "c") == files.map(folder / "c").to_pybytes() == b"other"
    assert files.read(folder / "c", 1, 3) == b"the"
    assert files.read(folder / "c", 3) == b"er"
    assert files.read(folder / "c", 3, 100) == b"er"
    assert files.read(folder / "c", 9) == b""
    assert files.stat(folder / "c").bytes == 5
    for missing in (files.read, files.map, files.stat):
        with pytest.raises(FileNotFoundError):
            missing(folder / "b")
    with pytest.raises(FileNotFoundError):
        files.make_folder(folder / "x" / "y")
    files.make_folder(folder / "x")
    files.make_folder(folder / "x")
    files.write(folder / "x" / "a", b"")
    files.remove_folder(folder / "x")
    assert sorted(files.names(folder)) == ["c", "x"]
    files.remove(folder / "x" / "a")
    files.remove(folder / "x" / "a")
    assert files.names(folder / "nowhere") == files.names(folder / "x") == []
    files.remove_folder(folder / "x")
    files.remove_folder(folder / "x")
    files.sync(folder)
    files.sync(folder / "c")
    assert files.names(folder) == ["c"]


def test_a_file_can_be_appended_truncated_and_reopened(index: tuple[FileSystem, Path]) -> None:
    files, folder = index
    opened = files.append(folder / "a")
    opened.write(b"one")
    opened.write(b"two")
    opened.cut(4)
    opened.write(b"!")
    opened.sync()
    assert not opened.is_removed()
    opened.close()
    again = files.append(folder / "a")
    again.write(b"?")
    assert files.read(folder / "a") == b"onet!?"
    files.remove(folder / "a")
    assert again.is_removed()
    again.close()
    files.append(folder / "a").close()
    with pytest.raises(FileExistsError):
        files.append(folder / "a", new=True)
    with pytest.raises(FileNotFoundError):
        files.append(folder / "x" / "a", new=True)


def test_a_crash_at_any_step_of_an_atomic_write_leaves_the_old_or_the_new_content(
    index: tuple[FileSystem, Path],
) -> None:
    files, folder = index
    seen = set()
    for crashing in crashes_of(files):
        write_atomically(files, folder / "a", b"old")
        try:
            write_atomically(crashing, folder / "a", b"new, and longer", durable=True)
        except Crashed:
            seen.add(files.read(folder / "a"))
        else:
            assert files.read(folder / "a") == b"new, and longer"
    assert seen == {b"old", b"new, and longer"}


def test_an_atomic_write_on_a_full_disk_leaves_the_old_content(index: tuple[FileSystem, Path]) -> None:
    files, folder = index
    write_atomically(files, folder / "a", b"old")
    with pytest.raises(StorageFull, match="no space is left"), raise_storage_full(folder):
        write_atomically(FullFiles(files, room=0, part="half"), folder / "a", b"new")
    assert files.names(folder) == ["a"]
    assert files.read(folder / "a") == b"old"


def test_an_input_output_error_is_not_reported_as_a_full_disk() -> None:
    with pytest.raises(OSError, match="broken"), raise_storage_full(Path("/")):
        raise OSError(errno.EIO, "broken")


@pytest.mark.parametrize("seed", range(50))
def test_a_durable_write_survives_a_power_failure(seed: int) -> None:
    files = MemoryFiles()
    folder = Path("/home/of/tests")
    ensure_folder(files, folder, durable=True)
    write_atomically(files, folder / "a", b"first", durable=True)
    write_atomically(files, folder / "a", b"second", durable=True)
    files.lose_power(random.Random(seed))
    assert files.read(folder / "a") == b"second"


def test_a_file_has_its_modification_time_in_microseconds(tmp_path: Path) -> None:
    LOCAL.write(tmp_path / "a", b"")
    assert LOCAL.stat(tmp_path / "a").modified_us == (tmp_path / "a").stat().st_mtime_ns // 1_000


HOSTILE = [
    *(".", "..", "../../x", "/etc/passwd", "a/b", "a\\b", "", " ", "a ", "a", "A", "aa", "Aa", "aA", "AA"),
    *("a\0b", "~", "a~b", "A~a30b5d49", "%", "%2E", "%2e", ".a", "\u00e9", "e\u0301", "\u00c9", "\ud800"),
    *("a" * 150, "a" * 300, "a" * 301, "A" * 150, "a/" * 150, "con", "nul.", "-rf", "$(x)", "\n"),
]
names = st.text(max_size=400) | st.sampled_from(HOSTILE) | st.text("aA.~%/ ", max_size=8)


@given(st.sets(names))
@example(set(HOSTILE))
@example({"a" * 151, folder_name("a" * 151)})
@example({"Bid", folder_name("Bid")})
def test_every_name_has_its_own_valid_folder_name(found: set[str]) -> None:
    """Also holds on file systems that ignore case."""
    folders = {name: folder_name(name) for name in found}
    assert len({folder.lower() for folder in folders.values()}) == len(found)
    for name, folder in folders.items():
        assert 0 < len(folder) <= 150 and folder.isascii() and folder.isprintable()
        assert not {"/", "\\", "\0", " "} & set(folder) and not folder.startswith(".")
        plain, tilde, digest = folder.partition("~")
        if len(digest) < 24:  # A long name is stored as its beginning and a digest.
            assert unquote(plain if plain != "%" else "", errors="surrogatepass") == name
        assert tilde or digest == ""


def test_hostile_names_stay_inside_their_folder_on_a_real_file_system(tmp_path: Path) -> None:
    home = tmp_path / "a" / "home"
    ensure_folder(LOCAL, home)
    for name in HOSTILE:
        ensure_folder(LOCAL, home / folder_name(name))
        write_atomically(LOCAL, home / f"{folder_name(name)}.state", b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["home"]
    assert len(list(home.iterdir())) == 2 * len(HOSTILE)


def test_files_of_a_home_directory_are_readable_only_by_their_owner(tmp_path: Path) -> None:
    ensure_folder(LOCAL, tmp_path / "home" / "logs")
    write_atomically(LOCAL, tmp_path / "home" / "FORMAT", b"3")
    LOCAL.append(tmp_path / "home" / "logs" / "1").close()
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")}
    assert modes == {"home": 0o700, "logs": 0o700, "FORMAT": 0o600, "1": 0o600}
