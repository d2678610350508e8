"""Benchmark of backfills: response times of live queries with and without a concurrent backfill.

Live queries read a retained stream. Then one more query starts from the beginning of the stream, whose log is
much longer than the rows that arrive meanwhile. Both runs get the same tuples at the same times. Compared is
the p99 of live results from the start of the backfill until it has caught up.

Workers are virtual (`measuring.virtual_workers`): the cost of a row is a constant of this module, so that two
workers behave the same on every machine. The dispatcher, its decisions, the journal and all state are the
product's.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from slicemill.api.mill import Mill
from slicemill.runtime.messages import ReadDone, RunDone
from slicemill.testing import open_mill
from slicemill_lab.bench.benchmark import Benchmark
from slicemill_lab.bench.measuring.responses import Moments, keyed_rows, responses
from slicemill_lab.bench.measuring.virtual_workers import VirtualWorkers
from slicemill_lab.claims import at_least, at_most
from slicemill_lab.experiment import Result, Scale
from slicemill_lab.on_engine import MovedClock
from slicemill_lab.progress import say

_US = 1_000_000
WORKERS = 2
RATE, KEYS, STEP_S = 500, 20, 0.02
# Seconds of work per run or read, and per row. Live queries use a third of the time of each worker.
RUN_S, ROW_S = 0.001, 50e-6
BOUND = 1.5

LIVE = {
    "few": "SELECT k, v FROM s WHERE v > 90",
    "sums": "SELECT k, sum(v) AS m FROM s [RANGE 2 SECONDS SLIDE 1 SECOND] GROUP BY k",
    "last": "SELECT k, max(v) OVER (PARTITION BY k RANGE 2 SECONDS PRECEDING) AS m FROM s",
    "rows": "SELECT v, count(*) OVER (PARTITION BY v ROWS 5 PRECEDING) AS n FROM s",
}
# Queries that emit a result per tuple, whose results measure how long a tuple waits.
TIMED = ("few", "last", "rows")
PAST = "SELECT k, avg(v) OVER (PARTITION BY k RANGE 1 SECOND PRECEDING) AS m FROM s"


@dataclass(frozen=True, slots=True)
class Played:
    """Response times of live results during the backfill, and figures of the backfill."""

    p50_s: float
    p99_s: float
    results: int
    backfill_s: float
    rows: int
    same: bool  # the backfilled query and one that existed from the start have the same rows

    def plain(self) -> dict[str, Any]:
        return {
            "p50, s": round(self.p50_s, 5),
            "p99, s": round(self.p99_s, 5),
            "live results": self.results,
            "seconds of backfill": round(self.backfill_s, 2),
            "rows of the past": self.rows,
        }


def played(*, backfill: bool, past_s: float, most_s: float) -> Played:
    """Feed tuples for `past_s`, and then until the end of the backfill, or for `most_s` at most."""
    clock = MovedClock()
    pool = VirtualWorkers(WORKERS, clock, _work_s)
    random = np.random.default_rng(1)
    with (
        tempfile.TemporaryDirectory(prefix="slicemill-bench-") as home,
        open_mill(
            home=Path(home), pool=pool, clock=clock, read_sources=False, subtasks=1, keep_s=1e9
        ) as mill,
    ):
        mill.execute("CREATE STREAM s (k int, v int, ts timestamp micros) ORDER BY ts RETAIN 1 DAY;")
        mill.execute("".join(f"CREATE QUERY {name} AS {text};" for name, text in LIVE.items()))
        mill.execute(f"CREATE QUERY always AS {PAST}")
        mill.open()
        next_us, begun_us, done_us, rows = 0, 0, 0, 0
        while not done_us:
            if clock.now >= next_us:
                mill.feed("s", keyed_rows(random, next_us, round(RATE * STEP_S), KEYS))
                next_us += round(STEP_S * _US)
            if not begun_us and clock.now >= past_s * _US:
                begun_us, rows = clock.now, mill.home.logs["s"].rows
                if backfill:
                    mill.execute(f"CREATE QUERY past FROM BEGINNING AS {PAST}")
            mill.dispatcher.turn()
            clock.now = max(clock.now, min(next_us, pool.next_us or next_us))
            over = begun_us and clock.now - begun_us >= most_s * _US
            if over or (backfill and begun_us and mill.queries["past"].progress() is None):
                done_us = clock.now
        mill.dispatcher.run_all()
        found = np.concatenate([_responses(mill, name, begun_us, done_us) for name in TIMED]) / _US
        same = not backfill or mill.queries["past"].timed_rows() == mill.queries["always"].timed_rows()
        p50, p99 = np.quantile(found, [0.5, 0.99])
        return Played(float(p50), float(p99), len(found), (done_us - begun_us) / _US, rows, same)


def _responses(mill: Mill, query: str, begun_us: int, done_us: int) -> Moments:
    """Return the response times of tuples that arrived during the backfill."""
    arrived, took = responses(mill.queries[query].log)
    return took[(arrived >= begun_us) & (arrived < done_us)]


def _work_s(done: RunDone | ReadDone) -> float:
    return RUN_S if isinstance(done, ReadDone) else RUN_S + ROW_S * done.rows_in


PAST_S: Mapping[Scale, float] = {"small": 30.0, "full": 300.0}


def run(scale: Scale) -> Result:
    say("with a backfill")
    past_s = PAST_S[scale]
    beside = played(backfill=True, past_s=past_s, most_s=20 * past_s)
    say("without")
    alone = played(backfill=False, past_s=past_s, most_s=beside.backfill_s)
    claims = (
        at_most("p99 of live results, times that without a backfill", beside.p99_s / alone.p99_s, BOUND),
        at_most("seconds of backfill by seconds of the past", beside.backfill_s / past_s, 1.0),
        at_least("rows of the past are those of a query that was always there", float(beside.same), 1.0),
    )
    figures = {
        "how": f"{past_s:g} s of the past, {WORKERS} virtual workers, {RATE} tuples/s, "
        f"{len(LIVE) + 1} live queries",
        "with a backfill": beside.plain(),
        "without": alone.plain(),
    }
    return Result(claims, figures)


BENCHMARK = Benchmark("a query that reads the past does not hurt live ones", run)
