"""Names, types and constants in ESL, Spark SQL and DuckDB SQL."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from slicemill.errors import SlicemillError
from slicemill.esl.syntax.tokens import RESERVED
from slicemill.esl.types.expression import Literal
from slicemill.esl.types.schema import Kind, Type
from slicemill.time import format_us

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SPARK_TYPES = {
    Kind.VARCHAR: "STRING",
    Kind.INTERVAL: "INTERVAL DAY TO SECOND",
    Kind.MONTHS: "INTERVAL YEAR TO MONTH",
}
_DUCKDB_TYPES = {Kind.VARCHAR: "VARCHAR", Kind.BINARY: "BLOB", Kind.MONTHS: "INTERVAL"}


def column(name: str, dialect: str) -> str:
    """Return a column's name, quoted for the dialect.

    ESL quotes the parts of `alias.column` if necessary; SQL has one quoted name.
    """
    if dialect == "spark":
        return f"`{name.replace('`', '``')}`"
    if dialect == "duckdb":
        return _double_quoted(name)
    return ".".join(
        part if part.isidentifier() and part.upper() not in RESERVED else _double_quoted(part)
        for part in name.split(".", 1)
    )


def _double_quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def type_name(type_: Type, dialect: str) -> str:
    if dialect != "esl":
        if type_.kind in (Kind.PERIOD, Kind.ANY, Kind.NULL):
            raise SlicemillError(f"{dialect} has no type {type_}: convert the value to a plain type first")
        names = _SPARK_TYPES if dialect == "spark" else _DUCKDB_TYPES
        if type_.kind in names:
            return names[type_.kind]
    return str(type_)


def literal(constant: Literal, dialect: str) -> str:
    """Return a constant, with its type if it would be ambiguous."""
    value, type_ = constant.value, constant.type
    if value is None:
        return "NULL" if type_.kind is Kind.NULL else f"CAST(NULL AS {type_name(type_, dialect)})"
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, str):
        return _text(value, dialect)
    if isinstance(value, bytes):
        return f"unhex('{value.hex()}')" if dialect == "duckdb" else f"X'{value.hex()}'"
    if isinstance(value, float):
        return _double(value, dialect)
    if isinstance(value, Decimal):
        return _decimal(value, type_, dialect)
    return _whole(value, type_, dialect)


def _whole(value: int, type_: Type, dialect: str) -> str:
    if type_.kind is Kind.TIMESTAMP:
        return f"TIMESTAMP '{timestamp_text(value)}'"
    if type_.kind is Kind.DATE:
        return f"DATE '{date(1970, 1, 1) + timedelta(days=value)}'"
    if type_.kind is Kind.INTERVAL:
        return _interval(value, dialect)
    if type_.kind is Kind.MONTHS:
        return _months(value, dialect)
    small = -(2**31) < value < 2**31
    if type_.kind is Kind.BIGINT and dialect == "spark":
        return f"{value}L"
    if type_.kind is Kind.BIGINT and dialect == "duckdb" and small:
        return f"CAST({value} AS BIGINT)"
    return str(value)


def timestamp_text(us: int) -> str:
    """Format microseconds since 1970 UTC as a timestamp.

    >>> timestamp_text(1_769_860_800_000_000)
    '2026-01-31 12:00:00'
    """
    try:
        return str((_EPOCH + timedelta(microseconds=us)).replace(tzinfo=None))
    except OverflowError:
        raise SlicemillError(f"{us} microseconds since 1970 is beyond the years 1 to 9999") from None


def _text(value: str, dialect: str) -> str:
    if dialect == "spark":
        # Spark reads backslash escapes inside quotes; ESL and DuckDB do not.
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return "'" + value.replace("'", "''") + "'"


def _double(value: float, dialect: str) -> str:
    if math.isinf(value) and dialect == "esl":
        return "1e999" if value > 0 else "-1e999"
    if not math.isfinite(value):
        name = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        return f"CAST('{name}' AS DOUBLE)"
    text = repr(value)
    if dialect == "spark":
        return f"{text}D"
    # DuckDB reads 0.9 as a decimal; an exponent makes the constant a double.
    return f"{text}e0" if dialect == "duckdb" and "e" not in text else text


def _decimal(value: Decimal, type_: Type, dialect: str) -> str:
    if dialect == "duckdb":
        return f"CAST('{value:f}' AS {type_})"
    return f"{value}BD" if dialect == "spark" else str(value)


def _interval(us: int, dialect: str) -> str:
    if dialect == "spark":
        sign, rest = ("-", -us) if us < 0 else ("", us)
        days, rest = divmod(rest, 86_400_000_000)
        hours, rest = divmod(rest, 3_600_000_000)
        minutes, rest = divmod(rest, 60_000_000)
        seconds, fraction = divmod(rest, 1_000_000)
        clock = f"{hours:02}:{minutes:02}:{seconds:02}.{fraction:06}"
        return f"INTERVAL '{sign}{days} {clock}' DAY TO SECOND"
    if dialect == "duckdb":
        return f"to_microseconds({us})"
    # An unquoted sign would apply to the whole expression.
    return f"INTERVAL '{format_us(us)}'" if us < 0 else f"INTERVAL {format_us(us)}"


def _months(months: int, dialect: str) -> str:
    if dialect == "spark":
        sign, rest = ("-", -months) if months < 0 else ("", months)
        return f"INTERVAL '{sign}{rest // 12}-{rest % 12}' YEAR TO MONTH"
    if dialect == "duckdb":
        return f"to_months({months})"
    count, unit = (months // 12, "YEAR") if months % 12 == 0 else (months, "MONTH")
    text = f"{count} {unit}{'' if count == 1 else 'S'}"
    return f"INTERVAL '{text}'" if months < 0 else f"INTERVAL {text}"
