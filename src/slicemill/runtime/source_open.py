"""Opening what a declaration names: files, sockets, generators, Kafka and every other format Spark knows.

A source is a URL (`tcp://host:port`, `port4445`, `rate://?rowsPerSecond=5`, `nexmark://bid?rate=1000`,
`rfid://reading?tags=5`, `kafka://host:9092/topic`, a path) or `USING format OPTIONS (…)`. Some have typed
columns; others have lines of JSON or CSV in a column `value`.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlsplit

import pyspark
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as s
from pyspark.sql.readwriter import DataFrameReader
from pyspark.sql.streaming.readwriter import DataStreamReader

from slicemill.errors import SlicemillError
from slicemill.esl.catalog import SourceSpec, Stream, Table
from slicemill.esl.types import Schema
from slicemill.runtime import tcp_source
from slicemill.runtime.nexmark_source import NexmarkSource, nexmark_options
from slicemill.runtime.rfid_source import RfidSource, rfid_options
from slicemill.runtime.source_checks import spark_type
from slicemill.runtime.source_lines import CSV, EITHER, JSON, LineFormat, line_format

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PORT = re.compile(r"port(\d+)")
_LINE_FORMATS = {"csv": CSV, "json": JSON, "jsonl": JSON, "ndjson": JSON}
_TYPED_FILES = ("parquet", "orc", "avro")
GLOB = re.compile(r"[*?\[\]{}\\]")

Opened = tuple[DataFrame, LineFormat | None]


@dataclass(frozen=True, slots=True)
class Origin:
    """A source, however it was spelled: a format and its options, in lower case where Spark does not care."""

    format: str
    options: Mapping[str, str]

    def option(self, name: str) -> str | None:
        return {key.lower(): value for key, value in self.options.items()}.get(name.lower())

    def without(self, *names: str) -> dict[str, str]:
        return {key: value for key, value in self.options.items() if key.lower() not in names}


def origin_of(spec: SourceSpec, name: str, folder: Path = Path()) -> Origin:
    """What a declaration's source clause means."""
    if spec.format is not None:
        return Origin(spec.format.lower(), dict(spec.options))
    if spec.url is None:
        raise SlicemillError(f"{name} has no SOURCE, so there is nothing to read; rows are fed by a program")
    port = _PORT.fullmatch(spec.url)
    url = urlsplit(f"tcp://localhost:{port[1]}" if port else spec.url)
    options = dict(parse_qsl(url.query))
    if url.scheme == "tcp":
        return Origin("tcp", {"host": url.hostname or "", "port": url.netloc.rpartition(":")[2], **options})
    if url.scheme in ("nexmark", "rfid"):
        return Origin(url.scheme, {"stream": url.netloc or url.path.strip("/"), **options})
    if url.scheme == "kafka":
        return Origin(
            "kafka", {"kafka.bootstrap.servers": url.netloc, "subscribe": url.path.strip("/"), **options}
        )
    if url.scheme == "rate":
        return Origin("rate", options)
    path = unquote(url.path) if url.scheme == "file" else spec.url.partition("?")[0]
    return Origin(options.pop("format", "") or _format_of(folder / path), {"path": path, **options})


def _format_of(path: Path) -> str:
    """By a file's name, or that of a file in the folder."""
    inside = sorted(path.glob("[!._]*")) if path.is_dir() else []
    for entry in (path, *inside):
        for suffix in entry.suffixes:
            if suffix[1:].lower() in (*_LINE_FORMATS, *_TYPED_FILES):
                return suffix[1:].lower()
    raise SlicemillError(f"cannot tell the format of {path}; say USING csv OPTIONS (path '…'), or another")


def opened_for_streaming(spark: SparkSession, stream: Stream, home: Path, folder: Path) -> Opened:
    origin = origin_of(stream.source, stream.name, folder)
    if origin.format == "tcp":
        return _tcp(spark, origin, stream.schema, home / "spool" / stream.name.lower())
    return _opened(spark, spark.readStream, origin, stream.schema, folder)


def opened_for_batch(spark: SparkSession, relation: Stream | Table, folder: Path) -> Opened:
    origin = origin_of(relation.source, relation.name, folder)
    if origin.format in ("tcp", "rate"):
        raise SlicemillError(f"{relation.source} has no end: it can be read as a stream only")
    return _opened(spark, spark.read, origin, relation.schema, folder)


def _opened(
    spark: SparkSession,
    reader: DataFrameReader | DataStreamReader,
    origin: Origin,
    schema: Schema,
    folder: Path,
) -> Opened:
    form = origin.format
    if form in _LINE_FORMATS:
        return _lines_of_files(spark, reader, origin, schema, folder)
    if form in _TYPED_FILES:
        return _typed_files(spark, reader, origin, schema, folder), None
    if form == "nexmark":
        nexmark_options(origin.options)
        spark.dataSource.register(NexmarkSource)
    if form == "rfid":
        rfid_options(origin.options)
        spark.dataSource.register(RfidSource)
    frame = loaded(reader, form, origin.without("lines"))
    lines = origin.option("lines") or (EITHER if form == "kafka" else None)
    if lines is None:
        return frame, None
    value = F.col("value").cast(s.StringType()).alias("value")
    return frame.select(value), line_format(lines, schema, origin.options)


def _tcp(spark: SparkSession, origin: Origin, schema: Schema, spool: Path) -> Opened:
    options = {**origin.without("lines"), "spool": str(spool)}
    tcp_source.tcp_options(options)
    spark.dataSource.register(tcp_source.TcpSource)
    frame = loaded(spark.readStream, tcp_source.FORMAT, options)
    lines = line_format(origin.option("lines") or EITHER, schema, origin.options)
    return frame.select(F.col("value").cast(s.StringType()).alias("value")), lines


# -- files ------------------------------------------------------------------------------------------------


def _lines_of_files(
    spark: SparkSession,
    reader: DataFrameReader | DataStreamReader,
    origin: Origin,
    schema: Schema,
    folder: Path,
) -> Opened:
    if (origin.option("multiLine") or "false").lower() == "true":
        raise SlicemillError("a row is one line; multiLine files cannot be read")
    options = file_options(origin, folder)
    files = {key: value for key, value in options.items() if key.lower() != "header"}
    lines = line_format(_LINE_FORMATS[origin.format], schema, origin.options)
    frame = loaded(reader, "text", files)
    if lines.form == CSV and (origin.option("header") or "false").lower() == "true":
        header = _header(spark, files)
        if header is not None:
            # Every file starts with the same line. It is no row, wherever it stands.
            frame = frame.where(F.col("value") != header)
            lines = LineFormat(CSV, _names_in(header, lines), lines.csv_options)
    return frame, lines


def _header(spark: SparkSession, files: Mapping[str, str]) -> str | None:
    first = loaded(spark.read, "text", files).where(F.trim("value") != "").head()
    return None if first is None else str(first["value"])


def _names_in(header: str, lines: LineFormat) -> list[str]:
    separator = next((v for k, v in lines.csv_options.items() if k.lower() in ("sep", "delimiter")), ",")
    quote = next((v for k, v in lines.csv_options.items() if k.lower() == "quote"), '"')
    names = next(csv.reader([header], delimiter=separator, quotechar=quote))
    return [name.removeprefix("\ufeff").strip() for name in names]


def _typed_files(
    spark: SparkSession,
    reader: DataFrameReader | DataStreamReader,
    origin: Origin,
    schema: Schema,
    folder: Path,
) -> DataFrame:
    options = file_options(origin, folder)
    found = schema_found(spark, origin.format, options, schema)
    return loaded(reader.schema(found), origin.format, options)


def schema_found(
    spark: SparkSession, form: str, options: Mapping[str, str], declared: Schema
) -> s.StructType:
    """The columns of files that have types."""
    try:
        return loaded(spark.read, form, options).schema
    except AnalysisException as problem:
        if problem.getCondition() != "UNABLE_TO_INFER_SCHEMA":
            raise
        # No file yet: they will be as declared.
        return s.StructType([s.StructField(column.name, spark_type(column.type)) for column in declared])


def file_options(origin: Origin, folder: Path) -> dict[str, str]:
    given = origin.option("path")
    if given is None:
        raise SlicemillError(f"USING {origin.format} needs OPTIONS (path '…')")
    if urlsplit(given).scheme not in ("", "file"):
        return dict(origin.options)
    path = folder / (urlsplit(given).path if given.startswith("file:") else given)
    options = {**origin.without("path"), "path": str(path.absolute())}
    if not path.is_file():
        return options
    # A stream reads folders: one file is a folder in which nothing else is of interest.
    name = GLOB.sub(lambda found: "\\" + found[0], path.name)
    return {**options, "path": str(path.absolute().parent), "pathGlobFilter": name}


# -- loading ----------------------------------------------------------------------------------------------


def loaded(reader: DataFrameReader | DataStreamReader, form: str, options: Mapping[str, str]) -> DataFrame:
    try:
        return reader.format(form).options(**options).load()
    except (AnalysisException, Py4JJavaError) as problem:
        raise _explained(problem, form, options) from None


def _explained(problem: Exception, form: str, options: Mapping[str, str]) -> Exception:
    text = str(problem)
    if "KAFKA_DATA_SOURCE_NOT_ENABLED" in text:
        return SlicemillError(
            "Spark's Kafka connector is not on the classpath; start the session with the package "
            f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__} (setting spark.jars.packages, "
            "or --packages of spark-submit)"
        )
    if "DATA_SOURCE_NOT_FOUND" in text:
        return SlicemillError(
            f"Spark knows no format {form}; correct the name, or add its package (spark.jars.packages)"
        )
    if "PATH_NOT_FOUND" in text:
        return SlicemillError(f"there is no file or folder {options.get('path')}")
    return problem
