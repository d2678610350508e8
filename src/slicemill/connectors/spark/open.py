"""Sources that are read through Spark, such as Kafka, as DataFrames.

Some formats have typed columns. Other formats have lines of JSON or CSV in a column `value`. A *bad row* does
not fit its declaration, and has a *reason*, which is an error message.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as s
from pyspark.sql.readwriter import DataFrameReader
from pyspark.sql.streaming.readwriter import DataStreamReader

from slicemill.catalog import catalog
from slicemill.catalog.catalog import Stream, Table
from slicemill.connectors.generators.generator import GENERATORS, generator_of
from slicemill.connectors.generators.spark_source import SOURCES
from slicemill.connectors.origin import LINES_IN_FILES, TYPED_FILES, SourceOrigin, origin_of
from slicemill.connectors.spark.checks import (
    BROKEN,
    CSV,
    EITHER,
    JSON,
    LINE,
    PLACE,
    RAW,
    REASON,
    WHOLE_FILE,
    HeadedCsv,
    LineFormat,
    as_declared,
    as_text,
    bad_value_reason,
    fits_always,
    from_text,
    line_format,
    parse_lines,
    spark_type,
    spells_number,
)
from slicemill.errors import SlicemillError
from slicemill.secrets import redact, resolve_secrets
from slicemill.types import Kind, Schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Formats whose Spark readers can convert numbers to wider types.
_WIDENING = ("parquet", "orc")

_NO_FILES = "UNABLE_TO_INFER_SCHEMA"
_CLASS = re.compile(r"^:? ?(?:[a-z][\w$]*\.)+[A-Z][\w$]*: ")
_LONGEST_REASON = 500

GLOB = re.compile(r"[*?\[\]{}\\]")

Opened = tuple[DataFrame, LineFormat | HeadedCsv | None]


def open_for_streaming(spark: SparkSession, stream: Stream, folder: Path) -> Opened:
    origin = origin_of(stream.source, stream.name, folder)
    if origin.format == "tcp":
        raise SlicemillError(f"{stream.source} is read by slicemill itself, not through Spark")
    return _open_frame(spark, spark.readStream, origin, stream.schema)


def open_for_batch(spark: SparkSession, relation: Stream | Table, folder: Path) -> Opened:
    origin = origin_of(relation.source, relation.name, folder)
    if origin.format in ("tcp", "rate"):
        raise SlicemillError(f"{relation.source} has no end: it can be read as a stream only")
    return _open_frame(spark, spark.read, origin, relation.schema)


def _open_frame(
    spark: SparkSession,
    reader: DataFrameReader | DataStreamReader,
    origin: SourceOrigin,
    schema: Schema,
) -> Opened:
    form = origin.format
    if form in LINES_IN_FILES:
        return _lines_of_files(reader, origin, schema)
    if form in TYPED_FILES:
        return _open_typed_files(spark, reader, origin, schema), None
    if form in GENERATORS:
        generator_of(form, origin.options)
        spark.dataSource.register(SOURCES[form])
    options = origin.without("lines")
    if origin.file is not None:
        options = {**origin.without("lines", "path"), "path": str(origin.file.absolute())}
    frame = load_frame(reader, form, options)
    lines = origin.option("lines") or (EITHER if form == "kafka" else None)
    if lines is None:
        return frame, None
    value = F.col("value").cast(s.StringType()).alias("value")
    return frame.select(value), line_format(lines, schema, origin.options)


# -- DataFrames of files ----------------------------------------------------------------------------------


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
        return load_frame(reader.schema(WHOLE_FILE), "binaryFile", options), HeadedCsv(origin.options)
    files = {key: value for key, value in options.items() if key.lower() != "header"}
    return load_frame(reader, "text", files), lines


def _open_typed_files(
    spark: SparkSession,
    reader: DataFrameReader | DataStreamReader,
    origin: SourceOrigin,
    schema: Schema,
) -> DataFrame:
    options = file_options(origin)
    found = find_schema(spark, origin.format, options, schema)
    return load_frame(reader.schema(found), origin.format, options)


def find_schema(spark: SparkSession, form: str, options: Mapping[str, str], declared: Schema) -> s.StructType:
    """Return the columns of files whose format has types, such as Parquet.

    Numbers are widened, because types may differ between files.
    """
    try:
        found = load_frame(spark.read, form, options).schema
        if form not in _WIDENING:
            return found
        return s.StructType([s.StructField(field.name, _widest(field.dataType)) for field in found])
    except AnalysisException as problem:
        if problem.getCondition() != _NO_FILES:
            raise
        # Without a file, the declared types are expected.
        return s.StructType([s.StructField(column.name, spark_type(column.type)) for column in declared])


def _widest(type_: s.DataType) -> s.DataType:
    """Return the widest type of the same kind.

    Values are checked against the declared type later.
    """
    if isinstance(type_, s.ByteType | s.ShortType | s.IntegerType):
        return s.LongType()
    return s.DoubleType() if isinstance(type_, s.FloatType) else type_


def file_options(origin: SourceOrigin) -> dict[str, str]:
    path = origin.require_file()
    if path is None:
        return dict(origin.options)
    options = {**origin.without("path"), "path": str(path.absolute())}
    if not path.is_file():
        return options
    # Spark streams read folders. So a single file is read as its folder, with a filter for its name.
    name = GLOB.sub(lambda found: "\\" + found[0], path.name)
    return {**options, "path": str(path.absolute().parent), "pathGlobFilter": name}


# -- loading of DataFrames --------------------------------------------------------------------------------


def load_frame(
    reader: DataFrameReader | DataStreamReader, form: str, options: Mapping[str, str]
) -> DataFrame:
    try:
        return (
            reader.format(form)
            .options(**{name: resolve_secrets(text) for name, text in options.items()})
            .load()
        )
    except (PySparkException, Py4JJavaError) as problem:
        raise _explain_error(problem, form, options) from None


def _explain_error(problem: Exception, form: str, options: Mapping[str, str]) -> Exception:
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
        if (secret := resolve_secrets(option)) != option:
            reason = reason.replace(secret, option)
    return SlicemillError(f"Spark cannot open a source of format {form}: {reason}; correct its options")


def _reason(text: str) -> str:
    """Return the message of a Java exception, without class name and stack trace."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = lines[1] if len(lines) > 1 and lines[0].startswith("An error occurred while calling") else lines[0]
    return redact(_CLASS.sub("", said))[:_LONGEST_REASON]


# Declared sources as DataFrames, in which bad rows are marked
#
# A DataFrame has the declared columns with their declared types, and two more columns. `_reason` is the error
# message of a bad row, and NULL for all other rows. `_raw` is the text of a bad row. A stream from
# files also has columns with the arrival order of rows (`PLACE`), because Spark's partitions have no order.
# All checks are Catalyst expressions (see `checks`), so rows do not pass through Python, unless the source is
# written in Python.


_METADATA = "_metadata"


def streaming_frame(spark: SparkSession, stream: catalog.Stream, folder: Path = Path()) -> DataFrame:
    """Return a streaming DataFrame of a declared stream.

    Paths are relative to `folder`.
    """
    _check_names(stream.schema)
    frame, lines = open_for_streaming(spark, stream, folder)
    return _check_rows(_add_arrival_order(frame), lines, stream.encoded_schema, _external_time(stream))


def check_frame(frame: DataFrame, stream: catalog.Stream) -> DataFrame:
    """Check the rows of a streaming DataFrame that a program declared as a source."""
    _check_names(stream.schema)
    return _check_rows(_add_arrival_order(frame), None, stream.encoded_schema, _external_time(stream))


def batch_frame(
    spark: SparkSession, relation: catalog.Stream | catalog.Table, folder: Path = Path()
) -> DataFrame:
    """Return a batch DataFrame of a finite source.

    Paths are relative to `folder`.
    """
    _check_names(relation.schema)
    frame, lines = open_for_batch(spark, relation, folder)
    time = _external_time(relation) if isinstance(relation, catalog.Stream) else None
    return _check_rows(frame, lines, relation.encoded_schema, time)


def table_frame(spark: SparkSession, table: catalog.Table, folder: Path = Path()) -> DataFrame:
    """Return the rows of a table as a batch DataFrame, without bad rows.

    A table without a source is empty.
    """
    if table.source == catalog.SourceSpec():
        fields = [s.StructField(column.name, spark_type(column.type)) for column in table.schema]
        return spark.createDataFrame([], s.StructType(fields))
    frame = batch_frame(spark, table, folder)
    return frame.where(F.col(REASON).isNull()).drop(RAW, REASON)


def _check_names(schema: Schema) -> None:
    for name in (RAW, REASON, *PLACE):
        if schema.find(name) is not None:
            raise SlicemillError(f"a stream cannot have a column {name}; give it another name")


def _add_arrival_order(frame: DataFrame) -> DataFrame:
    """Add columns with the arrival order of rows, if the DataFrame reads only files."""
    if _METADATA in frame.columns:
        return frame
    places = (
        F.unix_micros(f"{_METADATA}.file_modification_time"),
        F.col(f"{_METADATA}.file_path"),
        F.col(f"{_METADATA}.file_block_start"),
    )
    try:
        return frame.select("*", *(place.alias(name) for place, name in zip(places, PLACE, strict=True)))
    except AnalysisException:
        return frame


def _position_columns(frame: DataFrame) -> list[str]:
    return [name for name in PLACE if name in frame.columns]


def _external_time(stream: catalog.Stream) -> str | None:
    return stream.time_column if stream.kind is catalog.TimestampKind.EXTERNAL else None


def _check_rows(
    frame: DataFrame, lines: LineFormat | HeadedCsv | None, schema: Schema, time: str | None
) -> DataFrame:
    if isinstance(lines, HeadedCsv):
        return lines.rows_of(frame, schema, time)
    if lines is None:
        return _check_columns(frame, schema, time)
    return _check_lines(parse_lines(frame, schema, lines), schema, time)


def _check_lines(frame: DataFrame, schema: Schema, time: str | None) -> DataFrame:
    values, reasons = [], [F.col(BROKEN)]
    for number, column in enumerate(schema):
        text = F.col(f"_text{number}")
        value = from_text(text, column.type)
        if column.type.kind is Kind.DECIMAL:
            value = F.coalesce(F.when(spells_number(text), F.col(f"_exact{number}")), value)
        values.append(value.alias(_value_name(number)))
        if not fits_always(s.StringType(), column.type):
            reasons.append(_misfit(text, text, number, schema))
    staged = frame.select(LINE, BROKEN, *_texts(frame), *values, *_position_columns(frame))
    return _finish_frame(staged, schema, reasons, F.col(LINE), time)


def _texts(frame: DataFrame) -> list[str]:
    return [name for name in frame.columns if name.startswith("_text")]


def _check_columns(frame: DataFrame, schema: Schema, time: str | None) -> DataFrame:
    """Check the rows of a source with typed columns."""
    named = [name for name in frame.columns if name not in PLACE]
    present = {field.name.lower(): field for field in frame.schema if field.name in named}
    missing = [column.name for column in schema if column.name.lower() not in present]
    if missing:
        raise SlicemillError(
            f"the source has no column {', '.join(missing)}; it has {', '.join(named) or 'none'}"
        )
    utc = frame.sparkSession.conf.get("spark.sql.session.timeZone") in ("UTC", "Etc/UTC", "Z", "+00:00")
    values, reasons = [], []
    for number, column in enumerate(schema):
        field = present[column.name.lower()]
        source = F.col(_quote(field.name))
        value = as_declared(source, field.dataType, column.type, utc)
        values.append(value.alias(_value_name(number)))
        if not fits_always(field.dataType, column.type):
            reasons.append(_misfit(source, as_text(source, field.dataType), number, schema))
    staged = frame.select("*", *values)
    raw = F.to_json(F.struct(*(F.col(_quote(name)) for name in named)), {"ignoreNullFields": "false"})
    return _finish_frame(staged, schema, reasons, raw, time)


def _misfit(source: Column, text: Column, number: int, schema: Schema) -> Column:
    column = schema.columns[number]
    bad = source.isNotNull() & F.col(_value_name(number)).isNull()
    return F.when(bad, F.concat(F.lit(f"column {column.name}: "), bad_value_reason(text, column.type)))


def _finish_frame(
    frame: DataFrame, schema: Schema, reasons: list[Column], raw: Column, time: str | None
) -> DataFrame:
    if time is not None:
        untimed = F.col(_value_name(schema.index(time))).isNull()
        reasons = [*reasons, F.when(untimed, F.lit(f"the timestamp {time} is NULL"))]
    nothing = F.lit(None).cast(s.StringType())
    reason = F.coalesce(*reasons, nothing)
    columns = [F.col(_value_name(number)).alias(column.name) for number, column in enumerate(schema)]
    places = _position_columns(frame)
    named = frame.select(*columns, raw.alias(RAW), reason.alias(REASON), *places)
    kept = F.when(F.col(REASON).isNotNull(), F.col(RAW))
    own = (F.col(_quote(name)) for name in schema.names)
    return named.select(*own, kept.alias(RAW), REASON, *places)


def _value_name(number: int) -> str:
    return f"_value{number}"


def _quote(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
