"""Declared sources as Spark frames, with bad rows marked.

A frame has the declared columns in their declared types and two more: `_reason`, NULL for a good row, else
why the row is bad, and `_raw`, the text of a bad row. A frame of a stream from files also has the arrival
order of rows (`PLACE`), because Spark's partitions have none. All checks are Catalyst expressions (see
`checks`); no row passes through Python, unless its source is written in Python.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as s

from slicemill.connectors.spark.checks import (
    PLACE,
    RAW,
    REASON,
    as_declared,
    as_text,
    fits_always,
    from_text,
    spark_type,
    spells_number,
    why_bad,
)
from slicemill.connectors.spark.headed import HeadedCsv
from slicemill.connectors.spark.lines import BROKEN, LINE, LineFormat, parsed
from slicemill.connectors.spark.open import opened_for_batch, opened_for_streaming
from slicemill.errors import SlicemillError
from slicemill.esl.types import catalog
from slicemill.esl.types.schema import Kind, Schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_METADATA = "_metadata"


def streaming_frame(spark: SparkSession, stream: catalog.Stream, folder: Path = Path()) -> DataFrame:
    """Return a streaming frame of a stream; paths are relative to `folder`."""
    _check_names(stream.schema)
    frame, lines = opened_for_streaming(spark, stream, folder)
    return _checked(_placed(frame), lines, stream.written, _external_time(stream))


def checked_frame(frame: DataFrame, stream: catalog.Stream) -> DataFrame:
    """Check a program's frame that is a stream's source."""
    _check_names(stream.schema)
    return _checked(_placed(frame), None, stream.written, _external_time(stream))


def batch_frame(
    spark: SparkSession, relation: catalog.Stream | catalog.Table, folder: Path = Path()
) -> DataFrame:
    """Return a batch frame of a finite source."""
    _check_names(relation.schema)
    frame, lines = opened_for_batch(spark, relation, folder)
    time = _external_time(relation) if isinstance(relation, catalog.Stream) else None
    return _checked(frame, lines, relation.written, time)


def table_frame(spark: SparkSession, table: catalog.Table, folder: Path = Path()) -> DataFrame:
    """Return a table's good rows; empty for a table without a source."""
    if table.source == catalog.SourceSpec():
        fields = [s.StructField(column.name, spark_type(column.type)) for column in table.schema]
        return spark.createDataFrame([], s.StructType(fields))
    frame = batch_frame(spark, table, folder)
    return frame.where(F.col(REASON).isNull()).drop(RAW, REASON)


def _check_names(schema: Schema) -> None:
    for name in (RAW, REASON, *PLACE):
        if schema.find(name) is not None:
            raise SlicemillError(f"a stream cannot have a column {name}; give it another name")


def _placed(frame: DataFrame) -> DataFrame:
    """Add the arrival order to a frame that reads only files."""
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


def _places_in(frame: DataFrame) -> list[str]:
    return [name for name in PLACE if name in frame.columns]


def _external_time(stream: catalog.Stream) -> str | None:
    return stream.time_column if stream.kind is catalog.TimestampKind.EXTERNAL else None


def _checked(
    frame: DataFrame, lines: LineFormat | HeadedCsv | None, schema: Schema, time: str | None
) -> DataFrame:
    if isinstance(lines, HeadedCsv):
        return lines.rows_of(frame, schema, time)
    if lines is None:
        return _checked_columns(frame, schema, time)
    return _checked_lines(parsed(frame, schema, lines), schema, time)


def _checked_lines(frame: DataFrame, schema: Schema, time: str | None) -> DataFrame:
    values, reasons = [], [F.col(BROKEN)]
    for number, column in enumerate(schema):
        text = F.col(f"_text{number}")
        value = from_text(text, column.type)
        if column.type.kind is Kind.DECIMAL:
            value = F.coalesce(F.when(spells_number(text), F.col(f"_exact{number}")), value)
        values.append(value.alias(_value_name(number)))
        if not fits_always(s.StringType(), column.type):
            reasons.append(_misfit(text, text, number, schema))
    staged = frame.select(LINE, BROKEN, *_texts(frame), *values, *_places_in(frame))
    return _finished(staged, schema, reasons, F.col(LINE), time)


def _texts(frame: DataFrame) -> list[str]:
    return [name for name in frame.columns if name.startswith("_text")]


def _checked_columns(frame: DataFrame, schema: Schema, time: str | None) -> DataFrame:
    """Check a source whose columns have types."""
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
        source = F.col(_quoted(field.name))
        value = as_declared(source, field.dataType, column.type, utc)
        values.append(value.alias(_value_name(number)))
        if not fits_always(field.dataType, column.type):
            reasons.append(_misfit(source, as_text(source, field.dataType), number, schema))
    staged = frame.select("*", *values)
    raw = F.to_json(F.struct(*(F.col(_quoted(name)) for name in named)), {"ignoreNullFields": "false"})
    return _finished(staged, schema, reasons, raw, time)


def _misfit(source: Column, text: Column, number: int, schema: Schema) -> Column:
    column = schema.columns[number]
    bad = source.isNotNull() & F.col(_value_name(number)).isNull()
    return F.when(bad, F.concat(F.lit(f"column {column.name}: "), why_bad(text, column.type)))


def _finished(
    frame: DataFrame, schema: Schema, reasons: list[Column], raw: Column, time: str | None
) -> DataFrame:
    if time is not None:
        untimed = F.col(_value_name(schema.index(time))).isNull()
        reasons = [*reasons, F.when(untimed, F.lit(f"the timestamp {time} is NULL"))]
    nothing = F.lit(None).cast(s.StringType())
    reason = F.coalesce(*reasons, nothing)
    columns = [F.col(_value_name(number)).alias(column.name) for number, column in enumerate(schema)]
    places = _places_in(frame)
    named = frame.select(*columns, raw.alias(RAW), reason.alias(REASON), *places)
    kept = F.when(F.col(REASON).isNotNull(), F.col(RAW))
    own = (F.col(_quoted(name)) for name in schema.names)
    return named.select(*own, kept.alias(RAW), REASON, *places)


def _value_name(number: int) -> str:
    return f"_value{number}"


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
