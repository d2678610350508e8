"""EXPIRES AT and CLOSE WHEN: permitted positions, and hints that lead to valid statements."""

from __future__ import annotations

import pytest

from slicemill.binder import bind
from slicemill.catalog.queries import ExpiryColumn, SelectQuery
from slicemill.sql.errors import EslError

DECLARED = """
CREATE STREAM a (k int, till timestamp, ts timestamp) ORDER BY ts;
CREATE STREAM b (k int, v int, ts timestamp) ORDER BY ts;
CREATE STREAM c (k int, ts timestamp) ORDER BY ts;
"""
_JOIN = "SELECT a.k, b.v FROM a [EXPIRES AT till], b [NOW] WHERE a.k = b.k"
_CLOSED = "SELECT a.k, b.v FROM a [CLOSE WHEN k > 3], b WHERE a.k = b.k"

# Text, a part of the message and of its hint, and the statements that follow the hint.
CASES = [
    (
        "SELECT k, count(*) FROM a [EXPIRES AT till] GROUP BY k;",
        "EXPIRES AT is for joins of streams",
        "use [SESSION UNTIL column]",
        "SELECT k, count(*) FROM a [SESSION UNTIL till] GROUP BY k;",
    ),
    (
        "SELECT b.v FROM b ASOF JOIN a [EXPIRES AT till] ON a.k = b.k AND a.ts <= b.ts;",
        "an ASOF join stores only the latest row of a key",
        "compare the column with the other's time in WHERE",
        "SELECT b.v FROM b ASOF JOIN a ON a.k = b.k AND a.ts <= b.ts WHERE b.ts < a.till;",
    ),
    (
        "SELECT a.k, b.v FROM a [EXPIRES AT k], b [NOW] WHERE a.k = b.k;",
        "a tuple of a expires at a time in one of its columns",
        "name a timestamp column of that stream",
        f"{_JOIN};",
    ),
    (
        "SELECT a.k, b.v FROM a [ROWS 5 EXPIRES AT till], b [NOW] WHERE a.k = b.k;",
        "EXPIRES AT goes with a window of time, or with none",
        "a [EXPIRES AT …]",
        f"{_JOIN};",
    ),
    (
        "SELECT a.k, count(*) FROM a [EXPIRES AT till], b [RANGE 1 MINUTE] WHERE a.k = b.k GROUP BY a.k;",
        "an aggregate ranges over windows of FROM",
        "make the join a stream, CREATE STREAM ab AS SELECT",
        f"CREATE STREAM ab AS {_JOIN}; SELECT k, count(*) FROM ab GROUP BY k;",
    ),
    (
        "SELECT a.k, count(*) FROM a [CLOSE WHEN k > 3], b WHERE a.k = b.k GROUP BY a.k;",
        "an aggregate ranges over windows of FROM, and CLOSE WHEN is none",
        "make the join a stream, CREATE STREAM ab AS SELECT",
        f"CREATE STREAM ab AS {_CLOSED}; SELECT k, count(*) FROM ab GROUP BY k;",
    ),
    (
        "SELECT a.k FROM a [CLOSE WHEN k > 3], b, c WHERE a.k = b.k AND b.k = c.k;",
        "CLOSE WHEN is for joins of two streams, and FROM has 3",
        "CREATE STREAM ab AS SELECT",
        f"CREATE STREAM ab AS {_CLOSED}; SELECT ab.k FROM ab [NOW], c [NOW] WHERE ab.k = c.k;",
    ),
    (
        "SELECT a.k, b.v FROM a [ROWS 5 CLOSE WHEN k > 3], b WHERE a.k = b.k;",
        "CLOSE WHEN goes with windows of time, or with none",
        "a [RANGE 1 HOUR CLOSE WHEN …]",
        f"{_CLOSED.replace('CLOSE', 'RANGE 1 HOUR CLOSE')};",
    ),
    (
        "SELECT a.k, b.v FROM a [CLOSE WHEN k > 3] ASOF JOIN b ON a.k = b.k AND b.ts <= a.ts;",
        "an ASOF join stores only the latest row of a key",
        "leave CLOSE WHEN out, or use JOIN",
        f"{_CLOSED};",
    ),
    (
        "SELECT k, count(*) FROM a [RANGE 1 HOUR CLOSE WHEN k > 3] GROUP BY k;",
        "a window that a tuple closes has no length of its own",
        "write [CLOSE WHEN …]; [SESSION 1 HOUR CLOSE WHEN …] ends",
        "SELECT k, count(*) FROM a [SESSION 1 HOUR CLOSE WHEN k > 3] GROUP BY k;",
    ),
    (
        "SELECT k, count(*) FROM a [RANGE 1 HOUR SLIDE 1 HOUR] GROUP BY k CLOSE WHEN k > 3;",
        "CLOSE WHEN ends the groups of one stream",
        "FROM stream [CLOSE WHEN …] GROUP BY …",
        "SELECT k, count(*) FROM a [CLOSE WHEN k > 3] GROUP BY k;",
    ),
]


@pytest.mark.parametrize(("written", "message", "hint", "followed"), CASES)
def test_a_rejected_clause_has_a_hint_that_works(
    written: str, message: str, hint: str, followed: str
) -> None:
    with pytest.raises(EslError) as caught:
        bind(DECLARED + written)
    assert message in str(caught.value) and hint in str(caught.value)
    bind(DECLARED + followed)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("b.ts BETWEEN a.ts AND a.till", ExpiryColumn("till", 1)),
        ("b.ts >= a.ts AND a.till > b.ts", ExpiryColumn("till")),
        ("b.ts >= a.ts AND b.ts < a.till + INTERVAL 2 SECONDS", ExpiryColumn("till", 2_000_000)),
    ],
)
def test_a_condition_on_a_timestamp_column_determines_the_expiry_of_rows(
    condition: str, expected: ExpiryColumn
) -> None:
    catalog = bind(
        f"{DECLARED} CREATE QUERY q AS SELECT a.k FROM a, b WHERE a.k = b.k AND {condition};"
    ).catalog
    query = catalog.queries["q"].query
    assert isinstance(query, SelectQuery)
    windows = [entry.window for entry in query.inputs]
    assert windows[0] is not None and windows[0].extent is None and windows[0].expires == expected
    assert windows[1] is not None and windows[1].extent == 1
