"""FORMAT: the version number of a home's layout."""

from __future__ import annotations

from pathlib import Path

from slicemill.storage.files import LOCAL, FileSystem, ensure_folder, write_whole
from slicemill.storage.home_state import CHECKPOINTS, LOGS, HomeError
from slicemill.storage.journal import JOURNAL

FORMAT = "FORMAT"
CURRENT = 5

_PARTS = (JOURNAL, LOGS, CHECKPOINTS)


class FormatError(HomeError):
    """A home that this version of slicemill cannot read."""


def read_format(folder: Path, files: FileSystem = LOCAL) -> int | None:
    """The number in FORMAT; 0 for a home made before there was one, None where there is no home yet."""
    try:
        text = files.read(folder / FORMAT).decode(errors="replace").strip()
    except FileNotFoundError:
        return 0 if files.names(folder / LOGS) else None
    if not text.isdecimal():
        raise FormatError(f"{folder / FORMAT} says {text[:40]!r}, not a number; restore it from a copy")
    return int(text)


def check_format(folder: Path, files: FileSystem = LOCAL) -> None:
    """Raise, with what to do, if this slicemill cannot read the home."""
    found = read_format(folder, files)
    if found is None or found == CURRENT:
        return
    if found > CURRENT:
        raise FormatError(
            f"home {folder} has FORMAT {found}, and this slicemill reads {CURRENT}: a newer one made it. "
            "Install that one; 'slicemill home upgrade' brings a home forward, never back"
        )
    raise FormatError(
        f"home {folder} has FORMAT {found}, and this slicemill reads {CURRENT}: run "
        f"'slicemill home upgrade {folder}' first"
    )


def require_home(folder: Path, files: FileSystem = LOCAL) -> None:
    """Raise if there is no home in the folder."""
    if read_format(folder, files) is None:
        raise FormatError(f"there is no home in {folder}; a mill makes one when it runs with --home")


def make_home(folder: Path, files: FileSystem = LOCAL, durable: bool = False) -> None:
    """Make the folders of a home, and FORMAT last; what is there stays."""
    for part in _PARTS:
        ensure_folder(files, folder / part, durable)
    if read_format(folder, files) is None:
        write_whole(files, folder / FORMAT, f"{CURRENT}\n".encode(), durable)
