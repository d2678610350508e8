"""Random joins of two to five streams, as ESL and as SQL over the finished input (S2, S25).

The SQL is written from what was drawn and knows nothing of engines: `T` is the timestamp of a result's newest
member; a window of time is a condition on the difference to it, a window of rows one on how many rows of the
stream had come by then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import duckdb
import pyarrow as pa
from hypothesis import strategies as st

from joins.chained import DrawnChain, Streams

SECOND = 1_000_000
STREAMS = "abcde"
ROWS = {2: 40, 3: 30, 4: 22, 5: 18}  # by the most streams of a join
LAST = 400  # seconds: after the last row, and after the end of the last window
# What joins read besides declared streams, in both languages.
DERIVED = {
    "few": "SELECT k, v, n{ts} FROM a WHERE v > 1",
    "merged": "SELECT k, v, n{ts} FROM b UNION ALL SELECT v, k, n{ts} FROM c WHERE k < 3",
}
UNDER = {"few": "a", "merged": "bc"}  # the declared streams they are made of
DECLARED = "".join(
    f"CREATE STREAM {name} (k int, v int, n int, ts timestamp micros) ORDER BY ts;\n"
    # Streams are read from the beginning, whoever comes later.
    f"CREATE QUERY no_{name} AS SELECT k FROM {name} WHERE v < 0;\n"
    for name in STREAMS
) + "".join(f"CREATE STREAM {name} AS {text.format(ts='')};\n" for name, text in DERIVED.items())

# A row of a stream: its timestamp in seconds, and (k, v, n), where n is its number among all rows.
Values: TypeAlias = tuple[int | None, int | None, int]
Arrival: TypeAlias = tuple[str, int, Values]
Rows: TypeAlias = "Counter[tuple[int, tuple[object, ...]]]"

EQUAL = ("{x}.k = {y}.k", "{x}.k = {y}.k AND {x}.v = {y}.v", "{x}.v = {y}.k")
COMPUTED = (
    "{x}.k + 1 = {y}.k",
    "{x}.k % 2 = {y}.v % 2",
    "{x}.k + {x}.v = {y}.v",
    "coalesce({x}.k, 0) = coalesce({y}.k, 0)",
)
THETA = (
    "{x}.v BETWEEN {y}.v - 1 AND {y}.v + 1",
    "abs({x}.k - {y}.k) <= 1",
    "{x}.v < {y}.v",
    "({x}.k = {y}.k OR {x}.v = {y}.v)",
    "{x}.k <> {y}.k",
)
MIXED = ("{x}.k = {y}.k AND {x}.v <= {y}.v", "{x}.v = {y}.v AND ({x}.k = 1 OR {y}.k = 1)")
ALONE = ("{x}.v > 2", "{x}.k <> 2", "{x}.v IN (0, 1, 4)", "{x}.k IS NOT NULL", "{x}.n % 3 <> 0")


@dataclass(frozen=True)
class DrawnWindow:
    """The last `size` seconds or rows; None is all that has come."""

    task: str
    size: int | None

    @property
    def esl(self) -> str:
        if self.size is None:
            return "RANGE UNBOUNDED"
        return f"ROWS {self.size}" if self.task == "rows" else f"RANGE {self.size} SECONDS"


@dataclass(frozen=True)
class DrawnInput:
    relation: str
    alias: str
    window: DrawnWindow


@dataclass(frozen=True)
class DrawnJoin:
    """A query. Its items are the numbers of the rows that a result is made of, and a sum of values; with a
    `slide`, so many seconds, results are counted by the first key, over what the windows hold then."""

    inputs: tuple[DrawnInput, ...]
    conditions: tuple[str, ...]
    slide: int | None = None

    @property
    def _sum(self) -> str:
        return " + ".join(f"{entry.alias}.v" for entry in self.inputs)

    @property
    def _items(self) -> str:
        numbers = [f"{entry.alias}.n AS n{place}" for place, entry in enumerate(self.inputs)]
        return ", ".join([*numbers, f"{self._sum} AS s"])

    def esl(self) -> str:
        slide = "" if self.slide is None else f" SLIDE {self.slide} SECONDS"
        sources = ", ".join(
            f"{entry.relation} [{entry.window.esl}{'' if place else slide}] AS {entry.alias}"
            for place, entry in enumerate(self.inputs)
        )
        where = f" WHERE {' AND '.join(self.conditions)}" if self.conditions else ""
        if self.slide is None:
            return f"SELECT {self._items} FROM {sources}{where}"
        key = f"{self.inputs[0].alias}.k"
        return f"SELECT {key} AS k, count(*) AS n, sum({self._sum}) AS s FROM {sources}{where} GROUP BY {key}"

    def sql(self) -> str:
        newest = f"greatest({', '.join(f'{entry.alias}._ts' for entry in self.inputs)})"
        tests = [f"moment._ts = {newest}", *self.conditions]
        for entry in self.inputs:
            if entry.window.size is not None and entry.window.task == "seconds":
                tests.append(f"moment._ts - {entry.alias}._ts < {entry.window.size * SECOND}")
            elif entry.window.size is not None:
                tests.append(f"moment.{entry.relation} - {entry.alias}._place < {entry.window.size}")
        sources = ", ".join(f"{entry.relation} AS {entry.alias}" for entry in self.inputs)
        if self.slide is None:
            return f"SELECT moment._ts, {self._items} FROM {sources}, moment WHERE {' AND '.join(tests)}"
        for entry in self.inputs:
            assert entry.window.size is not None
            tests.append(f"{entry.alias}._ts >= e._end - {entry.window.size * SECOND}")
        ends = f"SELECT unnest(range(0, {LAST * SECOND}, {self.slide * SECOND})) AS _end"
        return (
            f"SELECT e._end, {self.inputs[0].alias}.k, count(*), sum({self._sum}) FROM {sources}, moment, "
            f"({ends}) AS e WHERE moment._ts < e._end AND {' AND '.join(tests)} GROUP BY ALL"
        )


class FinishedInput:
    """All rows as tables of a database, each with its timestamp and its place in its relation."""

    def __init__(self, arrivals: Sequence[Arrival]) -> None:
        self._database = duckdb.connect(config={"threads": 1})
        self._streams: Streams = {
            name: [(at * SECOND, (*values, at * SECOND)) for stream, at, values in arrivals if stream == name]
            for name in STREAMS
        }
        for name in STREAMS:
            own = [(*values, seconds * SECOND) for stream, seconds, values in arrivals if stream == name]
            columns = list(zip(*own, strict=True)) or [()] * 4
            kinds = (pa.int32(), pa.int32(), pa.int32(), pa.int64())
            given = pa.table(list(map(pa.array, columns, kinds)), names=["k", "v", "n", "_ts"])
            self._database.register(f"raw_{name}", given)
        for name in STREAMS:
            self._number(name, f"SELECT k, v, n, _ts FROM raw_{name}")
        for name, text in DERIVED.items():
            self._number(name, text.format(ts=", _ts"))
        times = " UNION ".join(f"SELECT _ts FROM {name}" for name in STREAMS)
        come = ", ".join(
            f"(SELECT count(*) FROM {name} AS r WHERE r._ts <= t._ts) AS {name}"
            for name in (*STREAMS, *DERIVED)
        )
        self._database.execute(f"CREATE VIEW moment AS SELECT t._ts, {come} FROM ({times}) AS t")

    def _number(self, name: str, select: str) -> None:
        self._database.execute(
            f"CREATE TABLE {name} AS SELECT *, row_number() OVER (ORDER BY _ts, n) AS _place FROM ({select})"
        )

    def count(self, join: DrawnJoin | DrawnChain) -> int:
        if isinstance(join, DrawnChain):
            return self.rows(join).total()
        (found,) = self._database.execute(f"SELECT count(*) FROM ({join.sql()})").fetchall()
        return int(found[0])

    def rows(self, join: DrawnJoin | DrawnChain) -> Rows:
        if isinstance(join, DrawnChain):
            return join.rows(self._streams)
        found = self._database.execute(join.sql()).fetchall()
        return Counter((row[0], tuple(row[1:])) for row in found)


# -- drawing -----------------------------------------------------------------------------------------------

short, long = (
    st.sampled_from(sizes).map(lambda size: DrawnWindow("seconds", size))
    for sizes in ([1, 2, 3, 5, 9], [3, 5, 9, 20])
)
counts = st.integers(1, 4).map(lambda size: DrawnWindow("rows", size))
endless = st.just(DrawnWindow("seconds", None))


@st.composite
def joins(draw: st.DrawFn, *, most: int, counting: bool) -> DrawnJoin:
    """A join of up to so many inputs; without `counting`, all windows are of time."""
    width = draw(st.integers(2, most))
    # A stream may be joined with itself, or with what is derived from it, but not where rows are counted:
    # what a row that comes on both sides at once counts for itself is a matter of definition.
    if counting:
        relations = _apart(draw(st.permutations([*STREAMS, *DERIVED])))[:width]
        width = len(relations)
    else:
        names = [*STREAMS, *STREAMS, *DERIVED]
        relations = draw(st.lists(st.sampled_from(names), min_size=width, max_size=width))
    seconds = short if width < 4 else long
    several = [seconds, seconds, seconds, endless, *([counts, counts] if counting else [])]
    window = draw(st.sampled_from([st.one_of(*several), st.just(draw(seconds))]))
    inputs = tuple(
        DrawnInput(relation, f"{relation}{place}", draw(window)) for place, relation in enumerate(relations)
    )
    forms = draw(st.sampled_from([EQUAL[:1], EQUAL, (*EQUAL, *COMPUTED), THETA, (*EQUAL, *THETA, *MIXED)]))
    one_key = draw(st.booleans())
    conditions = []
    for place in range(1, width):
        other = 0 if one_key else draw(st.integers(0, place - 1))
        form = forms[0] if one_key else draw(st.sampled_from(forms))
        if forms[0] in EQUAL or width > 3 or draw(st.integers(0, 3)):  # else these two meet by time alone
            conditions.append(form.format(x=inputs[other].alias, y=inputs[place].alias))
    bounded = all(entry.window.task == "seconds" and entry.window.size is not None for entry in inputs)
    slide = draw(st.sampled_from([None, None, 2, 3])) if bounded else None
    return with_selections(draw, DrawnJoin(inputs, tuple(conditions), slide))


def with_selections(draw: st.DrawFn, join: DrawnJoin) -> DrawnJoin:
    chosen = draw(st.lists(st.tuples(st.sampled_from(ALONE), st.sampled_from(join.inputs)), max_size=2))
    more = tuple(form.format(x=entry.alias) for form, entry in chosen)
    return DrawnJoin(join.inputs, (*join.conditions, *more), join.slide)


@st.composite
def overlapping_sets(draw: st.DrawFn, *, most: int = 4) -> list[DrawnJoin]:
    """Up to five joins on one key, of sets of streams that overlap: abc, abd, ab … in any order of FROM."""
    found = []
    for _ in range(draw(st.integers(2, 5))):
        width = draw(st.sampled_from([2, 3, 3, 3, most]))
        relations = draw(st.permutations(STREAMS))[:width]
        seconds = st.one_of(short, long) if draw(st.integers(0, 5)) else endless
        inputs = tuple(
            DrawnInput(relation, f"{relation}{place}", draw(seconds))
            for place, relation in enumerate(relations)
        )
        key = "{x}.k = {y}.k" if draw(st.integers(0, 5)) else "{x}.v = {y}.v"
        equal = tuple(key.format(x=inputs[0].alias, y=entry.alias) for entry in inputs[1:])
        more = () if draw(st.integers(0, 3)) else (draw(st.sampled_from(THETA)),)
        more = tuple(form.format(x=inputs[0].alias, y=inputs[-1].alias) for form in more)
        found.append(with_selections(draw, DrawnJoin(inputs, (*equal, *more))))
    return found


@st.composite
def join_sets(draw: st.DrawFn, *, counting: bool, most: int = 5) -> list[DrawnJoin]:
    """Up to four joins, some of which differ in windows and selections only: these share what they keep."""
    found = [draw(joins(most=most, counting=counting))]
    for _ in range(draw(st.integers(0, 3))):
        if draw(st.integers(0, 2)):
            base = draw(st.sampled_from(found))
            inputs = tuple(
                DrawnInput(e.relation, e.alias, draw(st.one_of(st.just(e.window), short, long)))
                for e in base.inputs
            )
            if draw(st.booleans()):
                inputs = tuple(draw(st.permutations(inputs)))
            found.append(with_selections(draw, DrawnJoin(inputs, base.conditions, base.slide)))
        else:
            found.append(draw(joins(most=most, counting=counting)))
    return found


@st.composite
def keyed_sets(draw: st.DrawFn) -> list[DrawnJoin]:
    """Up to three joins of the same two streams on one key, which share their state, in several subtasks."""
    relations = draw(st.sampled_from(["ab", "ba", "aa"]))
    found = []
    for _ in range(draw(st.integers(1, 3))):
        inputs = tuple(
            DrawnInput(name, f"{name}{place}", draw(st.one_of(short, long)))
            for place, name in enumerate(relations)
        )
        more = draw(st.sampled_from([(), ("{x}.v <= {y}.v",)]))
        conditions = (EQUAL[0], *more)
        names = {"x": inputs[0].alias, "y": inputs[1].alias}
        found.append(with_selections(draw, DrawnJoin(inputs, tuple(c.format(**names) for c in conditions))))
    return found


@st.composite
def arrivals(draw: st.DrawFn, joins_: Sequence[DrawnJoin | DrawnChain], *, ties: bool) -> list[Arrival]:
    """Rows of the streams that joins read, by timestamp; without `ties` no two have the same.

    The more streams a join has, the fewer rows there are, or results would be too many to look at.
    """
    widest = max(len(join.inputs) for join in joins_)
    # One key is heavy. Rows of many streams meet only where most are alike.
    keys = st.sampled_from([1, 1, 1, 0, 2, 3, None] if widest < 4 else [1, 1, 1, 1, 2, 2, None])
    values = st.sampled_from([0, 1, 2, 3, 4, 5, None] if widest < 4 else [1, 1, 1, 2, 2, 3, None])
    gaps = st.sampled_from(([0, 0, 1] if ties else [1, 1, 1]) + ([1, 2, 4] if widest < 4 else [1, 1]))
    most = ROWS[widest]
    count = draw(st.sampled_from([most, most * 2 // 3]))
    one = st.tuples(st.sampled_from(streams_of(joins_)), gaps, keys, values)
    now, found = 0, []
    for number, (stream, gap, key, value) in enumerate(draw(st.lists(one, min_size=count, max_size=count))):
        now += gap
        found.append((stream, now, (key, value, number)))
    return found


def streams_of(joins_: Sequence[DrawnJoin | DrawnChain]) -> str:
    """The declared streams that joins read."""
    read = {entry.relation for join in joins_ for entry in join.inputs}
    return "".join(sorted({name for relation in read for name in UNDER.get(relation, relation)}))


def _apart(relations: Sequence[str]) -> list[str]:
    """Those that have no declared stream in common with one before them."""
    found: list[str] = []
    for relation in relations:
        taken = {name for other in found for name in UNDER.get(other, other)}
        if taken.isdisjoint(UNDER.get(relation, relation)):
            found.append(relation)
    return found


def by_stream(rows: Sequence[Arrival]) -> Mapping[str, list[tuple[object, ...]]]:
    """Rows as they are fed, stream by stream."""
    found: dict[str, list[tuple[object, ...]]] = {}
    for name, at, values in rows:
        found.setdefault(name, []).append((*values, at * SECOND))
    return found
