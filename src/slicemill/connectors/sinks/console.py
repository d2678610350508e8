"""`console:`: prints the newest rows of each delivery; `console:?rows=5` limits their number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pyarrow as pa
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.table import Table
from rich.text import Text

from slicemill.columns.rows import timed_rows
from slicemill.time import format_us
from slicemill.types import Kind, Schema, Type

DEFAULT_ROWS = 20


@dataclass(slots=True)
class ConsoleSink:
    query: str
    schema: Schema
    show_rows: int = DEFAULT_ROWS
    console: Console = field(default_factory=Console)
    per_epoch: bool = False

    def resume(self, owner: str, stored: int) -> int:
        del owner
        return stored

    def deliver(self, first: int, last: int, table: pa.Table) -> None:
        newest = timed_rows(table.slice(max(0, table.num_rows - self.show_rows)), self.schema)
        epochs = f"epoch {last}" if first == last else f"epochs {first} to {last}"
        rows = [(timed.ts, timed.row) for timed in newest]
        self.console.print(results_table(f"{self.query}, {epochs}", self.schema, rows, table.num_rows))

    def close(self) -> None:
        """Do nothing, because the caller owns the console."""


# Formatting of values and results for the terminal


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBERS = frozenset({Kind.INT, Kind.BIGINT, Kind.DOUBLE, Kind.DECIMAL})
_WRAPPED = frozenset({Kind.VARCHAR, Kind.BINARY, Kind.LIST})
_LEAST_WRAPPED = 16  # length of the longest unbreakable text in a list of timestamps: "12:00:00.000001,"


def show_value(value: object, type_: Type) -> str:
    """Format a value of a type as text.

    >>> from slicemill.types import TIMESTAMP, DOUBLE
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
    """Print the number of rows that a stream has read, and of unneeded, late and bad rows."""
    parts = [(unneeded, "no query needed"), (late, "came late"), (bad, "could not be read")]
    rest = ", ".join(f"{count:,} {what}" for count, what in parts if count)
    told = f"read {read:,} row{'' if read == 1 else 's'}{f', of which {rest}' if rest else ''}"
    console.print(
        f"{stream}: {told if read else 'nothing was read; its source had no rows'}", highlight=False
    )


def show_shed(console: Console, query: str, dropped: int, accuracy: float) -> None:
    """Print the number of tuples that load shedding dropped, and the accuracy."""
    console.print(f"{query}: {dropped:,} tuples dropped, accuracy {accuracy:.1%}", highlight=False)


def results_table(
    title: str, schema: Schema, rows: Sequence[tuple[int | None, Sequence[object]]], total: int
) -> Group:
    """Return the last rows of a query as a terminal table.

    `total` is the number of all rows. If the table is too wide for the terminal, each value of a row is on a
    line of its own.
    """
    shown = f", the last {len(rows)}" if 0 < len(rows) < total else ""
    # The heading is not the title of the table, because rich would wrap a title at the width of the table.
    heading = Text(f"{title}: {total:,} row{'' if total == 1 else 's'}{shown}", style="bold")
    cells = [
        (
            "" if ts is None else show_timestamp(ts),
            *(show_value(value, column.type) for value, column in zip(row, schema, strict=True)),
        )
        for ts, row in rows
    ]
    kinds = (Kind.TIMESTAMP, *(column.type.kind for column in schema))
    return Group(heading, _Rows(("time", *schema.names), kinds, cells))


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows as a terminal table, or as records if the table is too wide.

    Dates, times and numbers are never broken.
    """

    names: Sequence[str]
    kinds: Sequence[Kind]
    cells: Sequence[Sequence[str]]

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        for rows in (self, self._in_lines()):
            if rows._least_width() <= options.max_width or not self.cells:
                yield rows._table()
                return
        for number, row in enumerate(self.cells):
            if number:
                yield ""
            yield self._record(row)

    def _in_lines(self) -> _Rows:
        """Return the rows with additional line breaks in column names and values.

        Names are broken after underscores, and values between words. Texts and lists are wrapped later, by
        rich.
        """
        names = [name[:1] + name[1:].replace("_", "_\n") for name in self.names]
        apart = [" " if kind in _WRAPPED else "\n" for kind in self.kinds]
        cells = [[cell.replace(" ", gap) for cell, gap in zip(row, apart, strict=True)] for row in self.cells]
        return _Rows(names, self.kinds, cells)

    def _least_width(self) -> int:
        least = 2 * (len(self.names) - 1)
        for name, kind, *column in zip(self.names, self.kinds, *self.cells, strict=True):
            widest = max(cell_len(line) for cell in (name, *column) for line in cell.split("\n"))
            least += min(widest, _LEAST_WRAPPED) if kind in _WRAPPED else widest
        return least

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False)
        for number, (name, kind) in enumerate(zip(self.names, self.kinds, strict=True)):
            table.add_column(
                Text(name),
                style="" if number else "dim",
                justify="right" if kind in _NUMBERS else "left",
                overflow="fold",
                no_wrap=kind not in _WRAPPED,
            )
        for row in self.cells:
            table.add_row(*map(Text, row))
        return table

    def _record(self, row: Sequence[str]) -> Table:
        table = Table(box=None, pad_edge=False, show_header=False)
        table.add_column(style="dim", overflow="fold")
        table.add_column(overflow="fold")
        for name, cell in zip(self.names, row, strict=True):
            table.add_row(Text(name), Text(cell))
        return table
