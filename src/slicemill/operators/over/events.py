"""Output order of a query whose calls return results at different times.

A row is an arrival or an expiry. Rows are ordered by time, then arrivals before expiries, then by sequence
number. A row is emitted when each call has returned a value or is known not to, and all earlier rows were
emitted. A row without any value is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from slicemill.scalar.vectors import numbers
from slicemill.storage.codec import stored_as

OPEN, SILENT, ANSWERED = 0, 1, 2
Places = NDArray[np.int64]
Marks = NDArray[np.int8]


@stored_as("over.events", version=1)
@dataclass(slots=True)
class Events:
    """Tuples with sequence numbers, and a mark and value per call."""

    tuples: pa.Table
    sequence: Places
    expiry: NDArray[np.bool_]
    marks: list[Marks]
    values: list[pa.Array]

    def __len__(self) -> int:
        return len(self.sequence)

    @property
    def ts(self) -> Places:
        found: Places = numbers(self.tuples.column("_ts").combine_chunks())
        return found

    def take(self, places: Places) -> Events:
        chosen = pa.array(places)
        return Events(
            self.tuples.take(chosen),
            self.sequence[places],
            self.expiry[places],
            [marks[places] for marks in self.marks],
            [values.take(chosen) for values in self.values],
        )


def joined(parts: Sequence[Events]) -> Events:
    """Concatenate and sort events."""
    together = Events(
        pa.concat_tables([part.tuples for part in parts]),
        np.concatenate([part.sequence for part in parts]),
        np.concatenate([part.expiry for part in parts]),
        [np.concatenate(marks) for marks in zip(*(part.marks for part in parts), strict=True)],
        [pa.concat_arrays(values) for values in zip(*(part.values for part in parts), strict=True)],
    )
    return together.take(np.lexsort((together.sequence, together.expiry, together.ts)))


def released(events: Events) -> tuple[Events, Events]:
    """Split events into emitted and waiting ones."""
    marks = np.stack(events.marks)
    open_ = (marks == OPEN).any(axis=0)
    until = int(np.argmax(open_)) if open_.any() else len(events)
    silent = (marks == SILENT).all(axis=0)
    places = np.arange(len(events))
    return events.take(places[:until][~silent[:until]]), events.take(places[until:][~silent[until:]])


def answered(events: Events, call: int, sequence: Places, values: pa.Array) -> None:
    """Store a call's results for arrivals."""
    place = np.flatnonzero(~events.expiry)
    rank = np.argsort(events.sequence[place], kind="stable")
    place = place[rank]
    found = place[np.searchsorted(events.sequence[place], sequence)]
    events.marks[call][found] = ANSWERED
    source = np.arange(len(events))
    source[found] = len(events) + np.arange(len(found))
    events.values[call] = pa.concat_arrays([events.values[call], values]).take(pa.array(source))


def silenced(events: Events, call: int, sequence: Places) -> None:
    """Mark arrivals for which a call returns nothing.

    Some of them may have been emitted already.
    """
    gone = pc.is_in(pa.array(events.sequence), value_set=pa.array(sequence)).to_numpy(zero_copy_only=False)
    marks = events.marks[call]
    marks[gone & ~events.expiry & (marks == OPEN)] = SILENT
