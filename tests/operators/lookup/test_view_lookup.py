"""Look-ups in views over streams: the pairs, and their order, are the reference's, however runs are cut."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slicemill.binder import bind
from slicemill.catalog.catalog import Catalog
from support.corpus import Event
from support.reference import by_reference
from support.tasks import run_tasks

STREAMS = """
CREATE STREAM A (k int, d double, s varchar, ts timestamp) ORDER BY ts;
CREATE STREAM B (k int, d double, s varchar, ts timestamp) ORDER BY ts;
"""
VIEWS = {
    "the last tuple": "SELECT k, d FROM A [ROWS 1]",
    "the last tuples": "SELECT d, s, k FROM A [ROWS 4]",
    "a stretch of time": "SELECT k, d FROM A [RANGE 3 SECONDS]",
    "an instant": "SELECT k, d FROM A [RANGE 1 MICROSECOND]",
    "a selection": "SELECT k, d FROM A [RANGE 3 SECONDS] WHERE k > 0",
    "results": "SELECT k, n AS d FROM (SELECT k, count(*) AS n FROM A [RANGE 2 SECONDS SLIDE 1 SECOND] "
    "GROUP BY k) AS W [RANGE 1 SECOND]",
}
JOINS = {
    "every pair": "SELECT B.k, V.d FROM B, V",
    "by key": "SELECT B.k, B.s, V.d FROM B, V WHERE B.k = V.k",
    "by two keys": "SELECT B.k, V.d FROM B, V WHERE V.k = B.k AND B.d = V.d",
    "by a comparison": "SELECT B.k, V.k AS j FROM B, V WHERE B.d < V.d",
    "by key and comparison": "SELECT B.k, V.d FROM B, V WHERE B.k = V.k AND B.d <= V.d",
    "left": "SELECT B.k, V.d FROM B LEFT JOIN V ON B.k = V.k",
    "left, every pair": "SELECT B.s, V.d FROM B LEFT JOIN V ON TRUE",
    "of the same stream": "SELECT A.k, V.d FROM A, V WHERE A.k = V.k",
    "counted": "SELECT B.k, count(*) OVER (PARTITION BY B.k ROWS UNBOUNDED PRECEDING) AS n, V.d FROM B, V",
}
Rows = list[tuple[int, str, tuple[int | None, float | None, str | None]]]

arrivals: st.SearchStrategy[Rows] = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 1, 1, 2, 5]),
        st.sampled_from("AB"),
        st.tuples(
            st.sampled_from([0, 1, 2, None]),
            st.sampled_from([0.0, -0.0, 1.5, math.nan, None]),
            st.sampled_from(["x", "", None]),
        ),
    ),
    max_size=30,
)


def events_of(chosen: Rows) -> list[Event]:
    events, now = [], 0
    for step, stream, row in chosen:
        now += step * 1_000_000
        events.append(Event(now + 1, stream, now, (*row, now)))
    return events


@cache
def catalog_of(view: str, join: str) -> Catalog:
    return bind(f"{STREAMS} CREATE VIEW V AS {VIEWS[view]}; CREATE QUERY q AS {JOINS[join]};").catalog


@pytest.mark.parametrize("view", VIEWS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(join=st.sampled_from(list(JOINS)), chosen=arrivals, seed=st.integers(0, 9), stored=st.booleans())
def test_pairs_are_the_references(
    view: str, join: str, chosen: Rows, seed: int, stored: bool, tmp_path: Path
) -> None:
    catalog, events = catalog_of(view, join), events_of(chosen)
    found = run_tasks(catalog, events, {}, seed, 1, tmp_path if stored else None)
    expected = by_reference(catalog, events, {})
    assert list(map(repr, found["q"])) == list(map(repr, expected["q"]))
