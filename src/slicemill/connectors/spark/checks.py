"""Conversion of source values to declared types, as Catalyst expressions.

A value that does not fit becomes NULL. The expressions repeat `ingest.formats.raw_values` and share its
patterns; a property test compares values and reasons of both. Expressions for the usual spelling come first,
because a failed cast costs more than a pattern.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as s

from slicemill.errors import SlicemillError
from slicemill.esl.types.schema import TIMESTAMP, Kind, TimestampUnit, Type
from slicemill.ingest.formats.raw_values import (
    DAY,
    FIRST_US,
    INSTANT,
    LAST_US,
    MAX_SHOWN,
    MAX_WHOLE_DOUBLE,
    NO_UNIT,
    NUMBER,
    SPECIAL_NUMBER,
    UNIT_US,
)
from slicemill.scalar.calendar import BLANKS

# Additional columns: text and reason of a bad row.
RAW = "_raw"
REASON = "_reason"
# Arrival order of rows from files: modification time and name of the file, start of the part. One task reads
# a part, row by row.
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

# The usual spelling. Only a Z is missing to make it an instant in every session time zone.
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
    """Return True if the source's values need no conversion or check."""
    return source == spark_type(type_) and type_.length is None


def as_text(value: Column, source: s.DataType) -> Column:
    """Return a value as text, for VARCHAR and for reasons."""
    if isinstance(source, s.StringType):
        return value
    if isinstance(source, _NESTED):
        return F.to_json(value)
    if isinstance(source, s.FloatType):
        return value.cast(s.DoubleType()).cast(s.StringType())
    return value.cast(s.StringType())


def as_declared(value: Column, source: s.DataType, type_: Type, utc: bool) -> Column:
    """Convert a value to the declared type, or NULL.

    `utc` is True if the session's time zone is UTC.
    """
    if fits_always(source, type_):
        return value
    typed = _from_number(value, source, type_)
    if typed is None and type_.kind is Kind.TIMESTAMP and utc and isinstance(source, s.TimestampNTZType):
        typed = value.cast(s.TimestampType())
    return typed if typed is not None else from_text(as_text(value, source), type_)


def shown(text: Column) -> Column:
    """Shorten a bad value for its reason."""
    long = F.char_length(text) > MAX_SHOWN
    return F.when(long, F.concat(F.substring(text, 1, MAX_SHOWN), F.lit("…"))).otherwise(text)


def why_bad(text: Column, type_: Type) -> Column:
    """Return the reason of a value that does not fit the type."""
    said = F.concat(F.lit("'"), shown(text), F.lit(f"' is no {type_}"))
    if type_ != TIMESTAMP:
        return said
    return F.when(spells_number(_stripped(text)), F.concat(said, F.lit(NO_UNIT))).otherwise(said)


# -- numbers ----------------------------------------------------------------------------------------------


def _from_number(value: Column, source: s.DataType, type_: Type) -> Column | None:
    """Convert a number directly; None if its text must be parsed."""
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
    """Convert an integer to a number, an interval or a time."""
    if type_.kind in (Kind.INT, Kind.BIGINT):
        return whole(spark_type(type_))
    number = whole(s.LongType())
    if type_.kind is Kind.INTERVAL:
        return F.timestamp_micros(number) - F.timestamp_micros(F.lit(0))
    assert type_.unit is not None
    if type_.unit is TimestampUnit.NANOS:
        # Round down, also before 1970.
        below = F.when(number % 1_000 < 0, F.lit(1)).otherwise(F.lit(0))
        return F.timestamp_micros(F.call_function("div", number, F.lit(1_000)) - below)
    size = UNIT_US[type_.unit]
    fits = number.between(-(-FIRST_US // size), LAST_US // size)
    return F.when(fits, F.timestamp_micros(number * size))


# -- texts ------------------------------------------------------------------------------------------------


def from_text(text: Column, type_: Type) -> Column:
    """Convert a text to the type, NULL if it does not fit."""
    return _FROM_TEXT.get(type_.kind, _text)(text, type_)


def _matches(text: Column, pattern: str) -> Column:
    return text.rlike(rf"\A(?:{pattern})\z")


def spells_number(text: Column) -> Column:
    return _matches(text, NUMBER)


def _stripped(text: Column) -> Column:
    return F.btrim(text, F.lit(BLANKS))


def _spelled_as(text: Column, pattern: str, type_: Type) -> Column:
    target = spark_type(type_)
    bare = _stripped(text)
    return F.coalesce(
        F.when(_matches(text, pattern), text.try_cast(target)),
        F.when(_matches(bare, pattern), bare.try_cast(target)),
    )


def _whole_text(text: Column, target: s.DataType) -> Column:
    bare = _stripped(text)
    double = F.when(_matches(bare, NUMBER), bare.try_cast(s.DoubleType()))
    # Spark itself strips the same blanks.
    return F.coalesce(text.try_cast(target), _whole_number(double, s.DoubleType(), target))


def _integer(text: Column, type_: Type) -> Column:
    return _of_whole(lambda target: _whole_text(text, target), type_)


def _double(text: Column, type_: Type) -> Column:
    return _spelled_as(text, f"{NUMBER}|{SPECIAL_NUMBER}", type_)


def _decimal(text: Column, type_: Type) -> Column:
    return _spelled_as(text, NUMBER, type_)


def _boolean(text: Column, type_: Type) -> Column:
    return text.try_cast(spark_type(type_))


def _text(text: Column, type_: Type) -> Column:
    return text if type_.length is None else F.when(F.char_length(text) <= type_.length, text)


def _timestamp(text: Column, type_: Type) -> Column:
    instant = s.TimestampType()
    bare = _stripped(text)
    spelled = F.when(_matches(text, _PLAIN_INSTANT), F.concat(text, F.lit("Z")).try_cast(instant)).when(
        _matches(bare, INSTANT), _with_all_parts(bare).try_cast(instant)
    )
    return spelled if type_.unit is None else spelled.otherwise(_integer(text, type_))


def _with_all_parts(text: Column) -> Column:
    """Complete an instant with seconds and offset, as Spark requires."""

    def part(group: int, default: str) -> Column:
        found = F.regexp_extract(text, INSTANT, group)
        return F.when(found == "", F.lit(default)).otherwise(found)

    offset = F.regexp_replace(part(5, "Z"), r"\A([+-][0-9]{2}):?([0-9]{2})?\z", r"$1:$2")
    offset = F.when(offset.endswith(":"), F.concat(offset, F.lit("00"))).otherwise(offset)
    return F.concat(part(1, ""), F.lit("T"), part(2, "00:00"), part(3, ":00"), part(4, ""), offset)


def _date(text: Column, type_: Type) -> Column:
    return _spelled_as(text, DAY, type_)


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
