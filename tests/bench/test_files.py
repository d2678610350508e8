"""Workloads on several systems: equal rows in all formats, counted results, and claims about measurements."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path

import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest

from slicemill_lab.bench.files import systems
from slicemill_lab.bench.files.comparison import Comparison, Phase
from slicemill_lab.bench.files.side import _flink_table, settled_counts, wait_for
from slicemill_lab.bench.files.systems import System
from slicemill_lab.bench.files.workload import WorkloadStream, reading
from slicemill_lab.bench.inputs.events import write_events
from slicemill_lab.bench.measuring.process_tree import Usage
from slicemill_lab.claims import Claim
from support.rivals import assert_right

COLUMNS = {"k": "BIGINT", "v": "BIGINT", "ts": "TIMESTAMP"}


def events(folder: Path, files: int = 3, rows: int = 15_000) -> list[Path]:
    return write_events(folder / "events", files, rows)


def test_a_stream_has_the_same_rows_in_all_formats(tmp_path: Path) -> None:
    paths = events(tmp_path, 3, 50)
    stream = WorkloadStream(COLUMNS, paths)
    rows = [row for path in paths[1:] for row in pq.read_table(path).to_pylist()]
    names = arrow_csv.ReadOptions(column_names=list(COLUMNS))
    text, epoch = (
        arrow_csv.read_csv(stream.files(form)[1], names).to_pylist()
        for form in ("csv", "csv with epoch times")
    )
    assert stream.rows == len(rows) == 100
    assert [row["ts"].timestamp() for row in rows] == [
        pytest.approx(row["ts"].to_pydatetime().replace(tzinfo=rows[0]["ts"].tzinfo).timestamp())
        for row in text
    ]
    assert [int(row["ts"].timestamp() * 1_000) for row in rows] == [row["ts"] for row in epoch]
    for found in (text, epoch):
        assert [(row["k"], row["v"]) for row in found] == [(row["k"], row["v"]) for row in rows]


def test_another_number_of_files_has_other_csv_files(tmp_path: Path) -> None:
    paths = events(tmp_path, 3, 50)
    assert WorkloadStream(COLUMNS, paths).files("csv") != WorkloadStream(COLUMNS, paths[:2]).files("csv")


def test_a_job_is_plain_json(tmp_path: Path) -> None:
    workload = reading("event", WorkloadStream(COLUMNS, events(tmp_path, 2, 50)))
    job = json.loads(json.dumps(workload.job("flink", "csv with epoch times", tmp_path)))
    assert (job["first"], job["expected"], job["format"]) == ([50], [100], "csv")
    assert job["queries"] == ["SELECT k, v, ts FROM event"]
    assert "WATERMARK" not in _flink_table("event", job["streams"]["event"], job)


class Counter:
    """Side whose result count grows with each poll, up to a number."""

    every_s = 0.0

    def __init__(self, most: int) -> None:
        self._most, self._found = most, [0, 0]

    def count(self, number: int) -> int:
        self._found[number] = min(self._most, self._found[number] + 1)
        return self._found[number]


def test_counts_are_taken_when_they_no_longer_change() -> None:
    side = Counter(7)
    wait_for(side, [2, 3])  # type: ignore[arg-type]
    assert settled_counts(side, 2) == [7, 7]  # type: ignore[arg-type]


def test_slicemill_has_the_expected_results_in_both_formats(tmp_path: Path) -> None:
    assert_right([systems.mill(), systems.mill("csv")], tmp_path)


def phase(rows: int, cpu_s: float, wrong: int = 0) -> Phase:
    return Phase(rows, 10, wrong, Usage(cpu_s, 1.0, 1, {"java": cpu_s}), 0.5)


def compared(tmp_path: Path, phases: dict[tuple[str, str], Phase]) -> Comparison:
    comparison = Comparison(tmp_path, ExitStack(), 1)
    for (workload, system), found in phases.items():
        comparison.keep(workload, system, found)
    return comparison


def test_a_claim_about_a_share_of_another_systems_time_is_per_row(tmp_path: Path) -> None:
    comparison = compared(
        tmp_path,
        {("w", "us"): phase(100, 1), ("w", "them"): phase(100, 20), ("fewer", "them"): phase(10, 20)},
    )
    exact = comparison.at_most_part("w", "us", "them", 15)
    assert (exact.measured, exact.holds, exact.timed) == (20, True, True)
    assert not comparison.at_most_part("w", "us", "them", 21).holds
    fewer = comparison.at_most_part("w", "us", "them", 150, "fewer")
    assert fewer.measured == pytest.approx(200)
    assert "per row, as them had 10 rows and us 100" in fewer.note


def test_the_best_round_and_every_wrong_result_count(tmp_path: Path) -> None:
    comparison = compared(tmp_path, {("w", "us"): phase(100, 3, wrong=1)})
    comparison.keep("w", "us", phase(100, 2))
    comparison.keep("w", "us", phase(100, 4, wrong=2))
    assert comparison.best["w", "us"].cpu_s == 2
    assert (comparison.wrong, comparison.counted().holds) == (3, False)


def test_a_missing_system_makes_its_claims_fail_with_a_reason(tmp_path: Path) -> None:
    comparison = compared(tmp_path, {("w", "us"): phase(100, 1)})
    absent = System("them", "flink", "csv", (), missing="no network")
    comparison.run(reading("event", WorkloadStream(COLUMNS, events(tmp_path, 2, 50))), [absent])
    claims: list[Claim] = [
        comparison.at_most_part("w", "us", "them", 5),
        comparison.adds_no_more("w", "more", "us", "them"),
    ]
    for claim in claims:
        assert (claim.holds, claim.measured, claim.note) == (False, "not measured", "them: no network")
    assert comparison.figures()["them"] == "not measured: no network"


@pytest.mark.parametrize(("before", "holds"), [(5.0, True), (4.4, False), (3.0, False)])
def test_the_cost_of_additional_queries_is_compared_with_an_earlier_version(
    tmp_path: Path, before: float, holds: bool
) -> None:
    phases = {("1", "us"): 1.0, ("64", "us"): 1.5, ("1", "before"): 4.0, ("64", "before"): before}
    comparison = compared(tmp_path, {key: phase(100, cpu_s) for key, cpu_s in phases.items()})
    claim = comparison.adds_no_more("1", "64", "us", "before")
    assert (claim.measured, claim.holds) == (0.5, holds)
