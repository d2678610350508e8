"""Words of other systems that differ in ESL: their hints lead to valid statements."""

from __future__ import annotations

import pytest

from slicemill.binder import bind
from slicemill.sql.errors import EslError
from support.hints import check_hint

DECLARED = """
CREATE STREAM bid (item int, price double, ts timestamp) ORDER BY ts;
CREATE STREAM tick (item int, price double, current_time timestamp) ORDER BY current_time;
"""

# Text, a part of the message and of its hint, and the statement that follows the hint.
CASES = [
    (
        "SELECT item, price FROM bid [RANGE 5 MINUTES] ORDER BY price DESC LIMIT 3;",
        "a rank covers all rows so far, so this window has no effect",
        "QUALIFY row_number() OVER (PARTITION BY window_start, window_end ORDER BY x DESC) <= 3",
        "SELECT item, price FROM TUMBLE(bid, ts, INTERVAL '5' MINUTE)"
        " QUALIFY row_number() OVER (PARTITION BY window_start, window_end ORDER BY price DESC) <= 3;",
    ),
    (
        "SELECT item FROM bid [RANGE 5 MINUTES]"
        " QUALIFY row_number() OVER (PARTITION BY item ORDER BY price DESC) <= 3;",
        "a rank covers all rows so far, so this window has no effect",
        "leave the window out",
        "SELECT item FROM bid QUALIFY row_number() OVER (PARTITION BY item ORDER BY price DESC) <= 3;",
    ),
    (
        "SELECT item, price FROM bid [RANGE 5 MINUTES SLIDE 5 MINUTES] ORDER BY price DESC LIMIT 3;",
        "SLIDE needs an aggregate",
        "for the first rows of each window, write FROM TUMBLE(s, ts, INTERVAL '5' MINUTE) QUALIFY",
        "SELECT item, price FROM TUMBLE(bid, ts, INTERVAL '5' MINUTE)"
        " QUALIFY row_number() OVER (PARTITION BY window_start, window_end ORDER BY price DESC) <= 3;",
    ),
    (
        "SELECT window(ts, '10 minutes') AS w, count(*) FROM bid GROUP BY window(ts, '10 minutes');",
        "window has a start and an end, and no value of its own",
        "write window.start AS a, window.end AS b in a query with GROUP BY window(ts, '10 minutes')",
        "SELECT window.start AS a, window.end AS b, count(*) FROM bid GROUP BY window(ts, '10 minutes');",
    ),
    (
        "SELECT item, count(*) FROM bid WHERE ts > now() - INTERVAL '1 hour' GROUP BY item;",
        "now() returns a different value in each run",
        "for what came lately, give the stream a window: FROM s [RANGE 1 HOUR]",
        "SELECT item, count(*) FROM bid [RANGE 1 HOUR] GROUP BY item;",
    ),
    (
        "SELECT item FROM bid WHERE ts < CURRENT_WATERMARK(ts);",
        "there is no function CURRENT_WATERMARK",
        "tuples that come late are a stream of their own: FROM s_late",
        "SELECT item FROM bid_late;",
    ),
    (
        "INSERT INTO hot SELECT item, count(*) FROM bid GROUP BY item;",
        "there is no table hot",
        "CREATE STREAM hot AS SELECT …, or use a sink: CREATE QUERY hot WITH (sink = 'json:out') AS SELECT",
        "CREATE STREAM hot AS SELECT item, count(*) AS n FROM bid GROUP BY item;",
    ),
    (
        "CREATE TEMPORARY VIEW v AS SELECT item FROM bid [RANGE 1 MINUTE];",
        "what is declared stays until it is dropped",
        "leave the word out, and DROP it when you are done",
        "CREATE VIEW v AS SELECT item FROM bid [RANGE 1 MINUTE];",
    ),
    (
        "CREATE STREAM counts AS SELECT item, count(*) AS n FROM bid GROUP BY item;"
        " CREATE VIEW v AS SELECT item FROM counts WHERE n > 3;",
        "counts is a changelog, and a view over a stream needs rows that do not change",
        "make it a stream: CREATE STREAM v AS SELECT …; or look its rows up: CREATE TABLE v AS MATERIALIZED",
        "CREATE STREAM counts AS SELECT item, count(*) AS n FROM bid GROUP BY item;"
        " CREATE STREAM v AS SELECT item FROM counts WHERE n > 3; CREATE TABLE w AS MATERIALIZED counts;",
    ),
    (
        "SET 'execution.checkpointing.interval' = '10s';",
        "expected a setting such as policy",
        "write SET policy = 'hnr'",
        "SET policy = 'hnr';",
    ),
    (
        "ALTER TABLE bid ADD COLUMN bidder int;",
        "did not expect TABLE here",
        "a stream gets columns with ALTER STREAM name ADD COLUMN column type",
        "ALTER STREAM bid ADD COLUMN bidder int;",
    ),
    (
        "EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT item FROM bid;",
        "queries of one text share what they can by themselves",
        "write them one after another: CREATE QUERY a AS SELECT …; CREATE QUERY b AS SELECT …",
        "CREATE QUERY a AS SELECT item FROM bid; CREATE QUERY b AS SELECT price FROM bid;",
    ),
    (
        "DESCRIBE bid;",
        "a script declares; ad hoc queries are sent to a server, or by a command",
        "write it in slicemill sql",
        "SELECT * FROM bid;",
    ),
    (
        "SELECT b.item, t.price FROM bid AS b JOIN tick FOR SYSTEM_TIME AS OF PROCTIME() AS t"
        " ON b.item = t.item;",
        "FOR SYSTEM_TIME AS OF takes the timestamp of the first stream in FROM",
        "write FOR SYSTEM_TIME AS OF b.ts",
        "SELECT b.item, t.price FROM bid AS b JOIN tick FOR SYSTEM_TIME AS OF b.ts AS t ON b.item = t.item;",
    ),
    (
        "SELECT item, PROCTIME() FROM bid;",
        "PROCTIME() returns a different value in each run",
        "declare the stream (…, current_time timestamp) ORDER BY current_time",
        "SELECT item, current_time FROM tick;",
    ),
    (
        "SELECT item, current_timestamp FROM bid;",
        "current_timestamp returns a different value in each run",
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
        "SELECT lead(price) FROM bid;",
        "lead needs a window with OVER",
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
        "last does not skip NULLs, so it does not support FILTER",
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
        "CREATE STREAM t AS SELECT item, max(ts) AS last FROM bid GROUP BY item;"
        "SELECT count(*) FROM t GROUP BY TUMBLE(last, INTERVAL '1' MINUTE);",
        "t is a changelog, and a window needs rows that do not change",
        "GROUP BY date_trunc('minute', last)",
        "CREATE STREAM t AS SELECT item, max(ts) AS last FROM bid GROUP BY item;"
        "SELECT count(*) FROM t GROUP BY date_trunc('minute', last);",
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
        "window functions are joined on equal window bounds",
        "add A.window_start = B.window_start to the condition",
        "SELECT A.price FROM TUMBLE(bid, ts, 1 MINUTE) AS A, TUMBLE(bid, ts, 1 MINUTE) AS B"
        " WHERE A.item = B.item AND A.window_start = B.window_start AND A.window_end = B.window_end;",
    ),
    (
        "SELECT price FROM bid [SESSION 5 SECONDS];",
        "a session window needs an aggregate",
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
    (
        "CREATE SOURCE t (a int, ts timestamp) WITH (connector = 'kafka', topic = 't') FORMAT PLAIN;",
        "a stream says with SOURCE or USING where it comes from",
        "USING kafka OPTIONS (",
        "CREATE SOURCE t (a int, ts timestamp) ORDER BY ts SLACK 5 SECONDS"
        " USING kafka OPTIONS (kafka.bootstrap.servers = 'h:1', subscribe = 't');",
    ),
    (
        "SELECT item, count(*) FROM bid WINDOW TUMBLING (SIZE 1 HOUR, GRACE PERIOD 5 MINUTES) GROUP BY item;",
        "a window has no GRACE of its own",
        "EMIT LATE 10 MINUTES",
        "SELECT item, count(*) FROM bid WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY item EMIT LATE 10 MINUTES;",
    ),
    (
        "SELECT item, count(*) FROM bid GROUP BY item EMIT ON WINDOW CLOSE;",
        "ON WINDOW CLOSE needs a window",
        "FROM s [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY k; or use EMIT FINAL",
        "SELECT item, count(*) FROM bid [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY item EMIT ON WINDOW CLOSE;"
        " SELECT item, count(*) FROM bid GROUP BY item EMIT FINAL;",
    ),
    (
        "SELECT item, count(*) FROM bid GROUP BY window(ts, '1 minute'), item WITH ROLLUP;",
        "a grouping set without the window has no end",
        "GROUP BY window(ts, '1 minute'), ROLLUP (k)",
        "SELECT item, count(*) FROM bid GROUP BY window(ts, '1 minute'), ROLLUP (item);",
    ),
    (
        "SELECT item, count(*) AS n FROM bid GROUP BY window(ts, '1 minute'), ROLLUP (item)"
        " ORDER BY n DESC LIMIT 3;",
        "each set of keys is a query of its own, so their rows are not ordered together",
        "QUALIFY row_number() OVER (PARTITION BY w ORDER BY n DESC) <= 10",
        "SELECT * FROM (SELECT item, count(*) AS n, window_end() AS w FROM bid GROUP BY"
        " window(ts, '1 minute'), ROLLUP (item)) AS r"
        " QUALIFY row_number() OVER (PARTITION BY w ORDER BY n DESC) <= 10;",
    ),
    (
        "SELECT first_value(price) OVER (PARTITION BY item ORDER BY ts DESC) FROM bid;",
        "a window follows time upwards",
        "the newest value is last(x)",
        "SELECT last(price) OVER (PARTITION BY item ORDER BY ts) FROM bid;",
    ),
    (
        "SELECT sum(price) OVER (PARTITION BY item ORDER BY price DESC) FROM bid;",
        "a window follows time upwards",
        "row_number() OVER (ORDER BY x DESC)",
        "SELECT * FROM bid QUALIFY row_number() OVER (ORDER BY price DESC) <= 3;",
    ),
    (
        "SELECT sum(price) OVER w FROM bid;",
        "there is no window w",
        "define it behind FROM and WHERE: WINDOW w AS (PARTITION BY k ROWS 9 PRECEDING)",
        "SELECT sum(price) OVER w FROM bid WINDOW w AS (PARTITION BY item ROWS 9 PRECEDING);",
    ),
    (
        "SELECT item FROM bid WHERE item IN (SELECT item FROM tick GROUP BY item HAVING count(*) > 3);",
        "groups in a sub-query need a sliding window",
        "give the stream one: b [RANGE 1 HOUR SLIDE 1 MINUTE]",
        "SELECT item FROM bid WHERE item IN (SELECT item FROM tick [RANGE 1 HOUR SLIDE 1 MINUTE]"
        " GROUP BY item HAVING count(*) > 3);",
    ),
    (
        "SELECT item FROM bid AS b WHERE EXISTS (SELECT 1 FROM tick [RANGE 1 HOUR SLIDE 1 MINUTE] AS t"
        " WHERE t.item = b.item HAVING count(*) > 3);",
        "groups in a sub-query cannot read columns of the outer row",
        "use IN: k IN (SELECT k FROM b [RANGE 1 HOUR SLIDE 1 MINUTE] GROUP BY k HAVING count(*) > 3)",
        "SELECT item FROM bid WHERE item IN (SELECT item FROM tick [RANGE 1 HOUR SLIDE 1 MINUTE]"
        " GROUP BY item HAVING count(*) > 3);",
    ),
    (
        "SELECT item FROM bid WHERE price > (SELECT avg(price) FROM tick [RANGE 1 MINUTE SLIDE 1 MINUTE]);",
        "a sub-query over a stream has no single value",
        "join it: FROM a [NOW] AS a, (SELECT max(x) AS m FROM b [RANGE 1 MINUTE SLIDE 1 MINUTE]) AS q"
        " [RANGE 1 MINUTE] WHERE a.x > q.m",
        "SELECT a.item FROM bid [NOW] AS a, (SELECT avg(price) AS m FROM tick [RANGE 1 MINUTE SLIDE 1"
        " MINUTE]) AS q [RANGE 1 MINUTE] WHERE a.price > q.m;",
    ),
    (
        "SELECT item FROM bid WHERE item IN (SELECT item FROM bid UNION ALL SELECT item FROM tick);",
        "a sub-query in WHERE must read one stream",
        "CREATE STREAM b AS SELECT …; then ask what came in the last minute: IN (SELECT k FROM b [RANGE 1",
        "CREATE STREAM b AS SELECT item FROM bid UNION ALL SELECT item FROM tick;"
        " SELECT item FROM bid WHERE item IN (SELECT item FROM b [RANGE 1 MINUTE]);",
    ),
    (
        "SELECT item, w FROM bid LATERAL VIEW posexplode(split('a b', ' ')) t AS i, w;",
        "a LATERAL VIEW has the elements of a list",
        "write LATERAL VIEW explode(list) t AS x",
        "SELECT item, w FROM bid LATERAL VIEW explode(split('a b', ' ')) t AS w;",
    ),
    (
        "SELECT upper(explode(split('a b', ' '))) FROM bid;",
        "explode returns rows, not a value",
        "put it into FROM: FROM s, UNNEST(list) AS t(x)",
        "SELECT upper(x) FROM bid, UNNEST(split('a b', ' ')) AS t(x);",
    ),
    (
        "SELECT explode(split('a', ' ')), explode(split('b', ' ')) FROM bid;",
        "a select list can have only one explode()",
        "FROM s, UNNEST(a) AS t(x), UNNEST(b) AS u(y)",
        "SELECT x, y FROM bid, UNNEST(split('a', ' ')) AS t(x), UNNEST(split('b', ' ')) AS u(y);",
    ),
    (
        "SELECT item, x FROM bid, UNNEST(item) AS t(x);",
        "UNNEST takes a list, and this is INT",
        "as in UNNEST(split(text, ','))",
        "SELECT item, x FROM bid, UNNEST(split(CAST(item AS varchar), ',')) AS t(x);",
    ),
    (
        "SELECT item, x FROM bid RIGHT JOIN UNNEST(ARRAY[1]) AS t(x) ON item = x;",
        "the elements of a list are joined with their own tuple",
        "CROSS JOIN UNNEST(list) AS t(x), or LEFT JOIN UNNEST(list) AS t(x) ON TRUE",
        "SELECT item, x FROM bid CROSS JOIN UNNEST(ARRAY[1]) AS t(x);"
        " SELECT item, x FROM bid LEFT JOIN UNNEST(ARRAY[1]) AS t(x) ON TRUE;",
    ),
]


# Words and functions of Flink, ksqlDB, Materialize and Spark with another name in ESL, in short form. The
# hint is a quoted part of the message, and part of the valid statement unless it names other objects.
SHORT = [
    ("SELECT ucase('a') FROM bid;", "upper(x)", "SELECT upper('a') FROM bid;"),
    ("SELECT latest_by_offset(price) FROM bid;", "last(x)", "SELECT last(price) FROM bid;"),
    ("SELECT earliest_by_offset(price) FROM bid;", "first(x)", "SELECT first(price) FROM bid;"),
    (
        "SELECT item, topk(price, 3) FROM bid GROUP BY item;",
        "QUALIFY row_number() OVER (PARTITION BY k ORDER BY x DESC) <= 3",
        "SELECT item, price FROM bid QUALIFY row_number() OVER (PARTITION BY item ORDER BY price DESC) <= 3;",
    ),
    (
        "SELECT approx_count_distinct(item) FROM bid;",
        "count(DISTINCT x)",
        "SELECT count(DISTINCT item) FROM bid;",
    ),
    (
        "SELECT percentile_approx(price, 0.5) FROM bid;",
        "percentile(x, 0.5)",
        "SELECT percentile(price, 0.5) FROM bid;",
    ),
    (
        "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY price) FROM bid;",
        "percentile(x, 0.5), or listagg(x, ',')",
        "SELECT percentile(price, 0.5) FROM bid; SELECT listagg('a', ',') FROM bid;",
    ),
    (
        "SELECT string_agg('a', ',' ORDER BY ts) FROM bid;",
        "leave ORDER BY out; the first by another column is min_by(x, y)",
        "SELECT string_agg('a', ','), min_by(item, price) FROM bid;",
    ),
    (
        "SELECT last_value(price) IGNORE NULLS OVER (PARTITION BY item) FROM bid;",
        "FROM (SELECT * FROM s WHERE x IS NOT NULL) AS t",
        "SELECT last_value(price) OVER () FROM (SELECT * FROM bid WHERE price IS NOT NULL) AS t;",
    ),
    (
        "SELECT json_value('{}', '$.a') FROM bid;",
        "CREATE STREAM s (a int, b varchar) SOURCE 's.json'",
        "CREATE STREAM s (a int, b varchar) SOURCE 's.json';",
    ),
    (
        "SELECT date_bin(INTERVAL 15 MINUTES, ts, ts), count(*) FROM bid;",
        "GROUP BY window(ts, '15 minutes')",
        "SELECT window.start, count(*) FROM bid GROUP BY window(ts, '15 minutes');",
    ),
    (
        "SELECT ntile(4) OVER (ORDER BY ts) FROM bid;",
        "percentile(x, 0.9) OVER (ROWS 99 PRECEDING)",
        "SELECT percentile(price, 0.9) OVER (ROWS 99 PRECEDING) FROM bid;",
    ),
    (
        "SELECT * FROM bid WHERE mz_now() > ts;",
        "FROM s [RANGE 5 MINUTES]",
        "SELECT * FROM bid [RANGE 5 MINUTES];",
    ),
    (
        "SELECT windowstart, count(*) FROM bid WINDOW TUMBLING (SIZE 1 HOUR);",
        "window_start()",
        "SELECT window_start(), count(*) FROM bid WINDOW TUMBLING (SIZE 1 HOUR);",
    ),
    ("SELECT rowtime FROM bid;", "the stream's timestamp column", "SELECT ts FROM bid;"),
    (
        "SELECT proc_time FROM bid;",
        "declare the stream (…, current_time timestamp) ORDER BY current_time",
        "SELECT current_time FROM tick;",
    ),
    (
        "SELECT a.item FROM bid AS a JOIN tick AS b WITHIN 1 HOUR ON a.item = b.item;",
        "FROM a [RANGE 1 HOUR] AS a JOIN b [RANGE 1 HOUR] AS b ON a.k = b.k",
        "SELECT a.item FROM bid [RANGE 1 HOUR] AS a JOIN tick [RANGE 1 HOUR] AS b ON a.item = b.item;",
    ),
    (
        "SELECT * FROM bid PARTITION BY item EMIT CHANGES;",
        "leave PARTITION BY out",
        "SELECT * FROM bid EMIT CHANGES;",
    ),
    (
        "SELECT item FROM bid INTERSECT SELECT item FROM tick;",
        "k IN (SELECT k FROM b [RANGE 1 HOUR])",
        "SELECT item FROM bid WHERE item IN (SELECT item FROM tick [RANGE 1 HOUR]);",
    ),
    (
        "(SELECT item FROM bid) EXCEPT (SELECT item FROM tick);",
        "k NOT IN (SELECT k FROM b [RANGE 1 HOUR])",
        "SELECT item FROM bid WHERE item NOT IN (SELECT item FROM tick [RANGE 1 HOUR]);",
    ),
    (
        "SELECT item FROM bid ORDER BY price OFFSET 3;",
        "ORDER BY x DESC LIMIT 10",
        "SELECT item FROM bid ORDER BY price DESC LIMIT 10;",
    ),
    (
        "SELECT item, count(*) FROM bid GROUP BY ALL;",
        "GROUP BY 1, 2",
        "SELECT item, count(*) FROM bid GROUP BY 1;",
    ),
    (
        "SELECT DISTINCT ON (item) item, price FROM bid;",
        "QUALIFY row_number() OVER (PARTITION BY k ORDER BY x DESC) = 1",
        "SELECT item, price FROM bid QUALIFY row_number() OVER (PARTITION BY item ORDER BY price DESC) = 1;",
    ),
    ("SELECT * EXCEPT (price) FROM bid;", "SELECT a, b", "SELECT item, ts FROM bid;"),
    (
        "SELECT * FROM bid PIVOT (sum(price) FOR item IN (7));",
        "sum(price) FILTER (WHERE item = 7) AS seven",
        "SELECT sum(price) FILTER (WHERE item = 7) AS seven FROM bid;",
    ),
    (
        "SELECT * FROM bid TABLESAMPLE (10 PERCENT);",
        "WHERE pmod(hash(item), 10) = 0",
        "SELECT * FROM bid WHERE pmod(hash(item), 10) = 0;",
    ),
    (
        "SELECT sum(price) OVER (ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) FROM bid;",
        "BETWEEN 5 PRECEDING AND CURRENT ROW; lead(x) waits for the next one",
        "SELECT sum(price) OVER (ROWS BETWEEN 5 PRECEDING AND CURRENT ROW) FROM bid;"
        " SELECT lead(price) OVER () FROM bid;",
    ),
    (
        "CREATE MATERIALIZED VIEW v AS SELECT item, count(*) AS n FROM bid GROUP BY item;",
        "CREATE QUERY name AS SELECT …",
        "CREATE QUERY v AS SELECT item, count(*) AS n FROM bid GROUP BY item;",
    ),
    (
        "CREATE SINK v AS SELECT item FROM bid;",
        "CREATE QUERY name WITH (sink = 'json:out') AS SELECT …",
        "CREATE QUERY v WITH (sink = 'json:out') AS SELECT item FROM bid;",
    ),
    ("CREATE INDEX i ON bid (item);", "leave the index out", "SELECT item FROM bid;"),
    (
        "SUBSCRIBE (SELECT item FROM bid);",
        "CREATE QUERY q AS SELECT …",
        "CREATE QUERY q AS SELECT item FROM bid;",
    ),
    (
        "CREATE SOURCE s FROM KAFKA CONNECTION k (TOPIC 't');",
        "CREATE STREAM name (columns) ORDER BY ts SLACK 5 SECONDS USING kafka OPTIONS (",
        "CREATE STREAM s (a int, ts timestamp) ORDER BY ts SLACK 5 SECONDS"
        " USING kafka OPTIONS (kafka.bootstrap.servers = 'h:1', subscribe = 't');",
    ),
    (
        "CREATE STREAM s (k varchar KEY, a int) WITH (kafka_topic = 's');",
        "leave the constraint out",
        "CREATE STREAM s (k varchar, a int);",
    ),
    (
        "CREATE TABLE t AS SELECT item, count(*) AS n FROM bid GROUP BY item;",
        "CREATE STREAM t AS SELECT …",
        "CREATE STREAM t AS SELECT item, count(*) AS n FROM bid GROUP BY item;",
    ),
    (
        "CREATE TABLE t (id int, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'jdbc');",
        "SOURCE 'file.csv'",
        "CREATE TABLE t (id int, PRIMARY KEY (id) NOT ENFORCED);",
    ),
]


@pytest.mark.parametrize(("written", "hint", "instead"), SHORT)
def test_words_of_other_systems_have_hints_with_esl_words(written: str, hint: str, instead: str) -> None:
    with pytest.raises(EslError) as raised:
        bind(DECLARED + written)
    assert hint in raised.value.diagnostics[0].hint
    bind(DECLARED + instead)


@pytest.mark.parametrize(("written", "message", "hint", "instead"), CASES)
def test_a_hint_leads_to_a_statement_that_works(written: str, message: str, hint: str, instead: str) -> None:
    check_hint(DECLARED, written, message, hint, instead)


def test_a_watermark_declaration_equals_order_and_slack() -> None:
    written = bind("CREATE STREAM s (a int, ts timestamp, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND);")
    own = bind("CREATE STREAM s (a int, ts timestamp) ORDER BY ts SLACK 5 SECONDS;")
    assert written.catalog.relations == own.catalog.relations


def test_a_stream_can_have_the_name_of_a_window_function() -> None:
    bind("""CREATE STREAM session (page int, at timestamp) ORDER BY at;
        SELECT S.page, VALID(S) FROM session(page) AS S RANGE 5 MINUTES SLIDES 1 MINUTE;
        SELECT page FROM session; SELECT page FROM session [RANGE 5 SECONDS];""")


def test_a_table_as_of_processing_time_is_a_plain_lookup() -> None:
    declared = f"{DECLARED} CREATE TABLE product (item int, name varchar);"
    joined = "SELECT b.item, p.name FROM bid AS b JOIN product {} AS p ON b.item = p.item;"
    found = [
        bind(declared + joined.format(word)).catalog for word in ("", "FOR SYSTEM_TIME AS OF PROCTIME()")
    ]
    assert found[0].queries["query_1"].query == found[1].queries["query_1"].query
