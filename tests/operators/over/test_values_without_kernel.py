"""OVER of values that no kernel has a column for: periods, and nothing but NULLs."""

from __future__ import annotations

from pathlib import Path

import pytest

from slicemill.binder import bind
from support.corpus import Event
from support.reference import by_reference
from support.tasks import run_tasks

QUERIES = """
CREATE STREAM s (k bigint, a timestamp, b timestamp, at timestamp) ORDER BY at SOURCE 's.csv';
CREATE QUERY periods AS
  SELECT k, last(PERIOD(a, b)) OVER (PARTITION BY k ROWS 1 PRECEDING) AS p,
    count(PERIOD(a, b)) OVER (PARTITION BY k ROWS 1 PRECEDING) AS n FROM s;
CREATE QUERY nulls AS SELECT k, count(NULL) OVER (ROWS 2 PRECEDING) AS n FROM s;
"""


@pytest.mark.parametrize("subtasks", [1, 3])
@pytest.mark.parametrize("stored", [False, True])
def test_rows_are_the_references(subtasks: int, stored: bool, tmp_path: Path) -> None:
    catalog = bind(QUERIES).catalog
    rows = [(n % 2, n * 10, n * 10 + 5, n * 1_000_000) for n in range(12)]
    events = [Event(n + 1, "s", row[-1], row) for n, row in enumerate(rows)]
    found = run_tasks(catalog, events, {}, 1, subtasks, tmp_path if stored else None)
    assert found == by_reference(catalog, events, {})
    assert found["periods"][3] == (3_000_000, (1, (30, 35), 2))
    assert {row for _, row in found["nulls"]} == {(0, 0), (1, 0)}
