"""Runs: neighbours of equal values whose periods meet, and the part of them that a window shows (L3, L4)."""

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
    """Tuples that hold for some time: `places` are their rows, which are sorted, `numbers` their runs."""

    places: Places
    partitions: Numbers
    begins: Places
    numbers: Places
    firsts: Places  # of each run, its first tuple
    ends: Places  # of each run


class Shown(NamedTuple):
    """What windows show of runs: the window, a row with the run's values, and its period there."""

    windows: Places
    places: Places
    begins: Places
    ends: Places


def runs_of(partitions: Numbers, ts: Places, selected: Mask, values: Sequence[pa.Array]) -> Runs:
    """The runs of rows that are sorted by partition and arrival."""
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
    """Until when each row holds: until the next of its partition; the last one is open."""
    ends = np.full(len(ts), FOREVER)
    follows = partitions[1:] == partitions[:-1]
    ends[:-1][follows] = ts[1:][follows]
    return ends


def shown(runs: Runs, spans: RunSpans) -> Shown:
    """Every run of every window: it begins with its first tuple there, and ends no later than the window."""
    first = runs.numbers[spans.starts]
    counts = runs.numbers[spans.stops - 1] - first + 1
    windows = np.repeat(np.arange(len(counts)), counts)
    places = np.arange(len(windows)) - np.repeat(np.cumsum(counts) - counts, counts)
    numbers = first[windows] + places
    tuples = np.maximum(runs.firsts[numbers], spans.starts[windows])
    ends = np.minimum(runs.ends[numbers], spans.ends[windows])
    return Shown(windows, runs.places[tuples], runs.begins[tuples], ends)


def as_before(values: Sequence[pa.Array]) -> Mask:
    """Of all rows but the first: do they have the values of the row before?"""
    same = np.ones(max(len(values[0]) - 1, 0), np.bool_)
    for column in values:
        for plain in comparable(column):
            left, right = plain[:-1], plain[1:]
            equal = pc.fill_null(pc.equal(left, right), False)
            both_null = pc.and_(pc.is_null(left), pc.is_null(right))
            same &= pc.or_(equal, both_null).to_numpy(zero_copy_only=False)
    return same
