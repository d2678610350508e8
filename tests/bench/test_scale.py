"""The scale benchmark: every case gives what DuckDB counts, however many cells there are."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import duckdb
import pytest
from rich.console import Console

from slicemill_lab.bench import scale
from slicemill_lab.bench.inputs.scale import CASES, ONE_KEY, ScaleCase
from slicemill_lab.bench.measuring.cells import measured_cells
from slicemill_lab.bench.measuring.executors import WALL_CELLS
from slicemill_lab.experiment import to_json

BATCHES = 2


def counted_by_sql(case: ScaleCase) -> tuple[int, int]:
    """How many rows there are whose newest member all streams have passed, and whose they have reached."""
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
def test_the_rows_of_a_case_are_counted_right(case: ScaleCase) -> None:
    window_s = case.window_s / 5
    small = replace(case, values=100, rows_per_batch=200, rows_per_s=100, window_s=window_s)
    passed, reached = counted_by_sql(small)
    assert passed
    for cells in (1, 3):
        found = measured_cells(small.script((small.window_s,)), small.batches(BATCHES), small.warming, cells)
        assert passed <= found.rows["q0"] <= reached
        assert 0 < found.slowest_cpu_s <= found.cpu_s and 0 < found.largest_state_bytes <= found.state_bytes


def test_the_tables_fit_and_name_every_case_and_placement(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = tuple(
        replace(case, values=100, rows_per_batch=200, rows_per_s=200, window_s=0.5) for case in CASES
    )
    monkeypatch.setattr(scale, "CASES", tiny)
    monkeypatch.setattr(scale, "ONE_KEY", tiny[CASES.index(ONE_KEY)])
    monkeypatch.setattr(scale, "CELLS", (1, 8))
    # A cluster takes a minute to start; the benchmark itself and the slow tests have one.
    monkeypatch.setattr(scale, "wall_seconds", lambda *_: {str(cells): 1.0 for cells in WALL_CELLS})
    result = scale.run("small")
    (counted,) = [claim for claim in result.claims if claim.what == "runs with rows too many or missing"]
    assert counted.holds
    assert len(result.claims) == 2 + 2 * len(tiny) + 1 + len(scale.OVERLAPS)
    assert json.loads(to_json("scale", result))["figures"]["cases"]["theta, a band"]["8"]["cells"] == 8
    console = Console(width=110, record=True, file=io.StringIO())
    for table in scale.tables(result):
        console.print(table)
    shown = console.export_text()
    for words in (*(case.name for case in tiny), "hypercube", "key", "time", "seconds on the wall"):
        assert words in shown
    assert "…" not in shown
