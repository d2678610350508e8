"""Expected pairs of the join benchmark."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from slicemill_lab.bench.inputs.join import WindowedJoin, write_input
from slicemill_lab.bench.join import joins


@pytest.mark.parametrize("files", [1, 3])
@pytest.mark.parametrize("join", [WindowedJoin(0.5), WindowedJoin(0.02, below=300)])
def test_expected_pairs_equal_those_of_a_nested_loop(tmp_path: Path, files: int, join: WindowedJoin) -> None:
    made = write_input(tmp_path, 2, 40, keys=5, rows_per_s=100)
    assert made.files == 3
    left, right = (
        [row for path in paths[:files] for row in pq.read_table(path).to_pylist()] for paths in made.paths
    )
    until = min(left[-1]["ts"], right[-1]["ts"])
    pairs = sum(
        a["k"] == b["k"]
        and a["v"] < join.below
        and max(a["ts"], b["ts"]) < until
        and abs((a["ts"] - b["ts"]).total_seconds()) < join.window_s
        for a in left
        for b in right
    )
    assert made.expected(join, files) == pairs


def test_windows_range_from_the_shortest_to_the_longest_and_half_of_many_joins_have_filters() -> None:
    assert joins(1, 5, 80) == [WindowedJoin(80)]
    for count in (4, 16):
        made = joins(count, 5, 80)
        assert [made[0].window_s, made[-1].window_s] == [5, 80]
        assert sum(join.below < 1000 for join in made) == count // 2
