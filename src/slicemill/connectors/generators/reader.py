"""Reader of generators: rows appear by the clock or on demand.

An offset is `{"event": n, "since_us": t, "start_us": s}`: events below n were read, the clock started at t,
and event timestamps are shifted by s. Offsets of older homes have no s: their timestamps are not shifted.
After a stop, all events that became due meanwhile appear at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from slicemill.connectors.generators.generator import Generator, generator_of
from slicemill.connectors.origin import SourceOrigin
from slicemill.ingest.formats.checked import WantedColumns
from slicemill.ingest.formats.columns import check_columns, checked_table
from slicemill.ingest.reader import SourceBatch

_LEAST_AGAIN_US = 5_000
_MOST_AGAIN_US = 1_000_000
_ENDLESS = 2**62


def open_generator(origin: SourceOrigin, wanted: WantedColumns, clock: Callable[[], int]) -> GeneratorReader:
    """Return the reader of `nexmark://`, `rfid://` or `highway://`."""
    generator = generator_of(origin.format, origin.options)
    check_columns(wanted.schema, generator.fields.names)
    return GeneratorReader(generator, wanted, clock)


@dataclass(slots=True)
class GeneratorReader:
    """Reader of a generator as one partition, because events have one order."""

    generator: Generator
    wanted: WantedColumns
    clock: Callable[[], int]

    def read(self, offset: Any | None, limit_rows: int) -> SourceBatch:
        now_us = self.clock()
        if offset is None:
            start_us = self.generator.present_start_us(now_us)
            offset = {"event": 0, "since_us": now_us, "start_us": start_us}
        first, since_us = offset["event"], offset["since_us"]
        available = self._available(since_us, now_us)
        last = max(first, min(available, first + self._most(limit_rows)))
        batch = SourceBatch(None, None, {**offset, "event": last}, now_us, last < available, None)
        if first < last:
            table, numbers = self.generator.rows(first, last, offset.get("start_us", 0))
            parsed = checked_table(table, self.wanted)
            batch.table = parsed.table if parsed.table.num_rows else None
            batch.errors = parsed.errors
            if self.generator.pace.limited:
                # A row arrives when it appears, not when it is read.
                appeared_us = since_us + (numbers + 1) * (1_000_000 / self.generator.rate)
                batch.arrival_us = np.minimum(appeared_us.astype(np.int64), now_us)[parsed.numbers]
        batch.ended = last == self.generator.events
        batch.again_us = 0 if batch.more else self._pause_us(last, since_us, now_us)
        return batch

    def committed(self, offset: Any) -> None:
        """Nothing is to be freed, because events can be generated again."""

    def close(self) -> None:
        """Nothing is open."""

    def _available(self, since_us: int, now_us: int) -> int:
        """Return the number of events that have appeared."""
        events = self.generator.events
        if not self.generator.pace.limited:
            return _ENDLESS if events is None else events
        appeared = int(max(0, now_us - since_us) * self.generator.rate / 1_000_000)
        return appeared if events is None else min(appeared, events)

    def _most(self, limit_rows: int) -> int:
        """Return the limit of events per read.

        An event may have several rows.
        """
        most = self.generator.pace.max_per_trigger
        return max(1, limit_rows if most is None else min(limit_rows, most))

    def _pause_us(self, event: int, since_us: int, now_us: int) -> int:
        """Return the time until the next event with rows."""
        following = self.generator.following(event)
        due_us = since_us + int((following + 1) * 1_000_000 / self.generator.rate) + 1
        return min(max(due_us - now_us, _LEAST_AGAIN_US), _MOST_AGAIN_US)
