"""From `slicemill run examples/auction.esl` to the first result that another process sees.

Beside it a bare Spark session with one Python job, from the start of its process to the job's end: what is
above that is slicemill's. Cold: the caches of machine code, NUMBA_CACHE_DIR and SLICEMILL_CACHE, are empty.
Warm: they are as the run before has left them. The bare session and ours run in turns, and the best of each
counts. `slicemill check` is measured in processor seconds, the best of several.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from slicemill.connectors.follow import EVERY_S, Follower
from slicemill.engine.java import ensure_java_home
from slicemill.errors import SlicemillError
from slicemill.esl import SourceText, bind
from slicemill_lab.bench.benchmark import Benchmark
from slicemill_lab.bench.live.processes import Program
from slicemill_lab.bench.live.systems import RUN
from slicemill_lab.claims import at_most, timed
from slicemill_lab.experiment import Result, Scale

SCRIPT = "examples/auction.esl"
_PATIENCE_S = 300.0

BARE = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
assert spark.sparkContext.parallelize([1, 2], 2).map(lambda number: number + 1).collect() == [2, 3]
print("done", flush=True)
"""


@dataclass(frozen=True, slots=True)
class StartupSizes:
    cold_runs: int
    warm_runs: int
    checks: int


SIZES: Mapping[Scale, StartupSizes] = {"small": StartupSizes(1, 2, 5), "full": StartupSizes(3, 3, 10)}


def run(scale: Scale) -> Result:
    ensure_java_home()
    sizes = SIZES[scale]
    root = example_root()
    bare, cold, warm = [], [], []
    with tempfile.TemporaryDirectory(prefix="slicemill-bench-") as name:
        folder = Path(name)
        for number in range(sizes.cold_runs):
            bare.append(bare_session_s(folder))
            cold.append(first_result_s(root, folder / f"cold-{number}", folder / f"caches-{number}"))
        for number in range(sizes.warm_runs):
            bare.append(bare_session_s(folder))
            warm.append(first_result_s(root, folder / f"warm-{number}", folder / "caches-0"))
        checks = [check_cpu_s(root) for _ in range(sizes.checks)]
    least = min(bare)
    what = "from slicemill run to the first result, more than a bare session with one Python job, s"
    claims = (
        *(
            timed(at_most(f"{state}: {what}", found - least, bound, f"{found:.1f} s, bare {least:.1f} s"))
            for state, found, bound in (("warm caches", min(warm), 2), ("cold caches", min(cold), 6))
        ),
        timed(at_most(f"slicemill check {SCRIPT}, processor seconds", min(checks), 0.5)),
    )
    figures = {
        "how": "wall time from the start of a process; the best of the runs, in turns; seconds",
        "load of the machine, 1 min": round(os.getloadavg()[0], 1),
        "bare session with one Python job": [round(each, 2) for each in bare],
        "first result, cold caches": [round(each, 2) for each in cold],
        "first result, warm caches": [round(each, 2) for each in warm],
        "processor seconds of slicemill check": [round(each, 3) for each in checks],
    }
    return Result(claims, figures)


def example_root() -> Path:
    """The folder of the examples' paths: the one that we are in, or that of the repository."""
    for folder in (Path.cwd(), *Path(__file__).parents):
        if (folder / SCRIPT).exists():
            return folder
    raise SlicemillError(f"there is no {SCRIPT}; run this benchmark in a copy of the repository")


def bare_session_s(folder: Path) -> float:
    began = time.monotonic()
    program = Program("bare session", [sys.executable, "-c", BARE], folder)
    try:
        program.line(_PATIENCE_S)
        return time.monotonic() - began
    finally:
        program.stop()


def first_result_s(root: Path, folder: Path, caches: Path) -> float:
    """Until the first row of any query is seen in the home."""
    folder.mkdir()
    queries = bind(SourceText((root / SCRIPT).read_text(encoding="utf-8"))).catalog.queries
    follower = Follower(folder / "home", [query.name for query in queries.values()])
    environment = {"NUMBA_CACHE_DIR": str(caches / "numba"), "SLICEMILL_CACHE": str(caches / "slicemill")}
    command = [*RUN, "run", SCRIPT, "--home", str(folder / "home"), "--for", "10m", "--rows", "0"]
    began = time.monotonic()
    program = Program("slicemill run", command, folder, environment, root)
    try:
        while not follower.poll():
            program.check()
            if time.monotonic() - began > _PATIENCE_S:
                raise SlicemillError(f"no result after {_PATIENCE_S:g} s: {program.last_words()}")
            time.sleep(EVERY_S)
        return time.monotonic() - began
    finally:
        program.stop(interrupt=True)


def check_cpu_s(root: Path) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([*RUN, "check", SCRIPT], cwd=root, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


BENCHMARK = Benchmark("From the command to the first result", run)
