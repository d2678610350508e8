"""Interface of sinks, which receive query results in ranges of epochs.

An *epoch* is what one commit appended to the log of a query. The *cursor* of a sink is its last received
epoch. The cursor in the home directory is written after a delivery, so after a crash it may lag behind the
sink. Some sinks store their own position atomically with the rows, for example in a file name or in the same
transaction. Such a sink returns its position on resume, and gets each row exactly once. Other sinks get the
last delivery again, with unchanged epoch numbers.
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
    """Error: a sink cannot be opened, or rejects a delivery."""


class Sink(Protocol):
    """Receiver of query results, whose creation has no side effects.

    `resume` is the first call that may fail, and it may be repeated.
    """

    @property
    def per_epoch(self) -> bool:
        """Return True if each delivery must be a single epoch.

        The number of the epoch is then a permanent id of the delivery.
        """

    def resume(self, owner: str, stored: int) -> int:
        """Prepare the sink, initially or after a failure; return its last epoch.

        `owner` is a unique name that was generated for this sink and its home directory. `stored` is the
        cursor in the home directory.
        """

    def deliver(self, first: int, last: int, table: pa.Table) -> None:
        """Receive the rows of the epochs `first` to `last`.

        The columns are `_ts` (UTC), then the columns of the query.
        """

    def close(self) -> None:
        """Release the resources of `resume`; the sink may be resumed later."""


@runtime_checkable
class TableSink(Sink, Protocol):
    """Sink that stores the current table of a changelog."""

    def replace(self, last: int, table: pa.Table) -> None:
        """Replace all rows by the table after epoch `last`, given as inserts.

        This is necessary if changes after the position of the sink have been freed.
        """


# Cursors of sinks and external readers: small files in the home directory
#
#     <home>/sinks/<name>/cursor.json     written by the engine
#     <home>/readers/<name>/cursor.json   written by a program that reads results (connectors/results.py)
#
# `id` is generated once, and also stored at the target. So a folder or database records the home directory
# that writes to it, and a second home directory cannot continue after the epochs of the first.


SINKS = "sinks"
READERS = "readers"
_FILE = "cursor.json"


@dataclass(slots=True)
class SinkCursor:
    """Cursor of a sink or external reader: its last received epoch (commit)."""

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
        """Delete the stored cursor, even during a delivery.

        A cursor that is created later gets a new id.
        """
        self.forgotten = True
        self.files.remove(self.folder / _FILE)


def open_cursor(
    home: Path, kind: str, name: str, log: str, files: FileSystem = LOCAL, durable: bool = False
) -> SinkCursor:
    """Return the stored cursor of a sink or external reader; create it if missing."""
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
    """Return all stored cursors of sinks, or of readers."""
    folders = (home / kind / name for name in sorted(files.names(home / kind)))
    return [cursor for folder in folders if (cursor := _load(folder, files, False)) is not None]


def _checksum(fields: dict[str, Any]) -> int:
    return crc32(json.dumps(fields).encode())


def _load(folder: Path, files: FileSystem, durable: bool) -> SinkCursor | None:
    path = folder / _FILE
    try:
        content = json.loads(files.read(path))
        crc = content.pop("crc", None)  # checksum, which files of older versions do not have
        if crc != _checksum(content) and (crc is not None or content.keys() != {"id", "log", "epoch"}):
            raise ValueError("its checksum differs")
        return SinkCursor(folder, content["id"], content["log"], content["epoch"], files, durable)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise SinkError(f"{path} is damaged ({problem}); remove it to deliver all that is kept") from problem
