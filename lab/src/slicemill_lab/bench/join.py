"""Benchmark of window joins over the same files: slicemill, Flink, and an earlier slicemill.

Two streams of 2,000 tuples per second are joined on a key within a time window; in Flink this is an interval
join. With many joins, windows range from the shortest to the longest. slicemill commits pairs to logs;
Flink's sinks only count them. Pair counts of all systems are compared with a count over sorted arrays.
Flink's package has no Parquet reader, so it reads CSV, and so does slicemill in the comparison with Flink.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from slicemill.runtime.state_view import slices_of
from slicemill_lab.bench.benchmark import Benchmark
from slicemill_lab.bench.files import systems
from slicemill_lab.bench.files.comparison import Comparison
from slicemill_lab.bench.files.workload import FileWorkload, Language, WorkloadQuery, WorkloadStream, reading
from slicemill_lab.bench.inputs.join import COLUMNS, STREAMS, VALUES, Input, WindowedJoin, write_input
from slicemill_lab.bench.join_kinds import cost_by_kind
from slicemill_lab.claims import at_most, timed
from slicemill_lab.experiment import Result, Scale

ROWS_PER_S = 2_000
SELECTIVE = 20  # of a thousand values
MANY = 16


@dataclass(frozen=True, slots=True)
class JoinSizes:
    """Files of each stream after the first one. Flink's many joins may get fewer files."""

    rows_per_file: int
    files: int
    files_for_flinks_many: int
    rounds: int
    keys: int = 10_000
    shortest_s: float = 5
    longest_s: float = 80


SIZES: Mapping[Scale, JoinSizes] = {
    "small": JoinSizes(10_000, 4, 2, 1, longest_s=20),
    "full": JoinSizes(100_000, 10, 4, 3),
}


def run(scale: Scale) -> Result:
    sizes = SIZES[scale]
    with tempfile.TemporaryDirectory(prefix="slicemill-bench-") as name, ExitStack() as programs:
        return compare(Path(name), programs, sizes)


def compare(folder: Path, programs: ExitStack, sizes: JoinSizes) -> Result:
    files, rows, keys = 1 + sizes.files, sizes.rows_per_file, sizes.keys
    usual = write_input(folder / "usual", files, rows, keys, ROWS_PER_S)
    sparse = write_input(folder / "sparse", files, rows, 10 * keys, ROWS_PER_S)
    small = write_input(folder / "small", 3, rows // 2, keys, ROWS_PER_S)
    short, long = sizes.shortest_s, sizes.longest_s
    one, longest, tenth = (workload(usual, [WindowedJoin(each)]) for each in (short, long, long / 10))
    long_sparse = workload(sparse, [WindowedJoin(long)], f"1 join, {long:g} s, 10 times the keys")
    outer = workload(sparse, [WindowedJoin(long, left=True)], f"1 left join, {long:g} s, 10 times the keys")
    wanted = joins(MANY, short, long)
    many, few = workload(usual, wanted), workload(usual, wanted)
    if sizes.files_for_flinks_many < sizes.files:
        fewer = write_input(folder / "fewer", 1 + sizes.files_for_flinks_many, rows, keys, ROWS_PER_S)
        few = workload(fewer, wanted, f"{MANY} joins, fewer rows")
    ours, ours_csv, flink = systems.mill(), systems.mill("csv"), systems.flink()
    before = systems.mill_before(folder / "before")
    state_rows: dict[str, int] = {}
    comparison = Comparison(folder, programs, sizes.rounds)
    warm = workload(small, joins(4, short, long))
    comparison.run(one, [ours, ours_csv, flink], workload(small, [WindowedJoin(short)]))
    comparison.run(longest, [ours, before], warm, check=_state_rows("1", state_rows))
    comparison.run(many, [ours, ours_csv, before], check=_state_rows("many", state_rows))
    comparison.run(few, [flink], warm)
    comparison.run(reading("a", one.streams["a"]), [flink])
    comparison.run(tenth, [ours])
    comparison.run(long_sparse, [ours])
    comparison.run(outer, [ours])
    wider, narrow = (comparison.best[each.name, ours.name] for each in (long_sparse, tenth))
    kinds = cost_by_kind(sizes.rows_per_file * sizes.files // 2, 10 * keys, max(2, sizes.rounds))
    inner, left = kinds["INNER"], kinds["LEFT"]
    claims = (
        comparison.counted(),
        comparison.at_most_part(one.name, ours_csv.name, flink.name, 5),
        comparison.at_most_part(many.name, ours_csv.name, flink.name, 25, few.name),
        comparison.adds_no_more(longest.name, many.name, ours.name, before.name),
        at_most(
            f"{MANY} joins: rows in state, times those of the longest join alone",
            state_rows["many"] / state_rows["1"],
            1.05,
        ),
        timed(at_most("10 times the window, as many pairs: cost, times", wider.cpu_s / narrow.cpu_s, 1.5)),
        at_most(
            "left join: rows in state, times those of the inner join",
            left.state_rows / inner.state_rows,
            1.05,
        ),
        timed(at_most("left join: cost, times that of the inner join", left.cpu_s / inner.cpu_s, 1.5)),
    )
    figures = {
        "how": f"{keys} keys, {ROWS_PER_S} tuples a second of event time in each stream; each system is a "
        f"program of its own, warm, in turns, the best of {sizes.rounds}; CPU of all its processes from the "
        "first files on",
        **comparison.figures(),
        "rows in state": state_rows,
        "kinds of joins, processor time beside the inner one": {
            kind: round(cost.cpu_s / inner.cpu_s, 2) for kind, cost in kinds.items()
        },
    }
    return Result(claims, figures)


def _state_rows(name: str, noted: dict[str, int]) -> Callable[[Path], int]:
    """Return a check that records the number of rows in the slices of a home."""

    def look(home: Path) -> int:
        noted[name] = sum(held.rows for held in slices_of(home))
        return 0

    return look


def joins(count: int, shortest_s: float, longest_s: float) -> list[WindowedJoin]:
    """Return joins with evenly spaced windows. Every other join, and the longest, is selective.

    The predicate on the longest window makes the shared state smaller than the state of the longest join
    alone (Theorem 6). The other predicates do not change the state. A single join has no predicate.
    """
    if count == 1:
        return [WindowedJoin(longest_s)]
    step_s = (longest_s - shortest_s) / (count - 1)
    windows = [shortest_s + step_s * number for number in range(count)]
    return [
        WindowedJoin(window, SELECTIVE if number % 2 else VALUES) for number, window in enumerate(windows)
    ]


def workload(files: Input, wanted: Sequence[WindowedJoin], name: str = "") -> FileWorkload:
    if not name:
        name = f"1 join, {wanted[0].window_s:g} s" if len(wanted) == 1 else f"{len(wanted)} joins"
    streams = {
        stream: WorkloadStream(COLUMNS, paths) for stream, paths in zip(STREAMS, files.paths, strict=True)
    }
    return FileWorkload(name, streams, [query(join, files) for join in wanted])


def query(join: WindowedJoin, files: Input) -> WorkloadQuery:
    """Return a join of pairs less than a window apart, in either order."""
    ms = round(join.window_s * 1_000)
    selected = f" AND a.v < {join.below}" if join.below < VALUES else ""
    if join.left:
        esl = f"FROM a [RANGE {ms} MILLISECONDS] LEFT JOIN b [RANGE {ms} MILLISECONDS] ON a.k = b.k{selected}"
        text: dict[Language, str] = {"esl": f"SELECT a.k, a.v, b.v AS w {esl}"}
        return WorkloadQuery(text, files.expected(join, 1), files.expected(join, files.files))
    select = "SELECT a.k, a.v, b.v AS w FROM"
    spark, flink = (f"INTERVAL {ms} MILLISECONDS", f"INTERVAL '{ms / 1_000:.3f}' SECOND(3, 3)")
    return WorkloadQuery(
        {
            "esl": f"{select} a [RANGE {ms} MILLISECONDS], b [RANGE {ms} MILLISECONDS] "
            f"WHERE a.k = b.k{selected}",
            "spark": f"{select} a JOIN b ON a.k = b.k{selected} "
            f"AND b.ts > a.ts - {spark} AND b.ts < a.ts + {spark}",
            "flink": f"{select} a, b WHERE a.k = b.k{selected} "
            f"AND b.ts > a.ts - {flink} AND b.ts < a.ts + {flink}",
        },
        files.expected(join, 1),
        files.expected(join, files.files),
    )


BENCHMARK = Benchmark("Window joins, one and many, beside Flink's", run)
