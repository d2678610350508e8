"""Error messages and hints for keywords of other systems.

Each table has the message and the hint for keywords at one position of a statement.
"""

from __future__ import annotations

from collections.abc import Mapping

from slicemill.sql.cursor import Cursor
from slicemill.sql.errors import StatementError

# Foreign keywords at the start of a statement.
STATEMENTS = {
    "SUBSCRIBE": (
        "SUBSCRIBE is asked of a server, about a query that it has",
        "write CREATE QUERY q AS SELECT …, and SUBSCRIBE q over PostgreSQL's protocol",
    ),
    **dict.fromkeys(
        ("SHOW", "DESCRIBE", "DESC", "EXPLAIN"),
        (
            "a script declares; ad hoc queries are sent to a server, or by a command",
            "write it in slicemill sql; slicemill explain draws the plan of a script",
        ),
    ),
    "EXECUTE": (
        "queries of one text share what they can by themselves",
        "write them one after another: CREATE QUERY a AS SELECT …; CREATE QUERY b AS SELECT …",
    ),
}
# Foreign keywords after CREATE.
CREATED = {
    "MATERIALIZED": (
        "a query keeps its results up to date by itself, and SELECT * FROM name reads them as they are now",
        "write CREATE QUERY name AS SELECT …; for a table that other queries join, then write "
        "CREATE TABLE other AS MATERIALIZED name",
    ),
    "SINK": (
        "a query names its sink itself",
        "write CREATE QUERY name WITH (sink = 'json:out') AS SELECT …",
    ),
    **dict.fromkeys(
        ("TEMPORARY", "TEMP"),
        ("what is declared stays until it is dropped", "leave the word out, and DROP it when you are done"),
    ),
    "INDEX": ("what queries look up is indexed by itself", "leave the index out"),
}
# Foreign keywords after the name of a relation in FROM, and before a parenthesis.
BEHIND_A_STREAM = {
    "MATCH_RECOGNIZE": (
        "there is no MATCH_RECOGNIZE in ESL",
        "look at neighbours with lag(price) OVER (PARTITION BY item), or write an aggregate of your own: "
        "CREATE AGGREGATE",
    ),
    "PIVOT": (
        "there is no PIVOT in ESL",
        "write a column for each value: sum(price) FILTER (WHERE item = 7) AS seven",
    ),
    "TABLESAMPLE": (
        "a sample would differ at every run",
        "take those of some keys: WHERE pmod(hash(item), 10) = 0",
    ),
}
# Foreign keywords after a complete SELECT.
BEHIND_A_SELECT = {
    "INTERSECT": (
        "there is no INTERSECT in ESL",
        "a stream has no end: ask for what came lately, k IN (SELECT k FROM b [RANGE 1 HOUR])",
    ),
    "EXCEPT": (
        "there is no EXCEPT in ESL",
        "a stream has no end: ask for what came lately, k NOT IN (SELECT k FROM b [RANGE 1 HOUR])",
    ),
    "OFFSET": (
        "there is no OFFSET in ESL",
        "a stream has no end: keep the first rows with ORDER BY x DESC LIMIT 10",
    ),
    "FETCH": ("there is no FETCH in ESL", "write LIMIT 10 behind ORDER BY"),
    "PARTITION": ("rows are spread by the keys that queries need", "leave PARTITION BY out"),
}
# Foreign keywords after the arguments of a call.
IN_A_CALL = {
    "ORDER": (
        "an aggregate takes values in the order of time",
        "leave ORDER BY out; the first by another column is min_by(x, y)",
    ),
    "WITHIN": (
        "what is ordered is an argument here",
        "write percentile(x, 0.5), or listagg(x, ',')",
    ),
    "IGNORE": (
        "first and last take NULLs as they take others",
        "leave NULLs out before: FROM (SELECT * FROM s WHERE x IS NOT NULL) AS t",
    ),
    "RESPECT": ("first and last take NULLs as they take others", "leave RESPECT NULLS out"),
}


def refuse(c: Cursor, words: Mapping[str, tuple[str, str]]) -> None:
    """Raise StatementError if one of these foreign keywords is at the cursor."""
    if c.word() in words:
        message, hint = words[c.word()]
        raise StatementError(message, c.span(), hint)
