"""Snapshots: the state of a home before an epoch, in one file.

    <crc32> {"epoch": 16, "units": …, "logs": [[name, schema, folder, first, freed, head, …], …]}\\n
    Arrow stream: the epochs of all logs, one log after the other
    Arrow stream: their extents

The first line is framed like a journal record. It has the lengths and checksums of the streams.
"""

from __future__ import annotations

import json
from array import array
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa

from slicemill.storage.changes import decode_schema, dump_json, encode_schema
from slicemill.storage.files import FileSystem
from slicemill.storage.home_state import HomeState
from slicemill.storage.lines import frame, unframe
from slicemill.storage.log import EPOCH_COLUMNS, EXTENT_COLUMNS, LogColumns, LogEnd


class SnapshotDamaged(ValueError):
    """Bytes that are not a whole snapshot."""


def encode_snapshot(state: HomeState) -> list[bytes | pa.Buffer]:
    """Return the parts of a snapshot file, independent of the state."""
    dumped = [log.dump() for log in state.logs.values()]
    tables = [
        _stream(EPOCH_COLUMNS, [columns.epochs for columns in dumped]),
        _stream(EXTENT_COLUMNS, [columns.extents for columns in dumped]),
    ]
    head = {
        "epoch": state.epoch,
        "at": state.committed_us,
        "units": state.units,
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
    """Return the state in a snapshot, or raise SnapshotDamaged."""
    end = data.find(b"\n") + 1
    content = unframe(data[:end])
    if content is None:
        raise SnapshotDamaged("its first line is damaged")
    head: dict[str, Any] = json.loads(content)
    state = HomeState(folder, files, head["epoch"], head["at"])
    state.units, state.streams, state.statements = head["units"], head["streams"], head["statements"]
    state.tables, state.lives = head.get("tables", {}), head.get("lives", {})
    state.alerts = head.get("alerts", {})
    body = memoryview(data)[end:]
    first_length, second_length = head["lengths"]
    parts = [body[:first_length], body[first_length : first_length + second_length]]
    if [crc32(part) for part in parts] != head["crcs"]:
        raise SnapshotDamaged("its log indexes are damaged")
    epochs, extents = (_columns(part) for part in parts)
    epoch_at = extent_at = 0
    for name, schema, folder_name, *ends, epoch_count, extent_count, segments in head["logs"]:
        log = state.logs[name] = state.new_log(name, schema, folder_name)
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
    """Return the columns of all logs as one Arrow stream."""
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
