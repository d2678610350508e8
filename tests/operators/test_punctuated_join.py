"""Punctuation windows by both engines against DuckDB: a row's window is how many closed its key before.

Runs, subtasks and restarts are cut at random; both engines tell the same rows in the same order.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from pathlib import Path

import duckdb
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slicemill.api.mill import Mill
from slicemill.binder import bind
from slicemill.plan.build import build_graph
from slicemill.plan.optimizer import optimize
from slicemill.testing import Clock, inline_pool
from slicemill_oracle.engine import Engine
from slicemill_oracle.sources import Arrival
from slicemill_oracle.translate import translate
from support.engine import fed_mill, feed_rows, finish

Row = tuple[object, ...]
Told = dict[str, list[tuple[int, Row]]]
# A stream, and a row of it.
Fed = tuple[str, Row]

SECOND = 1_000_000
LENGTH = 3 * SECOND
_STREAMS = "".join(
    f"CREATE STREAM {name} (n int, k varchar, v int, last boolean, ts timestamp) ORDER BY ts;"
    for name in "AB"
)
_KINDS = ("", "LEFT", "RIGHT", "FULL", "SEMI", "ANTI")
# By query: the kind of join, which streams close, whether A has a length, and what else ON asks for.
JOINS = {
    f"q{index}": (kind, closes, short, where)
    for index, (kind, closes, short, where) in enumerate(
        (kind, closes, short, where)
        for kind, (closes, short, where) in zip(
            _KINDS * 2,
            [("A", False, ""), ("AB", True, ""), ("B", False, " AND a.v < b.v")] * 4,
            strict=True,
        )
    )
}


def joined(kind: str, closes: str, short: bool, where: str) -> str:
    frames = {
        "A": f"[{'RANGE 3 SECONDS ' if short else ''}CLOSE WHEN last]" if "A" in closes else "",
        "B": "[CLOSE WHEN last]" if "B" in closes else "",
    }
    frames["A"] = "[RANGE 3 SECONDS]" if short and not frames["A"] else frames["A"]
    columns = "a.n AS n" if kind in ("SEMI", "ANTI") else "a.n AS n, b.n AS m"
    return f"SELECT {columns} FROM A {frames['A']} AS a {kind} JOIN B {frames['B']} AS b ON a.k = b.k{where}"


SCRIPT = _STREAMS + "".join(f"CREATE QUERY {name} AS {joined(*parts)};" for name, parts in JOINS.items())


def by_duckdb(fed: Sequence[Fed], kind: str, closes: str, short: bool, where: str) -> list[tuple[int, Row]]:
    """Pairs of one window; and rows without a partner when it was closed, or their time had passed."""
    length = str(LENGTH) if short else "NULL"
    closing = " OR ".join(f"s = '{name}'" for name in closes)
    unmatched = {"LEFT": "A", "RIGHT": "B", "FULL": "AB", "ANTI": "A"}.get(kind, "")
    columns = "a.n, b.n" if kind not in ("SEMI", "ANTI") else "a.n"
    with duckdb.connect() as db:
        db.execute("CREATE TABLE e (s VARCHAR, n INT, k VARCHAR, v INT, last BOOLEAN, ts BIGINT)")
        if fed:
            db.executemany("INSERT INTO e VALUES (?, ?, ?, ?, ?, ?)", [(name, *row) for name, row in fed])
        db.execute(f"""
            CREATE TABLE w AS
            SELECT *, CASE s WHEN 'A' THEN {length} END AS long, ({closing}) AND last AS closes,
              count(*) FILTER (WHERE ({closing}) AND last) OVER (
                PARTITION BY k ORDER BY ts, s, n ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS w
            FROM e;
            CREATE TABLE pairs AS SELECT a.n, b.n AS m, greatest(a.ts, b.ts) AS told
            FROM (FROM w WHERE s = 'A') AS a JOIN (FROM w WHERE s = 'B') AS b
              ON a.k = b.k AND a.w = b.w AND b.ts < a.ts + coalesce(a.long, 1000000000){where};
            CREATE TABLE ends AS SELECT w.*, (
              SELECT min(c.ts) FROM w AS c WHERE c.closes AND c.k IS NOT DISTINCT FROM w.k AND c.w = w.w
            ) AS closed FROM w""")
        found = []
        if kind == "SEMI":
            found = db.sql("SELECT min(told), n FROM pairs GROUP BY n").fetchall()
        elif kind != "ANTI":
            found = db.sql("SELECT told, n, m FROM pairs").fetchall()
        for name in unmatched:
            own = "n" if name == "A" else "m"
            row = {"A": "n, NULL", "B": "NULL, n"}[name] if columns == "a.n, b.n" else "n"
            found += db.sql(f"""SELECT least(closed, ts + long) AS told, {row} FROM ends
              WHERE s = '{name}' AND told IS NOT NULL AND n NOT IN (SELECT {own} FROM pairs)""").fetchall()
        return sorted(((told, tuple(row)) for told, *row in found), key=str)


def by_reference(fed: Sequence[Fed]) -> Told:
    catalog = bind(SCRIPT).catalog
    engine = Engine(translate(optimize(build_graph(catalog)), catalog, {}))
    for name, row in fed:
        engine.feed(name, [Arrival(int(str(row[-1])), row, int(str(row[-1])))])
        engine.run_until_idle()
    engine.run()
    return {name: [(timed.ts, timed.row) for timed in engine.results(name)] for name in catalog.queries}


def by_mill(fed: Sequence[Fed], seed: int) -> Told:
    chooser = random.Random(seed)
    clock, pool = Clock(), inline_pool()
    with tempfile.TemporaryDirectory() as folder:

        def started() -> Mill:
            mill = fed_mill(Path(folder), clock, pool, chooser.choice([1, 2, 5]))
            mill.execute(SCRIPT)
            mill.open()
            return mill

        mill = started()
        try:
            for name, row in fed:
                feed_rows(mill, name, [row])
                if chooser.random() < 0.3:
                    mill.dispatcher.run_all()
                if chooser.random() < 0.07:
                    mill.close(checkpoint=chooser.random() < 0.5)
                    mill = started()
            finish(mill)
            for query in mill.queries.values():
                assert query.error is None, query.error
            return {n: [(t.ts, t.row) for t in query.timed_rows()] for n, query in mill.queries.items()}
        finally:
            mill.close()


events = st.lists(
    st.tuples(
        st.sampled_from("AB"),
        st.sampled_from(("x", "x", "y", None)),
        st.sampled_from((1, 2, None)),
        st.sampled_from((True, False, False, None)),
        st.sampled_from((0, 0, SECOND, 2 * SECOND)),
    ),
    max_size=16,
).map(
    lambda drawn: [
        (name, (number, k, v, last, SECOND + sum(later for *_, later in drawn[: number + 1])))
        for number, (name, k, v, last, _) in enumerate(drawn)
    ]
)
_TIES: list[Fed] = [
    ("B", (0, "x", 1, True, SECOND)),
    ("A", (1, "x", 1, True, SECOND)),
    ("B", (2, "x", 1, False, SECOND)),
    ("A", (3, "x", 2, None, 4 * SECOND)),
]


@pytest.mark.slow_cpu
@settings(max_examples=15)
@given(events, st.integers(0, 2**32))
@example(_TIES, 0)
def test_joins_over_punctuation_windows_are_what_sql_says(fed: list[Fed], seed: int) -> None:
    found, told = by_mill(fed, seed), by_reference(fed)
    for name, parts in JOINS.items():
        assert found[name] == told[name], (joined(*parts), "by the mill, and the reference")
        expected = by_duckdb(fed, *parts)
        assert sorted(found[name], key=str) == expected, joined(*parts)
