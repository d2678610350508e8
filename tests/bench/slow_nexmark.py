"""NEXMark queries on Spark and slicemill over the same files, against DuckDB."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from slicemill_lab.bench.inputs.nexmark_files import write_files
from slicemill_lab.bench.inputs.nexmark_queries import NAMES
from slicemill_lab.bench.rivals.nexmark_comparison import OURS, SPARK, NexmarkComparison

ROOT = Path(__file__).parents[2]


def test_spark_and_slicemill_have_as_many_rows_as_duckdb(tmp_path: Path) -> None:
    files = write_files(tmp_path / "input", rate=200, events_per_file=2_000, warm=1, measured=2)
    with ExitStack() as programs:
        comparison = NexmarkComparison(tmp_path, ROOT, files, programs)
        comparison.run(NAMES, rounds=1)
        comparison.run_ours("all together", NAMES, rounds=1)
    assert comparison.wrong == {}
    assert set(comparison.best) == {(name, system) for name in NAMES for system in (OURS, SPARK)} | {
        ("all together", OURS)
    }
    # Processor time has steps of 0.01 s, and a single query may take less.
    assert comparison.best["all together", OURS].usage.cpu_s > 0
    assert all(comparison.best[name, SPARK].usage.cpu_s > 0 for name in NAMES)
