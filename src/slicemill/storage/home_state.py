"""In-memory state of a home directory, which results from the records of its journal."""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from zlib import crc32

import numpy as np
import pyarrow as pa

from slicemill.errors import SlicemillError
from slicemill.storage.changes import Change, decode_schema, dump_json, encode_schema, frame, unframe
from slicemill.storage.filesystem import LOCAL, FileSystem, folder_name
from slicemill.storage.log import EPOCH_COLUMNS, EXTENT_COLUMNS, Hold, Log, LogColumns, LogEnd

LOGS = "logs"
CHECKPOINTS = "checkpoints"
TABLES = "tables"
STEPS = "steps"  # folder with the steps that workers run, needed only while the engine is running

# Fields of a task with this prefix refer to files in its checkpoint folder.
CHECKPOINT_FIELD = "checkpoint"

T = TypeVar("T")


class HomeError(SlicemillError):
    """Error: a home directory cannot be opened, read or written to."""


@dataclass(slots=True)
class UnreferencedFiles:
    """Files to remove, which no record of the journal references any more."""

    segments: dict[Path, set[str]] = field(default_factory=dict)  # segment names by folder of the log
    checkpoints: dict[Path, int] = field(
        default_factory=dict
    )  # time of the last checkpoint, by folder of the task
    folders: set[Path] = field(default_factory=set)  # folders of dropped logs and tasks
    tables: set[str] = field(default_factory=set)  # files of replaced table versions


@dataclass(slots=True)
class HomeState:
    """Content of a home directory after the commit `epoch`.

    Other threads may read the state at any time. So the fields of a task or stream are replaced as a whole,
    and a dictionary is replaced when a name is added or removed.
    """

    folder: Path
    files: FileSystem = LOCAL
    epoch: int = -1
    committed_us: int = 0
    logs: dict[str, Log] = field(default_factory=dict)
    tasks: dict[str, dict[str, Any]] = field(default_factory=dict)
    streams: dict[str, dict[str, Any]] = field(default_factory=dict)
    statements: list[dict[str, Any]] = field(default_factory=list)
    tables: dict[str, str] = field(default_factory=dict)  # file of the current rows, by table
    alerts: dict[str, dict[str, Any]] = field(default_factory=dict)
    # Journal fields about pauses and retries of queries and streams, by the name of their log.
    lives: dict[str, dict[str, Any]] = field(default_factory=dict)
    garbage: UnreferencedFiles = field(default_factory=UnreferencedFiles)
    # Logs that the next journal record will create, and that this process uses before that record.
    announced: dict[str, Log] = field(default_factory=dict)

    def check(self, change: Change) -> None:
        """Raise if a change cannot be applied.

        `Home.commit` calls this method first, so every written record can be applied.
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
        for name, fields in (*change.tasks.items(), *change.streams.items(), *change.lives.items()):
            if not isinstance(fields, dict):
                raise HomeError(f"{name}: fields must be a dictionary, not {fields!r}")

    def apply(self, record: Mapping[str, Any]) -> None:
        """Apply a journal record, in the order that `slicemill.storage.changes` describes."""
        for name in record.get("dropped_logs", ()):
            self.garbage.folders.add(self.logs[name].folder)
            self.logs = _without(self.logs, name)
            self.lives = _without(self.lives, name)
        for name in record.get("dropped_units", ()):
            self.tasks = _without(self.tasks, name)
            self.garbage.folders.add(self.checkpoint_folder(name))
        for name in record.get("dropped_streams", ()):
            self.streams = _without(self.streams, name)
        for name, (schema, folder) in record.get("created", {}).items():
            self.logs = {**self.logs, name: self.new_log(name, schema, folder)}
        epoch = record["e"]
        for name, schema in record.get("columns", {}).items():
            # The rows that this record appends to the log still have the old columns.
            first = epoch + 1 if name in record.get("logs", ()) else epoch
            self.logs[name].change_columns(first, decode_schema(schema))
        for name, schema in record.get("widened", {}).items():
            self.logs[name].widen(decode_schema(schema))
        for name, (min_ts, max_ts, arrival_us, extents) in record.get("logs", {}).items():
            self.logs[name].append(epoch, extents, min_ts, max_ts, arrival_us)
        for name, fields in record.get("units", {}).items():
            self._set_task(name, fields, record["at"])
        for name, fields in record.get("streams", {}).items():
            self.streams = _with(self.streams, name, merge_fields(self.streams.get(name, {}), fields))
        for name, first in record.get("freed", {}).items():
            self._add_garbage(self.logs[name], self.logs[name].free(first))
        for name, (upto, min_ts, max_ts, arrival_us, extents) in record.get("based", {}).items():
            self._add_garbage(
                self.logs[name], self.logs[name].fold(upto, extents, min_ts, max_ts, arrival_us)
            )
        for name, lost in record.get("lost", {}).items():
            self.logs[name].lose({(segment, offset) for segment, offset in lost})
        self.statements.extend({**entry, "epoch": epoch} for entry in record.get("catalog", ()))
        if changed := record.get("tables"):
            self.garbage.tables.update(self.tables[name] for name in changed if name in self.tables)
            self.tables = merge_fields(self.tables, changed)
        if told := record.get("alerts"):
            self.alerts = merge_fields(self.alerts, told)
        for name, fields in record.get("lives", {}).items():
            self.lives = _with(self.lives, name, merge_fields(self.lives.get(name, {}), fields))
            self.hold(name)
        self.epoch = epoch
        self.committed_us = record["at"]

    def hold(self, name: str) -> None:
        """Limit reads of a log to the rows that it had when it was paused; remove the limit after RESUME."""
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

    def checkpoint_folder(self, task: str) -> Path:
        return self.folder / CHECKPOINTS / folder_name(task)

    def _add_garbage(self, log: Log, emptied: list[str]) -> None:
        if emptied:
            self.garbage.segments.setdefault(log.folder, set()).update(emptied)

    def _set_task(self, name: str, fields: dict[str, Any], at_us: int) -> None:
        self.tasks = _with(self.tasks, name, merge_fields(self.tasks.get(name, {}), fields))
        for field_name in fields:
            if field_name.startswith(CHECKPOINT_FIELD):
                self.garbage.checkpoints[self.checkpoint_folder(name)] = at_us
                break


def checkpoint_files(task: Mapping[str, Any]) -> set[str]:
    """Return the names of a task's checkpoint files: all strings in its checkpoint fields.

    A checkpoint field is a journal field whose name starts with "checkpoint".
    """
    found: set[str] = set()
    for name, value in task.items():
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


def merge_fields(before: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the existing journal fields, updated by changed fields. The value None removes a field."""
    both = {**before, **fields}
    if None in fields.values():
        return {name: value for name, value in both.items() if value is not None}
    return both


# Snapshots: one file with the state of a home directory before an epoch (commit).
#
#     <crc32> {"epoch": 16, "units": …, "logs": [[name, schema, folder, first, freed, head, …], …]}\n
#     Arrow stream: the epochs of all logs, one log after the other
#     Arrow stream: the extents (positions of rows in segments) of all logs
#
# The first line starts with a checksum, as a journal record does. The line has the lengths and checksums of
# the streams.


class SnapshotDamaged(ValueError):
    """Error: bytes are not a complete snapshot of the journal."""


def encode_snapshot(state: HomeState) -> list[bytes | pa.Buffer]:
    """Return the parts of a snapshot file. Later changes of the state do not affect these parts."""
    dumped = [log.dump() for log in state.logs.values()]
    tables = [
        _stream(EPOCH_COLUMNS, [columns.epochs for columns in dumped]),
        _stream(EXTENT_COLUMNS, [columns.extents for columns in dumped]),
    ]
    head = {
        "epoch": state.epoch,
        "at": state.committed_us,
        "units": state.tasks,
        "streams": state.streams,
        "statements": state.statements,
        "tables": state.tables,
        "alerts": state.alerts,
        "lives": state.lives,
        "logs": [
            [
                log.name,
                encode_schema(log.first_columns),
                log.folder.name,
                log.first,
                log.freed,
                *log.end,
                len(columns.epochs[0]),
                len(columns.extents[0]),
                columns.segments,
            ]
            for log, columns in zip(state.logs.values(), dumped, strict=True)
        ],
        "columns": {
            log.name: [[first, encode_schema(columns)] for first, columns in log.changes_of_columns]
            for log in state.logs.values()
            if log.changes_of_columns
        },
        "lengths": [len(table) for table in tables],
        "crcs": [crc32(table) for table in tables],
    }
    return [frame(dump_json(head)), *tables]


def decode_snapshot(data: bytes, folder: Path, files: FileSystem) -> HomeState:
    """Decode the state in a snapshot, or raise SnapshotDamaged."""
    end = data.find(b"\n") + 1
    content = unframe(data[:end])
    if content is None:
        raise SnapshotDamaged("its first line is damaged")
    head: dict[str, Any] = json.loads(content)
    state = HomeState(folder, files, head["epoch"], head["at"])
    state.tasks, state.streams, state.statements = head["units"], head["streams"], head["statements"]
    state.tables, state.lives = head.get("tables", {}), head.get("lives", {})
    state.alerts = head.get("alerts", {})
    body = memoryview(data)[end:]
    first_length, second_length = head["lengths"]
    parts = [body[:first_length], body[first_length : first_length + second_length]]
    if [crc32(part) for part in parts] != head["crcs"]:
        raise SnapshotDamaged("its log indexes are damaged")
    epochs, extents = (_columns(part) for part in parts)
    epoch_at = extent_at = 0
    for name, schema, log_folder, *ends, epoch_count, extent_count, segments in head["logs"]:
        log = state.logs[name] = state.new_log(name, schema, log_folder)
        log.first, log.freed, *end = ends
        log.end = LogEnd(*end)
        log.load(
            LogColumns(_cut(epochs, epoch_at, epoch_count), _cut(extents, extent_at, extent_count), segments)
        )
        for first, columns in head.get("columns", {}).get(name, ()):
            log.change_columns(first, decode_schema(columns))
        state.hold(name)
        epoch_at, extent_at = epoch_at + epoch_count, extent_at + extent_count
    return state


def _stream(names: tuple[str, ...], logs: list[list[array[int]]]) -> pa.Buffer:
    """Return the columns `names` of all log indexes, concatenated, as one Arrow stream."""
    arrays = [
        pa.array(np.concatenate([np.frombuffer(log[i], np.int64) for log in logs] or [np.empty(0, np.int64)]))
        for i in range(len(names))
    ]
    sink = pa.BufferOutputStream()
    batch = pa.record_batch(arrays, names=list(names))
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _columns(part: memoryview) -> list[np.ndarray[Any, np.dtype[np.int64]]]:
    table = pa.ipc.open_stream(pa.py_buffer(part)).read_all()
    return [column.to_numpy() for column in table.columns]


def _cut(columns: list[np.ndarray[Any, np.dtype[np.int64]]], start: int, count: int) -> list[array[int]]:
    return [array("q", column[start : start + count].tobytes()) for column in columns]


# Journal fields that determine which checkpoint of a task is restored.


CHECKPOINT, BEFORE = "checkpoint", "checkpoint_before"
# Journal fields with changes of a task's state since its checkpoint (`runtime.tasks`).
SINCE_CHECKPOINT = ("newcomers", "successors", "parts_taken")


def fallback_fields(before: Mapping[str, Any]) -> dict[str, Any]:
    """Return the journal fields with which a task restores its previous checkpoint."""
    checkpoint = {name: value for name, value in before.items() if name not in SINCE_CHECKPOINT}
    since = {name: before.get(name) or None for name in SINCE_CHECKPOINT}
    return {CHECKPOINT: checkpoint, **since, BEFORE: None}
