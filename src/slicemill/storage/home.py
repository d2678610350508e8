"""The home folder: where a mill keeps its logs, the state of its units and the progress of its sources.

<home>/logs/<name>/      a StreamLog for each stream, derived stream and result
<home>/units/<name>/     a StateStore for each unit
<home>/intake/<name>/    a StateStore for each declared stream: what is held back to be put in order
<home>/sources/          what Spark and the sources remember
<home>/dropped/          what is being removed
"""

from __future__ import annotations

import fcntl
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO
from urllib.parse import quote, unquote

from slicemill.errors import SlicemillError
from slicemill.esl.types import Schema
from slicemill.storage.files import unique_name
from slicemill.storage.log import StreamLog
from slicemill.storage.state import StateStore


def folder_name(name: str) -> str:
    """A name as a folder's: plain ones as they are, others spelled as in a URL.

    >>> folder_name("hot_items"), folder_name("select from bid")
    ('hot_items', 'select%20from%20bid')
    """
    return quote(name, safe="")


def log_names(folder: Path) -> list[str]:
    """The names of the logs in a home."""
    return sorted(unquote(path.name) for path in (folder / "logs").iterdir())


@dataclass(slots=True)
class Home:
    """Opens logs and stores once each; one process writes to a home at a time."""

    folder: Path
    logs: dict[str, StreamLog] = field(default_factory=dict)
    _stores: dict[str, StateStore] = field(default_factory=dict)
    _lock: IO[str] | None = None

    def lock(self) -> None:
        """Take the home for this process, or say who has it; the lock goes with the process."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = (self.folder / "lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.unlock()
            raise SlicemillError(
                f"another mill runs in {self.folder}; stop it, or give this one a home of its own"
            ) from None

    def unlock(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def forget_log(self, name: str) -> None:
        """Remove a log and its files."""
        self._drop(self.logs.pop(name).folder)

    def forget_unit(self, unit: str) -> None:
        """Remove a unit's state, also that of a unit which has not been opened."""
        path = f"units/{folder_name(unit)}"
        self._stores.pop(path, None)
        if (self.folder / path).exists():
            self._drop(self.folder / path)

    def _drop(self, folder: Path) -> None:
        """In one step, so that a kill half-way does not leave half a log; what is left goes at recovery."""
        self.dropped.mkdir(exist_ok=True)
        gone = self.dropped / unique_name()
        folder.rename(gone)
        shutil.rmtree(gone)

    def log(self, name: str, schema: Schema | None = None) -> StreamLog:
        if name not in self.logs:
            self.logs[name] = StreamLog(self.folder / "logs" / folder_name(name), schema)
        return self.logs[name]

    def unit_store(self, unit: str) -> StateStore:
        return self._store("units", unit)

    def intake_store(self, stream: str) -> StateStore:
        return self._store("intake", stream)

    @property
    def sources(self) -> Path:
        return self.folder / "sources"

    @property
    def dropped(self) -> Path:
        return self.folder / "dropped"

    def _store(self, kind: str, name: str) -> StateStore:
        path = f"{kind}/{folder_name(name)}"
        if path not in self._stores:
            self._stores[path] = StateStore(self.folder / path)
        return self._stores[path]
