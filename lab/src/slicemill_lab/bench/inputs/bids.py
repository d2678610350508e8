"""Input of the ingest benchmark: NEXMark bids in Parquet files that arrive in a folder, and filters.

Each file is written once, outside of the folder of the stream, and arrives by a hard link. So a visible file
is complete, and its arrival costs nothing that would be measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from slicemill.connectors.generators import nexmark

COLUMNS = {"auction": "BIGINT", "bidder": "BIGINT", "price": "BIGINT", "channel": "STRING", "ts": "TIMESTAMP"}

_EVENTS_PER_BID = nexmark.EVENTS_PER_CYCLE / (nexmark.EVENTS_PER_CYCLE - nexmark.AUCTIONS_PER_CYCLE - 1)


def one_condition() -> list[str]:
    """Return a filter with a selectivity of a tenth. Prices are uniform over decimal orders of magnitude."""
    return [f"price > {100 * 10**5.4:.0f}"]


def many_conditions() -> list[str]:
    """Return twenty filters of a tenth of the bids each. Every bid passes two, so none can be skipped."""
    edges = [round(100 * 10 ** (0.6 * step)) for step in range(11)]
    bands = [f"price >= {low} AND price < {high}" for low, high in pairwise(edges)]
    return bands + [f"bidder % 10 = {digit}" for digit in range(10)]


def write_bids(folder: Path, files: int, rows_per_file: int) -> list[Path]:
    """Write files of bids in time order."""
    folder.mkdir(parents=True, exist_ok=True)
    events = round(rows_per_file * _EVENTS_PER_BID)
    return [
        _write_file(folder / f"{number:05d}.parquet", number * events, (number + 1) * events)
        for number in range(files)
    ]


def _write_file(path: Path, first: int, last: int) -> Path:
    made = nexmark.columns("bid", first, last)
    times = pa.array(made["ts"], pa.timestamp("us", tz="UTC"))
    pq.write_table(pa.table({name: times if name == "ts" else made[name] for name in COLUMNS}), path)
    return path


def expected_counts(paths: Sequence[Path], conditions: Sequence[str]) -> list[int]:
    """Count the bids that pass each filter with pandas, whose syntax differs slightly."""
    bids = pa.concat_tables([pq.read_table(path, columns=["bidder", "price"]) for path in paths]).to_pandas()
    texts = [condition.replace(" AND ", " and ").replace(" = ", " == ") for condition in conditions]
    return [int(bids.eval(text, engine="python").sum()) for text in texts]


@dataclass
class Feed:
    """Folder in which files arrive."""

    folder: Path
    arrived: list[Path] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)

    def arrive(self, paths: Sequence[Path]) -> None:
        for path in paths:
            (self.folder / path.name).hardlink_to(path)
        self.arrived += paths
