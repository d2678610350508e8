"""Statements of every kind in a random order, and the catalog that they leave.

A `Declared` is the catalog as plain values: by kind and name, what a test compares after a kill.
`next_change` draws a statement that is allowed now, and says what it leaves. `found_in` reads the same values
from a home.
"""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from slicemill.api.mill import Mill
from slicemill.catalog.catalog import ERRORS
from slicemill.catalog.catalog import Table as TableDefinition
from slicemill.errors import SlicemillError
from slicemill.lifecycle.catalog_journal import in_force
from slicemill.runtime.workers.inline import InlinePool
from slicemill.testing import Clock, inline_pool, open_mill
from support.engine import feed_rows

Object = tuple[str, str]  # kind and name
Row = tuple[int, int]
Declared = Mapping[Object, tuple[object, ...]]

SECOND = 1_000_000
BASE = """
CREATE STREAM s (at timestamp, k int, v int) ORDER BY at RETAIN 1 DAYS;
CREATE STREAM w (at timestamp, k int) ORDER BY at RETAIN 1 DAYS;
CREATE TABLE t (k bigint PRIMARY KEY, v bigint);
CREATE QUERY base AS SELECT k, sum(v) AS n FROM s [RANGE 6 SECONDS SLIDE 3 SECONDS] GROUP BY k;
CREATE QUERY wide AS SELECT * FROM w;
"""
DECLARED_FIRST: Declared = {
    ("policy", ""): ("fcfs",),
    ("columns", "w"): (2,),
    ("table", "t"): (),
    ("query", "base"): (None, 1.0, False),
    ("query", "wide"): (None, 1.0, False),
}
_QUERIES, _VIEWS = ("q1", "q2", "q3", "q4"), ("v1", "v2")
_STREAMS, _FUNCTIONS, _ALERTS, _TABLES = ("d1", "d2"), ("f1", "f2"), ("a1", "a2"), ("t1", "t2")
_POLICIES = ("fcfs", "hnr", "srpt", "rr")


class Change(NamedTuple):
    kind: str
    text: str
    after: Declared


class _Draw:
    """What one statement can be, and what it leaves; numbers that mark a definition are drawn."""

    def __init__(self, declared: Declared, dice: random.Random) -> None:
        self.now, self.dice = declared, dice
        self.mark = dice.randrange(1_000, 10_000)

    def has(self, kind: str, names: tuple[str, ...]) -> list[str]:
        return [name for name in names if (kind, name) in self.now]

    def lacks(self, kind: str, names: tuple[str, ...]) -> list[str]:
        return [name for name in names if (kind, name) not in self.now]

    def left(self, kind: str, name: str, *values: object) -> Declared:
        return {**self.now, (kind, name): values}

    def without(self, kind: str, name: str) -> Declared:
        return {one: values for one, values in self.now.items() if one != (kind, name)}

    def query(self, name: str, joins: bool, past: str = "") -> str:
        if joins:
            return (
                f"QUERY {name} AS SELECT a.k, a.v + {self.mark} AS n FROM s [RANGE 3 SECONDS] AS a "
                "JOIN w [RANGE 3 SECONDS] AS b ON a.k = b.k"
            )
        return (
            f"QUERY {name}{past} AS SELECT k, sum(v + {self.mark}) AS n "
            "FROM s [RANGE 6 SECONDS SLIDE 2 SECONDS] GROUP BY k"
        )


def changes_possible(declared: Declared, dice: random.Random) -> Iterator[Change]:
    """Every kind of statement that is allowed now, with names and numbers drawn."""
    draw = _Draw(declared, dice)
    pick, mark, left, without = dice.choice, draw.mark, draw.left, draw.without
    rows: tuple[Row, ...] = declared["table", "t"]  # type: ignore[assignment]
    keys = [key for key, _ in rows]
    for kind, word, names, text in (
        ("view", "VIEW", _VIEWS, "AS SELECT k, v FROM s [RANGE 5 SECONDS] WHERE v > {}"),
        ("stream", "STREAM", _STREAMS, "AS SELECT at, k, v + {} AS v FROM s"),
        ("function", "FUNCTION", _FUNCTIONS, "(x int) RETURNS int AS x + {}"),
    ):
        for name in draw.lacks(kind, names)[:1]:
            yield Change(
                f"CREATE {word}", f"CREATE {word} {name} {text.format(mark)}", left(kind, name, mark)
            )
        for name in draw.has(kind, names)[:1]:
            yield Change(f"DROP {word}", f"DROP {word} {name}", without(kind, name))
            yield Change(
                f"CREATE OR REPLACE {word}",
                f"CREATE OR REPLACE {word} {name} {text.format(mark)}",
                left(kind, name, mark),
            )
    if missing := draw.lacks("query", _QUERIES):
        name, joins = pick(missing), dice.random() < 0.3
        created = left("query", name, mark, 1.0, False)
        yield Change("CREATE QUERY", f"CREATE {draw.query(name, joins)}", created)
        yield Change(
            "CREATE QUERY from the past",
            f"CREATE {draw.query(name, False, ' FROM BEGINNING')}",
            created,
        )
        if mark not in keys:
            yield Change(
                "declarations and rows in one text",
                f"CREATE {draw.query(name, joins)}; INSERT INTO t VALUES ({mark}, 1);"
                f"CREATE ALERT a_{name} ON {name} WEBHOOK 'http://127.0.0.1:9/';",
                {**created, ("table", "t"): _with_row(rows, mark, 1), ("alert", f"a_{name}"): ()},
            )
    if known := draw.has("query", _QUERIES):
        one = pick(known)
        told = ("alert", f"a_{one}") in declared
        values = declared["query", one]
        if not told:
            yield Change("DROP QUERY", f"DROP QUERY {one}", without("query", one))
            yield Change(
                "DROP and CREATE in one text",
                f"DROP QUERY {one}; CREATE {draw.query(one, False)}",
                left("query", one, mark, 1.0, False),
            )
        else:
            yield Change("DROP ALERT", f"DROP ALERT a_{one}", without("alert", f"a_{one}"))
        yield Change(
            "CREATE OR REPLACE QUERY",
            f"CREATE OR REPLACE {draw.query(one, False)}",
            left("query", one, mark, 1.0, values[2]),
        )
        yield Change(
            "ALTER QUERY",
            f"ALTER QUERY {one} SET (weight = {mark % 7 + 2})",
            left("query", one, values[0], float(mark % 7 + 2), values[2]),
        )
        paused = not values[2]
        yield Change(
            "PAUSE" if paused else "RESUME",
            f"{'PAUSE' if paused else 'RESUME'} QUERY {one}",
            left("query", one, values[0], values[1], paused),
        )
    for name in draw.lacks("table", _TABLES)[:1]:
        yield Change(
            "CREATE TABLE",
            f"CREATE TABLE {name} (k bigint PRIMARY KEY, v bigint); INSERT INTO {name} VALUES ({mark}, 3)",
            left("table", name, (mark, 3)),
        )
    for name in draw.has("table", _TABLES)[:1]:
        yield Change("DROP TABLE", f"DROP TABLE {name}", without("table", name))
    if mark not in keys:
        text = f"INSERT INTO t VALUES ({mark}, 0)"
        yield Change("INSERT", text, left("table", "t", *_with_row(rows, mark, 0)))
    if rows:
        more = [(key, value + 1) for key, value in rows]
        yield Change("UPDATE", "UPDATE t SET v = v + 1", left("table", "t", *more))
        yield Change("DELETE", f"DELETE FROM t WHERE k = {rows[0][0]}", left("table", "t", *rows[1:]))
        yield Change("TRUNCATE", "TRUNCATE TABLE t", left("table", "t"))
    policy = pick(_POLICIES)
    yield Change("SET", f"SET policy = '{policy}'", left("policy", "", policy))
    for name in draw.lacks("alert", _ALERTS)[:1]:
        yield Change(
            "CREATE ALERT", f"CREATE ALERT {name} ON base WEBHOOK 'http://127.0.0.1:9/'", left("alert", name)
        )
    for name in draw.has("alert", _ALERTS)[:1]:
        yield Change("DROP ALERT", f"DROP ALERT {name}", without("alert", name))
    count = declared["columns", "w"][0]
    assert isinstance(count, int)
    if count < 6:
        yield Change(
            "ALTER STREAM",
            f"ALTER STREAM w ADD COLUMN c{count} int DEFAULT 0",
            left("columns", "w", count + 1),
        )


def _with_row(rows: tuple[Row, ...], key: int, value: int) -> tuple[Row, ...]:
    return tuple(sorted([*rows, (key, value)]))


def next_change(declared: Declared, dice: random.Random) -> Change:
    """Draw one statement that is allowed now."""
    return dice.choice(list(changes_possible(declared, dice)))


# -- a home ----------------------------------------------------------------------------------------------


def new_home(home: Path) -> None:
    """Make a home in which the first statements were run and some rows have arrived."""
    with open_mill(home=home, pool=inline_pool(), clock=Clock(), subtasks=2, read_sources=False) as mill:
        mill.execute(BASE)
        mill.open()
        feed(mill, 0)


def reopened(home: Path, pool: InlinePool | None = None) -> Mill:
    """A mill that goes on with a home, as a server does after a start."""
    mill = open_mill(home=home, pool=pool or inline_pool(), clock=Clock(), subtasks=2, read_sources=False)
    assert mill.statements.restore() == []
    mill.open()
    return mill


def feed(mill: Mill, first: int) -> None:
    """Let some rows in, and run what reads them."""
    feed_rows(mill, "s", [((first + one) * SECOND, one % 3, one) for one in range(8)])
    mill.dispatcher.run_all()


def found_in(mill: Mill) -> Declared:
    """What a mill has, as plain values; raises where its parts do not fit together."""
    found: dict[Object, tuple[object, ...]] = {("policy", ""): (mill.dispatcher.chooser.policy.name,)}
    names: set[str] = set()
    for (kind, _), entry in in_force(mill.home.statements).items():
        name, number = entry["name"], re.search(r"\b[1-9]\d{3}\b", entry["text"])
        mark = None if number is None else int(number[0])
        if kind == "query":
            paused = "paused" in mill.home.lives.get(name, {})
            found["query", name] = mark, mill.catalog.queries[name].options.weight, paused
            names.add(name)
        elif kind == "relation" and isinstance(relation := mill.catalog.relation(name), TableDefinition):
            found["table", name] = tuple(sorted(mill.tables.rows(relation.name)))
        elif kind == "relation" and entry["text"].split()[-1] != "at" and name not in ("s", "w"):
            what = "view" if " VIEW " in entry["text"] else "stream"
            found[what, name] = (mark,)
        elif kind == "function":
            found["function", name] = (mark,)
        elif kind == "alert":
            found["alert", name] = ()
    found["columns", "w"] = (len(mill.home.logs["w"].columns.names),)
    assert len(mill.catalog.declared_stream("w").schema) == found["columns", "w"][0]
    # Every query has its log, and no log is left of one that is gone.
    kept = {"s", "w", *(name for name in mill.home.logs if name.startswith(("s_", "w_")) or ERRORS in name)}
    logs = set(mill.home.logs) - kept
    streams = {name for kind, name in found if kind in ("stream", "view")}
    assert names <= logs <= names | streams, (names, logs)
    assert set(mill.queries) >= names
    assert set(mill.home.alerts) == {name for kind, name in found if kind == "alert"}
    return found


def check_usable(home: Path, scratch: Path) -> None:
    """In a copy of a home, read and drop all that is there, and create what is not."""
    shutil.copytree(home, scratch)
    mill = reopened(scratch)
    try:
        feed(mill, 1_000_000)
        before = found_in(mill)
        for kind, name in before:
            if kind == "query":
                assert mill.queries[name].error is None
                mill.queries[name].timed_rows()
            elif kind in ("table", "view"):
                mill.tables.rows(name)
        order = {"alert": 0, "query": 1, "view": 2, "stream": 2, "function": 3, "table": 4}
        for kind, name in sorted((one for one in before if one[0] in order), key=lambda one: order[one[0]]):
            mill.execute(f"DROP {kind} {name}")
        dice = random.Random(7)
        names = [*_QUERIES, "base", "wide"]
        for name in names:
            mill.execute(f"CREATE {_Draw(before, dice).query(name, False)}")
        for name in (*_VIEWS, *_STREAMS):
            kind, read = ("VIEW", "s [RANGE 5 SECONDS]") if name in _VIEWS else ("STREAM", "s")
            mill.execute(f"CREATE {kind} {name} AS SELECT at, k AS other FROM {read}")
        for name in (*_TABLES, "t"):
            mill.execute(f"CREATE TABLE {name} (other varchar); INSERT INTO {name} VALUES ('x')")
        for name in _FUNCTIONS:
            mill.execute(f"CREATE FUNCTION {name} (x varchar) RETURNS varchar AS upper(x)")
        for name in _ALERTS:
            mill.execute(f"CREATE ALERT {name} ON q1 WEBHOOK 'http://127.0.0.1:9/'")
        feed(mill, 2_000_000)
        assert all(query.error is None for query in mill.queries.values())
        assert all(mill.queries[name].timed_rows() for name in _QUERIES)
    except SlicemillError as problem:
        raise AssertionError(f"a name cannot be used: {problem}") from problem
    finally:
        mill.close()
