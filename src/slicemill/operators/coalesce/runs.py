"""Runs: adjacent periods of equal values, and their parts in windows (L3, L4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slicemill.columns.intervals import FOREVER, Mask, Numbers, Places
from slicemill.columns.keys import comparable
from slicemill.operators.coalesce.spans import RunSpans


class Runs(NamedTuple):
    """Tuples with a non-empty period, and their runs.

    `places` are the rows, which are sorted. `numbers` are their run numbers.
    """

    places: Places
    partitions: Numbers
    begins: Places
    numbers: Places
    firsts: Places  # first tuple of each run
    ends: Places  # of each run


class Shown(NamedTuple):
    """Runs shown by windows: window, representative row, and period there."""

    windows: Places
    places: Places
    begins: Places
    ends: Places


def runs_of(partitions: Numbers, ts: Places, selected: Mask, values: Sequence[pa.Array]) -> Runs:
    """Return the runs of rows sorted by partition and arrival."""
    ends = ends_of(partitions, ts)
    places = np.flatnonzero(selected & (ends > ts))
    begins, ends, of = ts[places], ends[places], partitions[places]
    begun = np.ones(len(places), np.bool_)
    begun[1:] = (
        (of[1:] != of[:-1])
        | (begins[1:] != ends[:-1])
        | ~as_before([column.take(pa.array(places)) for column in values])
    )
    firsts = np.flatnonzero(begun)
    lasts = np.append(firsts[1:], len(places))[: len(firsts)] - 1
    return Runs(places, of, begins, np.cumsum(begun) - 1, firsts, ends[lasts])


def ends_of(partitions: Numbers, ts: Places) -> Places:
    """Return the end of each row's period: the next row's time, or open."""
    ends = np.full(len(ts), FOREVER)
    follows = partitions[1:] == partitions[:-1]
    ends[:-1][follows] = ts[1:][follows]
    return ends


def shown(runs: Runs, spans: RunSpans) -> Shown:
    """Return the runs of each window.

    A run begins with its first tuple in the window, and ends at the window's end at the latest.
    """
    first = runs.numbers[spans.starts]
    counts = runs.numbers[spans.stops - 1] - first + 1
    windows = np.repeat(np.arange(len(counts)), counts)
    places = np.arange(len(windows)) - np.repeat(np.cumsum(counts) - counts, counts)
    numbers = first[windows] + places
    tuples = np.maximum(runs.firsts[numbers], spans.starts[windows])
    ends = np.minimum(runs.ends[numbers], spans.ends[windows])
    return Shown(windows, runs.places[tuples], runs.begins[tuples], ends)


def as_before(values: Sequence[pa.Array]) -> Mask:
    """Return a mask of the rows that equal their predecessor.

    The mask has no entry for the first row.
    """
    same = np.ones(max(len(values[0]) - 1, 0), np.bool_)
    for column in values:
        for plain in comparable(column):
            left, right = plain[:-1], plain[1:]
            equal = pc.fill_null(pc.equal(left, right), False)
            both_null = pc.and_(pc.is_null(left), pc.is_null(right))
            same &= pc.or_(equal, both_null).to_numpy(zero_copy_only=False)
    return same
