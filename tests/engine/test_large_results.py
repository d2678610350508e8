"""A query whose results take too much memory fails alone, and is tried with fewer rows first."""

from __future__ import annotations

from pathlib import Path

import pytest

from slicemill.api.mill import Mill
from slicemill.operators.join import emit
from slicemill.testing import Clock, inline_pool
from support.engine import fed_mill, feed_rows, finish

STREAMS = """
CREATE STREAM a (k int, c int, ts timestamp micros) ORDER BY ts;
CREATE STREAM b (k int, c int, ts timestamp micros) ORDER BY ts;
CREATE STREAM d (k int, c int, ts timestamp micros) ORDER BY ts;
"""
TWO = """
CREATE QUERY wide AS SELECT a.k AS x, b.k AS y FROM a [RANGE 1 HOUR], b [RANGE 1 HOUR] WHERE a.c = b.c;
CREATE QUERY narrow AS SELECT a.k AS x, b.k AS y FROM a [RANGE 1 HOUR], b [RANGE 1 HOUR]
  WHERE a.c = b.c AND a.k = b.k;
"""
THREE = """
CREATE QUERY wide AS SELECT a.k AS x, b.k AS y, d.k AS z
  FROM a [RANGE 1 HOUR], b [RANGE 1 HOUR], d [RANGE 1 HOUR] WHERE a.c = b.c AND b.c = d.c;
CREATE QUERY narrow AS SELECT a.k AS x, b.k AS y, d.k AS z
  FROM a [RANGE 1 HOUR], b [RANGE 1 HOUR], d [RANGE 1 HOUR]
  WHERE a.c = b.c AND b.c = d.c AND a.k = b.k AND b.k = d.k;
"""


def _opened(home: Path, queries: str) -> Mill:
    mill = fed_mill(home, Clock(), inline_pool(1))
    mill.execute(STREAMS + queries)
    mill.open()
    return mill


def _feed(mill: Mill, rows: int, first: int = 0) -> None:
    for stream in "abd":
        if stream in mill.running.streams:
            feed_rows(mill, stream, [(first + n, 1, first + n) for n in range(rows)])


@pytest.mark.parametrize(("queries", "inputs"), [(TWO, 2), (THREE, 3)])
def test_a_join_with_too_many_rows_fails_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, queries: str, inputs: int
) -> None:
    monkeypatch.setattr(emit, "MOST_BYTES", 1 << 20)
    with _opened(tmp_path / "home", queries) as mill:
        _feed(mill, 50)
        mill.dispatcher.run_all()
        before = mill.queries["narrow"].table().num_rows
        assert mill.queries["wide"].error is not None or inputs == 2
        _feed(mill, 300, first=50)
        mill.dispatcher.run_all()
        error = mill.queries["wide"].error or ""
        assert error.startswith("a join makes ") and "more than 1 MB of memory" in error
        assert mill.queries["narrow"].error is None
        # The last row is held back.
        assert (before, mill.queries["narrow"].table().num_rows) == (49, 349)


def test_what_fails_in_one_large_run_is_tried_in_smaller_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emit, "MOST_BYTES", 1 << 20)
    monkeypatch.setattr("slicemill.runtime.tasks._ROWS_PER_RUN", 16 * 40)
    with _opened(tmp_path / "home", TWO) as mill:
        for first in range(0, 240, 40):
            _feed(mill, 40, first)
        mill.dispatcher.run_all()
        finish(mill)
        assert mill.queries["wide"].error is None
        assert mill.queries["wide"].table().num_rows == 240 * 240
