"""FORMAT: the version number of a home's layout."""

from __future__ import annotations

from pathlib import Path

from slicemill.storage.files import LOCAL, FileSystem, ensure_folder, write_whole
from slicemill.storage.home_state import CHECKPOINTS, LOGS, TABLES, HomeError
from slicemill.storage.journal import JOURNAL, records_path

FORMAT = "FORMAT"
CURRENT = 6
# FORMAT 6 added checksums of extents and checkpoint files. A home of FORMAT 5 is read as it is, and data
# without a checksum is not verified. Its FORMAT becomes 6 when a mill opens it.
READABLE = (5, CURRENT)

_PARTS = (JOURNAL, LOGS, CHECKPOINTS)


class FormatError(HomeError):
    """Home that this version of slicemill cannot read."""


def read_format(folder: Path, files: FileSystem = LOCAL) -> int | None:
    """Return the number in FORMAT; None without a home.

    It is 0 for a home made before there was a FORMAT.
    """
    try:
        text = files.read(folder / FORMAT).decode(errors="replace").strip()
    except FileNotFoundError:
        return 0 if _has_content(folder, files) else None
    if not text.isdecimal():
        raise FormatError(f"{folder / FORMAT} says {text[:40]!r}, not a number; restore it from a copy")
    return int(text)


def _has_content(folder: Path, files: FileSystem) -> bool:
    """Return True if a folder without FORMAT has data of a home."""
    if any(files.names(folder / part) for part in (LOGS, CHECKPOINTS, TABLES)):
        return True
    journal = folder / JOURNAL
    return any(files.stat(journal / name).bytes for name in files.names(journal))


def check_format(folder: Path, files: FileSystem = LOCAL) -> None:
    """Raise, with advice, if this slicemill cannot read the home."""
    found = read_format(folder, files)
    if found is None or found in READABLE:
        return
    if found > CURRENT:
        raise FormatError(
            f"home {folder} has FORMAT {found}, and this slicemill reads {CURRENT}: a newer one made it. "
            "Install that one; 'slicemill home upgrade' brings a home forward, never back"
        )
    raise FormatError(
        f"home {folder} has FORMAT {found}, and this slicemill reads {CURRENT}: run "
        f"'slicemill home upgrade {folder}' first, or restore the file FORMAT from a copy if it was damaged"
    )


def require_home(folder: Path, files: FileSystem = LOCAL) -> None:
    """Raise if there is no home in the folder."""
    if read_format(folder, files) is None:
        raise FormatError(f"there is no home in {folder}; a mill makes one when it runs with --home")


def make_home(folder: Path, files: FileSystem = LOCAL, durable: bool = False) -> None:
    """Create a home's folders and journal, and FORMAT last.

    Existing files stay. Because FORMAT is created last, a home with FORMAT and without a journal has lost its
    journal.
    """
    for part in _PARTS:
        ensure_folder(files, folder / part, durable)
    if read_format(folder, files) is None:
        files.append(records_path(folder, 0)).close()
        if durable:
            files.sync(folder / JOURNAL)
        write_format(folder, files, durable)


def write_format(folder: Path, files: FileSystem = LOCAL, durable: bool = False) -> None:
    """Write the current number into FORMAT, unless it is there."""
    if read_format(folder, files) != CURRENT:
        write_whole(files, folder / FORMAT, f"{CURRENT}\n".encode(), durable)
