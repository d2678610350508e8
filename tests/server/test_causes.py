"""Causes of a slow query, one case for each cause."""

from __future__ import annotations

import pytest

from slicemill.server.diagnosis import QuerySituation, Severity, cause_of

SLOW = {"rows_waiting": 1200, "longest_wait_s": 4.2}
CASES = [
    (QuerySituation("u", failed="division by zero"), "failed", "failed: division by zero"),
    (
        QuerySituation("u", state="paused", **SLOW, tasks={"u": 0.9}),
        "paused",
        "paused: it emits no results until RESUME QUERY",
    ),
    (QuerySituation("u", mill_problem="no worker answers"), "mill", "no worker answers"),
    (
        QuerySituation("u", failing_sources={"bid": "refused"}, sink_error="full"),
        "source",
        "the source of stream bid cannot be read: refused",
    ),
    (QuerySituation("u", sink_error="disk full"), "sink", "the sink cannot be written: disk full"),
    (
        QuerySituation("u", **SLOW, tasks={"u": 0.1, "join x": 0.8, "y": 0.2}),
        "waiting",
        "its task waits for task join x, which uses 80% of a core; "
        "1,200 rows are pending, the oldest for 4.2 s",
    ),
    (
        QuerySituation("u", **SLOW, tasks={"u": 0.01, "join x": 0.03}),
        "starved",
        "other processes use this machine: all tasks together get only 4% of a core; "
        "1,200 rows are pending, the oldest for 4.2 s",
    ),
    (
        QuerySituation("u", **SLOW, tasks={"u": 0.9, "join x": 0.3}),
        "busy",
        "its own task uses 90% of a core; 1,200 rows are pending, the oldest for 4.2 s",
    ),
    (
        QuerySituation("u", **SLOW, tasks={"u": 0.9}, python=0.8),
        "compiling",
        "its loops run as slow Python until they are compiled; 1,200 rows are pending, the oldest for 4.2 s",
    ),
    (
        QuerySituation("u", **SLOW, tasks={"u": 0.9}, collecting=0.31, server_collecting=0.4),
        "gc",
        "garbage collection (GC) takes 31% of the time of its task; "
        "1,200 rows are pending, the oldest for 4.2 s",
    ),
    (
        QuerySituation("u", **SLOW, tasks={"u": 0.9}, collecting=0.1, server_collecting=0.25),
        "gc",
        "garbage collection (GC) stops the server for 25% of the time; "
        "1,200 rows are pending, the oldest for 4.2 s",
    ),
    (
        QuerySituation("u", watermarks={"bid": 100.0, "auction": 88.0, "person": 99.0}),
        "watermark",
        "the watermark waits for stream auction, which is 12 s behind bid",
    ),
    (
        QuerySituation("u", watermarks={"bid": 100.0, "auction": None}),
        "watermark",
        "the watermark waits for stream auction, which has had no rows yet",
    ),
    (
        QuerySituation("u", level="p99 < 2 seconds", level_met=False, level_measured_s=3.1),
        "level",
        "misses its service level p99 < 2 seconds: 3.1 s in the last minute",
    ),
    (
        QuerySituation("u", has_ended=True),
        "ended",
        "its streams have ended, and all its results have been emitted",
    ),
    (QuerySituation("u", shed_share=0.125), "shed", "drops 12.5% of its rows to stay within its load budget"),
]


@pytest.mark.parametrize(("query", "kind", "text"), CASES, ids=[kind for _, kind, _ in CASES])
def test_each_cause_of_a_slow_query_is_named(query: QuerySituation, kind: str, text: str) -> None:
    found = cause_of(query)
    assert found is not None
    assert (found.kind, found.text) == (kind, text)


def test_a_healthy_query_has_no_cause() -> None:
    well = QuerySituation(
        "u",
        rows_waiting=10,
        longest_wait_s=0.2,
        tasks={"v": 2.0},
        watermarks={"bid": 100.0, "auction": 99.0},
        level="p99 < 2 seconds",
        level_met=True,
    )
    assert cause_of(well) is None
    assert cause_of(QuerySituation("u", watermarks={"bid": None})) is None


def test_the_most_severe_cause_precedes_all_others() -> None:
    found = cause_of(QuerySituation("u", **SLOW, failed="boom", tasks={"v": 1.0}, shed_share=0.5))
    assert found is not None
    assert (found.attention, found.kind) == (Severity.BROKEN, "failed")
