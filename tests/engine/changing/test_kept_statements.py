"""A name means what the home keeps under it: the same in other words, and nothing else."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from slicemill.aggregates.udf.python_source import source_digest
from slicemill.errors import SlicemillError
from slicemill.sql.errors import EslError
from slicemill.storage.home_reader import HomeReader
from slicemill.testing import Clock, inline_pool
from support.engine import fed_mill, feed_rows, finish

SECOND = 1_000_000
STREAM = "CREATE STREAM s (k int, v bigint, ts timestamp) ORDER BY ts;"
OTHER = "CREATE STREAM r (k int, w bigint, ts timestamp) ORDER BY ts;"
TABLE = "CREATE TABLE t (k int, name varchar);"
FIRST = """CREATE AGGREGATE first_of(x bigint) : bigint { TABLE st(n bigint);
  INITIALIZE: { INSERT INTO st VALUES (x); INSERT INTO RETURN VALUES (x); }
  ITERATE: { INSERT INTO RETURN SELECT n FROM st; } };"""


def start(home: Path, *statements: str) -> None:
    """A process that runs these statements, one execute for each, and ends."""
    with fed_mill(home, Clock(), inline_pool()) as mill:
        for statement in statements:
            mill.execute(statement)
        mill.open()


def refused(home: Path, *statements: str) -> str:
    with pytest.raises(EslError) as caught:
        start(home, *statements)
    return str(caught.value)


SAME = {
    "blanks and comments": (
        "SELECT k, v FROM s WHERE v > 2",
        "select k, v /* both */\nFROM s -- of s\nWHERE v>2",
    ),
    "the name of an input": ("SELECT k, v FROM s WHERE v > 2", "SELECT A.k, A.v FROM s AS A WHERE A.v > 2"),
    "the names of a join": (
        "SELECT A.k, sum(B.w) AS m"
        " FROM s [RANGE 2 SECONDS] AS A, r [RANGE 3 SECONDS] AS B WHERE A.k = B.k GROUP BY A.k",
        "SELECT s.k, SUM(r.w) AS m"
        " FROM s [RANGE 2 SECONDS], r [RANGE 3 SECONDS] WHERE s.k = r.k GROUP BY s.k",
    ),
    "the names of a look-up": (
        "SELECT s.v, t.name FROM s, t WHERE s.k = t.k",
        "SELECT x.v, y.name FROM s AS x, t AS y WHERE x.k = y.k",
    ),
    "a sub-select's": (
        "SELECT sum(y) OVER (PARTITION BY x ROWS 2 PRECEDING) AS m FROM (SELECT k AS x, v AS y FROM s) AS q",
        "SELECT SUM(p.y) OVER (PARTITION BY p.x ROWS 2 PRECEDING) AS m"
        " FROM (SELECT z.k AS x, z.v AS y FROM s AS z) AS p",
    ),
    "of values that hold": (
        "SELECT S.v, VALID(S) AS p FROM s(v) AS S RANGE 6 SECONDS SLIDES 2 SECONDS PARTITION BY k",
        "SELECT Q.v, VALID(Q) AS p FROM s(v) AS Q RANGE 6 SECONDS SLIDES 2 SECONDS PARTITION BY k",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("before", "after"), SAME.values(), ids=SAME.keys())
def test_the_same_query_in_other_words_goes_on(tmp_path: Path, before: str, after: str) -> None:
    """Rows and state are those of a query that was never stopped."""
    rows = {"s": [(1, 5, SECOND), (2, 5, 2 * SECOND)], "r": [(1, 7, SECOND), (2, 8, 3 * SECOND)]}
    found = []
    for number, words in enumerate((before, after)):
        home = tmp_path / str(number)
        for turn, select in enumerate((before, words)):
            with fed_mill(home, Clock(), inline_pool()) as mill:
                mill.tables.set_rows("t", [(1, "one"), (2, "two")])
                mill.execute(f"{STREAM} {OTHER} {TABLE} CREATE QUERY q AS {select}")
                mill.open()
                for stream in ("s", "r"):
                    if stream in mill.running.streams:
                        feed_rows(mill, stream, rows[stream][turn : turn + 1])
                mill.dispatcher.run_all()
                if turn:
                    finish(mill)
                    found.append(mill.queries["q"].timed_rows())
        # What is kept is what was said first.
        texts = [entry["text"] for entry in HomeReader(home).statements if entry["kind"] == "query"]
        assert texts == [f"CREATE QUERY q AS {before}"]
    assert found[0] and found[0] == found[1]


CHANGED = {
    "WHERE": ("SELECT k FROM s WHERE v > 2", "SELECT k FROM s WHERE v > 3"),
    "FROM": ("SELECT k FROM s", "SELECT k FROM r"),
    "SELECT": (
        "SELECT sum(v) OVER (ROWS 2 PRECEDING) AS m FROM s",
        "SELECT sum(v) OVER (ROWS 3 PRECEDING) AS m FROM s",
    ),
    "GROUP BY": (
        "SELECT count(*) AS n FROM s [RANGE 2 SECONDS SLIDE 1 SECOND] GROUP BY k",
        "SELECT count(*) AS n FROM s [RANGE 2 SECONDS SLIDE 1 SECOND] GROUP BY v",
    ),
    "HAVING": (
        "SELECT count(*) AS n FROM s [RANGE 2 SECONDS SLIDE 1 SECOND] GROUP BY k HAVING count(*) > 1",
        "SELECT count(*) AS n FROM s [RANGE 2 SECONDS SLIDE 1 SECOND] GROUP BY k HAVING count(*) > 2",
    ),
    "FROM and VALID": (
        "SELECT S.v, VALID(S) AS p FROM s(v) AS S RANGE 6 SECONDS SLIDES 2 SECONDS PARTITION BY k",
        "SELECT S.v, VALID(S) AS p FROM s(v) AS S RANGE 4 SECONDS SLIDES 2 SECONDS PARTITION BY k",
    ),
}


@pytest.mark.parametrize("part", CHANGED)
def test_another_query_of_the_same_name_and_columns_is_refused(tmp_path: Path, part: str) -> None:
    before, after = CHANGED[part]
    start(tmp_path, f"{STREAM} {OTHER} CREATE QUERY q AS {before}")
    told = refused(tmp_path, f"{STREAM} {OTHER}\n  CREATE QUERY q AS {after}")
    have = "have" if " and " in part else "has"
    assert f"2:3: error: query q is kept in {tmp_path}, and its {part} {have} changed: it was SELECT" in told
    assert "hint: write CREATE OR REPLACE QUERY, or give this one another name" in told
    # Both hints work.
    start(tmp_path, f"{STREAM} {OTHER} CREATE QUERY q AS {before}; CREATE QUERY q2 AS {after}")
    start(tmp_path, "DROP QUERY q", f"{STREAM} {OTHER} CREATE QUERY q AS {after}")
    start(tmp_path, f"{STREAM} {OTHER} CREATE QUERY q AS {after}")


def test_a_query_that_is_dropped_unseen_leaves_no_rows_and_no_state(tmp_path: Path) -> None:
    """It stood in the home, and nothing has declared it since: the next one begins anew."""
    total = "CREATE QUERY q AS SELECT first_of(v) AS f FROM s;"
    for drop in ("", "DROP QUERY q;"):
        with fed_mill(tmp_path, Clock(), inline_pool()) as mill:
            mill.execute(f"{drop} {STREAM} {FIRST} {total} CREATE QUERY p AS SELECT first_of(v) AS f FROM s")
            mill.open()
            feed_rows(mill, "s", [(1, 7, SECOND)] if not drop else [(1, 9, 2 * SECOND)])
            mill.dispatcher.run_all()
            found = {
                name: [timed.row for timed in query.timed_rows()] for name, query in mill.queries.items()
            }
    assert found == {"q": [(9,)], "p": [(7,), (7,)]}


def test_what_stands_in_a_home_is_dropped_in_order(tmp_path: Path) -> None:
    script = f"{STREAM} CREATE STREAM d AS SELECT k, v FROM s WHERE v > 1; CREATE QUERY q AS SELECT k FROM d;"
    start(tmp_path, script)
    assert "d is used by q" in refused(tmp_path, "DROP STREAM d")
    assert "there is no query p" in refused(tmp_path, "DROP QUERY p")
    start(tmp_path, "DROP QUERY q; DROP STREAM d")
    start(tmp_path, f"{STREAM} CREATE STREAM d AS SELECT v FROM s; CREATE QUERY q AS SELECT v FROM d;")


def test_a_changed_derived_stream_is_refused(tmp_path: Path) -> None:
    query = "CREATE QUERY q AS SELECT k FROM d;"
    start(tmp_path, f"{STREAM} CREATE STREAM d AS SELECT k, v FROM s WHERE v > 1; {query}")
    told = refused(tmp_path, f"{STREAM} CREATE STREAM d AS SELECT k, v FROM s WHERE v > 2; {query}")
    assert "stream d is kept in" in told and "its WHERE has changed" in told
    start(tmp_path, "DROP QUERY q; DROP STREAM d")
    start(tmp_path, f"{STREAM} CREATE STREAM d AS SELECT k, v FROM s WHERE v > 2; {query}")


@pytest.mark.parametrize(
    ("part", "declared"),
    [
        ("columns have", "CREATE STREAM s (k bigint, v bigint, ts timestamp) ORDER BY ts;"),
        ("ORDER BY has", "CREATE STREAM s (k int, v bigint, ts timestamp) ORDER BY current_time;"),
        ("SLACK has", "CREATE STREAM s (k int, v bigint, ts timestamp) ORDER BY ts SLACK 2 SECONDS;"),
        ("SKEW has", "CREATE STREAM s (k int, v bigint, ts timestamp) ORDER BY ts SKEW 2 SECONDS;"),
        ("source has", "CREATE STREAM s (k int, v bigint, ts timestamp) ORDER BY ts SOURCE 'tcp://localhost:4445';"),
    ],
)  # fmt: skip
def test_a_stream_declared_otherwise_is_refused(tmp_path: Path, part: str, declared: str) -> None:
    query = "CREATE QUERY q AS SELECT v FROM s"
    start(tmp_path, f"{STREAM} {query}")
    told = refused(tmp_path, f"{declared} {query}")
    assert (
        f"1:1: error: stream s is kept in {tmp_path}, and its {part} changed: it was CREATE STREAM s" in told
    )
    else_named = "give the new stream another name"
    assert f"hint: {'write CREATE OR REPLACE STREAM s' if part == 'source has' else else_named}" in told


def test_an_aggregate_that_a_kept_query_calls_stays_as_it_is(tmp_path: Path) -> None:
    query = "CREATE QUERY q AS SELECT first_of(v) AS f FROM s;"
    changed = FIRST.replace("SELECT n FROM st", "SELECT n + 1 FROM st")
    start(tmp_path, f"{STREAM} {FIRST} {query}")
    told = refused(tmp_path, f"{STREAM} {changed}")  # also where the query would come later
    assert f"aggregate first_of has changed, and q, kept in {tmp_path}, uses it" in told
    assert "hint: drop q first, or give the new aggregate another name" in told
    start(tmp_path, f"{STREAM} {FIRST.replace('RETURN', 'return')}", query)
    start(tmp_path, "DROP QUERY q", f"{STREAM} {changed} {query}")


def test_what_nobody_uses_may_change(tmp_path: Path) -> None:
    model = "CREATE MODEL m(x REAL) AS {};"
    view = "CREATE VIEW recent AS SELECT v FROM s [RANGE {} SECONDS];"
    start(tmp_path, f"{STREAM} {FIRST} {model.format('sum(x)')} {view.format(2)}")
    start(tmp_path, f"{STREAM} {FIRST.replace('bigint', 'real')} {model.format('sum(x^2)')} {view.format(3)}")
    used = "CREATE QUERY q AS SELECT m(v) OVER (ROWS 2 PRECEDING) AS m FROM s;"
    seen = "CREATE QUERY p AS SELECT s.k, recent.v FROM s, recent;"
    script = f"{STREAM} {model.format('sum(x^2)')} {view.format(3)} {used} {seen}"
    start(tmp_path, script)
    start(tmp_path, script)
    told = refused(tmp_path, script.replace("sum(x^2)", "sum(x^3)").replace("RANGE 3", "RANGE 4"))
    assert "model m has changed, and q" in told and "view recent has changed, and p" in told


def test_how_a_query_is_served_may_change(tmp_path: Path) -> None:
    start(tmp_path, f"{STREAM} CREATE QUERY q WITH (weight = 2, slo = 'p99 < 2 s') AS SELECT k FROM s")
    start(tmp_path, f"{STREAM} CREATE QUERY q WITH (weight = 3) AS SELECT k FROM s")
    told = refused(tmp_path, f"{STREAM} CREATE QUERY q WITH (lag = '2 s') AS SELECT k FROM s")
    assert "its options have changed" in told


def test_an_aggregate_in_python_counts_with_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    module = tmp_path / "kept_python_aggregate.py"
    source = '''
"""Sums."""
FACTOR = 2
def doubled(x):
    return x * FACTOR
def unused(x):
    return x
class Total:
    """All so far."""
    def initialize(self, x):
        self.total = doubled(x)
        return self.total
    def iterate(self, x):
        self.total += doubled(x)  # both
        return self.total
'''
    script = f"""{STREAM}
    CREATE AGGREGATE total(x bigint) : bigint LANGUAGE PYTHON AS 'kept_python_aggregate:Total';
    CREATE QUERY q AS SELECT total(v) AS t FROM s;"""
    home = tmp_path / "home"

    def again(text: str) -> None:
        module.write_text(text)
        sys.modules.pop("kept_python_aggregate", None)
        start(home, script)

    again(source)
    again(
        source.replace("# both", "")
        .replace('"""All so far."""', '"""Everything."""')
        .replace("return x\n", "return -x\n")
    )
    for was, now in (
        ("FACTOR = 2", "FACTOR = 3"),
        ("x * FACTOR", "x + FACTOR"),
        ("+= doubled", "-= doubled"),
    ):
        with pytest.raises(SlicemillError, match="aggregate total has changed, and q, kept in"):
            again(source.replace(was, now))
    again(source)
    assert source_digest("no_such_module:Total") is None


def test_a_model_with_constants_that_is_used_stays_what_it_is(tmp_path: Path) -> None:
    model = "CREATE MODEL ewma(x REAL; alpha REAL) AS alpha*sum(x*(1 - alpha)^j);"
    query = "CREATE QUERY q AS SELECT ewma(v, 0.5) OVER (ROWS 3 PRECEDING) AS e FROM s;"
    home = tmp_path / "home"
    start(home, STREAM, model, query)
    start(home, STREAM, model.replace("AS alpha", "AS -- the newest counts most\n  alpha"), query)
    changed = model.replace("alpha*sum", "2*sum")
    assert "model ewma has changed, and q, kept in" in refused(home, STREAM, changed, query)
    start(home, STREAM, "DROP QUERY q; DROP MODEL ewma;", changed, query)


def test_a_function_that_is_used_stays_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    module = tmp_path / "kept_python_function.py"
    module.write_text("def f(x):\n    return x\n")
    declared = """CREATE FUNCTION f(x bigint) RETURNS bigint LANGUAGE PYTHON AS 'kept_python_function:f';
    CREATE FUNCTION g(x bigint) RETURNS bigint AS f(x) + 1;"""
    query = "CREATE QUERY q AS SELECT g(v) AS t FROM s;"
    home = tmp_path / "home"
    start(home, STREAM, declared, query)
    start(home, STREAM, declared.replace("f(x) + 1", "f( x )+1"), query)
    said = refused(home, STREAM, declared.replace("+ 1", "+ 2"), query)
    assert "function g has changed, and q, kept in" in said and "drop q first" in said
    assert "f is used by g and q" in refused(home, STREAM, declared, query, "DROP FUNCTION f;")
    module.write_text("def f(x):\n    return -x\n")
    assert "function f has changed, and q, kept in" in refused(home, STREAM, declared, query)
    start(home, STREAM, "DROP QUERY q; DROP FUNCTION g; DROP FUNCTION f;", declared, query)


@pytest.mark.parametrize("name", ["s_held", "s_late", "s_errors"])
def test_a_query_cannot_have_the_name_of_what_a_kept_stream_has_beside_its_rows(
    tmp_path: Path, name: str
) -> None:
    start(tmp_path, STREAM, "CREATE QUERY q AS SELECT k FROM s")
    told = refused(tmp_path, OTHER, f"CREATE QUERY {name} AS SELECT k, w AS v, ts FROM r")
    assert f"stream s, kept in {tmp_path}, has rows under the name {name}" in told
    start(tmp_path, OTHER, "CREATE QUERY other AS SELECT k, w AS v, ts FROM r")


def test_a_stream_with_more_columns_goes_on_under_another_name_beside_the_old_one(tmp_path: Path) -> None:
    wider = STREAM.replace("v bigint", "v bigint, w bigint")
    with fed_mill(tmp_path, Clock(), inline_pool()) as mill:
        mill.execute(f"{STREAM}CREATE QUERY q AS SELECT k, v FROM s")
        mill.open()
        feed_rows(mill, "s", [(1, 10, SECOND)])
        for statement in (wider, wider.replace("CREATE", "CREATE OR REPLACE")):
            with pytest.raises(EslError) as caught:
                mill.execute(statement)
        assert "hint: give the new stream another name, and read both with UNION ALL" in str(caught.value)
        mill.execute(
            f"{wider.replace('STREAM s', 'STREAM s2')}"
            "CREATE QUERY both AS SELECT k, CAST(NULL AS bigint) AS w FROM s UNION ALL SELECT k, w FROM s2"
        )
        feed_rows(mill, "s", [(2, 20, 2 * SECOND)])
        feed_rows(mill, "s2", [(3, 30, 300, 3 * SECOND)])
        finish(mill)
        assert [timed.row for timed in mill.queries["both"].timed_rows()] == [(2, None), (3, 300)]
