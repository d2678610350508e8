"""Result logs for tests of sinks: rows of every type, epochs with and without rows."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

from slicemill.engine.rows import to_table
from slicemill.esl.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    INTERVAL,
    MONTHS,
    PERIOD,
    TIMESTAMP,
    VARCHAR,
    Column,
    Kind,
    Schema,
    Type,
    decimal,
)
from slicemill.execution.operator import Row, Timed
from slicemill.storage.home import Home
from slicemill.storage.log import StreamLog

NUMBERS = Schema((Column("n", INT),))
EVERY_TYPE = Schema(
    (
        Column("flag", BOOLEAN),
        Column("small", INT),
        Column("big", BIGINT),
        Column("ratio", DOUBLE),
        Column("price", decimal(10, 2)),
        Column("item ID", VARCHAR),
        Column("code", Type(Kind.VARCHAR, length=8)),
        Column("raw", BINARY),
        Column("at", TIMESTAMP),
        Column("day", DATE),
        Column("age", INTERVAL),
        Column("term", MONTHS),
        Column("valid", PERIOD),
    )
)
ONE_OF_EACH: Row = (
    True,
    7,
    2**60,
    2.5,
    Decimal("12.50"),
    'Zürich "7"\t\\N\n',
    "abc",
    b"\x00\xff",
    1_500_000,
    19_000,
    90_000_000,
    14,
    (0, 2_000_000),
)
NOTHING: Row = (None,) * len(EVERY_TYPE)

# Rows per epoch; the second and the last have none.
EPOCHS = ((0, 1, 2), (), (3,), (4, 5), ())


def append(log: StreamLog, rows: Sequence[Timed], number: int | None = None) -> None:
    """Commit an epoch with these rows."""
    number = log.head + 1 if number is None else number
    chunks = [log.write(to_table(rows, log.schema, [0] * len(rows)))] if rows else []
    log.append(f"unit:{number}", chunks, 0, enabling_ts=number)


def numbers_home(folder: Path, query: str = "q") -> Home:
    """A home where a query has results 0, 1, 2, … with timestamps of as many seconds."""
    home = Home(folder)
    log = home.log(query, NUMBERS)
    for number, values in enumerate(EPOCHS):
        append(log, [Timed(n * 1_000_000, (n,)) for n in values], number)
    return home


def more_numbers(home: Home, *values: int, query: str = "q") -> None:
    append(home.log(query), [Timed(n * 1_000_000, (n,)) for n in values])
