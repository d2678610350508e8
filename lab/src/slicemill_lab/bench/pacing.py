"""Benchmark of idle cost: CPU use of a mill with 13 queries at 250 tuples per second, and without input.

Measured is the CPU time of `slicemill run` and its child processes, from outside, after a warm-up.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from slicemill_lab.bench.benchmark import Benchmark
from slicemill_lab.bench.latency import QUICK
from slicemill_lab.bench.live import queries, systems
from slicemill_lab.bench.live.session import Session
from slicemill_lab.claims import at_most, timed
from slicemill_lab.experiment import Result, Scale

RATE = 250


@dataclass(frozen=True, slots=True)
class PacingSizes:
    warm_s: float
    busy_s: float
    settling_s: float
    idle_s: float


# The JVM continues to compile for some time after its start.
SIZES: Mapping[Scale, PacingSizes] = {
    "small": PacingSizes(20, 20, 5, 20),
    "full": PacingSizes(60, 60, 10, 60),
}


def run(scale: Scale) -> Result:
    sizes = SIZES[scale]
    with tempfile.TemporaryDirectory(prefix="slicemill-bench-") as name, ExitStack() as programs:
        session = Session(systems.mill(queries.THIRTEEN, QUICK), Path(name) / "run", RATE, programs)
        session.let_pass(sizes.warm_s)
        busy = session.let_pass(sizes.busy_s)
        session.rate(0)
        session.let_pass(sizes.settling_s)
        idle = session.let_pass(sizes.idle_s)
    note = "processor seconds in a second: driver, JVM and Python workers"
    claims = (
        timed(at_most("13 queries, nothing comes: cores used", idle.cores, 0.03, note)),
        timed(at_most(f"13 queries, {RATE} tuples a second: cores used", busy.cores, 0.3, note)),
    )
    figures = {
        "load of the machine, 1 min": round(os.getloadavg()[0], 1),
        f"{RATE} tuples a second": busy.figures(),
        "nothing comes": idle.figures(),
    }
    return Result(claims, figures)


BENCHMARK = Benchmark("Processor time of a mill that has little or nothing to do", run)
