"""Check and repair of the files of sources and sinks in a home directory.

These files are spools (received lines of sockets), ledgers (names of files that were read) and cursors of
sinks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from slicemill.connectors.files.ledger import Ledger
from slicemill.connectors.sinks.sink import READERS, SINKS, load_cursors
from slicemill.connectors.tcp.spool import find_damaged_lines, mark_lost, spool_files
from slicemill.errors import SlicemillError

SOURCES = "sources"


def source_errors(home: Path) -> Iterator[str]:
    """Yield descriptions of damage in files of sources and sinks.

    No engine may be running in the home directory.
    """
    for folder in _folders(home / SOURCES):
        for path in spool_files(folder).values():
            for one in find_damaged_lines(path):
                yield f"{path} is damaged from byte {one.begin} to {one.end}: lines received there are lost"
        ledger = Ledger(folder)
        if ledger.path.exists():
            yield from _error_of(partial(ledger.names, ledger.path.stat().st_size))
    for kind in (SINKS, READERS):
        yield from _error_of(partial(load_cursors, home, kind))


def repair_sources(home: Path) -> Iterator[str]:
    """Mark damaged lines of spools as lost; yield descriptions of the damage."""
    for folder in _folders(home / SOURCES):
        for path in spool_files(folder).values():
            for one in find_damaged_lines(path):
                mark_lost(path, one)
                yield f"{path}: the lines from byte {one.begin} to {one.end} are left out"


def _error_of(read: Callable[[], object]) -> Iterator[str]:
    try:
        read()
    except SlicemillError as problem:
        yield str(problem)


def _folders(parent: Path) -> list[Path]:
    return sorted(path for path in parent.iterdir() if path.is_dir()) if parent.is_dir() else []
