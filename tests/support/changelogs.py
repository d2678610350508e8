"""Random queries whose results change, in ESL and in DuckDB's SQL, and what changelogs come to."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from slicemill.types import Schema

Row = tuple[object, ...]
TimedRow = tuple[int, Row]
SECOND = 1_000_000
STREAM = """CREATE STREAM S (n int, k varchar, g int, v int, ts timestamp) ORDER BY ts;
CREATE AGGREGATE spread(x bigint) : bigint {
  TABLE seen(least bigint, most bigint);
  INITIALIZE: { INSERT INTO seen VALUES (x, x); }
  ITERATE: { UPDATE seen SET least = x WHERE x < least; UPDATE seen SET most = x WHERE x > most; }
  TERMINATE: { INSERT INTO RETURN SELECT most - least FROM seen; }
};
"""

_CALLS = ("count(*)", "count(v)", "count(DISTINCT v)", "sum(v)", "min(v)", "max(v)", "avg(v)", "median(v)")
_CALLS_OF_TEXT = (
    "max(k)",
    "min(k)",
    "count(DISTINCT g)",
    "var_pop(v)",
    "sum(n)",
    "count(*) FILTER (WHERE v > 0)",
    "sum(v) FILTER (WHERE g = 1)",
)

_CALLS_OF_GROUPS = (
    "count(*)",
    "sum(b)",
    "min(k)",
    "max(b)",
    "avg(b)",
    "median(b)",
    "count(DISTINCT b)",
)
_SPREAD = "spread(cast(coalesce(b, 0) AS bigint))"  # an aggregate of a user


@dataclass(frozen=True, slots=True)
class ChangingQuery:
    """A query and its SQL for DuckDB. `every` is the interval of EMIT in seconds, `final` is EMIT FINAL."""

    esl: str
    duckdb: str
    every: int | None = None
    final: bool = False


def rows(most: int = 14) -> st.SearchStrategy[list[Row]]:
    """Tuples of S in the order of time, numbered; some come at the same time."""
    tuples = st.tuples(
        st.sampled_from(("a", "b", "c", None)),
        st.sampled_from((1, 2, None)),
        st.sampled_from((-3, 0, 1, 2, 7, None)),
        st.sampled_from((0, SECOND // 2, SECOND, 3 * SECOND)),
    )
    return st.lists(tuples, max_size=most).map(_numbered)


def _numbered(drawn: Sequence[tuple[object, object, object, int]]) -> list[Row]:
    found: list[Row] = []
    ts = SECOND
    for number, (k, g, v, later) in enumerate(drawn):
        ts += later
        found.append((number, k, g, v, ts))
    return found


@st.composite
def queries(draw: st.DrawFn) -> ChangingQuery:
    esl, duckdb = draw(
        st.one_of(
            _groups(),
            _sets_of_groups(),
            _all(),
            _groups_of_groups(),
            _first_rows(),
            _ordered(),
            _distinct(),
            _union(),
        )
    )
    if draw(st.integers(0, 9)) == 0:
        told_early = st.one_of(_first_of_windows(), _early_windows(), _early_growing(), _early_sessions())
        return ChangingQuery(*draw(told_early), every=2)
    emit = draw(st.sampled_from(("", "", "EMIT CHANGES", "EMIT EVERY 2 SECONDS", "EMIT FINAL")))
    if draw(st.integers(0, 4)) == 0:
        esl, duckdb = draw(_joins())
    if "UNION" in esl or "DISTINCT k, v" in esl or "ORDER BY ts)" in esl or "PARTITION BY ts" in esl:
        emit = ""  # told branch by branch, or without a change
    every = 2 if "EVERY" in emit else None
    return ChangingQuery(f"{esl} {emit}", duckdb, every, "FINAL" in emit)


@st.composite
def _groups(draw: st.DrawFn) -> tuple[str, str]:
    keys = ", ".join(
        draw(st.lists(st.sampled_from(("k", "g", "v % 2")), min_size=1, max_size=2, unique=True))
    )
    calls = draw(st.lists(st.sampled_from((*_CALLS, *_CALLS_OF_TEXT)), min_size=1, max_size=3, unique=True))
    named = ", ".join(f"{call} AS c{number}" for number, call in enumerate(calls))
    selected = keys.replace("v % 2", "v % 2 AS odd")
    where = draw(st.sampled_from(("", "WHERE v > 0", "WHERE g IS NOT NULL")))
    having = draw(st.sampled_from(("", "HAVING count(*) > 1", "HAVING count(*) <= 2", "HAVING sum(v) < 5")))
    text = f"SELECT {selected}, {named} FROM S {where} GROUP BY {keys} {having}"
    return text, text


@st.composite
def _sets_of_groups(draw: st.DrawFn) -> tuple[str, str]:
    """Where a column is left out of a set it is NULL, as it may be in a tuple too."""
    sets = draw(
        st.sampled_from(
            ("ROLLUP (k, g)", "CUBE (k, g)", "GROUPING SETS ((k), (g))", "GROUPING SETS ((k, g), (k))")
        )
    )
    call = draw(st.sampled_from(_CALLS))
    # SQL has a row of the whole also over nothing; a stream's comes with its first tuple.
    of_all = "ROLLUP" in sets or "CUBE" in sets
    where = "" if of_all else draw(st.sampled_from(("", "WHERE v > 0")))
    having = draw(st.sampled_from(("", "HAVING count(*) > 1")))
    text = f"SELECT k, g, count(*) AS n, {call} AS c FROM S {where} GROUP BY {sets} {having}"
    return text, text


def _plain_groups() -> st.SearchStrategy[str]:
    """Groups by k with the columns a, a number, and b, for queries around them."""
    calls = st.sampled_from(_CALLS[:-2])
    where = st.sampled_from(("", "WHERE v > 0"))
    having = st.sampled_from(("", "HAVING count(*) <= 2"))
    return st.builds(
        lambda a, b, w, h: f"SELECT k, {a} AS a, {b} AS b FROM S {w} GROUP BY k {h}",
        calls,
        calls,
        where,
        having,
    )


@st.composite
def _all(draw: st.DrawFn) -> tuple[str, str]:
    inner = draw(st.one_of(st.just("S"), _plain_groups()))
    value, source = ("v", "S") if inner == "S" else ("a", f"({inner}) AS y")
    call = draw(st.sampled_from(("sum", "min", "max", "avg", "median", "count")))
    where = draw(st.sampled_from(("", f"WHERE {value} > 1")))
    text = f"SELECT count(*) AS n, {call}({value}) AS c FROM {source} {where}"
    return text, text


@st.composite
def _groups_of_groups(draw: st.DrawFn) -> tuple[str, str]:
    inner = draw(_plain_groups())
    calls = draw(
        st.lists(
            st.sampled_from(
                (
                    "count(*)",
                    "sum(b)",
                    "min(k)",
                    "max(b)",
                    "avg(b)",
                    "mean(b)",
                    "median(b)",
                    "count(DISTINCT b)",
                    _SPREAD,
                )
            ),
            min_size=1,
            max_size=3,
            unique=True,
        )
    )
    named = ", ".join(f"{call} AS c{number}" for number, call in enumerate(calls))
    where = draw(st.sampled_from(("", "WHERE b > 0")))
    text = f"SELECT a, {named} FROM ({inner}) AS y {where} GROUP BY a"
    return text, text.replace(_SPREAD, "max(coalesce(b, 0)) - min(coalesce(b, 0))")


@st.composite
def _first_rows(draw: st.DrawFn) -> tuple[str, str]:
    function = draw(st.sampled_from(("row_number", "rank", "dense_rank")))
    grouped = draw(st.booleans())
    source = f"({draw(_plain_groups())}) AS y" if grouped else "S"
    value, unique = ("a", "k") if grouped else ("v", "n")
    falls = draw(st.booleans())
    keys = [(value, falls), (unique, False)] if function == "row_number" else [(value, falls)]
    if not grouped and draw(st.booleans()) and function == "row_number":
        keys = [("ts", falls)]
    partitions = ("", "PARTITION BY k") if grouped else ("", "PARTITION BY k", "PARTITION BY ts, g")
    partition = draw(st.sampled_from(partitions))
    limit = draw(st.integers(1, 3))
    shown = draw(st.sampled_from(("", ", r")))
    columns = f"k, {value}" if grouped else "n, k, v"
    ours = ", ".join(f"{name}{' DESC' if down else ''}" for name, down in keys)
    # Of one time, what came last is the latest.
    keys = [*keys, ("n", falls)] if keys[0][0] == "ts" else keys
    theirs = ", ".join(f"{name} {'DESC NULLS LAST' if down else 'NULLS FIRST'}" for name, down in keys)

    def text(order: str) -> str:
        ranked = f"SELECT *, {function}() OVER ({partition} ORDER BY {order}) AS r FROM {source}"
        return f"SELECT {columns}{shown} FROM ({ranked}) AS x WHERE r <= {limit}"

    return text(ours), text(theirs)


@st.composite
def _early_windows(draw: st.DrawFn) -> tuple[str, str]:
    """Windows that tell results before they end, and groups over them."""
    key = draw(st.sampled_from(("k", "g")))
    calls = draw(st.lists(st.sampled_from((*_CALLS, *_CALLS_OF_TEXT)), min_size=1, max_size=2, unique=True))
    slide = draw(st.sampled_from((2, 4)))
    extent = slide * draw(st.integers(1, 3))
    where = draw(st.sampled_from(("", "WHERE v > 0")))
    having = draw(st.sampled_from(("", "HAVING count(*) <= 2")))
    grouped = f"SELECT {key}, {', '.join(f'{call} AS c{at}' for at, call in enumerate(calls))}"
    ours = (
        f"{grouped}, window_end() AS w FROM S [RANGE {extent} SECONDS SLIDE {slide} SECONDS] {where} "
        f"GROUP BY {key} {having} EMIT EARLY EVERY 2 SECONDS"
    )
    first = f"(ts // {slide * SECOND} + 1) * {slide * SECOND}"
    ends = f"generate_series({first}, {first} + {(extent - slide) * SECOND}, {slide * SECOND})"
    theirs = f"{grouped}, w FROM (SELECT *, unnest({ends}) AS w FROM S) {where} GROUP BY {key}, w {having}"
    if draw(st.booleans()):
        around = "SELECT w, count(*) AS n, max(c0) AS most FROM ({}) AS x GROUP BY w"
        return around.format(ours), around.format(theirs)
    return ours, theirs


@st.composite
def _early_growing(draw: st.DrawFn) -> tuple[str, str]:
    """Windows that grow, and tell results before they end."""
    key = draw(st.sampled_from(("k", "g")))
    call = draw(st.sampled_from(_CALLS))
    grouped = f"SELECT {key}, {call} AS c"
    ours = (
        f"{grouped}, window_start AS b, window_end AS w FROM CUMULATE(S, ts, 2 SECONDS, 6 SECONDS)"
        f" GROUP BY window_start, window_end, {key} EMIT EARLY EVERY 2 SECONDS"
    )
    step, size = 2 * SECOND, 6 * SECOND
    ends = f"generate_series((ts // {step} + 1) * {step}, (ts // {size} + 1) * {size}, {step})"
    theirs = (
        f"{grouped}, ts // {size} * {size} AS b, w FROM (SELECT *, unnest({ends}) AS w FROM S) GROUP BY ALL"
    )
    return ours, theirs


@st.composite
def _early_sessions(draw: st.DrawFn) -> tuple[str, str]:
    """Sessions that tell results before they end."""
    key = draw(st.sampled_from(("k", "g")))
    call = draw(st.sampled_from(_CALLS))
    gap = draw(st.sampled_from((1, 3)))
    ours = f"""SELECT {key}, {call} AS c, window_start() AS b, window_end() AS e
    FROM S [SESSION {gap} SECONDS] GROUP BY {key} EMIT EARLY EVERY 2 SECONDS"""
    theirs = f"""WITH before AS (SELECT *, lag(ts) OVER (PARTITION BY {key} ORDER BY n) AS was FROM S),
    numbered AS (SELECT *, count(*) FILTER (WHERE was IS NULL OR ts > was + {gap * SECOND})
      OVER (PARTITION BY {key} ORDER BY n) AS session FROM before)
    SELECT {key}, {call} AS c, min(ts) AS b, max(ts) + {gap * SECOND} AS e
    FROM numbered GROUP BY {key}, session"""
    return ours, theirs


@st.composite
def _joins(draw: st.DrawFn) -> tuple[str, str]:
    """Joins of tables that change, with each other and with a stream; groups and ranks over them."""
    left = f"({draw(_plain_groups())}) AS x"
    right = draw(st.one_of(st.just("S AS y"), _plain_groups().map(lambda inner: f"({inner}) AS y")))
    if draw(st.booleans()):
        left, right = right.replace("AS y", "AS x"), left.replace("AS x", "AS y")
    stream = "x" if left == "S AS x" else "y" if right == "S AS y" else ""
    a, b = ("g" if stream == "x" else "a"), ("g" if stream == "y" else "a")
    kind = draw(st.sampled_from(("JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")))
    on = draw(
        st.sampled_from(("x.k = y.k", f"x.{a} = y.{b}", f"x.k = y.k AND x.{a} < y.{b}", f"x.{a} < y.{b}"))
    )
    if kind == "FULL JOIN":
        on = "x.k = y.k"  # what DuckDB can do
    columns = f"x.k AS k, x.{a} AS a, y.k AS l, y.{b} AS b"
    text = f"SELECT {columns} FROM {left} {kind} {right} ON {on}"
    around = draw(st.sampled_from(("", "", "where", "group")))
    if around == "where":
        text += f" WHERE y.{b} > 0"
    elif around == "group":
        text = f"SELECT a, count(*) AS n, sum(b) AS s FROM ({text}) AS z GROUP BY a"
    return text, text


@st.composite
def _first_of_windows(draw: st.DrawFn) -> tuple[str, str]:
    """Ranks within windows, which are told when they end."""
    function = draw(st.sampled_from(("row_number", "rank", "dense_rank")))
    call = draw(st.sampled_from(_CALLS[:-2]))
    key = draw(st.sampled_from(("k", "g")))
    partition = draw(st.sampled_from(("w", "w, b", "b, w")))
    falls = draw(st.booleans())
    more = f", {key}" if function == "row_number" else ""
    shown = draw(st.sampled_from(("", ", r")))

    def text(inner: str, order: str) -> str:
        ranked = f"{function}() OVER (PARTITION BY {partition} ORDER BY {order}) AS r"
        return f"SELECT {key}, a, w{shown} FROM (SELECT *, {ranked} FROM ({inner}) AS x) AS y WHERE r <= 2"

    grouped = f"SELECT {key}, {call} AS a, count(g) AS b"
    ours = f"{grouped}, window_end() AS w FROM S [RANGE 2 SECONDS SLIDE 2 SECONDS] GROUP BY {key}"
    length = 2 * SECOND
    theirs = f"{grouped}, (ts // {length} + 1) * {length} AS w FROM S GROUP BY {key}, w"
    nulls = "DESC NULLS LAST" if falls else "NULLS FIRST"
    return (
        text(ours, f"a{' DESC' if falls else ''}{more}"),
        text(theirs, f"a {nulls}{more}{' NULLS FIRST' if more else ''}"),
    )


@st.composite
def _ordered(draw: st.DrawFn) -> tuple[str, str]:
    inner = draw(st.one_of(st.just(""), _plain_groups()))
    columns, source = ("k, a", f"({inner}) AS y") if inner else ("v, n", "S")
    value, unique = ("a", "k") if inner else ("v", "n")
    falls = draw(st.booleans())
    limit = draw(st.integers(1, 4))
    text = f"SELECT {columns} FROM {source} ORDER BY "
    ours = f"{text} {value} {'DESC' if falls else ''}, {unique} LIMIT {limit}"
    theirs = (
        f"{text} {value} {'DESC NULLS LAST' if falls else 'NULLS FIRST'}, {unique} NULLS FIRST LIMIT {limit}"
    )
    return ours, theirs


def _distinct() -> st.SearchStrategy[tuple[str, str]]:
    stays = st.just("SELECT DISTINCT k, v FROM S")
    changes = _plain_groups().map(lambda inner: f"SELECT DISTINCT a FROM ({inner}) AS y")
    return st.one_of(stays, changes).map(lambda text: (text, text))


def _union() -> st.SearchStrategy[tuple[str, str]]:
    def both(left: str, right: str) -> tuple[str, str]:
        text = f"SELECT k, count(a) AS a FROM ({left}) AS x GROUP BY k UNION ALL {right}"
        return text, text

    stays = st.just("SELECT k, count(a) AS a FROM (SELECT k, v AS a FROM S) AS y GROUP BY k")
    return st.builds(both, _plain_groups(), st.one_of(stays, st.just("SELECT k, 0 AS a FROM S")))


class TableOfNow:
    """What changes come to, one after another; each has to fit what is there."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.rows: Counter[Row] = Counter()
        self._before: TimedRow | None = None

    def apply(self, ts: int, row: Row) -> None:
        if not self.schema.changelog:
            self.rows[row] += 1
            return
        op, own = row[0], row[1:]
        if self._before is not None:
            assert op == "update_after", f"an update has two halves, this is a {op}"
            then, before = self._before
            assert then == ts, "both halves of an update come at one time"
            assert before != own, f"an update that changes nothing: {own}"
            assert self._key(before) == self._key(own), "an update is of one row"
            self._before = None
        else:
            assert op != "update_after", "an update begins with what was before"
        if op in ("insert", "update_after"):
            self.rows[own] += 1
        else:
            assert self.rows[own] > 0, f"{op} of {own}, which is not there"
            self.rows[own] -= 1
            if not self.rows[own]:
                del self.rows[own]
        if op == "update_before":
            self._before = (ts, own)

    def _key(self, row: Row) -> Row:
        key = self.schema.key
        return () if key is None else tuple(row[self.schema.own.index(name)] for name in key)

    def check_key(self) -> None:
        """No two rows have the same key."""
        if self.schema.changelog and self.schema.key is not None:
            keys = Counter(self._key(row) for row in self.rows.elements())
            assert max(keys.values(), default=0) <= 1, f"rows share a key: {keys}"


def same_rows(found: Counter[Row], expected: Sequence[Row]) -> bool:
    """Rows in any order; figures that are divided agree within rounding."""
    left, right = (sorted(rows, key=_rounded) for rows in (found.elements(), expected))
    return len(left) == len(right) and all(map(_same, left, right))


def _rounded(row: Row) -> str:
    return repr(tuple(float(f"{value:.6g}") if isinstance(value, int | float) else value for value in row))


def _same(left: Row, right: Row) -> bool:
    return all(
        math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)
        if isinstance(a, int | float) and isinstance(b, int | float)
        else a == b
        for a, b in zip(left, right, strict=True)
    )
