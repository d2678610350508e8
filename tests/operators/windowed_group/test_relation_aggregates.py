"""GROUP BY over windows of FROM: rows, values and order are the reference's, however runs are cut."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slicemill.binder import bind
from slicemill.catalog.catalog import Catalog
from slicemill.operators.window import expiring_rows as lives
from support.corpus import Event, TimedRow
from support.reference import by_reference
from support.tasks import run_tasks

STREAMS = """
CREATE STREAM A (k double, g varchar, v double, i int, s varchar, ts timestamp) ORDER BY ts;
CREATE STREAM B (k double, g varchar, v double, i int, s varchar, ts timestamp) ORDER BY ts;
CREATE TABLE T (g varchar, w int);
CREATE MODEL centre(x REAL) AS mean(x);
CREATE AGGREGATE whole(x int) : int {
  TABLE state(total int);
  INITIALIZE: { INSERT INTO state VALUES (x); }
  ITERATE: { UPDATE state SET total = total + x; }
  TERMINATE: { INSERT INTO RETURN SELECT total FROM state; }
};
CREATE AGGREGATE bounds(x int) : (bound int, n int) {
  TABLE state(low int, high int, n int);
  INITIALIZE: { INSERT INTO state VALUES (x, x, 1); }
  ITERATE: { UPDATE state SET low = least(low, x), high = greatest(high, x), n = n + 1; }
  TERMINATE: { INSERT INTO RETURN SELECT low, n FROM state; INSERT INTO RETURN SELECT high, n FROM state; }
};
CREATE AGGREGATE steps(x int) : int {
  TABLE seen(v int);
  INITIALIZE: ITERATE: { INSERT INTO seen VALUES (x) WHERE NOT EXISTS (SELECT v FROM seen WHERE v = x); }
  TERMINATE: { INSERT INTO RETURN SELECT v FROM seen; }
};
CREATE AGGREGATE twice(x int) : int {
  TABLE state(total int);
  INITIALIZE: { INSERT INTO state VALUES (x); }
  ITERATE: { UPDATE state SET total = total + x; }
  TERMINATE: { INSERT INTO RETURN SELECT 2 * total FROM state; }
};
CREATE WINDOW AGGREGATE twice(x int) : int {
  TABLE inwindow(w int);
  INITIALIZE: ITERATE: { INSERT INTO RETURN SELECT count(*) FROM inwindow; }
};
"""
TABLE = [("a", 1), ("b", 2), ("b", 3)]
FIGURES = "count(*) AS n, sum(v) AS s, avg(i) AS a, min(v) AS lo, max(s) AS hi, stddev(v) AS d"
CHOICES = """count(DISTINCT i) AS u, median(v) AS m, first(v) AS f, last(i) AS l, listagg(s, '-') AS t,
    min_by(s, i) AS mb, max_by(i, v) AS xb, variance(i) AS va, percentile(i, 0.3) AS p"""
SYNOPSES = "approx_count(s) AS c, approx_count_if(i > 0) AS o, priority_sample(s) AS ps"

# Over one stream, a row for each tuple.
EACH = {
    "by key": f"SELECT k, {FIGURES} FROM A [RANGE 3 SECONDS] GROUP BY k",
    "by two keys": f"SELECT k, g, {CHOICES} FROM A [RANGE 2 SECONDS] GROUP BY k, g",
    "by an expression": f"SELECT k * -1.0 AS j, {FIGURES} FROM A [RANGE 3 SECONDS] GROUP BY k * -1.0",
    "of all": f"SELECT {CHOICES} FROM A [RANGE 3 SECONDS]",
    "where and having": "SELECT g, sum(i) AS s FROM A [RANGE 4 SECONDS] WHERE i > 0 GROUP BY g "
    "HAVING count(*) > 1",
    "rows": f"SELECT {FIGURES} FROM A [ROWS 3]",
    "one row": f"SELECT g, {FIGURES} FROM A [ROWS 1] GROUP BY g",
    "rows by key": f"SELECT k, {FIGURES}, {CHOICES} FROM A [ROWS 5] GROUP BY k",
    "rows where": f"SELECT g, {FIGURES} FROM A [ROWS 4] WHERE i > 0 GROUP BY g",
    "rows of all where": f"SELECT {CHOICES} FROM A [ROWS 4] WHERE i > 0",
    "a user's own": "SELECT g, whole(i) AS w, bounds(i), sum(i) AS s "
    "FROM A [RANGE 3 SECONDS] WHERE i IS NOT NULL GROUP BY g",
    "a user's own with two versions": "SELECT g, twice(i) AS t, count(*) AS n FROM A [RANGE 3 SECONDS] "
    "WHERE i IS NOT NULL GROUP BY g",
    "rows of a user's own with two versions": "SELECT g, twice(i) AS t, bounds(i) FROM A [ROWS 4] "
    "WHERE i > 0 GROUP BY g",
    "rows of a user's own": "SELECT g, whole(i) AS w, count(*) AS n FROM A [ROWS 4] WHERE i > 0 GROUP BY g",
    "models": "SELECT g, centre(v) AS m, count(*) AS n FROM A [RANGE 3 SECONDS] GROUP BY g",
    "names that meet": "SELECT g, sum(n) AS x FROM (SELECT g, count(*) AS n FROM A [ROWS 4] GROUP BY g) AS D "
    "[RANGE 2 SECONDS] GROUP BY g",
    "each, over a look-up": "SELECT A.g, sum(T.w) AS s FROM A [RANGE 3 SECONDS], T WHERE A.g = T.g "
    "GROUP BY A.g",
}
# Windows that slide, on something that keeps tuples itself: panes of their own.
SLIDING = {
    "over a look-up": "SELECT A.g, sum(T.w) AS s FROM A [RANGE 3 SECONDS SLIDE 1 SECOND], T WHERE A.g = T.g "
    "GROUP BY A.g",
    "over a union": f"SELECT k, {FIGURES} FROM (SELECT k, v, i, s FROM A UNION ALL SELECT k, v, i, s FROM B) "
    "AS U [RANGE 3 SECONDS SLIDE 2 SECONDS] GROUP BY k",
    "a user's own that slides": "SELECT g, whole(i) AS w, bounds(i), steps(i) AS t, median(i) AS m "
    "FROM A [RANGE 3 SECONDS SLIDE 1 SECOND] WHERE i IS NOT NULL GROUP BY g",
    "below a union": "SELECT g, median(v) AS m FROM A [RANGE 3 SECONDS SLIDE 2 SECONDS] GROUP BY g "
    "UNION ALL SELECT g, v FROM B",
}
# Windows that tuples leave in any order, and counts of rows that slide.
LIVING = {
    "of a join": "SELECT A.g, count(*) AS n, sum(A.v * B.v) AS s, min(A.i) AS lo, avg(B.v) AS a "
    "FROM A [RANGE 3 SECONDS], B [RANGE 2 SECONDS] WHERE A.g = B.g GROUP BY A.g",
    "of a join, all": "SELECT count(*) AS n, listagg(A.s, '-') AS t, first(B.i) AS f, max_by(A.s, B.i) AS m "
    "FROM A [RANGE 2 SECONDS], B [RANGE 4 SECONDS] WHERE A.i < B.i",
    "of a join without end": "SELECT A.k, count(DISTINCT B.i) AS n, median(B.v) AS m "
    "FROM A [RANGE UNBOUNDED], B [RANGE 2 SECONDS] WHERE A.k = B.k GROUP BY A.k",
    "of three": "SELECT A.g, count(*) AS n, last(C.i) AS l FROM A [RANGE 3 SECONDS], B [RANGE 2 SECONDS], "
    "A [RANGE 1 SECOND] AS C WHERE A.g = B.g AND B.g = C.g GROUP BY A.g HAVING count(*) > 1",
    "of a join that slides": "SELECT A.g, count(*) AS n, sum(B.v) AS s, max(A.s) AS hi, "
    "window_start() AS b, window_end() AS e FROM A [RANGE 3 SECONDS SLIDE 2 SECONDS], "
    "B [RANGE 5 SECONDS SLIDE 2 SECONDS] WHERE A.g = B.g GROUP BY A.g",
    "of a join that slides, all": "SELECT count(*) AS n, listagg(B.s, '-') AS t "
    "FROM A [RANGE 2 SECONDS SLIDE 3 SECONDS], B [RANGE 4 SECONDS SLIDE 3 SECONDS] WHERE A.i < B.i",
    "a user's own of a join": "SELECT A.g, bounds(A.i), steps(B.i) AS t, count(*) AS n "
    "FROM A [RANGE 3 SECONDS], B [RANGE 2 SECONDS] WHERE A.g = B.g AND A.i <> 3 AND B.i <> 3 GROUP BY A.g",
    "a user's own of a join that slides": "SELECT A.g, steps(A.i) AS t, whole(B.i) AS w "
    "FROM A [RANGE 3 SECONDS SLIDE 2 SECONDS], B [RANGE 5 SECONDS SLIDE 2 SECONDS] "
    "WHERE A.g = B.g AND A.i <> 3 AND B.i <> 3 GROUP BY A.g",
    "rows of a user's own that slide": "SELECT g, bounds(i), steps(i) AS t, centre(v) AS m "
    "FROM A [ROWS 5 SLIDE 2] WHERE i <> 3 GROUP BY g",
    "rows that slide": f"SELECT k, {FIGURES}, window_start() AS b, window_end() AS e "
    "FROM A [ROWS 5 SLIDE 2] GROUP BY k",
    "rows that tumble": f"SELECT g, {CHOICES} FROM A [ROWS 3 SLIDE 3] GROUP BY g",
    "rows that jump": f"SELECT {FIGURES}, window_start() AS b FROM A [ROWS 2 SLIDE 5]",
    "rows that slide where": f"SELECT g, {FIGURES}, window_start() AS b FROM A [ROWS 4 SLIDE 3] WHERE i > 0 "
    "GROUP BY g",
}
# What has no kernel is evaluated row by row, window by window.
BY_ROW = {
    "synopses": f"SELECT g, {SYNOPSES} FROM A [RANGE 3 SECONDS] GROUP BY g",
    "synopses of rows": f"SELECT g, {SYNOPSES} FROM A [ROWS 3] GROUP BY g",
}
QUERIES = EACH | SLIDING | LIVING | BY_ROW
NUMBERS = [0.0, -0.0, 0.1, 2.5, -3.0, 1e10, math.nan, None]

arrivals = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 1, 1, 2, 5]),
        st.sampled_from("AAB"),
        st.tuples(
            st.sampled_from([0.0, -0.0, 1.5, math.nan, None]),
            st.sampled_from(["a", "b", None]),
            st.sampled_from(NUMBERS),
            st.sampled_from([0, 1, 7, -2, None]),
            st.sampled_from(["x", "yy", "", None]),
        ),
    ),
    max_size=25,
)


def events_of(chosen: list[tuple[int, str, tuple[object, ...]]]) -> list[Event]:
    events, now = [], 0
    for step, stream, row in chosen:
        now += step * 1_000_000
        events.append(Event(now + 1, stream, now, (*row, now)))  # type: ignore[arg-type]
    return events


@cache
def catalog_of(query: str) -> Catalog:
    return bind(f"{STREAMS} CREATE QUERY q AS {query};").catalog


def shown(name: str, rows: list[TimedRow]) -> list[str]:
    """Panes have one zero."""
    return [repr(row).replace("-0.0", "0.0") if name in SLIDING else repr(row) for row in rows]


@pytest.mark.parametrize("name", QUERIES)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    chosen=arrivals,
    seed=st.integers(0, 9),
    subtasks=st.sampled_from([1, 1, 3]),
    stored=st.booleans(),
    at_once=st.sampled_from([5, 1000]),
)
def test_rows_are_the_references(
    name: str,
    chosen: list[tuple[int, str, tuple[object, ...]]],
    seed: int,
    subtasks: int,
    stored: bool,
    at_once: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(lives, "_AT_ONCE", at_once)
    catalog, events = catalog_of(QUERIES[name]), events_of(chosen)
    found = run_tasks(catalog, events, {"T": TABLE}, seed, subtasks, tmp_path if stored else None)
    expected = by_reference(catalog, events, {"T": TABLE})
    assert shown(name, found["q"]) == shown(name, expected["q"])
