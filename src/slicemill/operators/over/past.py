"""Compaction of the rows of unbounded windows to what later windows need (M31)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.aggregate.columns import ColumnStatistic, Rows, Windows
from slicemill.columns.intervals import Mask, Places, last_of_each


def put_together(
    function: ColumnStatistic, rows: Rows, closed: Mask, table: pa.Table, weight: str, text: str
) -> tuple[pa.Table, NDArray[np.object_] | None]:
    """Return the rows to keep of a sorted table, and their summaries.

    Rows of closed slots are combined; rows of open slots stay unchanged. `weight` and `text` name the
    columns that change where a row stands for several rows.
    """
    places = np.flatnonzero(closed)
    part = rows if len(places) == len(rows) else subset(rows, places)
    ends = np.flatnonzero(last_of_each(part.partitions)) + 1
    starts = np.concatenate([np.zeros(1, np.int64), ends])[: len(ends)]
    history = function.history(part, Windows(starts, ends))
    open_ = np.flatnonzero(~closed)
    stay = len(open_)
    kept = table.take(pa.array(np.concatenate([places[history.places], open_])))
    if history.weights is not None:
        weights = np.concatenate([history.weights, np.ones(stay, np.int64)])
        kept = _replaced(kept, weight, pa.array(weights))
    if history.texts is not None:
        unchanged = kept.column(text).combine_chunks().slice(len(kept) - stay)
        kept = _replaced(kept, text, pa.concat_arrays([history.texts, unchanged]))
    summaries = None
    if history.summaries is not None:
        summaries = np.concatenate([history.summaries, np.full(stay, None)])
    return kept.combine_chunks(), summaries


def _replaced(table: pa.Table, name: str, column: pa.Array) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), name, column)


def subset(rows: Rows, places: Places) -> Rows:
    """Return the rows at these positions."""
    chosen = pa.array(places)
    return Rows(
        rows.partitions[places],
        [argument.take(chosen) for argument in rows.arguments],
        None if rows.weights is None else rows.weights[places],
        None if rows.numbers is None else rows.numbers[places],
        None if rows.ones is None else rows.ones[places],
        None if rows.summaries is None else rows.summaries[places],
    )
