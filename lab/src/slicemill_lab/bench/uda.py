"""Benchmark of user-defined aggregates in ESL against hand-written Numba, in rows per CPU second.

Both sides process the same columns in the same chunks, keep their state between chunks, and must give the
same values. Both are compiled before the measurement. Rounds alternate, and the best round counts, because
noise of the machine only adds time. The chunk sizes are typical batch sizes of Spark. One aggregate also runs
end to end, from Parquet files on Spark to results in a log.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from os import getloadavg
from typing import Any

import numpy as np
from numba import njit

from slicemill import types as t
from slicemill.aggregates.calls import Tuples
from slicemill.aggregates.udf.compiler.prepare import prepare
from slicemill.binder import bind
from slicemill.catalog.expressions import ColumnRef
from slicemill.catalog.queries import AggregateCall, FrameUnit, Window, WindowCall
from slicemill.functions.vectors import Vector
from slicemill_lab.bench.benchmark import Benchmark
from slicemill_lab.bench.measuring.uda_on_spark import end_to_end
from slicemill_lab.claims import at_most, timed
from slicemill_lab.experiment import Result, Scale

PARTITIONS = 1000
CHUNKS = (100_000, 200_000)
WINDOW = 100
BAR = 1.3

ESL = """
CREATE AGGREGATE decayed(next real) : real { TABLE state(total real, n int);
  INITIALIZE: { INSERT INTO state VALUES (next, 1); INSERT INTO RETURN VALUES (next); }
  ITERATE: { UPDATE state SET total = 0.9 * total + 1.1 * next, n = n + 1;
             INSERT INTO RETURN SELECT total / n FROM state; } };
CREATE WINDOW AGGREGATE average(next real) : real { TABLE state(total real, n int); TABLE inwindow(w real);
  INITIALIZE: { INSERT INTO state VALUES (next, 1); INSERT INTO RETURN VALUES (next); }
  ITERATE: { UPDATE state SET total = total + next, n = n + 1;
             INSERT INTO RETURN SELECT total / n FROM state; }
  EXPIRE: { UPDATE state SET total = total - oldest(), n = n - 1; } };
CREATE WINDOW AGGREGATE highest(next real) : real { TABLE inwindow(w real);
  INITIALIZE: ITERATE: { DELETE FROM inwindow WHERE w < next; INSERT INTO RETURN VALUES (oldest()); }
  EXPIRE: { } };
"""

Columns = tuple[np.ndarray[Any, Any], ...]  # partitions, values, timestamps
Side = Callable[[], Callable[[Columns], Any]]  # creates state; the returned function processes chunks


@njit(cache=True)
def decayed(codes: Any, values: Any, total: Any, n: Any) -> Any:
    out = np.empty(len(values))
    for i in range(len(values)):
        p = codes[i]
        if n[p] == 0:
            total[p] = values[i]
            n[p] = 1
            out[i] = values[i]
        else:
            total[p] = 0.9 * total[p] + 1.1 * values[i]
            n[p] += 1
            out[i] = total[p] / n[p]
    return out


@njit(cache=True)
def average_of_rows(codes: Any, values: Any, total: Any, n: Any, seen: Any, ring: Any) -> Any:
    size = ring.shape[1]
    out = np.empty(len(values))
    for i in range(len(values)):
        p = codes[i]
        place = seen[p] % size
        if seen[p] >= size:
            total[p] -= ring[p, place]
            n[p] -= 1
        ring[p, place] = values[i]
        seen[p] += 1
        total[p] += values[i]
        n[p] += 1
        out[i] = total[p] / n[p]
    return out


@njit(cache=True)
def highest_of_rows(codes: Any, values: Any, seen: Any, head: Any, tail: Any, queue: Any, at: Any) -> Any:
    """Monotonic queue of decreasing values in a ring buffer, at most as long as the window."""
    size = queue.shape[1]
    out = np.empty(len(values))
    for i in range(len(values)):
        p = codes[i]
        while tail[p] > head[p] and at[p, head[p] % size] <= seen[p] - size:
            head[p] += 1
        while tail[p] > head[p] and queue[p, (tail[p] - 1) % size] < values[i]:
            tail[p] -= 1
        queue[p, tail[p] % size] = values[i]
        at[p, tail[p] % size] = seen[p]
        tail[p] += 1
        seen[p] += 1
        out[i] = queue[p, head[p] % size]
    return out


def _whole() -> Any:
    return np.zeros(PARTITIONS, np.int64)


def _by_hand_decayed() -> Callable[[Columns], Any]:
    state = np.zeros(PARTITIONS), _whole()
    return lambda columns: decayed(columns[0], columns[1], *state)


def _by_hand_average() -> Callable[[Columns], Any]:
    state = np.zeros(PARTITIONS), _whole(), _whole(), np.zeros((PARTITIONS, WINDOW))
    return lambda columns: average_of_rows(columns[0], columns[1], *state)


def _by_hand_highest() -> Callable[[Columns], Any]:
    rings = np.zeros((PARTITIONS, WINDOW)), np.zeros((PARTITIONS, WINDOW), np.int64)
    state = _whole(), _whole(), _whole(), *rings
    return lambda columns: highest_of_rows(columns[0], columns[1], *state)


def _in_esl(name: str, window: Window | None) -> Side:
    catalog = bind(ESL).catalog
    arguments = (ColumnRef("price", t.DOUBLE),)
    definition = next(version for version in catalog.aggregates(name) if version is not None)
    columns = definition.returns.columns
    call = (
        AggregateCall(name, arguments, False, columns)
        if window is None
        else WindowCall(name, arguments, False, (), window, columns)
    )
    uda = prepare(call, catalog)

    def begin() -> Callable[[Columns], Any]:
        state = uda.start()

        def take(columns: Columns) -> Any:
            codes, values, ts = columns
            return uda.run(state, Tuples([Vector(t.DOUBLE, values)], codes, ts)).columns[0].data

        return take

    return begin


@dataclass(frozen=True, slots=True)
class AggregateCase:
    what: str
    esl: Side
    by_hand: Side


def cases() -> list[AggregateCase]:
    rows = Window(FrameUnit.ROWS, WINDOW - 1)
    return [
        AggregateCase("decayed average, GROUP BY", _in_esl("decayed", None), _by_hand_decayed),
        AggregateCase(f"average over {WINDOW} rows, with EXPIRE", _in_esl("average", rows), _by_hand_average),
        AggregateCase(f"highest of {WINDOW} rows, with DELETE", _in_esl("highest", rows), _by_hand_highest),
    ]


def chunks(rows: int, size: int) -> Iterator[Columns]:
    random = np.random.default_rng(1)
    for first in range(0, rows, size):
        codes = random.integers(0, PARTITIONS, size).astype(np.int32)
        yield codes, random.random(size), np.arange(first, first + size, dtype=np.int64)


def run(scale: Scale) -> Result:
    rows, rounds = (1_000_000, 5) if scale == "small" else (10_000_000, 7)
    claims, rates = [], {}
    for size in CHUNKS:
        data = list(chunks(rows, size))
        for case in cases():
            what = f"{case.what}, chunks of {size // 1000} k rows"
            seconds = measure(case, data, rounds)
            ratio = seconds["esl"] / seconds["by hand"]
            claims.append(timed(at_most(f"{what}: CPU time of ESL over that by hand", ratio, BAR)))
            rates[what] = {side: rows / spent for side, spent in seconds.items()}
    files = 10 if scale == "small" else 40
    streamed = end_to_end(ESL, f"average(v) OVER (PARTITION BY k ROWS {WINDOW - 1} PRECEDING)", files)
    expected = _by_hand_average()((streamed.k, streamed.v, streamed.k))
    wrong = int(np.count_nonzero(np.sort(streamed.results) != np.sort(expected)))
    claims.append(at_most("on Spark, end to end: results that are not those by hand", wrong, 0))
    figures = {
        "rates": rates,
        "unit": f"rows per CPU second, one core, {rows} rows, {PARTITIONS} partitions",
        f"average over {WINDOW} rows, on Spark, Parquet to log": streamed.figures(),
        "load of the machine, 1 min": round(getloadavg()[0], 1),
    }
    return Result(tuple(claims), figures)


def measure(case: AggregateCase, data: list[Columns], rounds: int) -> Mapping[str, float]:
    """Return the CPU seconds of the best round of each side. State is kept between rounds."""
    sides = {"esl": case.esl(), "by hand": case.by_hand()}
    answers = {side: np.concatenate([take(columns) for columns in data]) for side, take in sides.items()}
    assert np.array_equal(answers["esl"], answers["by hand"]), f"{case.what}: the sides do not agree"
    best = dict.fromkeys(sides, float("inf"))
    for _ in range(rounds):
        for side, take in sides.items():
            began = time.process_time()
            for columns in data:
                take(columns)
            best[side] = min(best[side], time.process_time() - began)
    return best


BENCHMARK = Benchmark("aggregates written in ESL, beside Numba by hand", run)
