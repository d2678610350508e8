"""CSV files with headers, through Spark: each file uses its own header.

Spark's text source does not give the file of a line, and its CSV source uses one header for all files. So
tasks get whole files (`binaryFile`) and parse them like the readers of workers (`connectors/files/text.py`):
rows, bad rows and warnings are the same. A file must fit into a task's memory and be below 2 GB, the limit of
`binaryFile`; a compressed file must be UTF-8.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as s

from slicemill.connectors.files.text import TextFiles
from slicemill.connectors.spark.checks import PLACE, RAW, REASON, spark_type
from slicemill.esl.types.schema import Schema
from slicemill.ingest.formats.checked import WantedColumns
from slicemill.ingest.formats.csv import csv_format
from slicemill.ingest.formats.line_parser import CSV

# A streaming `binaryFile` source needs an explicit schema, although no other is possible.
WHOLE_FILE = "path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY"

_TEXT = pa.string()


@dataclass(frozen=True, slots=True)
class HeadedCsv:
    """Format of files with headers: the options of a declaration."""

    options: Mapping[str, str]

    def rows_of(self, files: DataFrame, schema: Schema, time: str | None) -> DataFrame:
        """Return good and bad rows of a frame of whole files."""
        fields = [s.StructField(column.name, spark_type(column.type)) for column in schema]
        texts = [s.StructField(name, s.StringType()) for name in (RAW, REASON)]
        places = [files.schema[name] for name in PLACE if name in files.columns]
        reader = _WholeFiles(schema, time, self.options)
        chosen = files.select("path", "content", *(place.name for place in places))
        return chosen.mapInArrow(reader, s.StructType([*fields, *texts, *places]))


@dataclass(frozen=True, slots=True)
class _WholeFiles:
    """Parser of whole files in a task."""

    schema: Schema
    time: str | None
    options: Mapping[str, str]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        wanted = WantedColumns.of_schema(self.schema, self.schema.names, self.time)
        given = {name.lower(): value for name, value in self.options.items()}
        text = TextFiles(wanted, CSV, csv_format(self.schema.names, given), header=True)
        for batch in batches:
            for number in range(batch.num_rows):
                path, content = (batch.column(place)[number].as_py() for place in range(2))
                name = Path(unquote(urlsplit(path).path))
                for rows, errors in text.whole(name, _in_utf8(content, given)):
                    yield from _placed(_with_reasons(rows, errors), batch, number).to_batches()


def _in_utf8(content: bytes, options: Mapping[str, str]) -> bytes:
    """Convert content to UTF-8 and \\n line ends, by the options."""
    encoding = options.get("encoding", options.get("charset", "UTF-8"))
    ending = options.get("linesep", "\n")
    if encoding.upper() in ("UTF-8", "UTF8") and ending == "\n":
        return content
    return content.decode(encoding, errors="replace").replace(ending, "\n").encode()


def _placed(rows: pa.Table, files: pa.RecordBatch, number: int) -> pa.Table:
    """Add the file's position columns to its rows."""
    for field, column in list(zip(files.schema, files.columns, strict=True))[2:]:
        rows = rows.append_column(field, pa.repeat(column[number], rows.num_rows))
    return rows


def _with_reasons(rows: pa.Table, errors: pa.Table | None) -> pa.Table:
    """Concatenate good rows without reason and bad rows without values."""
    for name in (RAW, REASON):
        rows = rows.append_column(name, pa.nulls(rows.num_rows, _TEXT))
    if errors is None:
        return rows
    empty = [pa.nulls(errors.num_rows, field.type) for field in rows.schema][:-2]
    bad = pa.table([*empty, errors.column("raw"), errors.column("reason")], schema=rows.schema)
    return pa.concat_tables([rows, bad])
