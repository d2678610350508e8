"""Benchmark of sliding windows over the same files: slicemill, Flink, Spark, Numba, and an earlier slicemill.

The queries are means per key, `RANGE r SLIDE 1 SECOND`, over 10,000 events per second: one of 60 s, eight of
10 to 80 s,
and 64 of 10 to 640 s. slicemill commits its results to logs; the sinks of Flink and Spark only count rows.
Flink runs all
aggregates in one job, Spark one streaming query per aggregate. Results are counted in all systems, and ours
are compared
with NumPy's value by value. Flink's package has no Parquet reader, so it reads CSV, and so does slicemill in
the
comparison with Flink.

Spark makes range / slide copies of each event, 360 for the eight windows. It could not hold the copies for
64.

Session windows: sixteen queries over one stream and key are compared with one of them, in this process.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from os import getloadavg
from pathlib import Path

import psutil
import pyarrow as pa

from slicemill.connectors.follow import Follower
from slicemill_lab.bench.benchmark import Benchmark
from slicemill_lab.bench.files import systems
from slicemill_lab.bench.files.comparison import Comparison, Phase, tell
from slicemill_lab.bench.files.workload import FileWorkload, WorkloadQuery, WorkloadStream, reading
from slicemill_lab.bench.inputs.events import EVENTS_PER_S, FIRST_S, KEYS, SCHEMA, ExpectedMeans, write_events
from slicemill_lab.bench.measuring.panes_kept import entries_kept
from slicemill_lab.bench.measuring.process_tree import Usage
from slicemill_lab.bench.measuring.sessions_together import one_and_many
from slicemill_lab.bench.rivals.bare_numba import BareWindows
from slicemill_lab.claims import Claim, at_most, timed
from slicemill_lab.experiment import Result, Scale

ONE = (60,)
EIGHT = tuple(range(10, 90, 10))
MANY = tuple(range(10, 650, 10))
NUMBA = "bare Numba"


@dataclass(frozen=True, slots=True)
class WindowSizes:
    """Rows per file, and files after the first one. Flink's 64 windows may get fewer files."""

    rows_per_file: int
    files: int
    files_for_flinks_many: int
    rounds: int


SIZES: Mapping[Scale, WindowSizes] = {
    "small": WindowSizes(20_000, 4, 2, 1),
    "full": WindowSizes(100_000, 10, 10, 3),
}


def run(scale: Scale) -> Result:
    sizes = SIZES[scale]
    with tempfile.TemporaryDirectory(prefix="slicemill-bench-") as name, ExitStack() as programs:
        return compare(Path(name), programs, sizes)


def compare(folder: Path, programs: ExitStack, sizes: WindowSizes) -> Result:
    paths = write_events(folder / "events", 1 + sizes.files, sizes.rows_per_file)
    fewer = paths[: 1 + sizes.files_for_flinks_many]
    one, eight, many = (windows(paths, ranges) for ranges in (ONE, EIGHT, MANY))
    few = windows(fewer, MANY, "64 windows, fewer rows") if fewer != paths else many
    ours, ours_csv, spark, flink = systems.mill(), systems.mill("csv"), systems.spark(), systems.flink()
    before = systems.mill_before(folder / "before")
    read = reading("event", one.streams["event"])
    comparison = Comparison(folder, programs, sizes.rounds)
    comparison.run(
        eight, [ours, ours_csv, flink, spark], windows(paths[:2], EIGHT), check=differences(paths, EIGHT)
    )
    comparison.run(one, [ours, before, flink, spark], windows(paths[:2], ONE))
    comparison.run(many, [ours, ours_csv, before], check=differences(paths, MANY))
    comparison.run(few, [flink], rounds=1)  # eight minutes at full scale
    comparison.run(read, [flink])
    for _ in range(sizes.rounds):
        comparison.keep(eight.name, NUMBA, bare_numba(paths, EIGHT))
    sessions = {run: one_and_many(200_000, 1_000, run, 2 * sizes.rounds + 1) for run in (4_000, 20_000)}
    kept = {slide: entries_kept(40, slide, 1_000) for slide in (1, 5, 10, 40)}
    claims = (
        comparison.counted(),
        comparison.at_most_part(eight.name, ours_csv.name, flink.name, 15),
        comparison.at_most_part(eight.name, ours.name, spark.name, 60),
        _times_numba(comparison, eight.name, ours.name),
        comparison.at_most_part(many.name, ours_csv.name, flink.name, 50, few.name),
        comparison.at_most_part(one.name, ours.name, spark.name, 10),
        comparison.adds_no_more(one.name, many.name, ours.name, before.name),
        *(_sessions(run, *cpu_s) for run, cpu_s in sessions.items()),
        at_most("RANGE 40 s SLIDE 10 s: values kept of 40 000 tuples", kept[10], 5, "4 panes, 1 in progress"),
    )
    figures = {
        "how": f"{KEYS} keys, {EVENTS_PER_S} events a second of event time; each system is a program of its "
        f"own, warm, in turns, the best of {sizes.rounds}; CPU of all its processes from the first file on",
        **comparison.figures(),
        "CPU seconds of one session query and of sixteen, by rows that come at a time": sessions,
        "values kept, RANGE 40 s, 1 000 tuples a second, by slide in s": kept,
    }
    return Result(claims, figures)


def _times_numba(comparison: Comparison, workload: str, system: str) -> Claim:
    ours, bare = comparison.best[workload, system], comparison.best[workload, NUMBA]
    what = f"{workload}: CPU seconds of {system} / of {NUMBA}, on the same files"
    return timed(at_most(what, ours.cpu_s / bare.cpu_s, 5, f"{ours.cpu_s:.3f} s, {bare.cpu_s:.3f} s"))


def _sessions(run: int, one_s: float, many_s: float) -> Claim:
    what = f"16 session queries, other gaps and aggregates, {run} rows at a time: CPU seconds / of one"
    return timed(at_most(what, many_s / one_s, 2.5, f"{many_s:.3f} s, {one_s:.3f} s, in process"))


def windows(paths: Sequence[Path], ranges: Sequence[int], name: str = "") -> FileWorkload:
    columns = dict(declared.split() for declared in SCHEMA.split(", "))
    first, all_of_them = ExpectedMeans(paths[:1]), ExpectedMeans(paths)
    queries = [
        WorkloadQuery(
            {
                "esl": "SELECT k, avg(v) AS mean, window_end() AS e "
                f"FROM event [RANGE {range_s} SECONDS SLIDE 1 SECOND] GROUP BY k",
                "spark": "SELECT k, avg(v) AS mean, window.end AS e FROM event "
                f"GROUP BY k, window(ts, '{range_s} seconds', '1 second')",
                "flink": "SELECT k, AVG(CAST(v AS DOUBLE)) AS mean, window_end AS e FROM TABLE(HOP("
                f"TABLE event, DESCRIPTOR(ts), INTERVAL '1' SECOND, INTERVAL '{range_s}' SECOND(3))) "
                "GROUP BY k, window_start, window_end",
            },
            first.count(range_s),
            all_of_them.count(range_s),
        )
        for range_s in ranges
    ]
    name = name or ("1 window" if len(ranges) == 1 else f"{len(ranges)} windows")
    return FileWorkload(name, {"event": WorkloadStream(columns, paths)}, queries)


def differences(paths: Sequence[Path], ranges: Sequence[int]) -> Callable[[Path], int]:
    """Return a check that counts results in a home that differ from NumPy's."""
    expected = ExpectedMeans(paths)

    def check(home: Path) -> int:
        tables: dict[str, list[pa.Table]] = {f"q{number}": [] for number in range(len(ranges))}
        for seen in Follower(home, list(tables)).poll():
            tables[seen.query].append(seen.rows)
        return sum(
            expected.differences(range_s, pa.concat_tables(found))
            for range_s, found in zip(ranges, tables.values(), strict=True)
        )

    return check


def bare_numba(paths: Sequence[Path], ranges: Sequence[int]) -> Phase:
    """Run bare Numba in this process, measured after the first file."""
    expected = ExpectedMeans(paths)
    bare = BareWindows(ranges, KEYS, FIRST_S, expected.seconds)
    bare.take(paths[:1])
    first = sum(bare.count(range_s) for range_s in ranges)
    load, began_s, began_cpu_s = getloadavg()[0], time.perf_counter(), time.process_time()
    bare.take(paths[1:])
    cpu_s, wall_s = time.process_time() - began_cpu_s, time.perf_counter() - began_s
    wrong = sum(expected.differences(range_s, pa.concat_tables(bare.results[range_s])) for range_s in ranges)
    results = sum(bare.count(range_s) for range_s in ranges) - first
    tell(f"{NUMBA}: {cpu_s:.3f} CPU s")
    rows = WorkloadStream({}, paths).rows
    usage = Usage(cpu_s, wall_s, psutil.Process().memory_info().rss, {"python": cpu_s})
    return Phase(rows, results, wrong, usage, load)


BENCHMARK = Benchmark("Sliding-window aggregates, one and many, beside Flink, Spark and bare Numba", run)
