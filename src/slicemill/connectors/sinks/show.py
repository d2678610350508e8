"""Formatting of values and results for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from slicemill.esl.types.schema import Kind, Schema, Type
from slicemill.time import format_us

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def show_value(value: object, type_: Type) -> str:
    """Return a value of a type as text.

    >>> from slicemill.esl.types.schema import TIMESTAMP, DOUBLE
    >>> show_value(1_500_000, TIMESTAMP), show_value(2.5, DOUBLE), show_value(None, DOUBLE)
    ('1970-01-01 00:00:01.5', '2.5', 'NULL')
    """
    if value is None:
        return "NULL"
    if type_.kind is Kind.TIMESTAMP and isinstance(value, int):
        return show_timestamp(value)
    if type_.kind is Kind.DATE and isinstance(value, int):
        return (_EPOCH + timedelta(days=value)).date().isoformat()
    if type_.kind is Kind.INTERVAL and isinstance(value, int):
        return format_us(value).lower()
    if type_.kind is Kind.PERIOD and isinstance(value, tuple):
        return f"[{show_timestamp(value[0])}, {show_timestamp(value[1])})"
    if type_.element is not None and isinstance(value, tuple):
        return f"[{', '.join(show_value(one, type_.element) for one in value)}]"
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)


def show_timestamp(us: int) -> str:
    try:
        moment = _EPOCH + timedelta(microseconds=us)
    except OverflowError:
        return f"{us} us"
    text = moment.strftime("%Y-%m-%d %H:%M:%S.%f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def show_counts(console: Console, stream: str, read: int, unneeded: int, late: int, bad: int) -> None:
    """Print how many rows were read, and how many were dropped."""
    parts = [(unneeded, "no query needed"), (late, "came late"), (bad, "could not be read")]
    rest = ", ".join(f"{count:,} {what}" for count, what in parts if count)
    told = f"read {read:,} row{'' if read == 1 else 's'}{f', of which {rest}' if rest else ''}"
    console.print(
        f"{stream}: {told if read else 'nothing was read; its source had no rows'}", highlight=False
    )


def show_shed(console: Console, query: str, dropped: int, accuracy: float) -> None:
    """Print a query's dropped tuples, and its accuracy."""
    console.print(f"{query}: {dropped:,} tuples dropped, accuracy {accuracy:.1%}", highlight=False)


def results_table(
    title: str, schema: Schema, rows: Sequence[tuple[int | None, Sequence[object]]], total: int
) -> Group:
    """Return the last rows of a query as a table of text.

    `total` is the number of all rows.
    """
    shown = f", the last {len(rows)}" if 0 < len(rows) < total else ""
    # A title of the table would be wrapped at the width of the table.
    heading = Text(f"{title}: {total:,} row{'' if total == 1 else 's'}{shown}", style="bold")
    table = Table(box=None, pad_edge=False)
    table.add_column("time", style="dim", no_wrap=True)
    for column in schema:
        numeric = column.type.kind in (Kind.INT, Kind.BIGINT, Kind.DOUBLE, Kind.DECIMAL)
        table.add_column(column.name, justify="right" if numeric else "left", overflow="fold")
    for ts, row in rows:
        cells = (show_value(value, column.type) for value, column in zip(row, schema, strict=True))
        table.add_row("" if ts is None else show_timestamp(ts), *cells)
    return Group(heading, table)
