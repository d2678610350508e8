"""Home directories for tests of sinks: results of every type, in epochs with gaps between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from itertools import count
from pathlib import Path

from slicemill.columns.arrow_schema import to_arrow
from slicemill.columns.merge import time_range
from slicemill.columns.rows import to_table
from slicemill.storage.changes import Appended, Change
from slicemill.storage.garbage import Retention, keep_from, slowest
from slicemill.storage.home import Durability, Home
from slicemill.storage.segments import SegmentWriter
from slicemill.types import (
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
    Row,
    Schema,
    Timed,
    Type,
    decimal,
)

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

# Rows by epoch. The epochs between them, and the last, belong to other queries.
EPOCHS = {1: (0, 1, 2), 3: (3,), 4: (4, 5)}
LAST = 5

_WRITER = count()
_OPENED: list[Home] = []


def open_home(folder: Path, durability: Durability = "process") -> Home:
    home = Home(folder, durability=durability)
    home.open()
    _OPENED.append(home)
    return home


def close_homes() -> None:
    while _OPENED:
        _OPENED.pop().close()


def home_with(folder: Path, query: str, schema: Schema) -> Home:
    """Return a home directory in which a query has no results; its first epoch will be 1."""
    home = open_home(folder)
    home.commit(Change(created={query: to_arrow(schema)}))
    return home


def append(home: Home, rows: Sequence[Timed], query: str = "q") -> int:
    """Commit an epoch with these rows, and return its number."""
    log = home.logs[query]
    table = to_table(rows, log.schema, [0] * len(rows))
    writer = SegmentWriter(log.folder, f"test{next(_WRITER)}")
    extent = writer.append(table)
    writer.release()
    return home.commit(Change(logs={query: Appended([extent], *time_range(table), arrival_us=0)}))


def numbers_home(folder: Path) -> Home:
    """Return a home directory where q has results 0, 1, 2, … with timestamps of as many seconds."""
    home = home_with(folder, "q", NUMBERS)
    while home.epoch < LAST:
        values = EPOCHS.get(home.epoch + 1)
        if values is None:
            pass_by(home)
        else:
            more_numbers(home, *values)
    return home


def pass_by(home: Home) -> None:
    """Commit an epoch without rows of q."""
    home.commit(Change(streams={"other": {"watermark": home.epoch}}))


def more_numbers(home: Home, *values: int) -> int:
    return append(home, [Timed(n * 1_000_000, (n,)) for n in values])


def make_anew(home: Home, schema: Schema = NUMBERS) -> None:
    """Drop the query q, and create a query of the same name."""
    home.commit(Change(dropped_logs=["q"], created={"q": to_arrow(schema)}))


def free_read(home: Home, cursors: Sequence[Mapping[str, int]]) -> int:
    """Free epochs of q that all consumers have read; return their number."""
    log = home.logs["q"]
    before = len(log)
    home.commit(Change(freed={"q": keep_from(log, slowest(cursors, "q"), Retention(), 0)}))
    home.free()
    return before - len(log)
