"""Joins in the syntax of other systems: an equal meaning, or a hint that leads to a valid statement."""

from __future__ import annotations

import pytest

from slicemill.binder import bind
from support.hints import check_hint

DECLARED = """
CREATE STREAM bid (item int, price double, ts timestamp) ORDER BY ts;
CREATE STREAM tick (item int, price double, current_time timestamp) ORDER BY current_time;
CREATE TABLE product (item int, other int);
"""
CASES = [
    (
        "SELECT item FROM bid WHERE item IN (SELECT item FROM TUMBLE(tick, current_time, 5 MINUTES) AS R"
        " WHERE bid.ts >= R.window_start);",
        "a sub-query over the window of the outer row must become a join",
        "write L SEMI JOIN (SELECT * FROM TUMBLE(b, ts, INTERVAL '5' MINUTE)) AS R ON L.k = R.k",
        "SELECT L.item FROM (SELECT * FROM TUMBLE(bid, ts, INTERVAL '5' MINUTE)) AS L SEMI JOIN"
        " (SELECT * FROM TUMBLE(tick, current_time, INTERVAL '5' MINUTE)) AS R"
        " ON L.item = R.item AND L.window_start = R.window_start AND L.window_end = R.window_end;",
    ),
    (
        "SELECT item, count(*) FROM TUMBLE(bid, ts, 5 MINUTES) AS L WHERE item IN (SELECT item FROM"
        " TUMBLE(tick, current_time, 5 MINUTES) AS R WHERE L.window_start = R.window_start"
        " AND L.window_end = R.window_end) GROUP BY item, window_start, window_end;",
        "a sub-query over the window of the outer row must become a join",
        "CREATE STREAM s AS SELECT …, and aggregate FROM s [RANGE …]",
        "CREATE STREAM s AS SELECT item FROM TUMBLE(bid, ts, 5 MINUTES) AS L WHERE item IN (SELECT item FROM"
        " TUMBLE(tick, current_time, 5 MINUTES) AS R WHERE L.window_start = R.window_start"
        " AND L.window_end = R.window_end);"
        " SELECT item, count(*) FROM s [RANGE 5 MINUTES SLIDE 5 MINUTES] GROUP BY item;",
    ),
    (
        "SELECT a.item FROM bid AS a LEFT JOIN bid AS b ON a.item = b.item LEFT JOIN tick AS c"
        " ON a.item = c.item;",
        "a join of streams would store a without a limit",
        "give it a window: a [RANGE 10 MINUTES], or add WINDOW 10 MINUTES at the end",
        "SELECT a.item FROM bid AS a LEFT JOIN bid AS b ON a.item = b.item LEFT JOIN tick AS c"
        " ON a.item = c.item WINDOW 10 MINUTES;",
    ),
    (
        "SELECT a.item FROM bid [RANGE 1 MINUTE] AS a JOIN product AS p ON a.item = p.item LEFT JOIN bid"
        " [RANGE 1 MINUTE] AS b ON p.other = b.item LEFT JOIN tick [RANGE 1 MINUTE] AS c ON a.item = c.item;",
        "p is looked up after the joins of streams",
        "look it up in a stream of its own, CREATE STREAM s AS SELECT … JOIN p …, and join s",
        "CREATE STREAM s AS SELECT a.item, p.other FROM bid AS a JOIN product AS p ON a.item = p.item;"
        " SELECT s.item FROM s [RANGE 1 MINUTE] LEFT JOIN bid [RANGE 1 MINUTE] AS b ON s.other = b.item"
        " LEFT JOIN tick [RANGE 1 MINUTE] AS c ON s.item = c.item;",
    ),
    (
        "SELECT a.item FROM bid [RANGE 1 MINUTE] AS a LEFT JOIN bid [RANGE 1 MINUTE] AS b ON c.item = b.item"
        " LEFT JOIN tick [RANGE 1 MINUTE] AS c ON a.item = c.item;",
        "c follows the join that reads it in FROM",
        "name c before b in FROM",
        "SELECT a.item FROM bid [RANGE 1 MINUTE] AS a LEFT JOIN tick [RANGE 1 MINUTE] AS c ON a.item = c.item"
        " LEFT JOIN bid [RANGE 1 MINUTE] AS b ON c.item = b.item;",
    ),
    (
        "SELECT a.item FROM bid [EXPIRES AT ts] AS a LEFT JOIN bid [RANGE 1 MINUTE] AS b ON a.item = b.item"
        " LEFT JOIN tick [RANGE 1 MINUTE] AS c ON a.item = c.item;",
        "EXPIRES AT goes with a LEFT JOIN of two streams, and FROM has 3",
        "CREATE STREAM ab AS SELECT …; then FROM ab [RANGE …]",
        "CREATE STREAM ab AS SELECT a.item FROM bid [EXPIRES AT ts] AS a LEFT JOIN bid [RANGE 1 MINUTE] AS b"
        " ON a.item = b.item; SELECT ab.item FROM ab [RANGE 1 MINUTE]"
        " LEFT JOIN tick [RANGE 1 MINUTE] AS c ON ab.item = c.item;",
    ),
]


@pytest.mark.parametrize(("written", "message", "hint", "instead"), CASES)
def test_a_hint_leads_to_a_join_that_works(written: str, message: str, hint: str, instead: str) -> None:
    check_hint(DECLARED, written, message, hint, instead)


def test_in_over_windows_is_a_semi_join_of_equal_windows() -> None:
    window, other = (f"TABLE(TUMBLE(TABLE {name}, 5 MINUTES))" for name in ("bid, ts", "tick, current_time"))
    same = "L.window_start = R.window_start AND L.window_end = R.window_end"
    asked = f"L.item IN (SELECT item FROM (SELECT * FROM {other}) R WHERE {same})"
    found = [
        bind(f"{DECLARED}SELECT * FROM (SELECT * FROM {window}) L {rest};").catalog.queries["query_1"].query
        for rest in (
            f"WHERE {asked}",
            f"SEMI JOIN (SELECT * FROM {other}) R ON {same} AND L.item = R.item",
        )
    ]
    assert found[0] == found[1]
