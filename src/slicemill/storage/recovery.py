"""Recovery: finish what a process that was killed had begun in a home, before anything else runs there.

A killed process leaves promises (results that a unit's manifest has committed and that their log does not
have yet) and files that nobody names. The first are kept, whether or not the query is registered again; the
others go, and so do logs and units that were being dropped. All of it can be killed too, and starts over.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from slicemill.storage.home import Home, folder_name
from slicemill.storage.log import SCHEMA, StreamLog
from slicemill.storage.state import IDENTITY, StateStore, commit_run


def recover(home: Home) -> None:
    """Make a home whole. No other process may be at work in it: that is what its lock is for."""
    logs = {folder.name: StreamLog(folder) for folder in _made(home.folder / "logs", SCHEMA)}
    stores = [
        StateStore(folder) for kind in ("units", "intake") for folder in _made(home.folder / kind, IDENTITY)
    ]
    for store in stores:
        _keep_promises(store, logs)
    owners: list[StreamLog | StateStore] = [*logs.values(), *stores]
    for owner in owners:
        # Also the youngest: what a task of the killed process still writes will never be named.
        owner.sweep(grace_us=0)
    shutil.rmtree(home.dropped, ignore_errors=True)


def _keep_promises(store: StateStore, logs: Mapping[str, StreamLog]) -> None:
    """Append what the last version promises, in a version that promises nothing: its logs may go then."""
    version = store.latest()
    if version is not None and version.outputs:
        promised = {name: logs[folder_name(name)] for name in version.outputs}
        commit_run(store, replace(version, outputs={}), promised)


def _made(parent: Path, mark: str) -> Iterator[Path]:
    """The folders in which the file is that is written last when one is made."""
    if parent.exists():
        yield from (folder for folder in sorted(parent.iterdir()) if (folder / mark).exists())
