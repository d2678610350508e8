"""Input of the benchmark of many queries: batches of bids and offers in files, and expected counts.

    batch 0                         batch 1
    |----- 20 s of rows -----|  #   |----- 20 s of rows -----|  #          # last rows, one a stream, at 21 s

The last rows advance both watermarks to the same time, past the end of every earlier window. Only OVER has
results for these rows, as no other row has their prices and keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from slicemill_lab.bench.inputs import query_sets

BIDS, OFFERS = 1_600, 400  # per batch
AUCTIONS, BIDDERS = 100, 200
STREAMS = {
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, ts TIMESTAMP",
    "offer": "auction BIGINT, seller BIGINT, reserve BIGINT, ts TIMESTAMP",
}

_SECOND = 1_000_000
_FIRST_S = 1_700_000_000
_ROWS_S, _LAST_S, _BATCH_S = 20, 21, 22
_SLIDE_S = 2
_MOST_PRICE = 1_000_000

Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Batch:
    """Batch without its last rows. Times are microseconds."""

    bids: Mapping[str, Numbers]
    offers: Mapping[str, Numbers]
    last_us: int


def make_batches(count: int, seed: int = 1) -> list[Batch]:
    random = np.random.default_rng(seed)
    return [_batch(random, _FIRST_S + number * _BATCH_S) for number in range(count)]


def _batch(random: np.random.Generator, start_s: int) -> Batch:
    def times(rows: int) -> Numbers:
        # All times are distinct, so that the order of equal times does not matter.
        spread = np.sort(random.choice(_ROWS_S * _SECOND // 10, rows, replace=False)) * 10
        return start_s * _SECOND + spread

    bids = {
        "auction": random.integers(0, AUCTIONS, BIDS),
        "bidder": random.integers(0, BIDDERS, BIDS),
        "price": random.integers(1, _MOST_PRICE, BIDS),
        "ts": times(BIDS),
    }
    offers = {
        "auction": random.integers(0, AUCTIONS, OFFERS),
        "seller": random.integers(0, BIDDERS, OFFERS),
        "reserve": random.integers(1, _MOST_PRICE, OFFERS),
        "ts": times(OFFERS) + 5,
    }
    return Batch(bids, offers, (start_s + _LAST_S) * _SECOND)


def write_batch(batch: Batch, folder: Path) -> dict[str, Path]:
    """Write a file for each stream, including its last row."""
    folder.mkdir(parents=True)
    paths = {}
    for stream, columns in (("bid", batch.bids), ("offer", batch.offers)):
        whole = {
            name: np.append(values, batch.last_us if name == "ts" else _outside(name))
            for name, values in columns.items()
        }
        arrays = {name: pa.array(values) for name, values in whole.items()}
        arrays["ts"] = arrays["ts"].cast(pa.timestamp("us", tz="UTC"))
        paths[stream] = folder / f"{stream}.parquet"
        pq.write_table(pa.table(arrays), paths[stream])
    return paths


def _outside(column: str) -> int:
    return 0 if column == "price" else -1


class ExpectedOfMany:
    """Expected number of results of each query after some batches."""

    def __init__(self, batches: list[Batch]) -> None:
        self._bids = {
            name: np.concatenate([batch.bids[name] for batch in batches]) for name in batches[0].bids
        }
        self._last_us = batches[-1].last_us
        offers = {
            name: np.concatenate([batch.offers[name] for batch in batches]) for name in ("auction", "ts")
        }
        bid, offer = np.nonzero(self._bids["auction"][:, None] == offers["auction"][None, :])
        self._apart_us = np.abs(self._bids["ts"][bid] - offers["ts"][offer])
        self._pair_price = self._bids["price"][bid]

    def count(self, query: str) -> int:
        """Count the results of a query, by its name in `query_sets`.

        Results for last rows (OVER) are not counted.
        """
        kind, _, number = query.rpartition("_")
        counts = {"filter": self._filter, "window": self._window, "over": self._over, "join": self._join}
        return counts[kind](int(number))

    def _filter(self, number: int) -> int:
        passes = self._bids["price"] > query_sets.filter_bound(number)
        if number % 2:
            passes &= self._bids["bidder"] % 10 == number // 2 % 10
        return int(passes.sum())

    def _over(self, number: int) -> int:  # noqa: ARG002 - a result for each row
        return len(self._bids["ts"])

    def _join(self, number: int) -> int:
        near = self._apart_us < query_sets.join_seconds(number) * _SECOND
        return int((near & (self._pair_price > query_sets.join_bound(number))).sum())

    def _window(self, number: int) -> int:
        """Count distinct pairs of a window end and a key with rows in the window."""
        passes = self._bids["price"] > query_sets.window_bound(number)
        key = self._bids[query_sets.KEYS[number % 2]][passes]
        # A row belongs to the windows that end after it, up to one window length later.
        first = self._bids["ts"][passes] // (_SLIDE_S * _SECOND) + 1
        ends = first[:, None] + np.arange(query_sets.window_seconds(number) // _SLIDE_S)[None, :]
        ended = ends * _SLIDE_S * _SECOND <= self._last_us
        keys = np.broadcast_to(key[:, None], ends.shape)
        return len(np.unique(ends[ended] * (1 << 20) + keys[ended]))
