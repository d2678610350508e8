"""Opening sources through Spark: files, sockets, generators, Kafka and others.

Some formats have typed columns. All other formats have lines of JSON or CSV in a column `value`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as s
from pyspark.sql.readwriter import DataFrameReader
from pyspark.sql.streaming.readwriter import DataStreamReader

from slicemill.connectors.generators.generator import GENERATORS, generator_of
from slicemill.connectors.generators.spark_source import SOURCES
from slicemill.connectors.origin import LINES_IN_FILES, TYPED_FILES, SourceOrigin, origin_of
from slicemill.connectors.spark.checks import spark_type
from slicemill.connectors.spark.headed import WHOLE_FILE, HeadedCsv
from slicemill.connectors.spark.lines import CSV, EITHER, JSON, LineFormat, line_format
from slicemill.errors import SlicemillError
from slicemill.esl.types.catalog import Stream, Table
from slicemill.esl.types.schema import Schema
from slicemill.secrets import redacted, resolved

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Formats whose Spark readers can widen numbers.
_WIDENING = ("parquet", "orc")

_NO_FILES = "UNABLE_TO_INFER_SCHEMA"
_CLASS = re.compile(r"^:? ?(?:[a-z][\w$]*\.)+[A-Z][\w$]*: ")
_LONGEST_REASON = 500

GLOB = re.compile(r"[*?\[\]{}\\]")

Opened = tuple[DataFrame, LineFormat | HeadedCsv | None]


def opened_for_streaming(spark: SparkSession, stream: Stream, folder: Path) -> Opened:
    origin = origin_of(stream.source, stream.name, folder)
    if origin.format == "tcp":
        raise SlicemillError(f"{stream.source} is read by slicemill itself, not through Spark")
    return _opened(spark, spark.readStream, origin, stream.schema)


def opened_for_batch(spark: SparkSession, relation: Stream | Table, folder: Path) -> Opened:
    origin = origin_of(relation.source, relation.name, folder)
    if origin.format in ("tcp", "rate"):
        raise SlicemillError(f"{relation.source} has no end: it can be read as a stream only")
    return _opened(spark, spark.read, origin, relation.schema)


def _opened(
    spark: SparkSession,
    reader: DataFrameReader | DataStreamReader,
    origin: SourceOrigin,
    schema: Schema,
) -> Opened:
    form = origin.format
    if form in LINES_IN_FILES:
        return _lines_of_files(reader, origin, schema)
    if form in TYPED_FILES:
        return _typed_files(spark, reader, origin, schema), None
    if form in GENERATORS:
        generator_of(form, origin.options)
        spark.dataSource.register(SOURCES[form])
    options = origin.without("lines")
    if origin.file is not None:
        options = {**origin.without("lines", "path"), "path": str(origin.file.absolute())}
    frame = loaded(reader, form, options)
    lines = origin.option("lines") or (EITHER if form == "kafka" else None)
    if lines is None:
        return frame, None
    value = F.col("value").cast(s.StringType()).alias("value")
    return frame.select(value), line_format(lines, schema, origin.options)


# -- files ------------------------------------------------------------------------------------------------


def _lines_of_files(
    reader: DataFrameReader | DataStreamReader,
    origin: SourceOrigin,
    schema: Schema,
) -> Opened:
    if (origin.option("multiLine") or "false").lower() == "true":
        raise SlicemillError("a row is one line; multiLine files cannot be read")
    options = file_options(origin)
    lines = line_format(CSV if origin.format == CSV else JSON, schema, origin.options)
    if lines.form == CSV and (origin.option("header") or "false").lower() == "true":
        return loaded(reader.schema(WHOLE_FILE), "binaryFile", options), HeadedCsv(origin.options)
    files = {key: value for key, value in options.items() if key.lower() != "header"}
    return loaded(reader, "text", files), lines


def _typed_files(
    spark: SparkSession,
    reader: DataFrameReader | DataStreamReader,
    origin: SourceOrigin,
    schema: Schema,
) -> DataFrame:
    options = file_options(origin)
    found = schema_found(spark, origin.format, options, schema)
    return loaded(reader.schema(found), origin.format, options)


def schema_found(
    spark: SparkSession, form: str, options: Mapping[str, str], declared: Schema
) -> s.StructType:
    """Return the columns of typed files, widened because files may differ."""
    try:
        found = loaded(spark.read, form, options).schema
        if form not in _WIDENING:
            return found
        return s.StructType([s.StructField(field.name, _widest(field.dataType)) for field in found])
    except AnalysisException as problem:
        if problem.getCondition() != _NO_FILES:
            raise
        # There is no file yet: expect the declared types.
        return s.StructType([s.StructField(column.name, spark_type(column.type)) for column in declared])


def _widest(type_: s.DataType) -> s.DataType:
    """Return the widest numeric type; declared narrower types are checked by value."""
    if isinstance(type_, s.ByteType | s.ShortType | s.IntegerType):
        return s.LongType()
    return s.DoubleType() if isinstance(type_, s.FloatType) else type_


def file_options(origin: SourceOrigin) -> dict[str, str]:
    path = origin.needed_file()
    if path is None:
        return dict(origin.options)
    options = {**origin.without("path"), "path": str(path.absolute())}
    if not path.is_file():
        return options
    # Spark streams read folders, so a single file is a folder with a filter for its name.
    name = GLOB.sub(lambda found: "\\" + found[0], path.name)
    return {**options, "path": str(path.absolute().parent), "pathGlobFilter": name}


# -- loading ----------------------------------------------------------------------------------------------


def loaded(reader: DataFrameReader | DataStreamReader, form: str, options: Mapping[str, str]) -> DataFrame:
    try:
        return reader.format(form).options(**{name: resolved(text) for name, text in options.items()}).load()
    except (PySparkException, Py4JJavaError) as problem:
        raise _explained(problem, form, options) from None


def _explained(problem: Exception, form: str, options: Mapping[str, str]) -> Exception:
    text = str(problem)
    if "KAFKA_DATA_SOURCE_NOT_ENABLED" in text:
        return SlicemillError(
            "Spark's Kafka connector is not loaded; start with --packages "
            f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
        )
    if "DATA_SOURCE_NOT_FOUND" in text:
        return SlicemillError(
            f"Spark knows no format {form}; correct the name, or load its package with --packages"
        )
    if "PATH_NOT_FOUND" in text:
        return SlicemillError(f"there is no file or folder {options.get('path')}")
    if isinstance(problem, AnalysisException) and problem.getCondition() == _NO_FILES:
        return problem
    reason = _reason(text)
    for option in options.values():
        if (secret := resolved(option)) != option:
            reason = reason.replace(secret, option)
    return SlicemillError(f"Spark cannot open a source of format {form}: {reason}; correct its options")


def _reason(text: str) -> str:
    """Return the message of a Java exception, without class and stack trace."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = lines[1] if len(lines) > 1 and lines[0].startswith("An error occurred while calling") else lines[0]
    return redacted(_CLASS.sub("", said))[:_LONGEST_REASON]
