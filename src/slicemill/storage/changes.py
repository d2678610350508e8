"""Encoding of journal records as JSON; each record is one commit to a home directory.

An *epoch* is the rows that one commit appended to a log. An *extent* is a range of bytes with rows in a file.

    {"e": 17, "at": 1700000000000000,                          epoch and time of the commit
     "logs": {"bid": [min_ts, max_ts, arrival_us, [["w3.2-0.arrows", 328, 2304, 50, 473190221]]]},
     "units": {"u4": {"cursors": {"bid": 17}}},                fields to set; null removes a field
     "streams": {"bid": {"watermark": 5000}},
     "created": {"hot": ["<Arrow schema, base64>", "hot"]},    new logs, with the names of their folders
     "columns": {"hot": "<Arrow schema, base64>"},             new columns of rows after this record
     "widened": {"bid": "<Arrow schema, base64>"},             new columns of all rows, with defaults
     "dropped_logs": [], "dropped_units": [], "dropped_streams": [],
     "freed": {"bid": 9},                                      the first epoch to retain
     "based": {"top": [9, min_ts, max_ts, arrival_us, […]]},   a table in place of changes up to epoch 9
     "lost": {"bid": [["w3.2-0.arrows", 328]]},                unreadable extents that are dropped
     "catalog": [{"at": 1, "by": "ann", "text": "CREATE …"}],
     "tables": {"item": "item-5f0a….arrow"},                   files of the rows of tables; null: dropped
     "alerts": {"slow": {"id": "5f0a…", …}},                   progress of each alert; null: dropped
     "lives": {"hot": {"paused": {"epoch": 16, …}}}}           pauses and retries of queries and streams

Empty fields are omitted. A record is applied in this order: drop logs and tasks, create logs, append
rows, delete consumed epochs or replace old changes by a table, drop damaged extents. So a record may replace
a log by a new log of the same name.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from zlib import crc32

import pyarrow as pa

from slicemill.storage.segments import Extent

_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


@dataclass(slots=True)
class Appended:
    """Positions, timestamps and arrival time of the rows that one commit appends to a log."""

    extents: list[Extent]
    min_ts: int | None
    max_ts: int | None
    arrival_us: int

    @property
    def rows(self) -> int:
        return sum(extent.rows for extent in self.extents)

    @property
    def bytes(self) -> int:
        return sum(extent.length for extent in self.extents)


def merge_appended(parts: Iterable[Appended]) -> Appended:
    """Combine the rows that several subtasks append to one log in one commit."""
    found = list(parts)
    if len(found) == 1:
        return found[0]
    firsts = [part.min_ts for part in found if part.min_ts is not None]
    lasts = [part.max_ts for part in found if part.max_ts is not None]
    return Appended(
        [extent for part in found for extent in part.extents],
        min(firsts, default=None),
        max(lasts, default=None),
        min(part.arrival_us for part in found),
    )


@dataclass(slots=True, kw_only=True)
class Change:
    """Changes of a home directory that one commit applies.

    Fields of tasks, streams and lives (pauses and retries) are merged into the existing fields. The value
    None removes a field. Values must be plain JSON. Fields of a task whose names start with "checkpoint"
    refer to files in its checkpoint folder.
    """

    logs: dict[str, Appended] = field(default_factory=dict)
    tasks: dict[str, dict[str, Any]] = field(default_factory=dict)
    streams: dict[str, dict[str, Any]] = field(default_factory=dict)
    created: dict[str, pa.Schema] = field(default_factory=dict)
    columns: dict[str, pa.Schema] = field(default_factory=dict)
    widened: dict[str, pa.Schema] = field(default_factory=dict)
    dropped_logs: list[str] = field(default_factory=list)
    dropped_tasks: list[str] = field(default_factory=list)
    dropped_streams: list[str] = field(default_factory=list)
    freed: dict[str, int] = field(default_factory=dict)
    based: dict[str, tuple[int, Appended]] = field(default_factory=dict)
    lost: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    catalog: list[dict[str, Any]] = field(default_factory=list)
    tables: dict[str, str | None] = field(default_factory=dict)
    alerts: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    lives: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in self.__slots__)


def encode_record(epoch: int, at_us: int, change: Change, folders: Mapping[str, str]) -> bytes:
    """Encode a journal record as JSON.

    `folders` maps each new log to the name of its folder.
    """
    record: dict[str, Any] = {"e": epoch, "at": at_us}
    if change.logs:
        record["logs"] = {
            name: (added.min_ts, added.max_ts, added.arrival_us, added.extents)
            for name, added in change.logs.items()
        }
    if change.based:
        record["based"] = {
            name: (upto, base.min_ts, base.max_ts, base.arrival_us, base.extents)
            for name, (upto, base) in change.based.items()
        }
    if change.created:
        record["created"] = {
            name: (encode_schema(schema), folders[name]) for name, schema in change.created.items()
        }
    for key, schemas in (("columns", change.columns), ("widened", change.widened)):
        if schemas:
            record[key] = {name: encode_schema(schema) for name, schema in schemas.items()}
    for name in _PLAIN:
        value = getattr(change, name)
        if value:
            record[_KEYS.get(name, name)] = value
    return _encode(record).encode()


# Fields of a change that a journal record stores without conversion.
_PLAIN = (
    "tasks",
    "streams",
    "dropped_logs",
    "dropped_tasks",
    "dropped_streams",
    "freed",
    "lost",
    "catalog",
    "tables",
    "alerts",
    "lives",
)

# JSON keys that differ from the names of their fields, because earlier versions wrote these keys.
_KEYS = {"tasks": "units", "dropped_tasks": "dropped_units"}


def encode_schema(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize()).decode()


def decode_schema(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def dump_json(value: object) -> bytes:
    """Return a value as compact JSON."""
    return _encode(value).encode()


# Framing of journal records as lines with a checksum.
#
#     1c291ca3 {"e":17,…}\n          crc32 of the JSON in hexadecimal, a blank, the JSON, a newline
#
# JSON contains no raw newline, so a reader finds the start of the next line after damaged bytes. A crash
# during an append leaves an incomplete last line, or a last line with a wrong checksum. An incomplete line
# before complete lines is damage.


class FramedLines(NamedTuple):
    """Complete lines at the start of a journal file, without their checksums."""

    contents: list[bytes]
    end: int  # offset of the first byte after the last complete line
    damaged: bool  # True if complete lines follow an incomplete line


def frame(content: bytes) -> bytes:
    return b"%08x %b\n" % (crc32(content), content)


def unframe(line: bytes) -> bytes | None:
    """Return the JSON of a journal line, or None if its checksum is wrong."""
    if len(line) < 10 or line[8:9] != b" " or line[-1:] != b"\n":
        return None
    content = line[9:-1]
    return content if line[:8] == b"%08x" % crc32(content) else None


def split_lines(data: bytes) -> FramedLines:
    """Split the bytes of a journal file into lines, up to the first incomplete line."""
    contents: list[bytes] = []
    start = 0
    while end := data.find(b"\n", start) + 1:
        content = unframe(data[start:end])
        if content is None:
            later = data[end:].split(b"\n")[:-1]
            return FramedLines(contents, start, any(unframe(line + b"\n") is not None for line in later))
        contents.append(content)
        start = end
    return FramedLines(contents, start, False)
