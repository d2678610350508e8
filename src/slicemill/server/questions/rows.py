"""Relations as ad hoc queries read them, with time range and LIMIT push-down.

The index of a log has the smallest and largest timestamp of each epoch. Epochs outside of the query's time
bounds are pruned. With a LIMIT, only as many epochs are read as are needed for its rows:

    epochs by their last timestamp     …  e7  e9  e8
    SELECT … ORDER BY _ts DESC LIMIT 10:          e8 has 4 rows that pass WHERE; e8 and e9 have 12, the tenth
                                                  at time t; epochs that end before t are not needed
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.server.questions.needs import Limit, RelationNeed, Wanted
from slicemill.storage.arrow_schema import as_results, is_system_column, with_system_columns
from slicemill.storage.epochs import Epoch
from slicemill.storage.log import EpochSpans
from slicemill.storage.segments import ExtentGone

# The first probe for a LIMIT reads about so many rows. Each further probe reads four times as many.
_FIRST_ROWS = 4_096
_MORE = 4
_TRIES = 3

Places = NDArray[np.int64]


class Bounds(Protocol):
    """Time bounds of a relation in an ad hoc query, as microseconds."""

    @property
    def first_us(self) -> int | None: ...
    @property
    def last_us(self) -> int | None: ...

    def probe(self, rows: pa.Table, limit: Limit) -> list[int] | None:
        """Return the timestamps of the given rows that a LIMIT selects, in its order; None if unknown."""


class AskedLog(Protocol):
    """Part of the interface of `storage.log.Log` that ad hoc queries use."""

    @property
    def columns_shown(self) -> pa.Schema: ...
    def spans(self) -> EpochSpans: ...
    def epochs(self, after: int, upto: int) -> list[Epoch]: ...
    def scan(self, epochs: Iterable[Epoch], columns: Collection[str]) -> pa.Table: ...


class AskedRelation(Protocol):
    """Relation that an ad hoc query can read."""

    def shape(self) -> pa.Table:
        """Return the columns as a table without rows."""

    def read(self, need: RelationNeed, bounds: Callable[[], Bounds], /) -> pa.Table:
        """Return the rows, or at least those that are needed."""


@dataclass(frozen=True, slots=True)
class HeldRows:
    """Relation whose rows are in memory as a whole: a table or a view."""

    columns: pa.Schema
    rows: Callable[[], pa.Table]

    def shape(self) -> pa.Table:
        return self.columns.empty_table()

    def read(self, need: RelationNeed, _: Callable[[], Bounds], /) -> pa.Table:
        return _selected(self.rows(), need)


@dataclass(frozen=True, slots=True)
class LogRows:
    """Retained rows of a stream or continuous query, after epoch `after`."""

    log: AskedLog
    after: int = -1

    def shape(self) -> pa.Table:
        return as_results(with_system_columns(self.log.columns_shown).empty_table())

    def read(self, need: RelationNeed, bounds: Callable[[], Bounds], /) -> pa.Table:
        if not need.rows:
            return self.shape()
        for _ in range(_TRIES - 1):
            with suppress(ExtentGone):  # rows were freed while they were read
                return self._read_needed(need, bounds)
        return self._read_needed(need, bounds)

    def _read_needed(self, need: RelationNeed, bounds: Callable[[], Bounds]) -> pa.Table:
        spans = self.log.spans()
        places = np.flatnonzero(spans.numbers > self.after)
        if need.first or need.last:
            known = bounds()
            if known.first_us is not None:
                places = places[spans.last_ts[places] >= known.first_us]
            if known.last_us is not None:
                places = places[spans.first_ts[places] <= known.last_us]
        if need.limit is not None:
            places = self._enough(spans, places, need, bounds())
        return self._read(spans, places, need)

    def _enough(self, spans: EpochSpans, places: Places, need: RelationNeed, bounds: Bounds) -> Places:
        """Return the positions of the epochs that contain all rows that a LIMIT selects, including ties."""
        assert need.limit is not None, "asked for a LIMIT only"
        wanted = need.limit.wanted
        ends = spans.last_ts if wanted is Wanted.NEWEST else spans.first_ts
        by_time = np.argsort(-ends[places] if wanted is Wanted.NEWEST else ends[places], kind="stable")
        order = places if wanted is Wanted.ANY else places[by_time]
        rows = np.cumsum(spans.rows[order])
        look = max(_FIRST_ROWS, need.limit.rows)
        while True:
            upto = int(np.searchsorted(rows, look)) + 1
            if upto >= len(order):
                return places
            found = bounds.probe(self._read(spans, np.sort(order[:upto]), need), need.limit)
            if found is None:
                return places
            if len(found) >= need.limit.rows:
                break
            look = _MORE * int(rows[upto - 1])
        if wanted is Wanted.ANY or not found:
            return np.sort(order[:upto])
        last = found[-1]
        inside = ends[places] >= last if wanted is Wanted.NEWEST else ends[places] <= last
        return places[inside]

    def _read(self, spans: EpochSpans, places: Places, need: RelationNeed) -> pa.Table:
        if not len(places):
            return _selected(self.shape(), need)
        numbers = spans.numbers[places]
        chosen = set(numbers.tolist())
        epochs = self.log.epochs(after=int(numbers[0]) - 1, upto=int(numbers[-1]))
        names = [name for name in self.log.columns_shown.names if need.wants(name)]
        return as_results(self.log.scan((e for e in epochs if e.number in chosen), names))


def _selected(table: pa.Table, need: RelationNeed) -> pa.Table:
    if not need.rows:
        table = table.slice(0, 0)
    wanted = [name for name in table.column_names if is_system_column(name) or need.wants(name)]
    # Keep one column, as a table without columns has no row count.
    return table.select(wanted or table.column_names[:1])
