"""Interface of sinks: consumers of results in ranges of epochs.

The cursor in the home is written after the delivery, so after a crash it may be behind the sink. A sink
that stores its own position together with its rows (a file's name, a row in the same transaction) returns
that position on resume, and gets every row once. Other sinks get the last delivery again, with the same
number.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable
from zlib import crc32

import pyarrow as pa

from slicemill.errors import SlicemillError
from slicemill.storage.filesystem import (
    LOCAL,
    TEMPORARY,
    FileSystem,
    ensure_folder,
    folder_name,
    unique_name,
    write_atomically,
)


class SinkError(SlicemillError):
    """Sink that cannot be opened, or that rejects a delivery."""


class Sink(Protocol):
    """Consumer of results; creating it has no side effects.

    `resume` is the first call that may fail, and it may be repeated.
    """

    @property
    def per_epoch(self) -> bool:
        """Return True if each delivery must be a single epoch.

        So an epoch's number is a permanent id of the delivery.
        """

    def resume(self, owner: str, stored: int) -> int:
        """Prepare the sink, initially or after a failure; return its last epoch.

        `owner` is the home's unique name for this sink; `stored` is the home's cursor.
        """

    def deliver(self, first: int, last: int, table: pa.Table) -> None:
        """Receive the rows of epochs `first` … `last`.

        The columns are `_ts` (UTC), then the query's columns.
        """

    def close(self) -> None:
        """Release resources of `resume`; the sink may be resumed later."""


@runtime_checkable
class TableSink(Sink, Protocol):
    """Sink that holds the current table of a changelog."""

    def replace(self, last: int, table: pa.Table) -> None:
        """Replace all rows by the table after epoch `last`, given as inserts.

        Changes between the sink's position and this epoch were freed.
        """


# Cursors of sinks and external readers, as small files in the home.
#
#     <home>/sinks/<name>/cursor.json     written by the mill
#     <home>/readers/<name>/cursor.json   written by a program that reads results (connectors/results.py)
#
# `id` is generated once and also stored at the target: a folder or a database records which home delivers
# to it, so a second home cannot continue from the first one's epochs.


SINKS = "sinks"
READERS = "readers"
_FILE = "cursor.json"


@dataclass(slots=True)
class SinkCursor:
    """Position of a consumer: the last epoch that it has."""

    folder: Path
    id: str
    log: str
    epoch: int
    files: FileSystem = LOCAL
    durable: bool = False
    forgotten: bool = False

    def advance(self, epoch: int) -> None:
        if self.forgotten:
            return
        fields = {"id": self.id, "log": self.log, "epoch": epoch}
        content = json.dumps({**fields, "crc": _checksum(fields)})
        write_atomically(self.files, self.folder / _FILE, content.encode(), self.durable)
        self.epoch = epoch

    def forget(self) -> None:
        """Delete the cursor, also if a delivery is pending.

        A new cursor gets a new id.
        """
        self.forgotten = True
        self.files.remove(self.folder / _FILE)


def open_cursor(
    home: Path, kind: str, name: str, log: str, files: FileSystem = LOCAL, durable: bool = False
) -> SinkCursor:
    """Return a consumer's cursor, creating it if necessary.

    A new cursor is stored before it is used.
    """
    folder = home / kind / folder_name(name)
    found = _load(folder, files, durable)
    if found is None:
        ensure_folder(files, folder, durable)
        found = SinkCursor(folder, unique_name(), log, -1, files, durable)
        found.advance(-1)
    if found.log != log:
        raise SinkError(f"{name} is the name of a consumer of {found.log}; give that of {log} another one")
    for left in files.names(folder):
        if left.endswith(TEMPORARY):
            files.remove(folder / left)
    return found


def load_cursors(home: Path, kind: str, files: FileSystem = LOCAL) -> list[SinkCursor]:
    """Return all stored cursors of a kind."""
    folders = (home / kind / name for name in sorted(files.names(home / kind)))
    return [cursor for folder in folders if (cursor := _load(folder, files, False)) is not None]


def _checksum(fields: dict[str, Any]) -> int:
    return crc32(json.dumps(fields).encode())


def _load(folder: Path, files: FileSystem, durable: bool) -> SinkCursor | None:
    path = folder / _FILE
    try:
        content = json.loads(files.read(path))
        crc = content.pop("crc", None)  # missing if an older version wrote the file
        if crc != _checksum(content) and (crc is not None or content.keys() != {"id", "log", "epoch"}):
            raise ValueError("its checksum differs")
        return SinkCursor(folder, content["id"], content["log"], content["epoch"], files, durable)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise SinkError(f"{path} is damaged ({problem}); remove it to deliver all that is kept") from problem
