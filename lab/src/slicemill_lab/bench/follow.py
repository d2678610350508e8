"""Benchmark of rescaling: a task follows a doubled rate with more subtasks on more workers.

A join of two streams on a key starts with one subtask. After a third of the time the rate doubles, which
makes four times as many pairs, more than one worker can process. With adaptation the task is rescaled, and
response times return to their former level. Without adaptation they keep growing.

Workers are virtual (`measuring.virtual_workers`): the costs of rows and pairs are constants of this module,
so that four workers behave the same on every machine. The dispatcher, its decisions, checkpoints and all
state are the product's.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from slicemill.runtime.messages import ReadDone, RunDone
from slicemill.testing import open_mill
from slicemill_lab.bench.benchmark import Benchmark
from slicemill_lab.bench.measuring.responses import keyed_rows, responses
from slicemill_lab.bench.measuring.virtual_workers import VirtualWorkers
from slicemill_lab.claims import at_least, at_most
from slicemill_lab.experiment import Result, Scale
from slicemill_lab.on_engine import MovedClock
from slicemill_lab.progress import say

_US = 1_000_000
WORKERS = 4
RATE, KEYS, WINDOW_S = 200, 50, 2
STEP_S = 0.05
# Seconds of work per run, per row, and per compared pair. They use 0.36 of a core at the first rate, and 1.36
# at twice the rate.
RUN_S, ROW_S, PAIR_S = 0.001, 50e-6, 100e-6
BOUND = 2.0

SCRIPT = f"""
CREATE STREAM a (k int, v int, ts timestamp micros) ORDER BY ts;
CREATE STREAM b (k int, v int, ts timestamp micros) ORDER BY ts;
CREATE QUERY pairs AS SELECT a.k, a.v, b.v AS w
  FROM a [RANGE {WINDOW_S} SECONDS], b [RANGE {WINDOW_S} SECONDS] WHERE a.k = b.k;
"""


@dataclass(frozen=True, slots=True)
class Followed:
    """Response times (p99, seconds) in each third of the run; final subtasks, and moved subtasks."""

    p99_s: tuple[float, ...]
    subtasks: int
    moved: int
    results: int

    @property
    def ratio(self) -> float:
        return self.p99_s[-1] / self.p99_s[0]

    def plain(self) -> dict[str, Any]:
        thirds = {f"p99 of third {n}, s": round(p99, 4) for n, p99 in enumerate(self.p99_s, 1)}
        return {**thirds, "subtasks": self.subtasks, "cells moved": self.moved, "results": self.results}


def followed(*, adapting: bool, third_s: float, step_s: float = STEP_S, workers: int = WORKERS) -> Followed:
    """Run the benchmark. The rate doubles after a third of the time."""
    clock = MovedClock()
    pool = VirtualWorkers(workers, clock, _work_s)
    random = np.random.default_rng(1)
    with (
        tempfile.TemporaryDirectory(prefix="slicemill-bench-") as home,
        open_mill(
            home=Path(home), pool=pool, clock=clock, read_sources=False, subtasks=None if adapting else 1
        ) as mill,
    ):
        mill.execute(SCRIPT)
        mill.open()
        next_us = 0
        while clock.now < 3 * third_s * _US:
            if clock.now >= next_us:
                rate = RATE * (2 if next_us >= third_s * _US else 1)
                for stream in ("a", "b"):
                    mill.feed(stream, keyed_rows(random, next_us, round(rate * step_s), KEYS))
                next_us += round(step_s * _US)
            mill.dispatcher.turn()
            clock.now = max(clock.now, min(next_us, pool.next_us or next_us))
        mill.dispatcher.run_all()
        log = mill.queries["pairs"].log
        arrived, took = responses(log)
        thirds = [took[arrived // round(third_s * _US) == third] for third in range(3)]
        (task,) = mill.dispatcher.running.tasks
        p99_s = tuple(float(np.quantile(third, 0.99)) / _US for third in thirds)
        return Followed(p99_s, task.subtasks, mill.dispatcher.balancing.moved, log.rows)


def _work_s(done: RunDone | ReadDone) -> float:
    if isinstance(done, ReadDone):
        return RUN_S
    return RUN_S + ROW_S * done.rows_in + PAIR_S * done.record.pairs


THIRDS_S: Mapping[Scale, float] = {"small": 20.0, "full": 60.0}


def run(scale: Scale) -> Result:
    say("with adaptation")
    adapted = followed(adapting=True, third_s=THIRDS_S[scale])
    say("without")
    fixed = followed(adapting=False, third_s=THIRDS_S[scale])
    claims = (
        at_most("p99 of the last third, times that before the rate doubled", adapted.ratio, BOUND),
        at_least("without adaptation", fixed.ratio, BOUND, "one worker has more to do than it can"),
        at_least("cells at the end", adapted.subtasks, 2),
    )
    figures = {
        "how": f"{3 * THIRDS_S[scale]:g} s of virtual time, {WORKERS} virtual workers, {RATE} and then "
        f"{2 * RATE} tuples/s on each of two streams",
        "with adaptation": adapted.plain(),
        "without": fixed.plain(),
    }
    return Result(claims, figures)


BENCHMARK = Benchmark("a rate that doubles is followed", run)
