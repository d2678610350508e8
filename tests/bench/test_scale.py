"""Scale benchmark: every case gives the count of DuckDB with any number of subtasks."""

from __future__ import annotations

from dataclasses import replace

import duckdb
import pytest

from slicemill_lab.bench.inputs.scale import CASES, ScaleCase
from slicemill_lab.bench.measuring.subtasks import measured_subtasks

pytestmark = pytest.mark.every_commit  # compares results of the product

BATCHES = 2


def counted_by_sql(case: ScaleCase) -> tuple[int, int]:
    """Count rows whose newest part all streams have passed, and rows whose newest part they have reached."""
    database = duckdb.connect()
    batches = list(case.batches(BATCHES))
    for stream in case.streams:
        rows = [row for tables in batches for row in tables[stream].to_pylist()]
        database.execute(f"CREATE TABLE {stream} (k BIGINT, v BIGINT, ts TIMESTAMPTZ)")
        database.executemany(f"INSERT INTO {stream} VALUES (?, ?, ?)", [list(row.values()) for row in rows])
    times = [f"epoch_us({stream}.ts)" for stream in case.streams]
    newest = f"greatest({', '.join(times)})"
    least = ", ".join(f"(SELECT max(epoch_us(ts)) FROM {stream})" for stream in case.streams)
    windows = " AND ".join(f"{newest} - {time} < {round(case.window_s * 1_000_000)}" for time in times)
    found = database.execute(
        f"SELECT count(*) FILTER ({newest} < least({least})), count(*) FROM {', '.join(case.streams)} "
        f"WHERE {case.where} AND {windows} AND {newest} <= least({least})"
    ).fetchone()
    assert found is not None
    return found[0], found[1]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_rows_of_a_case_equal_the_count_of_duckdb(case: ScaleCase) -> None:
    window_s = case.window_s / 5
    small = replace(case, values=100, rows_per_batch=200, rows_per_s=100, window_s=window_s)
    passed, reached = counted_by_sql(small)
    assert passed
    for subtasks in (1, 3):
        found = measured_subtasks(
            small.script((small.window_s,)), small.batches(BATCHES), small.warming, subtasks
        )
        assert passed <= found.rows["q0"] <= reached
        assert 0 < found.slowest_cpu_s <= found.cpu_s and 0 < found.largest_state_bytes <= found.state_bytes
