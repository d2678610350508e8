"""A result counts from the moment at which it was due."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicemill.esl import bind
from slicemill.metrics.due import arrivals_of, dated, due_moments, released_by_time
from support.corpus import Event
from support.units import run_arrivals

SECOND = 1_000_000


def due(
    ts: list[int], arr: list[int], input_ts: list[int], input_arr: list[int], watermark: int
) -> list[int]:
    arrays = (np.array(values, np.int64) for values in (ts, arr, input_ts, input_arr))
    return due_moments(*arrays, watermark).tolist()


def test_a_result_of_a_tuple_is_due_when_the_tuple_arrives() -> None:
    assert due([5, 6], [100, 90], [5, 6], [100, 90], 200) == [100, 90]


def test_a_result_of_time_is_due_when_the_first_tuple_behind_it_arrives() -> None:
    assert due([60], [0], [57, 59, 64, 65], [572, 591, 643, 650], 900) == [643]


def test_a_tuple_at_the_end_of_a_window_ends_it() -> None:
    assert due([60], [0], [59, 60], [591, 601], 900) == [601]


def test_without_a_tuple_behind_it_a_result_is_due_when_the_watermark_gets_there() -> None:
    assert due([60, 60], [0, 0], [57], [572], 900) == [900, 900]
    assert due([60], [0], [], [], 900) == [900]


def test_a_result_that_waits_for_the_end_of_a_slot_is_due_then() -> None:
    assert due([57], released_by_time(np.array([60])).tolist(), [57, 59, 61], [571, 592, 613], 900) == [613]


def test_times_before_1970_are_not_taken_for_arrivals() -> None:
    assert released_by_time(np.array([-5, 0, 7])).tolist() == [0, 0, -7]


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 99)), max_size=12).map(sorted),
    st.lists(st.integers(0, 25), min_size=1, max_size=8),
    st.integers(100, 200),
)
def test_all_at_once_is_one_by_one(inputs: list[tuple[int, int]], ends: list[int], watermark: int) -> None:
    expected = [min((arr for ts, arr in inputs if ts >= end), default=watermark) for end in ends]
    input_ts, input_arr = [ts for ts, _ in inputs], [arr for _, arr in inputs]
    assert due(ends, [0] * len(ends), input_ts, input_arr, watermark) == expected


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 9)), max_size=12),
    st.lists(st.integers(0, 25), min_size=1, max_size=8),
)
def test_few_moments_tell_what_all_arrivals_do(inputs: list[tuple[int, int]], ends: list[int]) -> None:
    expected = [min((arr for ts, arr in inputs if ts >= end), default=99) for end in ends]
    columns = {
        name: pa.array([row[i] for row in inputs], pa.int64()) for i, name in enumerate(["_ts", "_arr"])
    }
    times, arrivals = arrivals_of([pa.table(columns)])
    assert len(times) <= len({arr for _, arr in inputs})
    assert due(ends, [0] * len(ends), times.tolist(), arrivals.tolist(), 99) == expected


def test_results_are_dated_by_the_tuples_of_all_inputs() -> None:
    def table(ts: list[int], arr: list[int]) -> pa.Table:
        return pa.table({"_ts": pa.array(ts, pa.int64()), "_arr": pa.array(arr, pa.int64())})

    inputs = [arrivals_of([table([1, 9], [11, 19])]), arrivals_of([table([2, 7], [12, 17])])]
    assert dated(table([5, 6], [0, 16]), inputs, 99)["_arr"].to_pylist() == [17, 16]
    assert dated(table([10], [0]), [], 99)["_arr"].to_pylist() == [99]


SLIDE = "RANGE 5 SECONDS PRECEDING SLIDE 5 SECONDS"


@pytest.mark.parametrize(
    ("query", "arrivals"),
    [
        ("SELECT v FROM S", [1, 2, 3]),
        ("SELECT sum(v) OVER (ROWS 1 PRECEDING) AS s FROM S", [1, 2, 3]),
        ("SELECT k, sum(v) AS s FROM S [RANGE 5 SECONDS SLIDE 5 SECONDS] GROUP BY k", [0, 0, 0]),
        ("SELECT k, median(v) AS s FROM S [RANGE 5 SECONDS SLIDE 5 SECONDS] GROUP BY k", [0, 0, 0]),
        (f"SELECT sum(v) OVER (PARTITION BY k {SLIDE}) AS s FROM S", [-5 * SECOND] * 2 + [-15 * SECOND]),
        (f"SELECT median(v) OVER (PARTITION BY k {SLIDE}) AS s FROM S", [-5 * SECOND] * 2 + [-15 * SECOND]),
        (f"SELECT whole(v) OVER (PARTITION BY k {SLIDE}) AS s FROM S", [-5 * SECOND] * 2 + [-15 * SECOND]),
        ("SELECT sum(v) OVER (ROWS 2 PRECEDING SLIDE 2) AS s FROM S", [2]),
        (
            "SELECT sum(v) OVER (RANGE 5 SECONDS PRECEDING ACTIVE EXPIRATION) AS s FROM S",
            [1, 2, -6 * SECOND, 3],
        ),
        (
            "SELECT own(v) OVER (RANGE 5 SECONDS PRECEDING ACTIVE EXPIRATION) AS s FROM S",
            [1, 2, -6 * SECOND, -7 * SECOND, 3, -17 * SECOND],
        ),
        ("SELECT R.v FROM S(v) AS R RANGE 5 SECONDS SLIDES 5 SECONDS PARTITION BY k", [0, 0, 0]),
        ("SELECT v FROM S UNION ALL SELECT v FROM S WHERE v > 9", [1, 2, 3]),
        ("SELECT A.v FROM S [RANGE 1 SECOND] AS A, S [RANGE 1 SECOND] AS B WHERE A.k = B.k", [1, 2, 3]),
    ],
)
def test_rows_that_time_releases_have_no_arrival(query: str, arrivals: list[int]) -> None:
    """Tuples of two keys at 1 s and 2 s, of the first again at 12 s, which arrive at 1, 2 and 3 µs."""
    catalog = bind(
        "CREATE STREAM S (k int, v int, ts timestamp) ORDER BY ts;"
        "CREATE AGGREGATE own(x int) : int { TABLE seen(n int);"
        "  INITIALIZE: ITERATE: { DELETE FROM seen; INSERT INTO seen VALUES (x);"
        "    INSERT INTO RETURN SELECT n FROM seen; }"
        "  EXPIRE: { INSERT INTO RETURN SELECT n FROM seen; } };"
        "CREATE AGGREGATE whole(x int) : int { TABLE state(total int);"
        "  INITIALIZE: { INSERT INTO state VALUES (x); } ITERATE: { UPDATE state SET total = total + x; }"
        "  TERMINATE: { INSERT INTO RETURN SELECT total FROM state; } };"
        f"CREATE QUERY q AS {query};"
    ).catalog
    tuples = [(1, 1, 7), (2, 2, 8), (12, 1, 9)]
    events = [
        Event(number, "S", ts * SECOND, (k, v, ts * SECOND)) for number, (ts, k, v) in enumerate(tuples, 1)
    ]
    assert run_arrivals(catalog, events)["q"] == arrivals
