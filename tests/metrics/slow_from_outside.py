"""Response times reported by slicemill, beside a measurement from outside (`make test-slow`).

One process stamps tuples and sends them; another process reads results as they are committed. slicemill
counts from the arrival at its reader to the moment at which a subscriber can read. The two measurements
differ by the way from the sender to the reader and by the subscriber's polls of the journal. A busy machine
makes both longer, so the span of time with the best agreement counts. If slicemill counted another time, such
as a wait for the next batch or for a window to fill, all spans would differ.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from slicemill.api.mill import Mill
from slicemill.metrics.quality_of_service import Quantiles
from slicemill_lab.bench.live.processes import Program
from slicemill_lab.bench.live.queries import CATEGORIES, script
from slicemill_lab.bench.live.samples import load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LATER = "CASE WHEN A.sent > B.sent THEN A.sent ELSE B.sent END AS sent"
QUERIES = {
    "chosen": "SELECT sent, price FROM bid WHERE price > 10000",
    "joined": f"SELECT {LATER}, A.id FROM auction AS A, bid AS B WHERE A.id = B.auction WINDOW 60 SECONDS",
    "merged": "SELECT sent, id FROM auction UNION ALL SELECT sent, auction FROM bid",
    "level": "SELECT channel, newest(sent) AS sent FROM bid GROUP BY channel",
    "big": "SELECT sent, price FROM big_bid",
    "big_bids": "SELECT count(*) AS bids, window_end() AS due FROM big_bid "
    "[RANGE 400 MILLISECONDS SLIDE 100 MILLISECONDS]",
    "highest": "SELECT sent, max(price) OVER (PARTITION BY auction ROWS 9 PRECEDING) AS high FROM bid",
    "bids": "SELECT count(*) AS bids, window_end() AS due FROM bid "
    "[RANGE 400 MILLISECONDS SLIDE 100 MILLISECONDS]",
}
RATE = 200
SPANS, ROWS_PER_SPAN = 8, 10
PATIENCE_S = 120.0


def now_us() -> int:
    return time.time_ns() // 1_000


def wait_for_rows(mill: Mill, rows: int) -> None:
    """Wait until every query has emitted so many more rows."""
    goals = {name: mill.queries[name].metrics().rows + rows for name in QUERIES}
    with mill.dispatcher.changed:
        assert mill.dispatcher.changed.wait_for(
            lambda: all(mill.queries[name].metrics().rows >= goal for name, goal in goals.items()),
            PATIENCE_S,
        )
    mill.check()


def test_response_times_agree_with_those_measured_from_outside(spark: SparkSession, tmp_path: Path) -> None:
    home, samples, python = tmp_path / "home", tmp_path / "samples.npz", [sys.executable, "-m"]
    (tmp_path / "category.csv").write_text(CATEGORIES)
    told: list[tuple[int, int, dict[str, float]]] = []
    with ExitStack() as programs:
        sender = Program(
            "sender", [*python, "slicemill_lab.bench.live.sender", str(tmp_path / "sent")], tmp_path
        )
        programs.callback(sender.stop)
        watching = [*python, "slicemill_lab.bench.live.subscriber", str(samples), "home", str(home), *QUERIES]
        subscriber = Program("subscriber", watching, tmp_path)
        programs.callback(subscriber.stop)
        ports = json.loads(sender.line(PATIENCE_S))
        with Mill(spark, home) as mill:
            mill.execute(script(QUERIES, ports, tmp_path / "category.csv"))
            mill.start()
            sender.say(str(RATE))
            assert {subscriber.line(PATIENCE_S) for _ in QUERIES} == set(QUERIES)
            for _ in range(SPANS):
                with mill.dispatcher.paused():
                    began = now_us()
                    for name in QUERIES:
                        mill.queries[name].metrics().responses = Quantiles()
                wait_for_rows(mill, ROWS_PER_SPAN)
                with mill.dispatcher.paused():
                    found = {name: mill.queries[name].metrics().response_ms(0.5) for name in QUERIES}
                    told.append((began, now_us(), {name: ms for name, ms in found.items() if ms is not None}))
    seen = load(samples)
    for name in QUERIES:
        rows, compared = seen.of(name), []
        for began, ended, reported in told:
            here = (rows.seen_us >= began) & (rows.seen_us < ended)
            compared.append((float(np.median(rows.latencies_ms[here])), reported[name]))
        excess = [abs(outside - inside) - max(5.0, 0.1 * outside) for outside, inside in compared]
        assert min(excess) <= 0, (name, compared)
