"""Sort-merge of ordered inputs on whole tables (M21-M25).

The TSM register of an input is its watermark: the timestamp of its last row, or a later enabling timestamp. τ
is the lowest register. Every row at or before τ is emitted, ordered by (timestamp, input, position), and
other rows wait:

    A: 1 3 3   register 3                    out:     1 2
    B: 2       register 2     τ = 2          waiting: A: 3 3

A row at τ itself is emitted at once, though further rows at τ may follow (M21). This is the rule of the
reference, under which the order of rows with *equal* timestamps may depend on when they arrive. With
`in_order` a row also waits for the rows that precede it by (timestamp, input), and the result depends on the
input alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.operators.in_turn import borders
from slicemill.scalar.vectors import numbers
from slicemill.time import END


@dataclass(frozen=True, slots=True)
class Merged:
    """Emitted rows, waiting rows by input, and registers for the next call."""

    table: pa.Table
    waiting: tuple[pa.Table, ...]
    registers: tuple[int, ...]

    @property
    def enabling_ts(self) -> int:
        """Lower bound of the timestamps of later rows."""
        return min(self.registers)


def merge(
    inputs: Sequence[pa.Table],
    registers: Sequence[int],
    time_column: str = "_ts",
    in_order: bool = False,
) -> Merged:
    """Merge tables of one schema, each in timestamp order.

    Each table has the waiting rows, followed by new rows. `registers` are the registers of the last call,
    raised by enabling timestamps since then.
    """
    times = [_times(table, time_column) for table in inputs]
    known = [
        max(register, int(ts[-1])) if len(ts) else register
        for register, ts in zip(registers, times, strict=True)
    ]
    ready = [
        len(ts) if border == END else int(np.searchsorted(ts, border))
        for ts, border in zip(times, _borders(known, in_order), strict=True)
    ]
    parts = [table.slice(0, count) for table, count in zip(inputs, ready, strict=True)]
    waiting = tuple(table.slice(count) for table, count in zip(inputs, ready, strict=True))
    moments = [ts[:count] for ts, count in zip(times, ready, strict=True)]
    return Merged(_interleaved(parts, moments), waiting, tuple(known))


def _times(table: pa.Table, time_column: str) -> NDArray[np.int64]:
    chunks = [numbers(chunk) for chunk in table.column(time_column).chunks]
    return chunks[0] if len(chunks) == 1 else np.concatenate([np.zeros(0, np.int64), *chunks])


def _borders(registers: Sequence[int], in_order: bool) -> list[int]:
    """Return by input the timestamp below which rows are emitted; END for all."""
    if in_order:
        return borders(registers)
    lowest = min(registers)
    return [lowest + (lowest < END)] * len(registers)


def _interleaved(parts: Sequence[pa.Table], moments: Sequence[NDArray[np.int64]]) -> pa.Table:
    table = pa.concat_tables([part.rename_columns(parts[0].column_names) for part in parts])
    ts = np.concatenate(moments)
    if np.all(ts[1:] >= ts[:-1]):
        return table  # a single input, or inputs that follow each other, without a copy
    # A stable sort of sorted runs is a merge, by (timestamp, input, position).
    return table.take(pa.array(np.argsort(ts, kind="stable")))
