"""Equal timestamps have one order, whatever the number of subtasks and wherever runs are cut (columns.order).

Each query reads what keyed operators give through a window that counts rows, over all keys: were two rows of
one timestamp the other way round, its values would differ.
"""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slicemill.binder import bind
from support.corpus import Event
from support.tasks import run_tasks

STREAMS = """
CREATE STREAM A (k int, v int, ts timestamp) ORDER BY ts;
CREATE STREAM B (k int, v int, ts timestamp) ORDER BY ts;
CREATE STREAM C (k int, v int, ts timestamp) ORDER BY ts;
CREATE TABLE T (k int, w int);
CREATE AGGREGATE twice(x int) : int {
  TABLE state(total int);
  INITIALIZE: ITERATE: { INSERT INTO RETURN VALUES (x), (x + 1); }
};
CREATE AGGREGATE whole(x int) : int {
  TABLE state(total int);
  INITIALIZE: { INSERT INTO state VALUES (x); }
  ITERATE: { UPDATE state SET total = total + x; }
  TERMINATE: { INSERT INTO RETURN SELECT total FROM state; }
};
"""
# What keyed operators give, as stream D (k, v).
OVER_A = "SELECT k, {} OVER (PARTITION BY k {}) AS v FROM A"
OF_A = "SELECT k, {} AS v FROM A [RANGE 3 SECONDS SLIDE 1 SECOND] GROUP BY k"
DERIVED = {
    "selection": "SELECT k, v FROM A WHERE v > 0",
    "look-up": "SELECT A.k AS k, T.w AS v FROM A, T WHERE A.k = T.k",
    "count window": OVER_A.format("sum(v)", "ROWS 1 PRECEDING"),
    "time window": OVER_A.format("sum(v)", "RANGE 2 SECONDS PRECEDING"),
    "window without beginning": OVER_A.format("count(v)", "ROWS UNBOUNDED PRECEDING"),
    "slots": OVER_A.format("sum(v)", "RANGE 3 SECONDS PRECEDING SLIDE 2 SECONDS"),
    "slots of rows": OVER_A.format("sum(v)", "ROWS 3 PRECEDING SLIDE 2"),
    "slots, not in panes": OVER_A.format("median(v)", "RANGE 3 SECONDS PRECEDING SLIDE 2 SECONDS"),
    "slots of an aggregate": OVER_A.format("whole(v)", "RANGE 3 SECONDS PRECEDING SLIDE 2 SECONDS"),
    "expiries": OVER_A.format("sum(v)", "RANGE 2 SECONDS PRECEDING ACTIVE EXPIRATION"),
    "windows of FROM": OF_A.format("sum(v)"),
    "windows of FROM, by value": OF_A.format("median(v)"),
    "windows of FROM, by an aggregate": OF_A.format("whole(v)"),
    "rows of an aggregate": "SELECT k, twice(v) AS v FROM A GROUP BY k",
    "rows of an aggregate in a window": OVER_A.format("twice(v)", "ROWS 2 PRECEDING"),
    "runs": "SELECT R.k AS k, R.v AS v FROM A(v) AS R RANGE 5 SECONDS SLIDES 2 SECONDS PARTITION BY k",
    "runs of rows": "SELECT R.k AS k, R.v AS v FROM A(v) AS R RANGE 3 ROWS SLIDES 2 ROWS PARTITION BY k",
    "join": "SELECT A.k AS k, A.v * 10 + B.v AS v FROM A [RANGE 2 SECONDS], B [RANGE 3 SECONDS] "
    "WHERE A.k = B.k",
    "join of rows": "SELECT A.k AS k, A.v * 10 + B.v AS v FROM A [ROWS 3], B [ROWS 2] WHERE A.k = B.k",
    "join without a key": "SELECT A.k AS k, A.v * 10 + B.v AS v FROM A [RANGE 2 SECONDS], "
    "B [RANGE 3 SECONDS] WHERE A.v < B.v",
    "join of three": "SELECT A.k AS k, A.v * 100 + B.v * 10 + C.v AS v FROM A [RANGE 2 SECONDS], "
    "B [RANGE 3 SECONDS], C [RANGE 2 SECONDS] WHERE A.k = B.k AND B.k = C.k",
    "aggregate of a join": "SELECT A.k AS k, count(*) AS v FROM A [RANGE 2 SECONDS SLIDE 1 SECOND], "
    "B [RANGE 2 SECONDS SLIDE 1 SECOND] WHERE A.k = B.k GROUP BY A.k",
    "union": "SELECT k, v FROM A UNION ALL SELECT k, v FROM B",
}
# What reads it: the rows as they are, by position, and keyed again.
READERS = """
CREATE QUERY rows AS SELECT k, v FROM D;
CREATE QUERY places AS SELECT k, v, sum(v) OVER (ROWS 1 PRECEDING) AS s FROM D;
CREATE STREAM E AS SELECT k, v, count(*) OVER (PARTITION BY k ROWS UNBOUNDED PRECEDING) AS n FROM D;
CREATE QUERY again AS SELECT k, n, sum(n) OVER (ROWS 2 PRECEDING) AS s FROM E;
CREATE STREAM F AS SELECT k, v, count(*) OVER (PARTITION BY v % 3 ROWS UNBOUNDED PRECEDING) AS n FROM D;
CREATE QUERY otherwise AS SELECT k, v, n, sum(n) OVER (ROWS 2 PRECEDING) AS s FROM F;
CREATE QUERY both AS SELECT k, n FROM E UNION ALL SELECT k, v FROM A;
"""
TABLE = [(k, w) for k in range(4) for w in (k, 2 * k + 1)]

arrivals = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 0, 0, 1, 1, 3]), st.sampled_from("AABC"), st.integers(0, 5), st.integers(0, 3)
    ),
    min_size=2,
    max_size=40,
)


def events_of(chosen: list[tuple[int, str, int, int]]) -> list[Event]:
    events, now = [], 0
    for step, stream, k, v in chosen:
        now += step * 1_000_000
        events.append(Event(now + 1, stream, now, (k, v, now)))
    return events


@pytest.mark.parametrize("derived", DERIVED.values(), ids=DERIVED.keys())
@settings(max_examples=8, deadline=None)
@given(chosen=arrivals, seed=st.integers(0, 9))
# The first pairs of two groups have numbers that do not grow with time.
@example(chosen=[(0, "A", 0, 0), (0, "B", 0, 0), (0, "B", 4, 0), (1, "A", 4, 0)], seed=0)
def test_any_number_of_subtasks_gives_the_same_rows_in_the_same_order(
    derived: str, chosen: list[tuple[int, str, int, int]], seed: int
) -> None:
    catalog = bind(f"{STREAMS} CREATE STREAM D AS {derived}; {READERS}").catalog
    events = events_of(chosen)
    one = run_tasks(catalog, events, {"T": TABLE}, seed, 1)
    for subtasks in (2, 5):
        assert run_tasks(catalog, events, {"T": TABLE}, seed + subtasks, subtasks) == one
