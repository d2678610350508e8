"""`console:`: print the newest rows after each delivery; `console:?rows=5` limits them."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa
from rich.console import Console

from slicemill.columns.rows import timed_rows
from slicemill.connectors.sinks.show import results_table
from slicemill.esl.types.schema import Schema

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
        """The console is owned by the caller."""
