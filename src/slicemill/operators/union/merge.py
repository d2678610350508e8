"""Union of ordered inputs: the sort-merge of M21-M25 on whole tables instead of single tuples.

An input's TSM register is the timestamp up to which it is known: that of its last tuple, or an enabling
timestamp beyond it. τ is the least register. Every tuple at or before τ goes out, ordered by (timestamp,
input, position), and the others wait:

    A: 1 3 3   register 3                    out:     1 2
    B: 2       register 2     τ = 2          waiting: A: 3 3

A tuple at τ itself goes out at once, though others at τ may follow (M21): that is the reference's rule, under
which the order among *equal* timestamps may depend on what came together. With `in_order` a tuple also waits
for the tuples that come before it by (timestamp, input), and the result depends on the input alone.
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
    """What goes out, what waits of each input, and the registers for the next time."""

    table: pa.Table
    waiting: tuple[pa.Table, ...]
    registers: tuple[int, ...]

    @property
    def enabling_ts(self) -> int:
        """No tuple still to come has a lower timestamp."""
        return min(self.registers)


def merge(
    inputs: Sequence[pa.Table],
    registers: Sequence[int],
    time_column: str = "_ts",
    in_order: bool = False,
) -> Merged:
    """Merge tables of one schema, each in timestamp order: what waited, followed by what has come since.

    `registers` are those returned the time before, raised by enabling timestamps since.
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
    """By input, the timestamp below which its tuples go out; END: all of them."""
    if in_order:
        return borders(registers)
    lowest = min(registers)
    return [lowest + (lowest < END)] * len(registers)


def _interleaved(parts: Sequence[pa.Table], moments: Sequence[NDArray[np.int64]]) -> pa.Table:
    table = pa.concat_tables([part.rename_columns(parts[0].column_names) for part in parts])
    ts = np.concatenate(moments)
    if np.all(ts[1:] >= ts[:-1]):
        return table  # one input, or inputs that follow each other: nothing is copied
    # Stable, on runs that are sorted already: a merge, by (timestamp, input, position).
    return table.take(pa.array(np.argsort(ts, kind="stable")))
