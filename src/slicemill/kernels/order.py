"""The order of rows: by (`_ts`, `_seq`), whatever the number of cells.

Every row that an operator gives has the number of what caused it, so that the rows of any number of cells,
put together by (`_ts`, `_seq`), come in the order in which one cell gives them:

    rows                                      `_seq`
    of a declared stream                      the tuple's number, given by the intake
    selection, projection, look-up            that of the tuple
    aggregate with OVER, or of all history    that of the tuple; of a tuple that leaves its window, and of a
                                              group's last words (its first tuple's), *behind* the others
    window of FROM at its end                 that of the group's first tuple in the window
    runs of a partition at a slide            that of the first tuple that is shown of the partition
    join                                      that of the later tuple; one of the second input is *behind*
    union, classifier, all without keys       counted anew, in the order of their rows

Of two inputs, the first comes first at equal timestamps; a union's rows come by (timestamp, input, `_seq`).
Numbers of different streams do not compare. So a number that is *behind* others of its timestamp has a bit
set that none of its inputs' numbers has: a stream's own numbers have `SEQ_BITS` bits, and each operator that
may set one more adds one.

Rows with the same (`_ts`, `_seq`) have one cause. They come from one cell, and keep the order that it gives
them: the pairs of a tuple by the other one, oldest first; the rows of an aggregate as it returns them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.errors import SlicemillError

# 17 million million tuples: half a year of a million tuples a second.
SEQ_BITS = 44
_MOST_BITS = 62

Integers = NDArray[np.int64]


def behind(seqs: Integers, bits: int) -> Integers:
    """Numbers that come behind all numbers of so many bits, in their own order."""
    if bits > _MOST_BITS:
        raise SlicemillError(
            f"more than {_MOST_BITS - SEQ_BITS} joins and aggregates follow each other; "
            "put a union of one of the derived streams in between"
        )
    return seqs + np.int64(1 << bits)


def put_together(tables: Sequence[pa.Table]) -> pa.Table:
    """The rows of all cells in order; those of one cause stay as they are."""
    whole = pa.concat_tables(tables)
    times, seqs = (whole.column(name).to_numpy() for name in ("_ts", "_seq"))
    falls = (times[1:] < times[:-1]) | ((times[1:] == times[:-1]) & (seqs[1:] < seqs[:-1]))
    return whole.take(pa.array(np.lexsort((seqs, times)))) if falls.any() else whole


def renumbered(table: pa.Table, first: int) -> pa.Table:
    """Rows in order, numbered from `first` on."""
    place = table.column_names.index("_seq")
    numbers = np.arange(first, first + table.num_rows, dtype=np.int64)
    return table.set_column(place, table.schema.field(place), pa.array(numbers))
