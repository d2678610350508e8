"""Exactly-once file sink, which writes one file for each delivered range of epochs.

    <folder>/_slicemill.json                        owner of the results
    <folder>/000000000005-000000000007.parquet      rows of epochs 5 to 7
    <folder>/_unfinished                            file that is being written

An epoch is what one commit appended to a log. A complete file is renamed atomically. The file names are the
cursor: after a crash, the sink continues after the last epoch in a name, and not at the cursor in the home
directory. So no row is written twice. In the order of their names, files are in the order of delivery. Spark,
Arrow and other readers of folders ignore names that begin with an underscore.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from slicemill.columns.arrow_schema import TS, from_arrow
from slicemill.columns.rows import column_values
from slicemill.connectors.sinks.json_values import plain
from slicemill.connectors.sinks.sink import SinkError
from slicemill.storage.filesystem import SHARED, FileSystem, ensure_folder
from slicemill.types import TIMESTAMP, Schema, Type

_OWNER = "_slicemill.json"
_UNFINISHED = "_unfinished"
_NAME = re.compile(r"\d{12,}-(\d{12,})\.\w+")

Encode = Callable[[pa.Table], bytes | pa.Buffer]


@dataclass(slots=True)
class FolderSink:
    """Sink that writes result files to a folder.

    `encode` converts a table to the content of a file.
    """

    folder: Path
    suffix: str
    encode: Encode
    files: FileSystem = SHARED
    durable: bool = False
    per_epoch: bool = False

    def resume(self, owner: str, stored: int) -> int:
        self._claim(owner)
        names = (_NAME.fullmatch(name) for name in self.files.names(self.folder))
        return max(stored, *(int(name[1]) for name in names if name), -1)

    def deliver(self, first: int, last: int, table: pa.Table) -> None:
        self._write(f"{first:012d}-{last:012d}.{self.suffix}", self.encode(table))

    def close(self) -> None:
        """Do nothing, because no file is open between deliveries."""

    def _claim(self, owner: str) -> None:
        try:
            ensure_folder(self.files, self.folder, self.durable)
        except FileExistsError:
            raise SinkError(f"{self.folder} is a file; a sink needs a folder, give it another name") from None
        try:
            found = json.loads(self.files.read(self.folder / _OWNER))["owner"]
        except FileNotFoundError:
            self._write(_OWNER, json.dumps({"owner": owner}).encode())
            return
        if found != owner:
            raise SinkError(
                f"{self.folder} has the results of another query or home; name another folder, or remove it"
            )

    def _write(self, name: str, data: bytes | pa.Buffer) -> None:
        # There is only one writer, so all unfinished files have one name, and leftovers of a crash
        # are overwritten.
        unfinished = self.folder / _UNFINISHED
        self.files.write(unfinished, data)
        if self.durable:
            self.files.sync(unfinished)
        self.files.replace(unfinished, self.folder / name)
        if self.durable:
            self.files.sync(self.folder)


ARROW_SUFFIX = "arrow"


def encode_arrow(table: pa.Table) -> pa.Buffer:
    """Encode a table as an Arrow IPC file, for `arrow:folder`."""
    out = pa.BufferOutputStream()
    with pa.ipc.new_file(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue()


PARQUET_SUFFIX = "parquet"


def encode_parquet(table: pa.Table) -> pa.Buffer:
    """Encode a table as a Parquet file, for `parquet:folder`."""
    out = pa.BufferOutputStream()
    pq.write_table(table, out)
    return out.getvalue()


# `json:folder`: one file of JSON lines for each delivered range of epochs
#
# The sink writes a folder, and not one growing file. Files appear complete, so they need no commit marker,
# and readers never read a part of a line. `cat folder/*.jsonl` concatenates the files.


JSON_LINES_SUFFIX = "jsonl"

_NO_HEAD: Mapping[str, str] = {}


def encode_json_lines(table: pa.Table) -> bytes:
    """Encode rows as lines of JSON objects."""
    types = {TS: TIMESTAMP} | {column.name: column.type for column in from_arrow(table.schema)}
    columns = [column_values(table.column(name), type_) for name, type_ in types.items()]
    return "".join(json_line(row, types) for row in zip(*columns, strict=True)).encode()


def json_line(row: Iterable[object], types: Mapping[str, Type], head: Mapping[str, str] = _NO_HEAD) -> str:
    """Encode a row as one line of JSON, after the fields of `head`.

    `types` has the columns of the row, in order.
    """
    values = {name: plain(value, type_) for (name, type_), value in zip(types.items(), row, strict=True)}
    return json.dumps({**head, **values}, ensure_ascii=False, allow_nan=False) + "\n"


def result_line(query: str, schema: Schema, timed: tuple[int | None, Sequence[object]]) -> str:
    """Encode a result row for `slicemill run --json`: query, `_ts` and columns."""
    ts, row = timed
    types = {TS: TIMESTAMP} | {column.name: column.type for column in schema}
    return json_line((ts, *row), types, {"query": query})
