"""Random queries over a stream with columns of all types, in ESL and in DuckDB's SQL, and their comparison.

A scene is some queries over some rows. At each moment the table that a query's changes come to is compared
with DuckDB's answer over the rows so far: a compared result is one table of one query at one moment.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

import duckdb

from slicemill.binder import bind
from support.both_engines import by_mill, by_reference, times_to_compare
from support.changelogs import SECOND, Row, TableOfNow, TimedRow

STREAM = """CREATE STREAM S (n int, b boolean, i int, d double, m decimal(10, 2), s varchar, t timestamp,
  v int, ts timestamp) ORDER BY ts;
"""
# DuckDB has times as numbers: their order is the same.
_TABLE = """CREATE TABLE A (n INT, b BOOLEAN, i INT, d DOUBLE, m DECIMAL(10, 2), s VARCHAR, t BIGINT,
  v INT, ts BIGINT);
CREATE VIEW S AS SELECT n, b, i, d, m, s, t, v FROM A WHERE ts <= getvariable('now');
"""
KINDS = {
    "n": "int",
    "b": "bool",
    "i": "int",
    "d": "double",
    "m": "decimal",
    "s": "text",
    "t": "time",
    "v": "int",
}
_VALUES: dict[str, tuple[object, ...]] = {
    "b": (True, False, None),
    "i": (-1, 0, 1, 2, None),
    "d": (0.0, -0.0, 1.5, -2.5, math.nan, math.inf, -math.inf, None),
    "m": (Decimal("0.00"), Decimal("1.50"), Decimal("1.51"), Decimal("-2.00"), None),
    "s": ("", "a", "b", "A", "é", "𝄞", None),
    "t": (0, 1, SECOND, -SECOND, None),
    "v": (-3, 0, 1, 2, 7, None),
}


@dataclass(frozen=True, slots=True)
class Rows:
    """A relation that can be selected from, in both languages: the same text but for orders."""

    esl: str
    duckdb: str
    kinds: dict[str, str]
    changes: bool = False  # its rows may leave again

    def named(self, alias: str) -> tuple[str, str]:
        if self.esl == "S":
            return "S", "S"
        return f"({self.esl}) AS {alias}", f"({self.duckdb}) AS {alias}"


@dataclass(frozen=True, slots=True)
class RandomQuery:
    esl: str
    duckdb: str
    kind: str
    every: int | None = None
    final: bool = False


BASE = Rows("S", "S", KINDS)


class Drawing:
    """Draws queries and rows from a random number generator, so that a seed is a scene."""

    def __init__(self, chooser: random.Random) -> None:
        self.random = chooser
        self._named = 0

    def rows(self, count: int) -> list[Row]:
        found: list[Row] = []
        ts = SECOND
        for number in range(count):
            ts += self.random.choice((0, SECOND // 2, SECOND, 3 * SECOND))
            values = [self.random.choice(_VALUES[name]) for name in ("b", "i", "d", "m", "s", "t", "v")]
            found.append((number, *values, ts))
        return found

    def query(self) -> RandomQuery:
        kind = self.random.choice(("groups", "sets", "union", "rank", "top", "distinct", "whole"))
        made = getattr(self, kind)(depth=self.random.choice((0, 0, 1, 1, 2)))
        emit = self.random.choice(("", "", "", "", "EMIT CHANGES", "EMIT EVERY 2 SECONDS", "EMIT FINAL"))
        if not made.changes or kind == "sets":
            emit = ""  # a set of keys may be of rows that stay
        every = 2 if "EVERY" in emit else None
        return RandomQuery(f"{made.esl} {emit}".strip(), made.duckdb, kind, every, "FINAL" in emit)

    # -- what queries read ---------------------------------------------------------------------------------

    def source(self, depth: int) -> Rows:
        """The stream, or a query over it: rows that stay, or that change."""
        if depth <= 0 or self.random.random() < 0.2:
            return BASE
        kind = self.random.choice(("groups", "groups", "rank", "distinct", "union", "top", "plain", "whole"))
        made: Rows = getattr(self, kind)(depth=depth - 1)
        return made

    def alias(self) -> str:
        self._named += 1
        return f"x{self._named}"

    def some(self, names: Sequence[str], least: int, most: int) -> list[str]:
        return self.random.sample(list(names), min(len(names), self.random.randint(least, most)))

    def key(self, rows: Rows) -> tuple[str, str]:
        """Something to group, partition or order by, and its kind."""
        name = self.random.choice(list(rows.kinds))
        kind = rows.kinds[name]
        if self.random.random() < 0.6:
            return name, kind
        expressions = {
            "int": ((f"{name} % 2", "int"), (f"{name} > 0", "bool"), (f"coalesce({name}, 0)", "int")),
            "bool": (
                (f"NOT {name}", "bool"),
                (f"{name} IS NULL", "bool"),
                (f"coalesce({name}, FALSE)", "bool"),
            ),
            "double": (
                (f"{name} > 0", "bool"),
                (f"-{name}", "double"),
                (f"coalesce({name}, -0.0)", "double"),
            ),
            "decimal": ((f"{name} > 1", "bool"), (f"-{name}", "decimal"), (f"abs({name})", "decimal")),
            "text": ((f"upper({name})", "text"), (f"length({name})", "int"), (f"{name} = 'a'", "bool")),
            "time": ((f"{name} IS NULL", "bool"), (f"CASE WHEN {name} IS NULL THEN 1 ELSE 2 END", "int")),
        }
        return self.random.choice(expressions[kind])

    def keys(self, rows: Rows, least: int, most: int) -> list[tuple[str, str]]:
        return list(dict.fromkeys(self.key(rows) for _ in range(self.random.randint(least, most))))

    def where(self, rows: Rows) -> str:
        if self.random.random() < 0.65:
            return ""
        name = self.random.choice(list(rows.kinds))
        more = {
            "int": (f"{name} > 0", f"{name} IS NULL OR {name} < 2"),
            "bool": (name, f"NOT {name}"),
            "double": (f"{name} >= 0",),
            "decimal": (f"{name} < 2",),
            "text": (f"{name} <> ''",),
            "time": (f"{name} IS NULL",),
        }[rows.kinds[name]]
        return "WHERE " + self.random.choice((*more, f"{name} IS NOT NULL"))

    def order(self, keys: Sequence[str]) -> tuple[str, str]:
        """Keys to order by: NULL is the smallest value, unless NULLS FIRST or LAST is written."""
        ours, theirs = [], []
        for key in keys:
            falls = self.random.random() < 0.5
            written = self.random.choice(("", "", "NULLS FIRST", "NULLS LAST"))
            word = " DESC" if falls else ""
            ours.append(f"{key}{word} {written}".strip())
            theirs.append(f"{key}{word} {written or ('NULLS LAST' if falls else 'NULLS FIRST')}")
        return ", ".join(ours), ", ".join(theirs)

    def call(self, rows: Rows) -> tuple[str, str]:
        """An aggregate call and the kind of its value."""
        name = self.random.choice(list(rows.kinds))
        kind = rows.kinds[name]
        calls = [("count(*)", "int"), (f"count({name})", "int"), (f"count(DISTINCT {name})", "int")]
        calls += [(f"min({name})", kind), (f"max({name})", kind)] * (kind != "bool")
        calls += [(f"sum({name})", "int"), (f"avg({name})", "double")] * (kind == "int")
        calls += [(f"sum({name})", "decimal")] * (kind == "decimal")
        calls += [(f"count(*) FILTER (WHERE {name} IS NOT NULL)", "int")]
        return self.random.choice(calls)

    # -- classes of queries --------------------------------------------------------------------------------

    def plain(self, depth: int) -> Rows:
        rows = self.source(depth)
        ours, theirs = rows.named(self.alias())
        keys = self.keys(rows, 1, 4)
        items = ", ".join(f"{key} AS p{place}" for place, (key, _) in enumerate(keys))
        where = self.where(rows)
        kinds = {f"p{place}": kind for place, (_, kind) in enumerate(keys)}
        return Rows(
            f"SELECT {items} FROM {ours} {where}",
            f"SELECT {items} FROM {theirs} {where}",
            kinds,
            rows.changes,
        )

    def groups(self, depth: int) -> Rows:
        rows = self.source(depth)
        ours, theirs = rows.named(self.alias())
        keys, calls = self.keys(rows, 1, 3), [self.call(rows) for _ in range(self.random.randint(0, 3))]
        items = [f"{key} AS g{place}" for place, (key, _) in enumerate(keys)]
        items += [f"{call} AS c{place}" for place, (call, _) in enumerate(calls)]
        kinds = {f"g{place}": kind for place, (_, kind) in enumerate(keys)}
        kinds |= {f"c{place}": kind for place, (_, kind) in enumerate(calls)}
        by = ", ".join(key for key, _ in keys)
        having = self.random.choice(("", "", "HAVING count(*) > 1", "HAVING count(*) <= 2"))
        text = f"SELECT {', '.join(items)} FROM {{}} {self.where(rows)} GROUP BY {by} {having}"
        changes = bool(calls or having) or rows.changes
        return Rows(text.format(ours), text.format(theirs), kinds, changes)

    def sets(self, depth: int) -> Rows:
        rows = self.source(depth)
        ours, theirs = rows.named(self.alias())
        names = self.some(list(rows.kinds), 1, 3)
        calls = [self.call(rows) for _ in range(self.random.randint(0, 2))]
        inside = ", ".join(names)
        sets = self.random.choice(
            (
                f"ROLLUP ({inside})",
                f"CUBE ({inside})",
                f"GROUPING SETS (({inside}), ({names[0]}))",
                f"GROUPING SETS (({inside}), ())",
                f"GROUPING SETS (({inside}))",
                f"{names[-1]}, ROLLUP ({inside})",
            )
        )
        items = [f"{name} AS g{place}" for place, name in enumerate(names)]
        items += [f"{call} AS c{place}" for place, (call, _) in enumerate(calls)]
        items.append(f"grouping({inside}) AS sets")
        kinds = {f"g{place}": rows.kinds[name] for place, name in enumerate(names)}
        kinds |= {f"c{place}": kind for place, (_, kind) in enumerate(calls)} | {"sets": "int"}
        text = f"SELECT {', '.join(items)} FROM {{}} {self.where(rows)} GROUP BY {sets}"
        ends = ("", "")
        if self.random.random() < 0.25:
            order = self.order([f"g{place}" for place in range(len(names))] + ["sets"])
            more = [f"c{place}" for place in range(len(calls))]
            rest = self.order(more) if more else ("", "")
            limit = self.random.randint(1, 4)
            ends = tuple(  # type: ignore[assignment]
                f"ORDER BY {', '.join(filter(None, (one, two)))} LIMIT {limit}"
                for one, two in zip(order, rest, strict=True)
            )
        esl, sql = f"{text.format(ours)} {ends[0]}", f"{text.format(theirs)} {ends[1]}"
        return Rows(esl, sql, kinds, True)

    def whole(self, depth: int) -> Rows:
        """An aggregate without GROUP BY: one row, also over no rows."""
        rows = self.source(depth)
        ours, theirs = rows.named(self.alias())
        calls = [self.call(rows) for _ in range(self.random.randint(1, 3))]
        items = ["count(*) AS n", *(f"{call} AS c{place}" for place, (call, _) in enumerate(calls))]
        kinds = {"n": "int", **{f"c{place}": kind for place, (_, kind) in enumerate(calls)}}
        text = f"SELECT {', '.join(items)} FROM {{}} {self.where(rows)}"
        return Rows(text.format(ours), text.format(theirs), kinds, True)

    def distinct(self, depth: int) -> Rows:
        rows = self.plain(depth)
        again = "SELECT DISTINCT "
        return replace(
            rows, esl=rows.esl.replace("SELECT ", again, 1), duckdb=rows.duckdb.replace("SELECT ", again, 1)
        )

    def top(self, depth: int) -> Rows:
        """The first rows by some keys, then by all columns: rows that are equal there are the same."""
        rows = self.source(depth)
        ours, theirs = rows.named(self.alias())
        columns = ", ".join(rows.kinds)
        keys = [key for key, _ in self.keys(rows, 1, 2)]
        our_order, their_order = self.order([*keys, *rows.kinds])
        limit = self.random.randint(1, 4)
        where = self.where(rows)
        return Rows(
            f"SELECT {columns} FROM {ours} {where} ORDER BY {our_order} LIMIT {limit}",
            f"SELECT {columns} FROM {theirs} {where} ORDER BY {their_order} LIMIT {limit}",
            rows.kinds,
            True,
        )

    def rank(self, depth: int) -> Rows:
        rows = self.source(depth)
        ours, theirs = rows.named(self.alias())
        function = self.random.choice(("row_number", "row_number", "rank", "dense_rank"))
        partition = ", ".join(key for key, _ in self.keys(rows, 0, 2))
        keys = [key for key, _ in self.keys(rows, 1, 2)]
        orders = self.order([*keys, *rows.kinds] if function == "row_number" else keys)
        limit = self.random.randint(1, 3)
        shown = self.random.random() < 0.5
        columns = [*rows.kinds, *(["r"] * shown)]
        inside = f"{', '.join(rows.kinds)}, {function}() OVER "
        inside += f"({f'PARTITION BY {partition} ' if partition else ''}ORDER BY {{}}) AS r"
        around = f"SELECT {', '.join(columns)} FROM (SELECT {inside} FROM {{}}) AS {self.alias()} "
        around += f"WHERE r <= {limit}"
        kinds = {**rows.kinds, **({"r": "int"} if shown else {})}
        if "r" in rows.kinds:  # the rank of a query inside has that name
            return replace(rows)
        return Rows(around.format(orders[0], ours), around.format(orders[1], theirs), kinds, True)

    def union(self, depth: int) -> Rows:
        """Branches with columns of the same kinds, under the names of the first."""
        kinds = [self.random.choice(("int", "text", "double", "decimal", "bool")) for _ in range(2)]
        branches = [self._branch(kinds, depth) for _ in range(self.random.randint(2, 3))]
        words = [self.random.choice(("UNION ALL", "UNION ALL", "UNION DISTINCT")) for _ in branches[1:]]
        texts = []
        for side in ("esl", "duckdb"):
            text = getattr(branches[0], side)
            for word, branch in zip(words, branches[1:], strict=True):
                text += (
                    f" {word.replace(' DISTINCT', '') if side == 'duckdb' else word} {getattr(branch, side)}"
                )
            texts.append(text)
        changes = any(branch.changes for branch in branches)
        named = {f"u{place}": kind for place, kind in enumerate(kinds)}
        if self.random.random() < 0.4:
            ends = self.order(list(named))
            limit = self.random.randint(1, 4)
            texts = [
                f"{text} ORDER BY {order} LIMIT {limit}" for text, order in zip(texts, ends, strict=True)
            ]
            changes = True
        return Rows(texts[0], texts[1], named, changes)

    def _branch(self, kinds: Sequence[str], depth: int) -> Rows:
        for _ in range(6):
            rows = self.source(depth)
            found = [[name for name, kind in rows.kinds.items() if kind == wanted] for wanted in kinds]
            if all(found):
                break
        else:
            rows = BASE
            found = [[name for name, kind in KINDS.items() if kind == wanted] for wanted in kinds]
        items = ", ".join(f"{self.random.choice(names)} AS u{place}" for place, names in enumerate(found))
        ours, theirs = rows.named(self.alias())
        where = self.where(rows)
        named = {f"u{place}": kind for place, kind in enumerate(kinds)}
        return Rows(
            f"SELECT {items} FROM {ours} {where}",
            f"SELECT {items} FROM {theirs} {where}",
            named,
            rows.changes,
        )


# -- comparing ---------------------------------------------------------------------------------------------


@dataclass
class Compared:
    """How many tables were compared and rows were in them, by class; and what was wrong."""

    tables: Counter[str] = field(default_factory=Counter)
    rows: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def scene(seed: int, queries: int, length: int) -> tuple[list[RandomQuery], list[Row]]:
    drawing = Drawing(random.Random(seed))
    return [drawing.query() for _ in range(queries)], drawing.rows(length)


def compare(seed: int, queries: int, length: int, found: Compared, *, reference: bool) -> None:
    """Run the queries of a scene and compare all their tables."""
    drawn, rows = scene(seed, queries, length)
    asked = []
    for query in drawn:
        try:
            bind(STREAM + f"CREATE QUERY q AS {query.esl};")
            asked.append(query)
        except Exception as error:
            found.refused[str(error).splitlines()[0].partition("error: ")[2] or repr(error)] += 1
    esl = STREAM + "".join(f"CREATE QUERY q{place} AS {query.esl};" for place, query in enumerate(asked))
    schemas = {name: query.schema for name, query in bind(esl).catalog.queries.items()}
    told = {"": by_mill(esl, rows, seed)}
    if reference:
        told["reference: "] = by_reference(esl, rows)
    with duckdb.connect() as database:
        database.execute(_TABLE)
        database.executemany(f"INSERT INTO A VALUES ({', '.join('?' * 9)})", rows)
        for engine, results in told.items():
            for place, query in enumerate(asked):
                name = f"q{place}"
                if results.get(name) is None:
                    continue
                mistake = _check(
                    database, query, TableOfNow(schemas[name]), results[name], rows, found, engine
                )
                if mistake:
                    found.wrong.append(f"seed {seed}, {engine}{name}: {query.esl}\n  {mistake}")


def _check(
    database: duckdb.DuckDBPyConnection,
    query: RandomQuery,
    table: TableOfNow,
    told: Sequence[TimedRow],
    rows: Sequence[Row],
    found: Compared,
    engine: str,
) -> str:
    left = list(told)
    for now in times_to_compare(rows, every=query.every, final=query.final):
        try:
            while left and left[0][0] <= now:
                ts, row = left.pop(0)
                table.apply(ts, tuple(map(_plain, row)))
            table.check_key()
        except AssertionError as error:
            return f"at {now}: {error}"
        until = now - 1 if query.every is not None else now
        database.execute(f"SET VARIABLE now = {until}")
        expected = [tuple(map(_plain, row)) for row in database.execute(query.duckdb).fetchall()]
        found.tables[engine + query.kind] += 1
        found.rows[engine + query.kind] += len(expected)
        if not _same_tables(table.rows, expected):
            return (
                f"at {now}: {sorted(table.rows.elements(), key=repr)} instead of {sorted(expected, key=repr)}"
            )
    return f"{len(left)} changes come after the end" if left else ""


def _plain(value: object) -> object:
    """Values that are equal as keys in both: NaN is itself, -0.0 is 0.0, and whole numbers are numbers."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, float):
        return "NaN" if value != value else value + 0.0
    if isinstance(value, Decimal):
        return value.normalize() + Decimal(0)
    return value


def _same_tables(found: Counter[Row], expected: Sequence[Row]) -> bool:
    if found == Counter(expected):
        return True
    left, right = (sorted(rows, key=_rounded) for rows in (found.elements(), expected))
    return len(left) == len(right) and all(map(_same, left, right))


def _rounded(row: Row) -> str:
    return repr(tuple(f"{value:.6g}" if isinstance(value, int | float) else value for value in row))


def _same(left: Row, right: Row) -> bool:
    return all(
        math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)
        if isinstance(a, float) and isinstance(b, float)
        else a == b
        for a, b in zip(left, right, strict=True)
    )
