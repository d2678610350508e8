"""Streams, batches and the driver's share of the intake, for tests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa

from slicemill.catalog.catalog import SourceSpec, Stream, TimestampKind
from slicemill.columns.arrow_schema import to_arrow
from slicemill.ingest.intake import Admitted, BatchTimestamps, Intake
from slicemill.time import BEGINNING
from slicemill.types import INT, TIMESTAMP, Column, Schema

SCHEMA = Schema((Column("at", TIMESTAMP), Column("n", INT)))


def external(slack: int = 0, skew: int | None = None) -> Stream:
    return Stream("s", SCHEMA, TimestampKind.EXTERNAL, "at", slack, skew, SourceSpec())


def internal(kind: TimestampKind = TimestampKind.INTERNAL) -> Stream:
    return Stream("s", SCHEMA, kind, None, 0, None, SourceSpec())


def rows(times: Sequence[int], names: Iterable[int] | None = None) -> pa.Table:
    """Return rows with these timestamps, named by their positions by default."""
    named = list(names) if names is not None else list(range(len(times)))
    return pa.table({"at": np.asarray(times, np.int64), "n": named}).cast(to_arrow(SCHEMA))


def tuples(table: pa.Table, *columns: str) -> list[tuple[int, ...]]:
    return list(zip(*(table.column(name).to_pylist() for name in columns), strict=True))


@dataclass
class Kept:
    """Journal fields of an intake, with all rows that were admitted and found late so far."""

    stream: Stream
    partitions: Sequence[str] = ("",)
    progress: dict[str, object] = field(default_factory=dict)
    admitted: list[tuple[int, ...]] = field(default_factory=list)
    late: list[tuple[int, ...]] = field(default_factory=list)
    held: list[pa.Table] = field(default_factory=list)

    def keep(self, found: Admitted) -> None:
        self.admitted += tuples(found.rows, "_ts", "_seq", "_arr", "n")
        self.late += tuples(found.late, "_seq", "_arr", "n")
        self.held += [found.held] if found.held.num_rows else []
        self.progress.update(found.progress)
        for name in [name for name, value in self.progress.items() if value is None]:
            del self.progress[name]

    def open(self) -> Intake:
        """Return an intake as after a restart."""
        intake = Intake(self.stream, self.progress, self.partitions)
        if self.held:
            intake.restore(pa.concat_tables(self.held))
        return intake


def batches_of(
    times: Sequence[int], borders: Iterable[int], wanted: Sequence[bool] | None = None
) -> list[tuple[pa.Table, np.ndarray, BatchTimestamps | None]]:
    """Return batches of arrivals, one per microsecond: wanted rows, arrival times, all timestamps."""
    cuts = [0, *sorted({min(border, len(times)) for border in borders}), len(times)]
    found = []
    for first, last in pairwise(cuts):
        if first == last:
            continue
        mask = np.ones(last - first, bool) if wanted is None else np.asarray(wanted[first:last], bool)
        names = np.arange(first, last)[mask]
        stamps = np.asarray(times[first:last], np.int64)
        passed = None if wanted is None else BatchTimestamps(stamps, mask)
        found.append((rows(stamps[mask].tolist(), names.tolist()), np.arange(first, last), passed))
    return found


def run(stream: Stream, times: Sequence[int], borders: Iterable[int], promised: int = BEGINNING) -> Kept:
    kept = Kept(stream)
    intake = kept.open()
    for table, arrivals, passed in batches_of(times, borders):
        kept.keep(intake.admit("", table, arrivals, promised, int(arrivals[-1]), passed=passed))
    return kept
