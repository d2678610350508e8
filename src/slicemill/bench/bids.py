"""Input of the ingest benchmark: NEXMark bids in Parquet files that arrive in a folder, and filters on them.

A file is written once, apart from the folder that streams read, and arrives there by a link: it is whole when
it is seen, and arriving costs nothing that would be measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from slicemill.sources import nexmark

SCHEMA = "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, ts TIMESTAMP, file BIGINT"
COLUMNS = "auction, bidder, price, channel, ts, file"

_EVENTS_PER_BID = nexmark.EVENTS_PER_CYCLE / (nexmark.EVENTS_PER_CYCLE - nexmark.AUCTIONS_PER_CYCLE - 1)


def one_condition() -> list[str]:
    """A tenth of the bids: prices are as likely in each decimal order of magnitude as in the next."""
    return [f"price > {100 * 10**5.4:.0f}"]


def many_conditions() -> list[str]:
    """Twenty filters of a tenth of the bids each. Every bid passes two: none can be left out unread."""
    edges = [round(100 * 10 ** (0.6 * step)) for step in range(11)]
    bands = [f"price >= {low} AND price < {high}" for low, high in pairwise(edges)]
    return bands + [f"bidder % 10 = {digit}" for digit in range(10)]


def write_bids(folder: Path, files: int, rows_per_file: int) -> list[Path]:
    """Files of bids in the order of their times; column `file` has the number of a row's file."""
    folder.mkdir(parents=True, exist_ok=True)
    events = round(rows_per_file * _EVENTS_PER_BID)
    return [
        _write_file(folder / f"{number:05d}.parquet", number, number * events, (number + 1) * events)
        for number in range(files)
    ]


def _write_file(path: Path, number: int, first: int, last: int) -> Path:
    columns = dict(nexmark.columns("bid", first, last))
    columns["ts"] = pa.array(columns["ts"], pa.timestamp("us", tz="UTC"))
    columns["file"] = np.full(len(columns["ts"]), number, np.int64)
    pq.write_table(pa.table(columns), path)
    return path


def count_rows(paths: Iterable[Path]) -> int:
    return sum(pq.read_metadata(path).num_rows for path in paths)


@dataclass
class Feed:
    """A folder that files arrive in."""

    folder: Path
    arrived: list[Path] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)

    def arrive(self, paths: Sequence[Path]) -> None:
        for path in paths:
            (self.folder / path.name).hardlink_to(path)
        self.arrived += paths
