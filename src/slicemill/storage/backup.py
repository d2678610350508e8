"""Backup and upgrade of home directories, in which the engine stores its data."""

from __future__ import annotations

import os
import shutil
from functools import partial
from pathlib import Path

from slicemill.storage.check import HomeReport, check_home
from slicemill.storage.filesystem import PRIVATE_FOLDER, TEMPORARY, raise_storage_full
from slicemill.storage.garbage import TRASH
from slicemill.storage.home import (
    CURRENT,
    LOCK,
    READABLE,
    FormatError,
    Home,
    HomeLock,
    check_format,
    read_format,
    require_home,
)
from slicemill.storage.home_state import STEPS, HomeError
from slicemill.storage.journal import Progress


def backup_home(folder: Path, target: Path, progress: Progress = lambda _: None) -> HomeReport:
    """Copy a home directory to a new folder, and check the copy.

    No engine may run in the home directory, because spooled input of sources must match the journal of
    commits. The copy is renamed to its final name only when it is complete.
    """
    require_home(folder)
    if target.exists():
        raise HomeError(f"{target} is there already; name a folder that is not")
    if target.resolve().is_relative_to(folder.resolve()):
        raise HomeError(f"{target} lies in the home itself; name a folder elsewhere")
    lock = HomeLock(folder)
    lock.take("stop it before the backup")
    unfinished = target.with_name(f"{target.name}{TEMPORARY}")
    try:
        with raise_storage_full(target):
            progress(f"copying {folder} to {target}")
            shutil.rmtree(unfinished, ignore_errors=True)
            shutil.copytree(folder, unfinished, ignore=partial(_files_to_omit, folder))
            unfinished.chmod(PRIVATE_FOLDER)
            os.sync()
        report = check_home(unfinished, progress=progress)
        if report.errors:
            raise HomeError(
                f"the copy of {folder} is not whole: {report.errors[0]}; "
                "run 'slicemill home check' on the home itself"
            )
        unfinished.rename(target)
    finally:
        lock.release()
        shutil.rmtree(unfinished, ignore_errors=True)
    report.folder = target
    return report


def _files_to_omit(home: Path, folder: str, names: list[str]) -> set[str]:
    """Return the names of files that a backup omits: locks, trash and temporary files."""
    unfinished = {name for name in names if name.endswith(TEMPORARY) and not Path(folder, name).is_dir()}
    return unfinished | ({LOCK, TRASH, STEPS} if Path(folder) == home else set())


def upgrade_home(folder: Path) -> str:
    """Upgrade a home directory to the current FORMAT; return a report as text.

    FORMAT is the version number of the folder layout. FORMAT 2 changed names of task fields and digests of
    plans. FORMAT 3 changed pending results and folder names, and gave each stream its own Spark checkpoint.
    Tasks cannot restore older state. FORMAT 5 had no checksums of stored rows and checkpoints.
    """
    require_home(folder)
    found = read_format(folder)
    if found is not None and found < READABLE[0]:
        made = f"has FORMAT {found}" if found else "was made before there was a FORMAT, or has lost it"
        raise FormatError(
            f"home {folder} {made}: only the slicemill that wrote its state can read it. "
            "Let that one finish its input, and give this one a home of its own"
        )
    check_format(folder)
    if found == CURRENT:
        return f"home {folder} has FORMAT {CURRENT}, the newest; nothing is to be done"
    home = Home(folder, durability="machine")
    home.open()
    home.close()
    return (
        f"home {folder} had FORMAT {found} and has FORMAT {CURRENT} now: what is written from now on has "
        "checksums; 'slicemill home check' counts what has none yet"
    )
