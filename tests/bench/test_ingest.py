"""Filters over bids: the expected counts of all systems."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from slicemill.binder import bind
from slicemill_lab.bench.ingest import filters
from slicemill_lab.bench.inputs.bids import (
    COLUMNS,
    expected_counts,
    many_conditions,
    one_condition,
    write_bids,
)


def test_every_bid_passes_two_of_twenty_filters(tmp_path: Path) -> None:
    paths = write_bids(tmp_path, 2, 5_000)
    rows = [row for path in paths for row in pq.read_table(path).to_pylist()]
    assert list(rows[0]) == list(COLUMNS)
    counts = expected_counts(paths, many_conditions())
    assert sum(counts) == 2 * len(rows)
    assert counts[-3] == sum(row["bidder"] % 10 == 7 for row in rows)
    assert 0.05 < expected_counts(paths, one_condition())[0] / len(rows) < 0.15


def test_filters_are_valid_esl_and_have_results_from_the_first_file_on(tmp_path: Path) -> None:
    workload = filters(write_bids(tmp_path, 3, 500), many_conditions())
    declared = ", ".join(f"{name} {type_}" for name, type_ in COLUMNS.items())
    script = [f"CREATE STREAM bid ({declared}) ORDER BY ts USING parquet OPTIONS (path '{tmp_path}');"]
    script += [f"CREATE QUERY q{n} AS {query.text['esl']};" for n, query in enumerate(workload.queries)]
    assert len(bind("\n".join(script)).catalog.queries) == 20
    assert sum(query.first for query in workload.queries) == 2 * (
        pq.read_metadata(tmp_path / "00000.parquet").num_rows
    )
    assert all(query.first <= query.expected for query in workload.queries)
    assert workload.rows == sum(pq.read_metadata(path).num_rows for path in sorted(tmp_path.iterdir())[1:])
