"""Benchmark of ingestion and filters over Parquet files: slicemill, Flink and Spark on the same rows.

There are one filter and twenty filters, each with a selectivity of a tenth. slicemill commits rows to logs;
the sinks of Flink and Spark only count rows. Flink runs all filters in one job, Spark one streaming query per
filter. Row counts of all systems are compared with a batch query. Flink's package has no Parquet reader, so
it reads CSV, and so does slicemill in the comparison with Flink.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from slicemill_lab.bench.benchmark import Benchmark
from slicemill_lab.bench.files import systems
from slicemill_lab.bench.files.comparison import Comparison
from slicemill_lab.bench.files.workload import FileWorkload, WorkloadQuery, WorkloadStream, reading
from slicemill_lab.bench.inputs.bids import (
    COLUMNS,
    expected_counts,
    many_conditions,
    one_condition,
    write_bids,
)
from slicemill_lab.experiment import Result, Scale


@dataclass(frozen=True, slots=True)
class IngestSizes:
    """Rows per file, files after the first one, and rounds."""

    rows_per_file: int
    files: int
    rounds: int


SIZES: Mapping[Scale, IngestSizes] = {"small": IngestSizes(50_000, 4, 1), "full": IngestSizes(100_000, 20, 3)}


def run(scale: Scale) -> Result:
    sizes = SIZES[scale]
    with tempfile.TemporaryDirectory(prefix="slicemill-bench-") as name, ExitStack() as programs:
        return compare(Path(name), programs, sizes)


def compare(folder: Path, programs: ExitStack, sizes: IngestSizes) -> Result:
    paths = write_bids(folder / "bids", 1 + sizes.files, sizes.rows_per_file)
    one, many = (filters(paths, conditions) for conditions in (one_condition(), many_conditions()))
    warm_one, warm_many = (filters(paths[:2], each) for each in (one_condition(), many_conditions()))
    ours, ours_csv, spark, flink = systems.mill(), systems.mill("csv"), systems.spark(), systems.flink()
    comparison = Comparison(folder, programs, sizes.rounds)
    comparison.run(one, [ours, ours_csv, flink, spark], warm_one)
    comparison.run(many, [ours, ours_csv, flink, spark], warm_many)
    comparison.run(reading("bid", one.streams["bid"]), [flink])
    claims = (
        comparison.counted(),
        comparison.at_most_part(many.name, ours_csv.name, flink.name, 8),
        comparison.at_most_part(one.name, ours.name, spark.name, 2),
        comparison.at_most_part(many.name, ours.name, spark.name, 5),
    )
    figures = {
        "how": f"{sizes.rows_per_file} bids a file; each system is a program of its own, warm, in turns, the "
        f"best of {sizes.rounds}; CPU of all its processes from the first file on",
        **comparison.figures(),
    }
    return Result(claims, figures)


def filters(paths: Sequence[Path], conditions: Sequence[str]) -> FileWorkload:
    first, expected = expected_counts(paths[:1], conditions), expected_counts(paths, conditions)
    selects = [f"SELECT {', '.join(COLUMNS)} FROM bid WHERE {condition}" for condition in conditions]
    queries = [
        WorkloadQuery({"esl": select, "spark": select, "flink": select}, before, after)
        for select, before, after in zip(selects, first, expected, strict=True)
    ]
    name = "1 filter" if len(conditions) == 1 else f"{len(conditions)} filters"
    return FileWorkload(name, {"bid": WorkloadStream(COLUMNS, paths)}, queries, watermarks=False)


BENCHMARK = Benchmark("Parquet files to filter results, beside Flink and Spark", run)
