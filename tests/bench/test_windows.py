"""Parts of the windows benchmark that need no Spark: expected results, and the content of panes."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slicemill_lab.bench.inputs import events
from slicemill_lab.bench.inputs.events import ExpectedMeans, write_events
from slicemill_lab.bench.measuring.panes_kept import entries_kept
from slicemill_lab.bench.rivals.bare_numba import BareWindows

SECOND = 1_000_000


def results(paths: list[Path], range_s: int) -> pa.Table:
    """Return the results by the definition, window by window."""
    table = pa.concat_tables([pq.read_table(path) for path in paths])
    ts = table.column("ts").cast(pa.int64()).to_pylist()
    rows = list(zip(ts, table.column("k").to_pylist(), table.column("v").to_pylist(), strict=True))
    found = []
    for end in range(ts[0] // SECOND * SECOND + SECOND, ts[-1] + 1, SECOND):
        values: dict[int, list[int]] = {}
        for at, k, v in rows:
            if end - range_s * SECOND <= at < end:
                values.setdefault(k, []).append(v)
        found += [{"k": k, "mean": sum(own) / len(own), "e": end} for k, own in values.items()]
    return pa.Table.from_pylist(found)


def test_expected_results_equal_the_definition_of_windows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "EVENTS_PER_S", 10)
    monkeypatch.setattr(events, "KEYS", 4)
    paths = write_events(tmp_path / "events", 3, 25)
    expected = ExpectedMeans(paths)
    for range_s in (1, 3, 20):
        table = results(paths, range_s)
        assert expected.count(range_s) == table.num_rows
        assert expected.differences(range_s, table) == 0
        wrong = table.set_column(1, "mean", pa.array([0.5, *table.column("mean").to_pylist()[1:]]))
        assert expected.differences(range_s, wrong) == 1
        assert expected.differences(range_s, table.slice(2)) == 2


def test_panes_store_one_value_per_slide_instead_of_one_per_tuple() -> None:
    assert entries_kept(20, 5, 100) <= 5
    assert entries_kept(20, 1, 100) <= 21


def test_bare_numba_gives_the_means_of_numpy_after_any_input(tmp_path: Path) -> None:
    paths = write_events(tmp_path / "events", 3, 15_000)
    expected = ExpectedMeans(paths)
    bare = BareWindows((1, 3, 20), events.KEYS, events.FIRST_S, expected.seconds)
    for taken in (paths[:1], paths[1:]):
        bare.take(taken)
    for range_s, tables in bare.results.items():
        assert bare.count(range_s) == expected.count(range_s)
        assert expected.differences(range_s, pa.concat_tables(tables)) == 0
