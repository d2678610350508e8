"""Random rows with NULLs, NaN and extremes, as Arrow tables and as rows of the reference evaluator."""

from __future__ import annotations

from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

from slicemill import types as t
from slicemill.functions.vectors import arrow_type, from_values, to_arrow
from slicemill.types import Column, Kind, Schema, Type

CENTS = t.decimal(10, 2)
WIDE = t.decimal(30, 6)

SCHEMA = Schema(
    (
        Column("i", t.INT),
        Column("j", t.INT),
        Column("b", t.BIGINT),
        Column("c", t.BIGINT),
        Column("d", t.DOUBLE),
        Column("e", t.DOUBLE),
        Column("m", CENTS),
        Column("n", WIDE),
        Column("s", t.VARCHAR),
        Column("u", t.VARCHAR),
        Column("f", Type(Kind.VARCHAR, length=3)),
        Column("o", t.BOOLEAN),
        Column("q", t.BOOLEAN),
        Column("t", t.TIMESTAMP),
        Column("a", t.DATE),
        Column("v", t.INTERVAL),
        Column("k", t.MONTHS),
        Column("p", t.PERIOD),
        Column("r", t.PERIOD),
    )
)

DAY_US = 86_400_000_000

_INTS = [0, 1, -1, 2, 3, 7, 10, 12, 31, 32, 100, -100, 1970, 2024, 12345, 2**31 - 1, -(2**31)]
_LONGS = [*_INTS, 2**31, -(2**31) - 1, 10**9, 10**12, 2**53 + 1, -(2**53) - 1, 10**18, 2**63 - 1, -(2**63)]
_DOUBLES = [
    *(0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, 2.675, 0.125, 1e-9, 3.14159, 100.0, 12345.678),
    *(2.0**31, -(2.0**31), 2.0**53 + 2, 2.0**63, -(2.0**63), 1e300, 5e-324),
    *(float("nan"), float("inf"), float("-inf")),
]
_TEXTS = [
    *("", "a", "A", "ab", "abc", "ABC", "abcabc", " b ", "  ", "hello world", "a,b,,c", "a%b_c", "Straße"),
    *(
        "ünïcödé",
        "日本語",
        "𝒳y",
        "12",
        "-7",
        "+5",
        " 42 ",
        "0x1F",
        "12.5",
        "1e3",
        "1e400",
        "NaN",
        "inf",
        "1d",
    ),
    *("2147483648", "-9223372036854775808", "99999999999999999999", "true", "no", "T", "İ", "ﬀ", "ǆ"),
    *("2024-02-29", "2023-02-29", "2024-2-3", "2024-02-29 12:34:56", "2024-02-29T12:34:56.789", "0001-01-01"),
    *("1969-12-31 23:59:59.999999", "2024-02-29 12:34:56+02:00", "x\ny", "[a-c]+", "(b)(c)?", "$1", "\\"),
    *("yyyy-MM-dd", "MONTH", "day", "WEEK", '{"a": {"b": [1, 2]}}', "$.a.b[1]", "b", "l", "o w"),
]
_MOMENTS = [
    *(
        0,
        1,
        -1,
        DAY_US - 1,
        DAY_US,
        -DAY_US,
        1_709_210_096_789_012,
        951_782_400_000_000,
        -62_135_596_800_000_000,
    ),
    *(253_402_300_799_999_999, 2**53 + 1, 2**63 - 1, -(2**63), 1_735_689_599_000_000),
]
_DAYS = [0, 1, -1, 59, 11016, 19782, 19723, -719_162, 2_932_896, 2**31 - 1, -(2**31)]
_LENGTHS = [0, 1, -1, 999, 1_000_000, -1_500_000, 3_600_000_000, DAY_US, 2**63 - 1, -(2**63)]


def pool(type_: Type) -> list[Any]:
    """Return edge values of a type."""
    if type_.kind is Kind.DECIMAL:
        limit = Decimal((0, (9,) * type_.precision, -type_.scale))
        numbers = [Decimal(x) for x in ("0", "1", "-1", "0.5", "-0.5", "2.25", "19.99", "-100", "12345.67")]
        unit = Decimal(1).scaleb(-type_.scale)
        return [*(n.quantize(unit) for n in numbers if abs(n) <= limit), limit, limit.copy_negate(), unit]
    if type_.kind is Kind.VARCHAR and type_.length is not None:
        return sorted({text[: type_.length] for text in _TEXTS})
    return {
        Kind.INT: _INTS,
        Kind.BIGINT: _LONGS,
        Kind.DOUBLE: _DOUBLES,
        Kind.VARCHAR: _TEXTS,
        Kind.BINARY: [b"", b"\x00", b"a", b"ab", b"\xff\xfe", b"caf\xc3\xa9"],
        Kind.BOOLEAN: [True, False],
        Kind.TIMESTAMP: _MOMENTS,
        Kind.DATE: _DAYS,
        Kind.INTERVAL: _LENGTHS,
        Kind.MONTHS: [0, 1, -1, 12, 13, 24_000, 2**31 - 1, -(2**31)],
        Kind.PERIOD: [
            (0, 10),
            (0, 5),
            (5, 10),
            (2, 7),
            (10, 20),
            (3, 10),
            (-(2**63), 2**63 - 1),
            (0, DAY_US),
        ],
        Kind.NULL: [None],
    }[type_.kind]


def random_rows(random: Random, rows: int, tame: bool = False) -> list[tuple[Any, ...]]:
    """Return random rows; `tame` rows avoid extremes, so that fewer expressions fail."""
    columns = []
    for column in SCHEMA:
        values = pool(column.type)
        values = values[: max(2, len(values) // 2)] if tame else values
        columns.append([None if random.random() < 0.15 else random.choice(values) for _ in range(rows)])
    return list(zip(*columns, strict=True))


def as_table(rows: list[tuple[Any, ...]], schema: Schema = SCHEMA) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [
        to_arrow(from_values(values, column.type), len(rows))
        for column, values in zip(schema, columns, strict=True)
    ]
    fields = [pa.field(column.name, arrow_type(column.type)) for column in schema]
    return pa.table(arrays, schema=pa.schema(fields))
