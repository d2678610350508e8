"""Sample rows for trials, taken from a stream's own source.

A trial uses its own rate, not that of the source. So rows are read ahead once, and get new timestamps when
they are fed to a stream. Other timestamps in a row are shifted by the same amount. A sample that is too short
is repeated.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slicemill.columns.rows import to_table
from slicemill.connectors.finite import read_rows
from slicemill.errors import SlicemillError
from slicemill.esl.types.catalog import SourceSpec, Stream
from slicemill.esl.types.schema import Kind
from slicemill.ingest.formats.records import BadRow
from slicemill.rows import Timed
from slicemill.storage.arrow_schema import ARRIVAL, SEQ, TS

_GENERATORS = ("nexmark", "rfid")
_ENDS = ("events", "seconds")
_SPREAD_US = 200_000


def read_sample(stream: Stream, rows: int, folder: Path = Path()) -> pa.Table:
    """Read the first rows of a stream's source, at most `rows`."""
    try:
        good = (r for r in read_rows(_endless(stream.source, rows), stream.written, folder) if _is_good(r))
        sample = [Timed(0, row) for row in islice(good, rows) if not isinstance(row, BadRow)]
    except SlicemillError as problem:
        raise SlicemillError(
            f"no rows of {stream.name} to measure with: {problem}; --home takes costs from a mill that ran"
        ) from None
    if not sample:
        raise SlicemillError(f"no rows of {stream.name} to measure with: its source holds none")
    return to_table(sample, stream.sent, [0] * len(sample)).drop_columns([TS, SEQ, ARRIVAL])


def _is_good(row: object) -> bool:
    return not isinstance(row, BadRow)


def _endless(spec: SourceSpec, rows: int) -> SourceSpec:
    """Remove the limits of a generator, so that it yields enough rows."""
    url = urlsplit(spec.url or "")
    if url.scheme not in _GENERATORS:
        return spec
    options = {name: value for name, value in parse_qsl(url.query) if name not in _ENDS}
    if url.scheme == "nexmark":
        # one event in fifty is a person
        options["events"] = str(60 * rows)
    return replace(spec, url=urlunsplit(url._replace(query=urlencode(options))))


@dataclass(slots=True)
class TrialStream:
    """Repeats the rows of a sample to feed a stream."""

    stream: Stream
    sample: pa.Table
    _next: int = 0
    _reached_us: int = 0

    def rows(self, count: int, end_us: int) -> pa.Table:
        """Return the next rows, with timestamps up to `end_us`."""
        begin_us = max(self._reached_us, end_us - _SPREAD_US)
        self._reached_us = end_us
        positions = np.arange(self._next, self._next + count) % self.sample.num_rows
        self._next = (self._next + count) % self.sample.num_rows
        times = np.linspace(begin_us, end_us, count, endpoint=False).astype(np.int64)
        return _moved(self.sample.take(pa.array(positions)), self.stream, times)


def _moved(table: pa.Table, stream: Stream, times: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.Table:
    """Set the time column and shift other timestamps by the same amount."""
    if stream.time_column is None or stream.stamp_column is not None:
        return table
    column = table.column(stream.schema.index(stream.time_column))
    by = pc.subtract(pa.array(times), column.cast(pa.int64()))
    for number, declared in enumerate(stream.schema):
        if declared.type.kind is Kind.TIMESTAMP:
            moved = pc.add(table.column(number).cast(pa.int64()), by).cast(column.type)
            table = table.set_column(number, table.field(number), moved)
    return table
