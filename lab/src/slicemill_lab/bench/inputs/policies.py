"""Load for the benchmark of policies: queries of five cost classes, and a bursty stream, recorded once.

A query hashes a text 2, 4, 8, 16 or 32 times, so that a whole group costs the dearest class several times
what it costs the cheapest, a run's overhead counted. It keeps the rows whose hash is small enough for its
selectivity, and adds a running sum by a key of its own, so that each query is a unit of its own.
Rows come in groups; when each of them comes is recorded, in files, and replayed for every policy: a group is
fed to a stream without a source, so that only admitting rows and running units is measured.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from slicemill.engine.mill import Mill
from slicemill.scheduling.arrays import Floats
from slicemill_lab.testbeds.arrivals import on_off

CLASSES = 5
STREAM = "reading"
_COLUMNS = "epoch int, number int, k int, v int, tag varchar, ts timestamp"
_KEYS = 20
_SECOND = 1_000_000


@dataclass(frozen=True, slots=True)
class LoadQuery:
    name: str
    cost_class: int
    selectivity: float
    rows_back: int
    options: str = ""

    @property
    def esl(self) -> str:
        hashed = "tag"
        for _ in range(2 * 2**self.cost_class):
            hashed = f"sha2({hashed}, 512)"
        least = f"{min(round(self.selectivity * 4096), 4095):03x}"
        # The same partitions under a key of its own: queries by one key would be one unit.
        key = f"k + {self.rows_back}"
        return (
            f"CREATE QUERY {self.name}{self.options} AS SELECT epoch, number, h, s FROM "
            f"(SELECT epoch, number, {hashed} AS h, "
            f"sum(v) OVER (PARTITION BY {key} ROWS {self.rows_back} PRECEDING) AS s FROM {STREAM}) AS hashed "
            f"WHERE h < '{least}'"
        )


def queries(count: int, seed: int) -> list[LoadQuery]:
    """Each class as often as the others; selectivities are uniform in [0.1, 1] (P36)."""
    random = np.random.default_rng(seed)
    return [LoadQuery(f"q{n}", n % CLASSES, float(random.uniform(0.1, 1.0)), 10 + n) for n in range(count)]


def script(chosen: Sequence[LoadQuery]) -> str:
    declared = f"CREATE STREAM {STREAM} ({_COLUMNS}) ORDER BY ts;\n"
    return declared + "".join(f"{query.esl};\n" for query in chosen)


def group(epoch: int, rows: int, seed: int) -> pa.Table:
    """Rows that arrive together."""
    random = np.random.default_rng((seed, epoch))
    ts = epoch * _SECOND + np.arange(rows)
    return pa.table(
        {
            "epoch": pa.array(np.full(rows, epoch), pa.int32()),
            "number": pa.array(np.arange(rows), pa.int32()),
            "k": pa.array(random.integers(0, _KEYS, rows), pa.int32()),
            "v": pa.array(random.integers(0, 1000, rows), pa.int32()),
            "tag": [f"{epoch}/{number}" for number in range(rows)],
            "ts": pa.array(ts, pa.timestamp("us", tz="UTC")),
        }
    )


@dataclass(frozen=True, slots=True)
class Recording:
    """Groups in files, and when each came; the first, at no time, only wakes the workers up."""

    folder: Path

    @classmethod
    def make(cls, folder: Path, groups: int, rows: int, gap_s: float, seed: int) -> Recording:
        folder.mkdir(parents=True)
        times = on_off(groups, gap_s, np.random.default_rng(seed))
        for epoch in range(groups + 1):
            pq.write_table(group(epoch, rows, seed), folder / f"{epoch:05d}.parquet")
        (folder / "arrivals.json").write_text(json.dumps((times - times[0]).tolist()))
        return cls(folder)

    @property
    def arrivals(self) -> Floats:
        return np.array(json.loads((self.folder / "arrivals.json").read_text()))

    def table(self, epoch: int) -> pa.Table:
        return pq.read_table(self.folder / f"{epoch:05d}.parquet")


def admit(mill: Mill, table: pa.Table) -> None:
    """A group arrives."""
    mill.feed(STREAM, table.cast(mill.home.logs[STREAM].columns))


def learned(mill: Mill) -> dict[str, dict[str, Any]]:
    """What is known of each query's unit."""
    return {query: mill.dispatcher.running.writers[query].statistics.plain() for query in mill.queries}


def teach(mill: Mill, known: Mapping[str, Mapping[str, Any]]) -> None:
    """Let units know what was learned of them in another mill."""
    for query, statistics in known.items():
        mill.dispatcher.running.writers[query].statistics.restore(statistics)


def replay(mill: Mill, recording: Recording) -> Floats:
    """Let every group arrive when it came in the recording; when they came now, by epoch."""
    tables = [recording.table(epoch + 1) for epoch in range(len(recording.arrivals))]
    came = np.zeros(len(tables) + 1)
    began = time.time()
    for epoch, (after_s, table) in enumerate(zip(recording.arrivals, tables, strict=True), start=1):
        time.sleep(max(0.0, began + after_s - time.time()))
        mill.check()
        came[epoch] = time.time()
        admit(mill, table)
    return came
