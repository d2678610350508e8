"""A change of any clause of a query changes the meaning of its definition."""

from __future__ import annotations

import pytest

from slicemill.binder import bind
from slicemill.catalog.catalog import QueryDefinition
from slicemill.plan.statement_equality import diff_statements

DECLARED = """CREATE STREAM s (k int, v int, at timestamp) ORDER BY at;
CREATE STREAM r (k int, v int, at timestamp) ORDER BY at;
"""
OTHERWISE = {
    "LIMIT": ("SELECT k, v FROM s ORDER BY v DESC LIMIT 3", "SELECT k, v FROM s ORDER BY v DESC LIMIT 4"),
    "ORDER BY": ("SELECT k, v FROM s ORDER BY v DESC LIMIT 3", "SELECT k, v FROM s ORDER BY v LIMIT 3"),
    "QUALIFY": (
        "SELECT k, v FROM s QUALIFY row_number() OVER (PARTITION BY k ORDER BY v) <= 3",
        "SELECT k, v FROM s QUALIFY row_number() OVER (PARTITION BY k ORDER BY v) <= 4",
    ),
    "PARTITION BY and ORDER BY": (
        "SELECT k, v FROM s QUALIFY row_number() OVER (PARTITION BY k ORDER BY v) = 1",
        "SELECT k, v FROM s QUALIFY row_number() OVER (PARTITION BY v ORDER BY k) = 1",
    ),
    "DISTINCT": ("SELECT k, v FROM s", "SELECT DISTINCT k, v FROM s"),
    "EMIT EVERY": (
        "SELECT k, count(*) AS n FROM s GROUP BY k",
        "SELECT k, count(*) AS n FROM s GROUP BY k EMIT EVERY 5 SECONDS",
    ),
    "EMIT FINAL": (
        "SELECT k, count(*) AS n FROM s GROUP BY k EMIT EVERY 5 SECONDS",
        "SELECT k, count(*) AS n FROM s GROUP BY k EMIT FINAL",
    ),
    "EMIT EARLY": (
        "SELECT k, count(*) AS n FROM s [RANGE 9 SECONDS SLIDE 9 SECONDS] GROUP BY k"
        " EMIT EARLY EVERY 2 SECONDS",
        "SELECT k, count(*) AS n FROM s [RANGE 9 SECONDS SLIDE 9 SECONDS] GROUP BY k"
        " EMIT EARLY EVERY 3 SECONDS",
    ),
    "sessions": (
        "SELECT k, count(*) AS n FROM s GROUP BY k, session_window(at, '5 seconds')",
        "SELECT k, count(*) AS n FROM s GROUP BY k, session_window(at, '6 seconds')",
    ),
}


def defined(select: str) -> QueryDefinition:
    return bind(f"{DECLARED}CREATE QUERY q AS {select};").catalog.queries["q"]


@pytest.mark.parametrize(("before", "after"), OTHERWISE.values(), ids=OTHERWISE.keys())
def test_a_changed_clause_is_a_changed_definition(before: str, after: str) -> None:
    assert diff_statements(defined(before), defined(after))
    assert not diff_statements(defined(before), defined(before.lower()))
