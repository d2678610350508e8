"""Removal of logs (stored rows of streams and queries) that no statement declares.

Earlier versions of slicemill wrote up to three journal records for one statement: its logs, its tasks, its
text. A crash between two records left names that could neither be used nor dropped. The client got no answer
to the interrupted statement, so the logs are removed when the home directory is opened.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from slicemill.catalog.catalog import AGAIN, ERRORS, HELD, INTO, LATE
from slicemill.lifecycle.catalog_journal import in_force
from slicemill.lifecycle.task_fields import without_logs
from slicemill.storage.changes import Change
from slicemill.storage.home import Home

_LOGGER = logging.getLogger("slicemill")


def remove_undeclared(home: Home) -> list[str]:
    """Remove logs and streams that no statement declares. Return the names of the removed logs.

    The logs of a stream are kept after DROP STREAM. They are removed only if the stream was never declared.
    """
    in_use = {name for kind, name in in_force(home.statements) if kind in ("query", "relation")}
    declared_once = {entry["name"].lower() for entry in home.statements if entry.get("kind") == "relation"}
    gone: list[str] = []
    streams: list[str] = []
    # The log of a source that is read a second time for a query is dropped with the query.
    for name in (log for log in home.logs if AGAIN not in log):
        stream = _stream_of(name, home.logs)
        if stream is not None:
            known = stream.lower() in declared_once
        else:
            known = name.partition(INTO)[0].lower() in in_use
        if not known:
            gone.append(name)
            if stream == name and name in home.streams:
                streams.append(name)
    if gone:
        home.commit(without_logs(gone, home, Change(dropped_streams=streams)))
        _LOGGER.warning(
            "home directory %s: removed %s, which an interrupted CREATE had left without a declaration",
            home.folder,
            ", ".join(gone),
        )
    return gone


def _stream_of(log: str, logs: Collection[str]) -> str | None:
    """Return the stream to which a log of rows, late rows or bad rows belongs, or None."""
    for suffix in ("", ERRORS, LATE, HELD):
        stream = log.removesuffix(suffix)
        if log.endswith(suffix) and stream + ERRORS in logs:
            return stream
    return None
