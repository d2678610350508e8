"""Keyed rows for virtual time, and response times of results."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from slicemill.storage.log import Log

Moments: TypeAlias = np.ndarray[Any, Any]


def keyed_rows(random: np.random.Generator, now_us: int, count: int, keys: int) -> pa.Table:
    """Return rows with a key k, a value v and a time ts, starting now."""
    columns = {
        "k": pa.array(random.integers(0, keys, count), pa.int32()),
        "v": pa.array(random.integers(0, 100, count), pa.int32()),
        "ts": pa.array(now_us + np.arange(count), pa.timestamp("us", tz="UTC")),
    }
    return pa.table(columns)


def responses(log: Log) -> tuple[Moments, Moments]:
    """Return for all results in a log the arrival of their newest tuple, and their response time."""
    arrived, took = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for epoch in log.epochs():
        moments = log.read(epoch).column("_arr").to_numpy()
        arrived.append(moments)
        took.append(epoch.arrival_us - moments)
    return np.concatenate(arrived), np.concatenate(took)
