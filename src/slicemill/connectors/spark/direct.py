"""Parquet files that are just as declared: Spark says which files are new, tasks read them as Arrow.

A row of Spark's costs more than all that is done with it here, and such files have no need to become rows: a
file's columns have the declared names and types, and no row of it is bad. Every file is looked at for itself.
One that differs in any way (a type, a name, a calendar of old, a missing timestamp, a damage) is left to
Catalyst, which knows about all of them, and so is one that is too large for one task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from slicemill.connectors.spark.checks import fits_always
from slicemill.connectors.spark.frame import checked_frame
from slicemill.connectors.spark.open import GLOB, file_options, loaded, schema_found
from slicemill.esl.catalog import Stream
from slicemill.sources.origin import origin_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import types as s

# Options that say which files there are, and not how they are read.
_LISTING = {"path", "pathglobfilter", "maxfilespertrigger", "maxbytespertrigger", "latestfirst", "maxfileage"}
_FILE = "path string, modificationTime timestamp, length bigint, content binary"
# Spark splits larger ones between tasks.
_MAX_BYTES = 128 * 1024 * 1024
# Files in which days before 1582 may be those of another calendar.
_OLD_CALENDAR = b"org.apache.spark.legacyDateTime"
_WRITTEN_BY = b"org.apache.spark.version"


@dataclass(frozen=True, slots=True)
class DirectFiles:
    """Parquet files that a stream reads, as long as they are as its declaration says."""

    spark: SparkSession
    stream: Stream
    options: dict[str, str]
    found: s.StructType

    def paths(self) -> DataFrame:
        """New files as they come: the same source as that of their rows, with the same checkpoint."""
        return loaded(self.spark.readStream.schema(_FILE), "binaryFile", self.options).select("path")

    def by_catalyst(self, paths: Sequence[str]) -> DataFrame:
        """The rows of some of the files, checked."""
        # What a streaming source of these files does with the folder it was given.
        reader = self.spark.read.schema(self.found).option("basePath", self.options["path"])
        names = [GLOB.sub(lambda found: "\\" + found[0], path) for path in paths]
        return checked_frame(reader.parquet(*names), self.stream)


def direct_files(spark: SparkSession, stream: Stream, folder: Path) -> DirectFiles | None:
    """A stream's files, if they are Parquet on a local path and of the declared types; else None."""
    origin = origin_of(stream.source, stream.name, folder)
    if origin.format != "parquet" or not {name.lower() for name in origin.options} <= _LISTING:
        return None
    options = file_options(origin, folder)
    if urlsplit(options["path"]).scheme or GLOB.search(options["path"]):
        return None
    found = schema_found(spark, origin.format, options, stream.schema)
    types = {field.name: field.dataType for field in found}
    if not all(
        column.name in types and fits_always(types[column.name], column.type) for column in stream.schema
    ):
        return None
    return DirectFiles(spark, stream, options, found)


def read_as_declared(
    path: str, declared: pa.Schema, columns: Sequence[str], time_column: str | None
) -> pa.Table | None:
    """Some columns of a file; None if it is not as declared, or has a row without a timestamp."""
    local = Path(path.removeprefix("file:"))
    # A column may come from a folder's name, as in day=7/x.parquet.
    if not local.is_absolute() or "=" in path:
        return None
    try:
        if local.stat().st_size > _MAX_BYTES:
            return None
        with pq.ParquetFile(local, memory_map=True) as file:
            if not _is_as_declared(file, declared):
                return None
            table = file.read(list(columns), use_threads=False).select(list(columns))
    except (OSError, pa.ArrowException):
        return None  # Catalyst says what is wrong with it
    untimed = time_column is not None and table.column(time_column).null_count > 0
    return None if untimed else table


def _is_as_declared(file: pq.ParquetFile, declared: pa.Schema) -> bool:
    metadata = file.metadata.metadata or {}
    if _OLD_CALENDAR in metadata or metadata.get(_WRITTEN_BY, b"3") < b"3":
        return False
    found = file.schema_arrow
    names = [name.lower() for name in found.names]
    return all(
        names.count(field.name.lower()) == 1
        and field.name in found.names
        and found.field(field.name).type == field.type
        for field in declared
    )
