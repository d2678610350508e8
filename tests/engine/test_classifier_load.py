"""A classifier with a lag looks at fewer values under load, tells of every task, and replays what it did."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from unittest import mock

from slicemill.api.mill import Mill
from slicemill.shedding.load import Backlog
from slicemill.testing import Clock, inline_pool
from support.engine import fed_mill, feed_rows, finish

SECOND = 1_000_000
TASKS, CAPACITY, UNITS = 10, 20, 24
SCRIPT = f"""
CREATE STREAM s (k int, x double, y double, ts timestamp) ORDER BY ts;
CREATE TABLE e (k int, x double, y double, label boolean);
CREATE CLASSIFIER c ON s(x, y) PARTITION BY k LEARN label FROM e EVERY 1 SECOND
  WITH (capacity = {CAPACITY}, lag = '2 s');
CREATE QUERY q AS SELECT k, time, class, observed FROM c;
"""
EXAMPLES = [
    (k, float(task % 7 + k), float(task % 5), task % 7 > 3) for task in range(30) for k in range(TASKS)
]


def opened(folder: Path, clock: Clock) -> Mill:
    mill = fed_mill(folder, clock, inline_pool(), 1)
    mill.tables.set_rows("e", EXAMPLES)
    mill.execute(SCRIPT)
    mill.open()
    return mill


def observed(folder: Path, waits: list[float], crash_after: int | None = None) -> list[int]:
    """How many values were looked at in each time unit, of which so long waited for the machine."""
    clock = Clock(SECOND)
    mill = opened(folder, clock)
    for task, wait_s in enumerate(waits):
        rows = [(k, float(task % 7 + k), float(task % 5), task * SECOND + k) for k in range(TASKS)]
        feed_rows(mill, "s", rows)
        clock.now += round(wait_s * SECOND)
        with mock.patch.object(mill.dispatcher.running, "backlog", lambda _: Backlog(0.0, 10 * wait_s)):  # noqa: B023
            mill.dispatcher.run_all()
        if task == crash_after:
            mill.close(checkpoint=False)
            mill = opened(folder, clock)
    finish(mill)
    looked: dict[int, int] = {}
    for timed in mill.queries["q"].timed_rows():
        looked[timed.ts] = looked.get(timed.ts, 0) + int(str(timed.row[3]))
    decided = len(list(mill.queries["q"].timed_rows()))
    mill.close()
    assert decided == TASKS * len(waits)
    return [looked[ts] for ts in sorted(looked)]


def test_without_load_all_of_the_capacity_is_used(tmp_path: Path) -> None:
    assert observed(tmp_path, [0.01] * 6) == [CAPACITY] * 6


def test_under_load_fewer_values_are_looked_at_and_all_again_when_it_is_over(tmp_path: Path) -> None:
    found = observed(tmp_path, [0.01] * 4 + [5.0] * 8 + [0.01] * 12)
    assert len(found) == UNITS
    assert found[:3] == [CAPACITY] * 3
    assert 1 <= min(found[5:12]) <= max(found[5:12]) < CAPACITY // 4
    assert found[-1] == CAPACITY
    assert all(later >= earlier for earlier, later in pairwise(found[12:]))


def test_a_crash_changes_nothing_that_was_decided(tmp_path: Path) -> None:
    waits = [0.01] * 4 + [5.0] * 8 + [0.01] * 4
    whole = observed(tmp_path / "whole", waits)
    for index in (5, 9, 13):
        assert observed(tmp_path / f"crash {index}", waits, index) == whole
