"""Logs without a declaration: what statements leave that were interrupted between two of their records.

Earlier versions wrote up to three records for one statement: its logs, its units, its text. A kill between
two of them left names that could neither be used nor dropped. Such a statement was never acknowledged, so
what it left is removed when the home is opened.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from slicemill.engine.changing.joining import without_logs
from slicemill.engine.changing.statements import in_force
from slicemill.esl.types.catalog import AGAIN, ERRORS, HELD, INTO, LATE
from slicemill.storage.changes import Change
from slicemill.storage.home import Home

_LOGGER = logging.getLogger("slicemill")


def remove_undeclared(home: Home) -> list[str]:
    """Remove logs, streams and places in units that no statement declares; return the names of the logs.

    The logs of a declared stream stay when it is dropped: they are removed only if no statement ever declared
    the stream.
    """
    in_use = {name for kind, name in in_force(home.statements) if kind in ("query", "relation")}
    declared_once = {entry["name"].lower() for entry in home.statements if entry.get("kind") == "relation"}
    gone: list[str] = []
    streams: list[str] = []
    for name in (log for log in home.logs if AGAIN not in log):  # those end with their query
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
            "home %s: %s removed; a CREATE that was interrupted left it, and no statement declares it",
            home.folder,
            ", ".join(gone),
        )
    return gone


def _stream_of(log: str, logs: Collection[str]) -> str | None:
    """Return the declared stream that a log belongs to; None for the log of anything else."""
    for suffix in ("", ERRORS, LATE, HELD):
        stream = log.removesuffix(suffix)
        if log.endswith(suffix) and stream + ERRORS in logs:
            return stream
    return None
