"""What people bring from other systems and ESL says otherwise: the hint, when followed, works."""

from __future__ import annotations

import pytest

from slicemill.esl import bind
from slicemill.esl.syntax.errors import EslError

DECLARED = """
CREATE STREAM bid (item int, price double, ts timestamp) ORDER BY ts;
CREATE STREAM tick (item int, price double, current_time timestamp) ORDER BY current_time;
"""

# What was written, a part of the message and of its hint, and the statement that follows from the hint.
CASES = [
    (
        "SELECT item, PROCTIME() FROM bid;",
        "PROCTIME() differs at every run",
        "declare the stream (…, current_time timestamp) ORDER BY current_time",
        "SELECT item, current_time FROM tick;",
    ),
    (
        "SELECT item, current_timestamp FROM bid;",
        "current_timestamp differs at every run",
        "use the stream's timestamp column",
        "SELECT item, ts FROM bid;",
    ),
    (
        "SELECT SESSION(ts, INTERVAL '1' MINUTE) FROM bid;",
        "SESSION belongs to a query that is grouped by a window",
        "write SELECT k, count(*), window_start() FROM s [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY k",
        "SELECT item, count(*), window_start() FROM bid [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY item;",
    ),
    (
        "SELECT TUMBLE_START(ts, INTERVAL '1' MINUTE) FROM bid;",
        "TUMBLE_START belongs to a query that is grouped by a window",
        "[RANGE 1 MINUTE SLIDE 1 MINUTE]",
        "SELECT TUMBLE_START(ts, INTERVAL '1' MINUTE), count(*) FROM bid GROUP BY"
        " TUMBLE(ts, INTERVAL '1' MINUTE);",
    ),
    (
        "SELECT * FROM bid MATCH_RECOGNIZE (PARTITION BY item PATTERN (A B));",
        "there is no MATCH_RECOGNIZE in ESL",
        "lag(price) OVER (PARTITION BY item)",
        "SELECT item, lag(price) OVER (PARTITION BY item) FROM bid;",
    ),
    (
        "SELECT item, collect_list(price) FROM bid [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY item;",
        "ESL has no lists",
        "listagg(CAST(price AS varchar), ',')",
        "SELECT item, listagg(CAST(price AS varchar), ',') FROM bid [RANGE 1 MINUTE"
        " SLIDE 1 MINUTE] GROUP BY item;",
    ),
    (
        "SELECT lead(price) FROM bid;",
        "lead goes along the rows of a window",
        "lead(price) OVER (PARTITION BY k)",
        "SELECT lead(price) OVER (PARTITION BY item) FROM bid;",
    ),
    (
        "SELECT lag(price) OVER (ROWS 3 PRECEDING) FROM bid;",
        "lag counts rows itself",
        "leave the frame out; lag(x, 2) is two rows before",
        "SELECT lag(price, 2) OVER () FROM bid;",
    ),
    (
        "SELECT last(price) FILTER (WHERE price > 1) FROM bid [RANGE 1 MINUTE SLIDE 1 MINUTE];",
        "last takes tuples with a NULL too, so it has no FILTER",
        "FROM (SELECT * FROM s WHERE …) AS t",
        "SELECT last(price) FROM (SELECT * FROM bid WHERE price > 1) AS t [RANGE 1 MINUTE SLIDE 1 MINUTE];",
    ),
    (
        "SELECT abs(price) FILTER (WHERE price > 1) FROM bid;",
        "FILTER goes with aggregates, and abs is none",
        "use CASE WHEN",
        "SELECT CASE WHEN price > 1 THEN abs(price) END FROM bid;",
    ),
    (
        "SELECT count(*) FROM bid GROUP BY TUMBLE(price, INTERVAL '1' MINUTE);",
        "windows follow the timestamp of bid, and price is not it",
        "it is ts",
        "SELECT count(*) FROM bid GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE);",
    ),
    (
        "SELECT count(*) FROM TUMBLE(TABLE bid, DESCRIPTOR(proctime), INTERVAL '1'"
        " MINUTE) GROUP BY window_start;",
        "windows follow the timestamp of bid, and proctime is not it",
        "declare the stream (…, current_time timestamp) ORDER BY current_time",
        "SELECT count(*) FROM TUMBLE(TABLE tick, DESCRIPTOR(current_time), INTERVAL '1'"
        " MINUTE) GROUP BY window_start;",
    ),
    (
        "SELECT count(*) FROM TUMBLE(TABLE bid, DESCRIPTOR(ts)) GROUP BY window_start;",
        "TUMBLE lacks its SIZE",
        "TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '10' MINUTES)",
        "SELECT count(*) FROM TUMBLE(TABLE bid, DESCRIPTOR(ts), INTERVAL '10' MINUTES)"
        " GROUP BY window_start;",
    ),
    (
        "SELECT item, count(*) FROM SESSION(bid, ts, INTERVAL '9' SECONDS) GROUP BY item, window_start;",
        "PARTITION BY and GROUP BY name the same keys",
        "write SESSION(TABLE bid PARTITION BY (item), …)",
        "SELECT item, count(*) FROM SESSION(TABLE bid PARTITION BY (item), ts, INTERVAL '9' SECONDS)"
        " GROUP BY item, window_start;",
    ),
    (
        "SELECT A.price FROM TUMBLE(bid, ts, 1 MINUTE) AS A, TUMBLE(bid, ts, 1 MINUTE)"
        " AS B WHERE A.item = B.item;",
        "windows are joined where they are the same",
        "add A.window_start = B.window_start to the condition",
        "SELECT A.price FROM TUMBLE(bid, ts, 1 MINUTE) AS A, TUMBLE(bid, ts, 1 MINUTE) AS B"
        " WHERE A.item = B.item AND A.window_start = B.window_start AND A.window_end = B.window_end;",
    ),
    (
        "SELECT price FROM bid [SESSION 5 SECONDS];",
        "a session is a group of tuples, and nothing is computed of it",
        "such as count(*)",
        "SELECT count(*) FROM bid [SESSION 5 SECONDS];",
    ),
    (
        "SELECT item, count(*) FROM bid [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY 3;",
        "there is no column 3 in the select list",
        "it has 2 columns, counted from 1",
        "SELECT item, count(*) FROM bid [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY 1;",
    ),
    (
        "SELECT item, grouping(item), count(*) FROM bid [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY item;",
        "grouping tells sets of keys apart, and here is one",
        "group by ROLLUP (…)",
        "SELECT item, grouping(item), count(*) FROM bid [RANGE 1 MINUTE SLIDE 1 MINUTE]"
        " GROUP BY ROLLUP (item);",
    ),
    (
        "CREATE TABLE t (a int, ts timestamp, WATERMARK FOR ts AS ts - INTERVAL '5'"
        " SECOND) WITH ('connector' = 'kafka');",
        "a table has no watermark; what has one is a stream",
        "USING kafka OPTIONS (",
        "CREATE STREAM t (a int, ts timestamp) ORDER BY ts SLACK 5 SECONDS"
        " USING kafka OPTIONS (kafka.bootstrap.servers = 'h:1', subscribe = 't');",
    ),
    (
        "CREATE STREAM t (a int, ts timestamp) WITH ('connector' = 'filesystem');",
        "a stream says with SOURCE or USING where it comes from",
        "SOURCE 'file.csv'",
        "CREATE STREAM t (a int, ts timestamp) ORDER BY ts SLACK 5 SECONDS SOURCE 'file.csv';",
    ),
    (
        "CREATE STREAM t (a int, at AS PROCTIME());",
        "the clock stamps the tuples of a stream as a whole",
        "declare current_time timestamp in its place, and ORDER BY current_time behind the columns",
        "CREATE STREAM t (a int, current_time timestamp) ORDER BY current_time;",
    ),
    (
        "CREATE STREAM t (a int, ts timestamp, WATERMARK FOR ts AS a - INTERVAL '5' SECOND);",
        "the watermark for ts is made of that column",
        "WATERMARK FOR ts AS ts - INTERVAL '5' SECONDS",
        "CREATE STREAM t (a int, ts timestamp, WATERMARK FOR ts AS ts - INTERVAL '5' SECONDS);",
    ),
]


@pytest.mark.parametrize(("written", "message", "hint", "instead"), CASES)
def test_a_hint_leads_to_a_statement_that_works(written: str, message: str, hint: str, instead: str) -> None:
    with pytest.raises(EslError) as raised:
        bind(DECLARED + written)
    (diagnostic,) = raised.value.diagnostics
    assert message in diagnostic.message
    assert hint in diagnostic.hint
    bind(DECLARED + instead)


def test_a_watermark_is_another_word_for_order_and_slack() -> None:
    written = bind("CREATE STREAM s (a int, ts timestamp, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND);")
    own = bind("CREATE STREAM s (a int, ts timestamp) ORDER BY ts SLACK 5 SECONDS;")
    assert written.catalog.relations == own.catalog.relations


def test_a_stream_may_have_the_name_of_a_window_function() -> None:
    bind("""CREATE STREAM session (page int, at timestamp) ORDER BY at;
        SELECT S.page, VALID(S) FROM session(page) AS S RANGE 5 MINUTES SLIDES 1 MINUTE;
        SELECT page FROM session; SELECT page FROM session [RANGE 5 SECONDS];""")
