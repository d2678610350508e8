"""In-memory state of a home: the sum of its journal's records."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from slicemill.errors import SlicemillError
from slicemill.storage.changes import Change, decode_schema
from slicemill.storage.files import LOCAL, FileSystem, folder_name
from slicemill.storage.log import Hold, Log, LogEnd

LOGS = "logs"
CHECKPOINTS = "checkpoints"
TABLES = "tables"
STEPS = "steps"  # the steps that workers run, only while a mill is running

# Fields of a unit with this prefix refer to files in its checkpoint folder.
CHECKPOINT_FIELD = "checkpoint"

T = TypeVar("T")


class HomeError(SlicemillError):
    """Home that cannot be opened, read or written."""


@dataclass(slots=True)
class UnreferencedFiles:
    """Files that are no longer referenced by any record, to be removed."""

    segments: dict[Path, set[str]] = field(default_factory=dict)  # by the log's folder
    checkpoints: dict[Path, int] = field(
        default_factory=dict
    )  # by the unit's folder: time of the last checkpoint
    folders: set[Path] = field(default_factory=set)  # of dropped logs and units
    tables: set[str] = field(default_factory=set)  # of replaced versions


@dataclass(slots=True)
class HomeState:
    """Logs, units, streams, statements, tables, alerts and lives after record `epoch`.

    Other threads may read at any time. So values of one unit or stream are replaced as a whole, and a
    dictionary is replaced when a name is added or removed.
    """

    folder: Path
    files: FileSystem = LOCAL
    epoch: int = -1
    committed_us: int = 0
    logs: dict[str, Log] = field(default_factory=dict)
    units: dict[str, dict[str, Any]] = field(default_factory=dict)
    streams: dict[str, dict[str, Any]] = field(default_factory=dict)
    statements: list[dict[str, Any]] = field(default_factory=list)
    tables: dict[str, str] = field(default_factory=dict)  # file of each table's rows
    alerts: dict[str, dict[str, Any]] = field(default_factory=dict)
    # pauses and retries of queries and streams, by log
    lives: dict[str, dict[str, Any]] = field(default_factory=dict)
    garbage: UnreferencedFiles = field(default_factory=UnreferencedFiles)
    # Logs that the next record creates; this process uses them before the record is written.
    announced: dict[str, Log] = field(default_factory=dict)

    def check(self, change: Change) -> None:
        """Raise if a change cannot be applied.

        So no such record is ever written.
        """
        there = (self.logs.keys() - change.dropped_logs) | change.created.keys()
        named = (change.logs, change.freed, change.based, change.lost, change.columns, change.widened)
        for name in {name for part in named for name in part}:
            if name not in there:
                raise HomeError(f"there is no log {name} in {self.folder}; it must be created first")
        for name in change.created:
            if name in self.logs and name not in change.dropped_logs:
                raise HomeError(f"log {name} is in {self.folder} already; it must be dropped first")
        for name in change.dropped_logs:
            if name not in self.logs:
                raise HomeError(f"there is no log {name} in {self.folder} to drop")
        bases = ((name, base) for name, (_, base) in change.based.items())
        for name, added in (*change.logs.items(), *bases):
            try:
                array("q", (added.arrival_us, added.min_ts or 0, added.max_ts or 0))
                for extent in added.extents:
                    array("q", extent[1:])
            except (TypeError, OverflowError) as problem:
                raise HomeError(f"log {name}: times and extents must be 64-bit integers: {problem}") from None
        for name, fields in (*change.units.items(), *change.streams.items(), *change.lives.items()):
            if not isinstance(fields, dict):
                raise HomeError(f"{name}: fields must be a dictionary, not {fields!r}")

    def apply(self, record: Mapping[str, Any]) -> None:
        """Apply a record, in the order that `slicemill.storage.changes` describes."""
        for name in record.get("dropped_logs", ()):
            self.garbage.folders.add(self.logs[name].folder)
            self.logs = _without(self.logs, name)
            self.lives = _without(self.lives, name)
        for name in record.get("dropped_units", ()):
            self.units = _without(self.units, name)
            self.garbage.folders.add(self.checkpoint_folder(name))
        for name in record.get("dropped_streams", ()):
            self.streams = _without(self.streams, name)
        for name, (schema, folder) in record.get("created", {}).items():
            self.logs = {**self.logs, name: self.new_log(name, schema, folder)}
        epoch = record["e"]
        for name, schema in record.get("columns", {}).items():
            # Rows of the same record have the old columns.
            first = epoch + 1 if name in record.get("logs", ()) else epoch
            self.logs[name].change_columns(first, decode_schema(schema))
        for name, schema in record.get("widened", {}).items():
            self.logs[name].widen(decode_schema(schema))
        for name, (min_ts, max_ts, arrival_us, extents) in record.get("logs", {}).items():
            self.logs[name].append(epoch, extents, min_ts, max_ts, arrival_us)
        for name, fields in record.get("units", {}).items():
            self._set_unit(name, fields, record["at"])
        for name, fields in record.get("streams", {}).items():
            self.streams = _with(self.streams, name, merged(self.streams.get(name, {}), fields))
        for name, first in record.get("freed", {}).items():
            self._let_go(self.logs[name], self.logs[name].free(first))
        for name, (upto, min_ts, max_ts, arrival_us, extents) in record.get("based", {}).items():
            self._let_go(self.logs[name], self.logs[name].fold(upto, extents, min_ts, max_ts, arrival_us))
        for name, lost in record.get("lost", {}).items():
            self.logs[name].lose({(segment, offset) for segment, offset in lost})
        self.statements.extend({**entry, "epoch": epoch} for entry in record.get("catalog", ()))
        if changed := record.get("tables"):
            self.garbage.tables.update(self.tables[name] for name in changed if name in self.tables)
            self.tables = merged(self.tables, changed)
        if told := record.get("alerts"):
            self.alerts = merged(self.alerts, told)
        for name, fields in record.get("lives", {}).items():
            self.lives = _with(self.lives, name, merged(self.lives.get(name, {}), fields))
            self.hold(name)
        self.epoch = epoch
        self.committed_us = record["at"]

    def hold(self, name: str) -> None:
        """Set or remove the read limit of a log, by its pause."""
        if name in self.logs:
            paused = self.lives.get(name, {}).get("paused")
            self.logs[name].hold = None
            if paused is not None:
                end = LogEnd(paused["epoch"], paused["max_ts"])
                self.logs[name].hold = Hold(end, paused.get("as_of", self.epoch))

    def new_log(self, name: str, schema: str, folder: str) -> Log:
        known = self.announced.get(name)
        self.announced = _without(self.announced, name)
        return (
            known
            if known is not None
            else Log(name, self.folder / LOGS / folder, decode_schema(schema), self.files)
        )

    def checkpoint_folder(self, unit: str) -> Path:
        return self.folder / CHECKPOINTS / folder_name(unit)

    def _let_go(self, log: Log, emptied: list[str]) -> None:
        if emptied:
            self.garbage.segments.setdefault(log.folder, set()).update(emptied)

    def _set_unit(self, name: str, fields: dict[str, Any], at_us: int) -> None:
        self.units = _with(self.units, name, merged(self.units.get(name, {}), fields))
        for field_name in fields:
            if field_name.startswith(CHECKPOINT_FIELD):
                self.garbage.checkpoints[self.checkpoint_folder(name)] = at_us
                break


def checkpoint_files(unit: Mapping[str, Any]) -> set[str]:
    """Return the names of a unit's checkpoint files.

    These are all strings in its checkpoint fields.
    """
    found: set[str] = set()
    for name, value in unit.items():
        if name.startswith(CHECKPOINT_FIELD):
            _gather(value, found)
    return found


def _gather(value: object, found: set[str]) -> None:
    if isinstance(value, str):
        found.add(value)
    elif isinstance(value, Mapping):
        for inner in value.values():
            _gather(inner, found)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            _gather(inner, found)


def _with(known: dict[str, T], name: str, value: T) -> dict[str, T]:
    if name not in known:
        return {**known, name: value}
    known[name] = value
    return known


def _without(known: dict[str, T], name: str) -> dict[str, T]:
    return {other: value for other, value in known.items() if other != name}


def merged(before: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Merge changed fields; None removes a field."""
    both = {**before, **fields}
    if None in fields.values():
        return {name: value for name, value in both.items() if value is not None}
    return both
