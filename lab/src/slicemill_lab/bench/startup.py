"""Benchmark of start-up time: from `slicemill run` to the first result visible to another process.

The run of examples/auction.esl is compared with a bare Spark session with one Python job, from the start of
its process to the end of the job. The difference is the time of slicemill. Cold runs have an empty cache of
machine code (SLICEMILL_CACHE), warm runs have the cache of an earlier run. Both sides take turns, and the
best run of each counts. `slicemill check` is measured in CPU seconds, best of several.

Examples with models and user-defined aggregates are compared with a plain filter over the same stream in the
same run, with a cold cache. Measured are the delay of the first result of the script after that of the
filter, and the CPU time of compilation in all processes, as recorded by the code store. The bar is a third of
the time of compilation ahead of time.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from slicemill.binder import bind
from slicemill.connectors.follow import EVERY_S, Follower
from slicemill.errors import SlicemillError
from slicemill.kernels.store import Compilation, list_compilations
from slicemill.runtime.spark_session import ensure_java_home
from slicemill.sql.errors import SourceText
from slicemill_lab.bench.benchmark import Benchmark
from slicemill_lab.bench.live.processes import Program
from slicemill_lab.bench.live.systems import RUN
from slicemill_lab.claims import Claim, at_most, timed
from slicemill_lab.experiment import Result, Scale

SCRIPT = "examples/auction.esl"
_PATIENCE_S = 300.0
_GOES_ON_S = 30.0  # after the first results; compilation in this time counts as well


@dataclass(frozen=True, slots=True)
class Example:
    """Script, a filter over its stream, and the CPU seconds of compiling all of its code ahead of time."""

    script: str
    stream_filter: str
    ahead_s: float


FILTER = "plain_filter"
EXAMPLES = (
    Example("examples/models.esl", "SELECT auction FROM bid WHERE price > 0", 8.6),
    Example("examples/rfid.esl", "SELECT tag FROM reading WHERE tag >= 0", 18.1),
    Example("examples/synopses.esl", "SELECT auction FROM bid WHERE price > 0", 1.5),
)

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
        begun = {example: beside_a_filter(root, folder, example) for example in EXAMPLES}
    least = min(bare)
    what = "from slicemill run to the first result, more than a bare session with one Python job, s"
    claims = (
        *(
            timed(at_most(f"{state}: {what}", found - least, bound, f"{found:.1f} s, bare {least:.1f} s"))
            for state, found, bound in (("warm caches", min(warm), 2), ("cold caches", min(cold), 6))
        ),
        timed(at_most(f"slicemill check {SCRIPT}, processor seconds", min(checks), 0.5)),
        *(claim for example, found in begun.items() for claim in _claims(example, found)),
    )
    figures = {
        "how": "wall time from the start of a process; the best of the runs, in turns; seconds",
        "load of the machine, 1 min": round(os.getloadavg()[0], 1),
        "bare session with one Python job": [round(each, 2) for each in bare],
        "first result, cold caches": [round(each, 2) for each in cold],
        "first result, warm caches": [round(each, 2) for each in warm],
        "processor seconds of slicemill check": [round(each, 3) for each in checks],
        "beside a plain filter, cold cache": {
            example.script: {
                "first results": {query: round(s, 1) for query, s in found.first_s.items()},
                "compiled": {told.name: round(told.cpu_s, 2) for told in found.compiled},
            }
            for example, found in begun.items()
        },
    }
    return Result(claims, figures)


@dataclass(frozen=True, slots=True)
class Begun:
    """Time of the first visible result of each query, and the compiled functions."""

    first_s: Mapping[str, float]
    compiled: Sequence[Compilation]


def _claims(example: Example, found: Begun) -> tuple[Claim, ...]:
    later = min(s for query, s in found.first_s.items() if query != FILTER) - found.first_s[FILTER]
    spent = sum(told.cpu_s for told in found.compiled)
    what = f"{example.script}, cold cache:"
    return (
        timed(at_most(f"{what} first result after that of a plain filter, s", later, 5)),
        timed(
            at_most(
                f"{what} processor seconds of compiling, of {example.ahead_s:g} ahead",
                round(spent, 2),
                round(example.ahead_s / 3, 2),
                f"{len(found.compiled)} functions",
            )
        ),
    )


def beside_a_filter(root: Path, folder: Path, example: Example) -> Begun:
    """Run an example with an additional filter, until both have results and for some time after that."""
    name = Path(example.script).stem
    work, cache = folder / name, folder / f"cache-{name}"
    work.mkdir()
    text = (root / example.script).read_text(encoding="utf-8")
    script = work / "script.esl"
    script.write_text(f"{text}\nCREATE QUERY {FILTER} AS {example.stream_filter};\n", encoding="utf-8")
    first_s: dict[str, float] = {}
    with _running(root, work, script, {"SLICEMILL_CACHE": str(cache)}) as (program, follower, began):
        until = began + _PATIENCE_S
        complete = False
        while time.monotonic() < until:
            ended = program.ended  # read before the poll, which then sees the last results
            for seen in follower.poll():
                first_s.setdefault(seen.query, time.monotonic() - began)
            if not complete and FILTER in first_s and len(first_s) > 1:
                complete = True
                until = min(until, time.monotonic() + _GOES_ON_S)
            if ended and complete:  # some examples have a finite input
                break
            if ended:
                program.check()
            time.sleep(EVERY_S)
    if FILTER not in first_s or len(first_s) < 2:
        raise SlicemillError(f"{example.script} had no result after {_PATIENCE_S:g} s")
    return Begun(first_s, list(list_compilations(cache / "code")))


def example_root() -> Path:
    """Return the base folder for paths in the examples: the working directory or the repository."""
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
    """Return the seconds until the first row of any query is visible in the home."""
    folder.mkdir()
    environment = {"SLICEMILL_CACHE": str(caches)}
    with _running(root, folder, root / SCRIPT, environment) as (program, follower, began):
        while not follower.poll():
            program.check()
            if time.monotonic() - began > _PATIENCE_S:
                raise SlicemillError(f"no result after {_PATIENCE_S:g} s: {program.last_words()}")
            time.sleep(EVERY_S)
        return time.monotonic() - began


@contextmanager
def _running(
    root: Path, folder: Path, script: Path, environment: Mapping[str, str]
) -> Iterator[tuple[Program, Follower, float]]:
    """Run `slicemill run`. Yields the program, a follower of its queries, and the start time."""
    queries = bind(SourceText(script.read_text(encoding="utf-8"))).catalog.queries
    follower = Follower(folder / "home", [query.name for query in queries.values()])
    command = [*RUN, "run", str(script), "--home", str(folder / "home"), "--for", "10m", "--rows", "0"]
    began = time.monotonic()
    program = Program("slicemill run", command, folder, environment, root)
    try:
        yield program, follower, began
    finally:
        program.stop(interrupt=True)


def check_cpu_s(root: Path) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([*RUN, "check", SCRIPT], cwd=root, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


BENCHMARK = Benchmark("From the command to the first result", run)
