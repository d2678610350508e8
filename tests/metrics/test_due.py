"""Due time of a result, from which its response time counts."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicemill.binder import bind
from slicemill.metrics.due_times import TimeLine, due_moments, moments_of, set_due_times, trigger_arrivals
from slicemill.time import BEGINNING, EARLIEST
from support.corpus import Event
from support.tasks import run_arrivals

SECOND = 1_000_000


def line_of(tuples: Iterable[tuple[int, int]], allowed_us: int | None = None) -> TimeLine:
    """Return the time line of a stream after the arrival of tuples, given as (timestamp, arrival)."""
    line = TimeLine(allowed_us)
    for ts, arrival in sorted(tuples, key=lambda one: one[1]):
        line.arrived(ts, arrival)
    return line


def due(ts: list[int], arr: list[int], lines: Iterable[TimeLine], now: int) -> list[int]:
    arrays = (np.array(values, np.int64) for values in (ts, arr))
    return due_moments(*arrays, [line.after(BEGINNING) for line in lines], now).tolist()


def test_a_result_of_a_tuple_is_due_when_the_tuple_arrives() -> None:
    assert due([5, 6], [100, 90], [line_of([(5, 100), (6, 90)])], 200) == [100, 90]


def test_a_result_released_by_time_is_due_when_the_first_later_tuple_arrives() -> None:
    assert due([60], [0], [line_of([(57, 572), (59, 591), (64, 643), (65, 650)])], 900) == [643]


def test_a_tuple_at_the_end_of_a_window_ends_the_window() -> None:
    assert due([60], [0], [line_of([(59, 591), (60, 601)])], 900) == [601]


def test_a_result_with_an_unknown_release_time_is_due_now() -> None:
    assert due([60, 60], [0, 0], [line_of([(57, 572)])], 900) == [900, 900]
    assert due([60], [0], [TimeLine()], 900) == due([60], [0], [], 900) == [900]


def test_a_result_before_the_first_tuple_is_due_now_on_any_clock() -> None:
    line = TimeLine(allowed_us=0)
    line.passed(50, 500)
    assert due([EARLIEST, 40], [0, 0], [line], 900) == [900, 490]


def test_a_result_that_waits_for_the_end_of_a_slot_is_due_at_that_end() -> None:
    line = line_of([(57, 571), (59, 592), (61, 613)])
    assert due([57], trigger_arrivals(np.array([60])).tolist(), [line], 900) == [613]


def test_with_several_streams_the_first_to_reach_the_time_counts() -> None:
    lines = [line_of([(1, 11), (9, 19)]), line_of([(2, 12), (7, 17)])]
    assert due([5, 8, 10], [0, 0, 0], lines, 99) == [17, 19, 99]


def test_the_clock_passes_through_all_times_in_between() -> None:
    line = TimeLine()
    line.passed(100, 1_100)
    line.passed(130, 1_130)
    assert len(line.after(BEGINNING).ts) == 1  # one segment for any number of polls
    line.passed(180, 1_190)
    assert due([90, 125, 160, 180], [0] * 4, [line], 2_000) == [1_090, 1_125, 1_170, 1_190]
    assert line.after(130).ts.tolist() == [180]


def test_silence_advances_a_stream_with_a_skew_until_the_next_tuple() -> None:
    """A tuple at 100 arrives at 1000, a tuple at 130 at 1060: silence, less 20, had already reached 140."""
    line = line_of([(100, 1_000), (130, 1_060), (200, 1_110)], allowed_us=20)
    assert due([100, 110, 140, 150, 180], [0] * 5, [line], 2_000) == [1_000, 1_030, 1_060, 1_100, 1_110]


def test_the_distant_past_has_a_coarser_resolution() -> None:
    line = line_of((ts, 10 * ts) for ts in range(1, 50_001))
    known = line.after(BEGINNING)
    assert len(known.ts) <= 4_096
    found = due([7, 49_990], [0, 0], [line], 10**9)
    assert 70 <= found[0] <= 500_000
    assert found[1] == 499_900


def test_times_before_1970_do_not_count_as_arrivals() -> None:
    assert trigger_arrivals(np.array([-5, 0, 7])).tolist() == [0, 0, -7]


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 99)), max_size=12),
    st.lists(st.integers(0, 25), min_size=1, max_size=8),
    st.integers(100, 200),
)
def test_due_times_of_a_batch_equal_those_of_single_results(
    inputs: list[tuple[int, int]], ends: list[int], now: int
) -> None:
    expected = [min((arr for ts, arr in inputs if ts >= end), default=now) for end in ends]
    assert due(ends, [0] * len(ends), [line_of(inputs)], now) == expected


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 9)), max_size=12),
    st.lists(st.integers(0, 25), min_size=1, max_size=8),
)
def test_condensed_moments_give_the_due_times_of_all_arrivals(
    inputs: list[tuple[int, int]], ends: list[int]
) -> None:
    expected = [min((arr for ts, arr in inputs if ts >= end), default=99) for end in ends]
    arrived = sorted(inputs, key=lambda one: one[1])
    times, arrivals = (np.array([one[place] for one in arrived], np.int64) for place in (0, 1))
    moments = moments_of(times, arrivals)
    assert len(moments) <= len({arr for _, arr in inputs})
    assert due(ends, [0] * len(ends), [line_of(moments)], 99) == expected


def test_results_get_the_due_times_of_their_own_streams() -> None:
    def table(ts: list[int], arr: list[int]) -> pa.Table:
        return pa.table({"_ts": pa.array(ts, pa.int64()), "_arr": pa.array(arr, pa.int64())})

    lines = [line_of(tuples).after(BEGINNING) for tuples in ([(1, 11), (9, 19)], [(2, 12), (7, 17)])]
    assert set_due_times(table([5, 6], [0, 16]), lines, 99)["_arr"].to_pylist() == [17, 16]
    assert set_due_times(table([10], [0]), [], 99)["_arr"].to_pylist() == [99]


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
def test_rows_released_by_time_have_no_arrival_time(query: str, arrivals: list[int]) -> None:
    """Tuples of two keys at 1 s and 2 s, and of the first key at 12 s, which arrive at 1, 2 and 3 µs."""
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
