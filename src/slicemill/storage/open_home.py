"""Looking into a home from outside: for commands, and for programs that read results.

No lock is taken: a mill may go on writing, and none need be there. What is missing is told in words.
"""

from __future__ import annotations

from pathlib import Path

from slicemill.esl.errors import did_you_mean
from slicemill.storage.files import LOCAL, FileSystem
from slicemill.storage.home_format import read_format
from slicemill.storage.home_reader import HomeReader
from slicemill.storage.home_state import HomeError
from slicemill.storage.log import Log


def open_home(folder: Path, files: FileSystem = LOCAL) -> HomeReader:
    """A reader of the home in a folder; HomeError if there is none."""
    if read_format(folder, files) is None:
        raise HomeError(f"{folder} is no home of a mill; give the folder that `run --home` was given")
    return HomeReader(folder, files)


def log_of(home: HomeReader, name: str) -> Log:
    """The log of a stream or query; HomeError, with the names that are near, if there is none."""
    log = home.logs.get(name)
    if log is None:
        hint = did_you_mean(name, home.logs) or "`slicemill log ls` shows what there is"
        raise HomeError(f"there is no query or stream {name} in {home.folder}; {hint}")
    return log
