"""Conversion of source values to declared types, as Spark (Catalyst) expressions.

A value that does not fit its type becomes NULL, and its row gets a *reason*, which is an error message. The
expressions implement the rules of `ingest.formats.records` and share its regular expressions. A property test
compares values and reasons of both implementations. The usual spelling is tried first, because a failed cast
costs more than matching a regular expression.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as s

from slicemill.connectors.files.text import TextFiles
from slicemill.errors import SlicemillError
from slicemill.functions.calendar import BLANKS
from slicemill.ingest.formats.checked import WantedColumns
from slicemill.ingest.formats.csv import csv_format
from slicemill.ingest.formats.line_parser import CSV_LINES
from slicemill.ingest.formats.records import (
    DAY,
    FIRST_US,
    INSTANT,
    LAST_US,
    MAX_SHOWN,
    MAX_WHOLE_DOUBLE,
    NO_JSON,
    NO_TEXT,
    NO_UNIT,
    NUMBER,
    SPECIAL_NUMBER,
    UNIT_US,
)
from slicemill.types import TIMESTAMP, Kind, Schema, TimestampUnit, Type

# Names of additional columns: text of a bad row, and the reason why the row is bad.
RAW = "_raw"
REASON = "_reason"
# Columns with the arrival order of rows from files: modification time of the file, name of the file, and
# start of the file part that one Spark task reads row by row.
PLACE = ("_place_time", "_place_file", "_place_part")

_SPARK: dict[Kind, s.DataType] = {
    Kind.BOOLEAN: s.BooleanType(),
    Kind.INT: s.IntegerType(),
    Kind.BIGINT: s.LongType(),
    Kind.DOUBLE: s.DoubleType(),
    Kind.VARCHAR: s.StringType(),
    Kind.ANY: s.StringType(),
    Kind.BINARY: s.BinaryType(),
    Kind.TIMESTAMP: s.TimestampType(),
    Kind.DATE: s.DateType(),
    Kind.INTERVAL: s.DayTimeIntervalType(),
}
_INTEGRAL = (s.ByteType, s.ShortType, s.IntegerType, s.LongType)
_NESTED = (s.StructType, s.ArrayType, s.MapType, s.VariantType)

# Usual spelling of a timestamp, which with an appended Z is independent of the session's time zone.
_PLAIN_INSTANT = rf"{DAY}[ T][0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(?:\.[0-9]+)?"


def spark_type(type_: Type) -> s.DataType:
    """Return the Spark type of a declared column."""
    if type_.kind is Kind.DECIMAL:
        assert type_.precision is not None and type_.scale is not None
        return s.DecimalType(type_.precision, type_.scale)
    if type_.kind not in _SPARK:
        hint = "declare it as VARCHAR, and take it apart with split(column, ',')"
        raise SlicemillError(f"a column of a Spark source cannot be {type_}; {hint}")
    return _SPARK[type_.kind]


def fits_always(source: s.DataType, type_: Type) -> bool:
    """Return True if values of a source type need neither conversion nor check."""
    return source == spark_type(type_) and type_.length is None


def as_text(value: Column, source: s.DataType) -> Column:
    """Convert a value to text, for VARCHAR columns and for error messages."""
    if isinstance(source, s.StringType):
        return value
    if isinstance(source, _NESTED):
        return F.to_json(value)
    if isinstance(source, s.FloatType):
        return value.cast(s.DoubleType()).cast(s.StringType())
    return value.cast(s.StringType())


def as_declared(value: Column, source: s.DataType, type_: Type, utc: bool) -> Column:
    """Convert a value to its declared type.

    The result is NULL if the value does not fit. `utc` is True if the time zone of the session is UTC.
    """
    if fits_always(source, type_):
        return value
    typed = _from_number(value, source, type_)
    if typed is None and type_.kind is Kind.TIMESTAMP and utc and isinstance(source, s.TimestampNTZType):
        typed = value.cast(s.TimestampType())
    return typed if typed is not None else from_text(as_text(value, source), type_)


def shorten(text: Column) -> Column:
    """Shorten the text of a bad value for an error message."""
    long = F.char_length(text) > MAX_SHOWN
    return F.when(long, F.concat(F.substring(text, 1, MAX_SHOWN), F.lit("…"))).otherwise(text)


def bad_value_reason(text: Column, type_: Type) -> Column:
    """Return the error message for a value that does not fit its type."""
    said = F.concat(F.lit("'"), shorten(text), F.lit(f"' is no {type_}"))
    if type_ != TIMESTAMP:
        return said
    return F.when(spells_number(_strip_blanks(text)), F.concat(said, F.lit(NO_UNIT))).otherwise(said)


# -- conversion from numbers ------------------------------------------------------------------------------


def _from_number(value: Column, source: s.DataType, type_: Type) -> Column | None:
    """Convert a number without parsing; return None if it must be parsed as text."""
    if not isinstance(source, s.NumericType):
        return None
    target = spark_type(type_)
    if type_.kind is Kind.DOUBLE or (type_.kind is Kind.DECIMAL and not isinstance(source, s.FractionalType)):
        return value.try_cast(target)
    if type_.kind is Kind.DECIMAL and isinstance(source, s.DecimalType):
        return value.try_cast(target)
    if type_.kind is Kind.TIMESTAMP and type_.unit is None:
        return F.lit(None).cast(target)
    if type_.kind in (Kind.INT, Kind.BIGINT, Kind.TIMESTAMP, Kind.INTERVAL):
        return _of_whole(lambda wanted: _whole_number(value, source, wanted), type_)
    return None


def _whole_number(value: Column, source: s.DataType, target: s.DataType) -> Column:
    if isinstance(source, _INTEGRAL):
        return value.try_cast(target)
    if isinstance(source, s.DecimalType):
        return F.when(value % 1 == 0, value.try_cast(target))
    double = value.cast(s.DoubleType())
    return F.when((F.rint(double) == double) & (F.abs(double) <= MAX_WHOLE_DOUBLE), double.try_cast(target))


def _of_whole(whole: Callable[[s.DataType], Column], type_: Type) -> Column:
    """Convert an integer to a number, an interval or a timestamp."""
    if type_.kind in (Kind.INT, Kind.BIGINT):
        return whole(spark_type(type_))
    number = whole(s.LongType())
    if type_.kind is Kind.INTERVAL:
        return F.timestamp_micros(number) - F.timestamp_micros(F.lit(0))
    assert type_.unit is not None
    if type_.unit is TimestampUnit.NANOS:
        # Times are rounded down, also before 1970.
        below = F.when(number % 1_000 < 0, F.lit(1)).otherwise(F.lit(0))
        return F.timestamp_micros(F.call_function("div", number, F.lit(1_000)) - below)
    size = UNIT_US[type_.unit]
    fits = number.between(-(-FIRST_US // size), LAST_US // size)
    return F.when(fits, F.timestamp_micros(number * size))


# -- conversion from texts --------------------------------------------------------------------------------


def from_text(text: Column, type_: Type) -> Column:
    """Convert a text to a type, or to NULL if the text does not fit."""
    return _FROM_TEXT.get(type_.kind, _text)(text, type_)


def _matches(text: Column, pattern: str) -> Column:
    return text.rlike(rf"\A(?:{pattern})\z")


def spells_number(text: Column) -> Column:
    return _matches(text, NUMBER)


def _strip_blanks(text: Column) -> Column:
    return F.btrim(text, F.lit(BLANKS))


def _cast_spelling(text: Column, pattern: str, type_: Type) -> Column:
    target = spark_type(type_)
    bare = _strip_blanks(text)
    return F.coalesce(
        F.when(_matches(text, pattern), text.try_cast(target)),
        F.when(_matches(bare, pattern), bare.try_cast(target)),
    )


def _whole_text(text: Column, target: s.DataType) -> Column:
    bare = _strip_blanks(text)
    double = F.when(_matches(bare, NUMBER), bare.try_cast(s.DoubleType()))
    # Spark's cast strips the same blanks as the native parser.
    return F.coalesce(text.try_cast(target), _whole_number(double, s.DoubleType(), target))


def _integer(text: Column, type_: Type) -> Column:
    return _of_whole(lambda target: _whole_text(text, target), type_)


def _double(text: Column, type_: Type) -> Column:
    return _cast_spelling(text, f"{NUMBER}|{SPECIAL_NUMBER}", type_)


def _decimal(text: Column, type_: Type) -> Column:
    return _cast_spelling(text, NUMBER, type_)


def _boolean(text: Column, type_: Type) -> Column:
    return text.try_cast(spark_type(type_))


def _text(text: Column, type_: Type) -> Column:
    return text if type_.length is None else F.when(F.char_length(text) <= type_.length, text)


def _timestamp(text: Column, type_: Type) -> Column:
    instant = s.TimestampType()
    bare = _strip_blanks(text)
    spelled = F.when(_matches(text, _PLAIN_INSTANT), F.concat(text, F.lit("Z")).try_cast(instant)).when(
        _matches(bare, INSTANT), _with_all_parts(bare).try_cast(instant)
    )
    return spelled if type_.unit is None else spelled.otherwise(_integer(text, type_))


def _with_all_parts(text: Column) -> Column:
    """Add missing seconds and offset to a timestamp, because Spark requires them."""

    def part(group: int, default: str) -> Column:
        found = F.regexp_extract(text, INSTANT, group)
        return F.when(found == "", F.lit(default)).otherwise(found)

    offset = F.regexp_replace(part(5, "Z"), r"\A([+-][0-9]{2}):?([0-9]{2})?\z", r"$1:$2")
    offset = F.when(offset.endswith(":"), F.concat(offset, F.lit("00"))).otherwise(offset)
    return F.concat(part(1, ""), F.lit("T"), part(2, "00:00"), part(3, ":00"), part(4, ""), offset)


def _date(text: Column, type_: Type) -> Column:
    return _cast_spelling(text, DAY, type_)


def _binary(text: Column, type_: Type) -> Column:
    return text.cast(spark_type(type_))


_FROM_TEXT: dict[Kind, Callable[[Column, Type], Column]] = {
    Kind.INT: _integer,
    Kind.BIGINT: _integer,
    Kind.INTERVAL: _integer,
    Kind.DOUBLE: _double,
    Kind.DECIMAL: _decimal,
    Kind.BOOLEAN: _boolean,
    Kind.TIMESTAMP: _timestamp,
    Kind.DATE: _date,
    Kind.BINARY: _binary,
}


# Parsing of JSON or CSV lines to text fields, as Catalyst expressions
#
# A line that is neither JSON nor CSV gets an error message. The fields remain texts, which the functions
# above convert. So a value of a wrong type and a broken line have different messages, and both rows keep the
# line.


LINE = "_line"
BROKEN = "_broken"

JSON = "json"
CSV = "csv"
# Format in which a line that begins with a brace is JSON, and any other line is CSV.
EITHER = "either"

_JSON_OPTIONS = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}
# Last element of an array in which each line is parsed a second time.
# Spark's JSON reader ignores text after the end of an object, and a missing last element reveals this text.
_END = "slicemill:end"
_CORRUPT = "_corrupt"
CSV_OPTIONS = ("sep", "delimiter", "quote", "escape", "comment", "nullvalue")


@dataclass(frozen=True, slots=True)
class LineFormat:
    """Format of lines, with the field names of CSV lines in order."""

    form: str
    names: Sequence[str]
    csv_options: Mapping[str, str]


def line_format(form: str, schema: Schema, options: Mapping[str, str]) -> LineFormat:
    """Return the format of JSON or CSV lines, with the declared columns as CSV fields."""
    if form not in (JSON, CSV, EITHER):
        raise SlicemillError(f"lines are {JSON}, {CSV} or {EITHER}, not {form!r}")
    chosen = {key: value for key, value in options.items() if key.lower() in CSV_OPTIONS}
    return LineFormat(form, schema.names, chosen)


def parse_lines(lines: DataFrame, schema: Schema, format_: LineFormat) -> DataFrame:
    """Parse lines to the columns `_line`, `_broken`, `_text0`, `_text1`, ….

    `lines` has a text column `value`. `_broken` is the error message of a broken line. Blank lines are
    dropped. A DECIMAL column of JSON has an additional field such as `_exact3`, because Spark rounds the text
    of a JSON number to a DOUBLE.
    """
    value = F.col("value")
    is_json = {JSON: F.lit(True), CSV: F.lit(False)}.get(
        format_.form, F.ltrim(value, F.lit(BLANKS)).startswith("{")
    )
    frame = lines.where(F.btrim(value, F.lit(BLANKS)) != "")
    others = [name for name in lines.columns if name != "value"]
    json_line, csv_line = F.when(is_json, value), F.when(~is_json, value)
    frame = frame.select(
        F.make_valid_utf8(value).alias(LINE),
        F.is_valid_utf8(value).alias("_utf8"),
        is_json.alias("_is_json"),
        _json_object(json_line, schema).alias("_json"),
        _nothing_follows(json_line).alias("_ends"),
        _exact_decimals(json_line, schema).alias("_exact"),
        F.from_csv(csv_line, _csv_schema(format_), _csv_options(format_)).alias("_csv"),
        *others,
    )
    broken = (
        F.when(~F.col("_utf8"), F.lit(NO_TEXT))
        .when(F.col("_is_json"), F.when(~_is_one_object(), F.lit(NO_JSON)))
        .when(
            F.col("_csv").getField(_CORRUPT).isNotNull(),
            F.lit(f"this row does not have {len(format_.names)} fields"),
        )
    )
    fields = []
    for number, column in enumerate(schema):
        text = F.when(F.col("_is_json"), _json_field(column.name)).otherwise(_csv_field(column.name, format_))
        fields.append(text.alias(f"_text{number}"))
        if column.type.kind is Kind.DECIMAL:
            fields.append(F.col("_exact").getField(column.name).alias(f"_exact{number}"))
    return frame.select(LINE, broken.alias(BROKEN), *fields, *others)


def _json_object(line: Column, schema: Schema) -> Column:
    fields = [s.StructField(name, s.StringType()) for name in (*schema.names, _CORRUPT)]
    return F.from_json(line, s.StructType(fields), {**_JSON_OPTIONS, "columnNameOfCorruptRecord": _CORRUPT})


def _nothing_follows(line: Column) -> Column:
    text = F.concat(F.lit("["), line, F.lit(f',{{"{_END}":"1"}}]'))
    both = F.from_json(text, s.ArrayType(s.StructType([s.StructField(_END, s.StringType())])), _JSON_OPTIONS)
    return F.transform(both, lambda entry: entry.getField(_END))


def _is_one_object() -> Column:
    whole = F.col("_json").isNotNull() & F.col("_json").getField(_CORRUPT).isNull()
    ends = (F.size("_ends") == 2) & (F.get(F.col("_ends"), F.lit(1)) == "1")
    return whole & F.coalesce(ends, F.lit(False))


def _exact_decimals(line: Column, schema: Schema) -> Column:
    decimals = [column for column in schema if column.type.kind is Kind.DECIMAL]
    if not decimals:
        return F.lit(None)
    fields = [s.StructField(column.name, spark_type(column.type)) for column in decimals]
    # The additional field prevents that a value that does not fit its type affects other values.
    return F.from_json(line, s.StructType([*fields, s.StructField(_END, s.StringType())]), _JSON_OPTIONS)


def _json_field(name: str) -> Column:
    """Return the value of a JSON field for a column.

    A field with the exact name has precedence over a field whose name differs in case.
    """
    exact = F.col("_json").getField(name)
    values = s.MapType(s.StringType(), s.StringType())
    entries = F.map_entries(F.from_json(F.col(LINE), values, _JSON_OPTIONS))
    lowered = name.lower()
    alike = F.filter(entries, lambda entry: F.lower(entry.getField("key")) == lowered)
    # Only lines that contain the name in any case are parsed a second time.
    named = F.contains(F.lower(F.col(LINE)), F.lit(f'"{lowered}"'))
    return F.coalesce(exact, F.when(named, F.try_element_at(alike, F.lit(-1)).getField("value")))


def _csv_schema(format_: LineFormat) -> str:
    # The fields are named by number, because a header may contain a name twice.
    names = [f"_{number}" for number in range(len(format_.names))]
    return ", ".join(f"{name} STRING" for name in [*names, _CORRUPT])


def _csv_options(format_: LineFormat) -> dict[str, str]:
    return {"escape": '"', **format_.csv_options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}


def _csv_field(name: str, format_: LineFormat) -> Column:
    lowered = [other.lower() for other in format_.names]
    if name.lower() not in lowered:
        return F.lit(None).cast(s.StringType())
    return F.nullif(F.col("_csv").getField(f"_{lowered.index(name.lower())}"), F.lit(""))


# CSV files with headers, read through Spark and parsed by the header of each file
#
# Spark's text source does not return the file of a line, and its CSV source uses one header for all files. So
# tasks read whole files (`binaryFile`) and parse them like the native readers (`connectors/files/text.py`),
# with the same rows, bad rows and warnings. A file must fit into the memory of a task and be smaller than 2
# GB, the limit of `binaryFile`. A compressed file must be UTF-8.


# Schema of `binaryFile`, which a streaming source must specify.
WHOLE_FILE = "path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY"

_TEXT = pa.string()


@dataclass(frozen=True, slots=True)
class HeadedCsv:
    """CSV files with headers, and the options of their declaration."""

    options: Mapping[str, str]

    def rows_of(self, files: DataFrame, schema: Schema, time: str | None) -> DataFrame:
        """Parse a DataFrame of whole files to rows and bad rows."""
        fields = [s.StructField(column.name, spark_type(column.type)) for column in schema]
        texts = [s.StructField(name, s.StringType()) for name in (RAW, REASON)]
        places = [files.schema[name] for name in PLACE if name in files.columns]
        reader = _WholeFiles(schema, time, self.options)
        chosen = files.select("path", "content", *(place.name for place in places))
        return chosen.mapInArrow(reader, s.StructType([*fields, *texts, *places]))


@dataclass(frozen=True, slots=True)
class _WholeFiles:
    """Parser of whole files, which runs in a Spark task."""

    schema: Schema
    time: str | None
    options: Mapping[str, str]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        wanted = WantedColumns.of_schema(self.schema, self.schema.names, self.time)
        given = {name.lower(): value for name, value in self.options.items()}
        text = TextFiles(wanted, CSV_LINES, csv_format(self.schema.names, given), header=True)
        for batch in batches:
            for number in range(batch.num_rows):
                path, content = (batch.column(place)[number].as_py() for place in range(2))
                name = Path(unquote(urlsplit(path).path))
                for rows, errors in text.whole(name, _in_utf8(content, given)):
                    yield from _add_position_columns(_with_reasons(rows, errors), batch, number).to_batches()


def _in_utf8(content: bytes, options: Mapping[str, str]) -> bytes:
    """Convert a file's content to UTF-8 with \\n line ends, according to the options."""
    encoding = options.get("encoding", options.get("charset", "UTF-8"))
    ending = options.get("linesep", "\n")
    if encoding.upper() in ("UTF-8", "UTF8") and ending == "\n":
        return content
    return content.decode(encoding, errors="replace").replace(ending, "\n").encode()


def _add_position_columns(rows: pa.Table, files: pa.RecordBatch, number: int) -> pa.Table:
    """Add columns with the arrival order to the rows of a file."""
    for field, column in list(zip(files.schema, files.columns, strict=True))[2:]:
        rows = rows.append_column(field, pa.repeat(column[number], rows.num_rows))
    return rows


def _with_reasons(rows: pa.Table, errors: pa.Table | None) -> pa.Table:
    """Concatenate rows (without an error message) and bad rows (without values)."""
    for name in (RAW, REASON):
        rows = rows.append_column(name, pa.nulls(rows.num_rows, _TEXT))
    if errors is None:
        return rows
    empty = [pa.nulls(errors.num_rows, field.type) for field in rows.schema][:-2]
    bad = pa.table([*empty, errors.column("raw"), errors.column("reason")], schema=rows.schema)
    return pa.concat_tables([rows, bad])
