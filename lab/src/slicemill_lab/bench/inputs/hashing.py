"""Queries that hash every row many times, and groups of rows for them.

A query hashes a text 2, 4, 8, 16 or 32 times, keeps rows with a hash below a limit set by its selectivity,
and adds a running sum. Each query uses its own key, so that it runs in its own task. Groups of rows are fed
to a stream without a source, so that only the admission of rows and the runs of tasks are measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from slicemill.api.mill import Mill

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
        # The same partitions under a different key expression: queries with one key would share a task.
        key = f"k + {self.rows_back}"
        return (
            f"CREATE QUERY {self.name}{self.options} AS SELECT epoch, number, h, s FROM "
            f"(SELECT epoch, number, {hashed} AS h, "
            f"sum(v) OVER (PARTITION BY {key} ROWS {self.rows_back} PRECEDING) AS s FROM {STREAM}) AS hashed "
            f"WHERE h < '{least}'"
        )


def script(chosen: Sequence[LoadQuery]) -> str:
    declared = f"CREATE STREAM {STREAM} ({_COLUMNS}) ORDER BY ts;\n"
    return declared + "".join(f"{query.esl};\n" for query in chosen)


def group(epoch: int, rows: int, seed: int) -> pa.Table:
    """Return rows that arrive together."""
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


def admit(mill: Mill, table: pa.Table) -> None:
    """Feed a group of rows."""
    mill.feed(STREAM, table.cast(mill.home.logs[STREAM].columns))


def learned(mill: Mill) -> dict[str, dict[str, Any]]:
    """Return the statistics of each query's task."""
    return {query: mill.dispatcher.running.writers[query].statistics.plain() for query in mill.queries}


def teach(mill: Mill, known: Mapping[str, Mapping[str, Any]]) -> None:
    """Restore statistics of tasks that were learned in another mill."""
    for query, statistics in known.items():
        mill.dispatcher.running.writers[query].statistics.restore(statistics)
