"""Changing results against DuckDB: at every time, the changes add up to the answer over the tuples so far.

Runs, subtasks and restarts are drawn at random; both engines emit the same changes in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slicemill.binder import bind
from support.both_engines import by_mill, by_reference, times_to_compare
from support.changelogs import (
    SECOND,
    STREAM,
    ChangingQuery,
    Row,
    TableOfNow,
    queries,
    rows,
    same_rows,
)


def script(asked: Sequence[ChangingQuery]) -> str:
    return STREAM + "".join(f"CREATE QUERY q{i} AS {query.esl};" for i, query in enumerate(asked))


def check(asked: Sequence[ChangingQuery], tuples: Sequence[Row], seed: int) -> None:
    esl = script(asked)
    found = by_mill(esl, tuples, seed, runs=0.4, restarts=0.07)
    told = by_reference(esl, tuples)
    for (name, rows_told), query in zip(told.items(), asked, strict=True):
        # The reference engine merges tuples of one time as they arrive (M21); grouping sets are a union, too.
        merged = any(word in query.esl for word in ("UNION", "ROLLUP", "CUBE", "GROUPING SETS"))
        assert merged or found[name] == rows_told, f"{query.esl} by the mill, and the reference"
    catalog = bind(esl).catalog
    with duckdb.connect() as database:
        database.execute("CREATE TABLE A (n INT, k VARCHAR, g INT, v INT, ts BIGINT)")
        if tuples:
            database.executemany("INSERT INTO A VALUES (?, ?, ?, ?, ?)", tuples)
        for place, query in enumerate(asked):
            name = f"q{place}"
            table = TableOfNow(catalog.queries[name].schema)
            left = list(found[name])
            for now in times_to_compare(tuples, every=query.every, final=query.final):
                while left and left[0][0] <= now:
                    table.apply(*left.pop(0))
                table.check_key()
                compared = "<" if query.every is not None else "<="
                until = f"ts {compared} {now}"
                database.execute(f"CREATE OR REPLACE VIEW S AS SELECT * FROM A WHERE {until}")
                expected = database.execute(query.duckdb).fetchall()
                assert same_rows(table.rows, expected), (query.esl, until, table.rows, expected)
            assert not left


# Tuples of one time reach the join by two paths: that of the table precedes, whichever is faster.
_JOINED = ChangingQuery(
    *["SELECT x.k, x.n, y.v FROM (SELECT k, count(*) AS n FROM S GROUP BY k) AS x JOIN S AS y ON x.k = y.k"]
    * 2
)
_TIES: list[Row] = [
    (0, "b", 1, 1, SECOND),
    (1, "b", 1, 2, SECOND),
    (2, "a", 1, 2, SECOND),
    (3, "b", 1, 7, SECOND),
]

# EMIT FINAL has the operators of its changes below its columns, also in a union.
_SETS = "SELECT k, g, count(*) AS n, max(v) AS c FROM S GROUP BY GROUPING SETS ((k), (g)) HAVING count(*) > 1"

# The group of NULL has no partner on either side, so no key distinguishes the two rows.
_COUNTED = "(SELECT k, count(*) AS n FROM S GROUP BY k)"
_WHOLE = f"SELECT x.k, x.n, y.k AS l, y.n AS m FROM {_COUNTED} AS x FULL JOIN {_COUNTED} AS y ON x.k = y.k"

# A row without a key is inserted twice and deleted; its first change is the same for any division into runs.
_KEPT = "(SELECT k, sum(v) AS a FROM S GROUP BY k HAVING count(*) <= 2)"
_BACK = f"SELECT x.k, x.a, y.k AS l, y.g AS b FROM {_KEPT} AS x RIGHT JOIN S AS y ON x.a = y.g"
_CHANGED_BACK: list[Row] = [
    (0, "a", 2, 1, 1_500_000),
    (1, None, 1, -3, 2_000_000),
    (2, "b", 1, 0, 5_000_000),
    (3, None, None, 1, 5_500_000),
    (4, None, None, 1, 6_500_000),
    (5, "b", 1, 0, 7_000_000),
    (6, "a", 2, -3, 7_500_000),
]


@pytest.mark.slow_cpu
@settings(max_examples=40)
@example([ChangingQuery(f"{_BACK} EMIT EVERY 2 SECONDS", _BACK, every=2)], _CHANGED_BACK, 20656328)
@example(
    [ChangingQuery(f"{_SETS} EMIT FINAL", _SETS, final=True)],
    [(0, "a", 1, 2, SECOND), (1, "a", None, 3, SECOND)],
    0,
)
@example([_JOINED], _TIES, 0)
@example([ChangingQuery(f"{_WHOLE} EMIT EVERY 2 SECONDS", _WHOLE, every=2)], [(0, None, 1, 1, SECOND)], 0)
@given(st.lists(queries(), min_size=1, max_size=4), rows(), st.integers(0, 2**32))
def test_at_every_time_the_changes_add_up_to_the_answer_over_the_tuples_so_far(
    asked: list[ChangingQuery], tuples: list[Row], seed: int
) -> None:
    check(asked, tuples, seed)
