"""NEXMark benchmark on a few events and queries; every query has a form for the other systems."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from slicemill_lab.bench.inputs.nexmark_answers import ANSWERS
from slicemill_lab.bench.inputs.nexmark_files import write_csv, write_files
from slicemill_lab.bench.inputs.nexmark_queries import ARRIVING, NAMES, event_tables
from slicemill_lab.bench.measuring.process_tree import Usage
from slicemill_lab.bench.nexmark import TOGETHER, NexmarkSizes, compare, played, tables
from slicemill_lab.bench.rivals.nexmark_comparison import (
    FLINK,
    OURS,
    SPARK,
    NexmarkComparison,
    NexmarkPhase,
)
from slicemill_lab.bench.rivals.nexmark_on_flink import FLINK_STREAMS, ON_FLINK, REFUSED
from slicemill_lab.bench.rivals.nexmark_on_spark import ON_SPARK

ROOT = Path(__file__).parents[2]


def test_queries_give_the_same_rows_alone_and_together() -> None:
    names = ("q02", "q12", "q13", "q18")
    result = compare(NexmarkSizes(rate=200, warm_s=1, measured_s=2, rounds=1), names)
    assert all(claim.holds for claim in result.claims if not claim.timed)
    assert list(result.figures["CPU seconds"]) == [*names, TOGETHER]
    (table,) = tables(result)
    assert table.row_count == len(names) + 1


def test_all_bids_of_all_seconds_are_played() -> None:
    seconds = [event_tables(number * 100, (number + 1) * 100, 100) for number in range(3)]
    _, rows = played(("q00", "q12"), seconds, warm=1)
    assert rows["q00"] == sum(len(second["bid"]) for second in seconds) == 3 * 92
    assert len(seconds[0][ARRIVING]) == 92 and rows["q12"] > 0


def test_files_have_all_events_and_a_last_row_without_a_join_partner(tmp_path: Path) -> None:
    files = write_files(tmp_path, rate=100, events_per_file=500, warm=1, measured=2)
    read = {
        stream: [pq.read_table(path) for path in (*files.warm[stream], *files.measured[stream])]
        for stream in ("person", "auction", "bid")
    }
    rows = {stream: sum(len(table) for table in found) for stream, found in read.items()}
    assert rows == {"person": 31, "auction": 91, "bid": 1381} and files.rows == 1_003
    last = {stream: found[-1].to_pylist()[0] for stream, found in read.items()}
    assert len({last["person"]["id"], last["auction"]["seller"], last["bid"]["bidder"]}) == 3
    assert last["auction"]["id"] != last["bid"]["auction"]
    assert all(row["ts"].timestamp() == 3_615 for row in last.values())


def test_the_last_row_counts_in_row_queries_and_opens_no_window(tmp_path: Path) -> None:
    files = write_files(tmp_path, rate=100, events_per_file=500, warm=1, measured=2)
    found = files.expected(ROOT, {name: ANSWERS[name] for name in ("q00", "q07", "q15")})
    assert found == {"q00": 1381, "q07": 2, "q15": 1}


def test_every_query_has_a_form_for_spark_and_batch_forms_have_a_note() -> None:
    assert tuple(ON_SPARK) == NAMES
    assert [name for name, query in ON_SPARK.items() if query.mode == "batch"] == ["q04", "q06"]
    assert all(query.note for query in ON_SPARK.values() if query.mode == "batch")


def test_every_query_has_a_form_for_flink_or_a_reason() -> None:
    assert sorted([*ON_FLINK, *REFUSED]) == list(NAMES)
    assert all(REFUSED.values())


def test_files_for_flink_have_the_same_rows_without_the_last_row(tmp_path: Path) -> None:
    files = write_files(tmp_path, rate=100, events_per_file=500, warm=1, measured=2)
    write_csv(tmp_path / "csv", files, ROOT)
    lines = {
        stream: [
            (tmp_path / "csv" / stream / f"{kind}.csv").read_text().splitlines() for kind in ("warm", "all")
        ]
        for stream in FLINK_STREAMS
    }
    assert {stream: [len(part) for part in parts] for stream, parts in lines.items()} == {
        "person": [10, 30],
        "auction": [30, 90],
        "bid": [460, 1380],
        "side": [10, 10],
    }
    assert lines["auction"][0][0].endswith("1970-01-01 00:00:00.010000")
    found = files.expected(ROOT, {name: ANSWERS[name] for name in ("q00", "q07", "q15")}, ended=True)
    assert found == {"q00": 1380, "q07": 2, "q15": 1}


def test_different_row_counts_are_compared_by_rows_per_second(tmp_path: Path) -> None:
    with ExitStack() as programs:
        files = write_files(tmp_path, rate=100, events_per_file=50, warm=1, measured=1)
        comparison = NexmarkComparison(tmp_path, ROOT, files, programs)
    comparison.best["q04", OURS] = NexmarkPhase(100, Usage(cpu_s=1.0), 0.0)
    comparison.best["q04", SPARK] = NexmarkPhase(200, Usage(cpu_s=8.0), 0.0)
    assert comparison.times(SPARK, "q04") == pytest.approx(4)
    assert comparison.times(FLINK, "q04") is None and comparison.all_times(FLINK, ["q04"]) == {}
    assert comparison.figures()["q04, Spark"]["rows_per_cpu_s"] == 25


def test_streams_of_a_job_are_files_and_the_job_has_no_sink(tmp_path: Path) -> None:
    files = write_files(tmp_path, rate=100, events_per_file=50, warm=1, measured=1)
    comparison = NexmarkComparison(tmp_path, ROOT, files, ExitStack())
    script = comparison.our_job(NAMES)["script"]
    assert "nexmark://" not in script and "sink" not in script
    assert "USING parquet OPTIONS (path 'FOLDER/auction')" in script
