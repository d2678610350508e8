"""Queries with state per key, and rows with a given number of keys."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.columns.arrow_schema import ARRIVAL, SEQ, TS

STREAM = (
    "CREATE STREAM s (k bigint, i bigint, v double, d decimal(12, 2), t varchar, ts timestamp) ORDER BY ts;\n"
)
_COMPILED = """
CREATE AGGREGATE decayed(x double) : double {
  TABLE state(now double);
  INITIALIZE: { INSERT INTO state VALUES (x); INSERT INTO RETURN VALUES (x); }
  ITERATE: { UPDATE state SET now = now * 0.9 + x; INSERT INTO RETURN SELECT now FROM state; }
};
"""
_INTERPRETED = """
CREATE AGGREGATE middle(x double) : double {
  TABLE seen(v double);
  INITIALIZE: { INSERT INTO seen VALUES (x); INSERT INTO RETURN VALUES (x); }
  ITERATE: { UPDATE seen SET v = v + x; INSERT INTO RETURN SELECT median(v) FROM seen; }
};
"""
_CLASS = """
CREATE AGGREGATE spread(x double) : double LANGUAGE PYTHON
  AS 'slicemill_lab.bench.inputs.keyed_states:Spread';
"""
_NUMBERS = """
CREATE AGGREGATE width(x double) : double LANGUAGE PYTHON
  AS 'slicemill_lab.bench.inputs.keyed_states:Width';
"""


class Spread:
    """User-defined aggregate whose state is an object: the maximum minus the minimum."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def initialize(self, x: float) -> float:
        self.values = [x, x]
        return 0.0

    def iterate(self, x: float) -> float:
        self.values = [min(self.values[0], x), max(self.values[1], x)]
        return self.values[1] - self.values[0]


class Width:
    """Same aggregate with annotated fields. It is compiled, unless an argument is NULL."""

    low: float
    high: float

    def initialize(self, x):  # type: ignore[no-untyped-def]
        self.low = self.high = 0.0 if x is None else x
        return 0.0

    def iterate(self, x):  # type: ignore[no-untyped-def]
        if x is not None:
            self.low, self.high = min(self.low, x), max(self.high, x)
        return self.high - self.low


@dataclass(frozen=True, slots=True)
class KeyedQuery:
    """Query with state per key. It gets the fraction `share` of the keys of other queries.

    `by_rows` marks operators without a kernel.
    """

    name: str
    select: str
    aggregates: str = ""
    share: float = 1.0
    by_rows: bool = False

    @property
    def script(self) -> str:
        return f"{STREAM}{self.aggregates}CREATE QUERY q AS {self.select};"


def _query(name: str, select: str, aggregates: str = "", share: float = 1.0) -> KeyedQuery:
    return KeyedQuery(name, select, aggregates, share)


def _over(name: str, call: str, window: str, aggregates: str = "") -> KeyedQuery:
    select = f"SELECT k, {call} OVER (PARTITION BY k {window}) AS x FROM s"
    return KeyedQuery(f"OVER {window.lower()}: {name}", select, aggregates)


def _by_rows(name: str, select: str, share: float = 1.0) -> KeyedQuery:
    return KeyedQuery(name, select, share=share, by_rows=True)


_BY_KEY = "SELECT k, {} AS x FROM s GROUP BY k"
_CHANGES = "(SELECT k, max(i) AS n FROM s GROUP BY k) AS c"
_CHANGED = "(SELECT k, max(i) AS n FROM s GROUP BY k) AS a, (SELECT k, min(i) AS m FROM s GROUP BY k) AS b"

QUERIES = (
    _query("GROUP BY: count and sum of bigint", "SELECT k, count(*) AS n, sum(i) AS x FROM s GROUP BY k"),
    *(
        _query(f"GROUP BY: {name}", _BY_KEY.format(call))
        for name, call in (
            ("avg of double", "avg(v)"),
            ("stddev of double", "stddev(v)"),
            ("stddev of bigint", "stddev(i)"),
            ("sum of decimal", "sum(d)"),
            ("avg of decimal", "avg(d)"),
            ("max of double", "max(v)"),
            ("min of varchar", "min(t)"),
            ("count(DISTINCT)", "count(DISTINCT i)"),
            ("median", "median(v)"),
            ("string_agg", "string_agg(t, ',')"),
            ("collect_list", "collect_list(i)"),
        )
    ),
    _query("GROUP BY: compiled aggregate", _BY_KEY.format("decayed(v)"), _COMPILED),
    _query("GROUP BY: interpreted aggregate", _BY_KEY.format("middle(v)"), _INTERPRETED, share=0.1),
    _query("GROUP BY: Python class", _BY_KEY.format("spread(v)"), _CLASS, share=0.1),
    _query("GROUP BY of a changelog", f"SELECT k, stddev(n) AS x FROM {_CHANGES} GROUP BY k"),
    _over("avg", "avg(v)", "RANGE UNBOUNDED PRECEDING"),
    _over("max of varchar", "max(t)", "ROWS UNBOUNDED PRECEDING"),
    _over("compiled aggregate", "decayed(v)", "ROWS UNBOUNDED PRECEDING", _COMPILED),
    _over("avg", "avg(v)", "ROWS 1 PRECEDING"),
    _over("avg", "avg(v)", "RANGE 1 DAY PRECEDING"),
    _query("lag", "SELECT k, lag(v) OVER (PARTITION BY k ORDER BY ts) AS x FROM s"),
    _query("sliding windows", "SELECT k, avg(v) AS x FROM s [RANGE 1 DAY SLIDE 1 HOUR] GROUP BY k"),
    _query("sessions", "SELECT k, avg(v) AS x FROM s [SESSION 1 DAY] GROUP BY k"),
    _query(
        "first rows",
        "SELECT k, v FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY v DESC) AS r "
        "FROM s) AS t WHERE r <= 1",
    ),
    _query(
        "first three rows",
        "SELECT k, v FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY v DESC) "
        "AS r FROM s) AS t WHERE r <= 3",
    ),
    _query("GROUP BY: compiled Python class", _BY_KEY.format("width(v)"), _NUMBERS),
    _query("GROUP BY: compiled Python class, with NULL", _BY_KEY.format("width(nullif(v, 0.0))"), _NUMBERS),
    _query("GROUP BY: compiled aggregate, with NULL", _BY_KEY.format("decayed(nullif(v, 0.0))"), _COMPILED),
    _by_rows(
        "windows that change",
        "SELECT k, avg(v) AS x FROM s [RANGE 1 DAY SLIDE 1 DAY] GROUP BY k EMIT EARLY EVERY 1 HOUR",
    ),
    _by_rows(
        "sessions that change",
        "SELECT k, avg(v) AS x FROM s [SESSION 1 DAY] GROUP BY k EMIT EARLY EVERY 1 HOUR",
    ),
    _by_rows("join of changelogs", f"SELECT a.k, a.n, b.m FROM {_CHANGED} WHERE a.k = b.k"),
    _by_rows(
        "join of three streams over rows",
        "SELECT a.k FROM s [ROWS 9] AS a, s [ROWS 9] AS b, s [ROWS 9] AS c WHERE a.k = b.k AND b.k = c.k",
        share=0.004,
    ),
    _by_rows(
        "ranks",
        "SELECT k, v, r FROM (SELECT *, rank() OVER (PARTITION BY k ORDER BY v DESC) AS r FROM s) AS t "
        "WHERE r <= 3",
    ),
    _by_rows(
        "GROUP BY of a changelog: collect_list",
        f"SELECT k, collect_list(n) AS x FROM {_CHANGES} GROUP BY k",
    ),
    _by_rows(
        "windows that rows close",
        "SELECT a.k, b.i FROM s [CLOSE WHEN i = 999] AS a JOIN s [CLOSE WHEN i = 998] AS b ON a.k = b.k",
    ),
    _query("DISTINCT", "SELECT DISTINCT k FROM s"),
    _query("self-join", "SELECT a.k, b.v FROM s [RANGE 1 DAY] AS a, s [RANGE 1 DAY] AS b WHERE a.k = b.k"),
)
"""Together, these queries use the state of every keyed operator."""


def rows_of(keys: NDArray[np.int64], first: int) -> pa.Table:
    """Return rows of the stream with these keys, numbered from `first`."""
    seqs = np.arange(first, first + len(keys))
    cents = (seqs * 7_919) % 100_003
    ts = 1_700_000_000_000_000 + seqs
    return pa.table(
        {
            TS: ts,
            SEQ: seqs,
            ARRIVAL: seqs,
            "k": keys,
            "i": cents % 1_000,
            "v": cents / 100.0,
            "d": _decimals(cents),
            "t": pa.array([f"t{cent}" for cent in cents.tolist()]),
            "ts": pa.array(ts, pa.timestamp("us", tz="UTC")),
        }
    )


def _decimals(cents: NDArray[np.int64]) -> pa.Array:
    """Convert cents to DECIMAL(12, 2)."""
    words = np.zeros((len(cents), 2), np.int64)
    words[:, 0] = cents
    return pa.Array.from_buffers(pa.decimal128(12, 2), len(cents), [None, pa.py_buffer(words)])
