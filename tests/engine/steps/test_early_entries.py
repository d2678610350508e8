"""Two phases are invisible: entries of chunks, wherever these are cut, lead to the results of rows."""

from __future__ import annotations

import math
import tempfile
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.engine.program import Outcome, UnitPlan, UnitProgram
from slicemill.engine.rows import timed_rows, to_table
from slicemill.engine.steps import END
from slicemill.engine.steps.early import reduction_of
from slicemill.engine.task import load_state, store_state
from slicemill.errors import SlicemillError
from slicemill.esl import bind
from slicemill.execution.engine import Engine
from slicemill.execution.operator import Timed
from slicemill.execution.sources import Arrival
from slicemill.execution.translate import translate
from slicemill.plan.build import build_graph
from slicemill.plan.early_panes import recipe_of_unit
from slicemill.plan.optimize import optimize, share
from slicemill.plan.partitions import bucket_count
from slicemill.plan.units import cut
from slicemill.storage.chunk import ChunkInfo, merge_sorted
from slicemill.storage.state import SLICES

STREAM = """
CREATE STREAM A (k int, g varchar, v bigint, w double, d decimal(10, 2), at timestamp) ORDER BY at;
"""
SCHEMA = bind(STREAM).catalog.declared_stream("A").schema
AGGREGATES = [
    "count(*)", "count(v)", "sum(v)", "avg(v)", "min(v)", "max(w)", "variance(w)", "stddev_pop(v)", "avg(w)",
    "sum(w)", "sum(d)", "max(d)", "min(g)", "first(v)", "last(v)", "first(g)", "last(w)", "sum(10 / v)",
]  # fmt: skip
FILTERS = ["", "v > 3", "g = 'a'", "w < 1", "v <> 0", "10 / v > 2"]
KEYS = ["", "", "k", "g", "k, g", "w", "v % 2"]
ARRIVED = 5


@dataclass(frozen=True)
class Query:
    calls: tuple[str, ...]
    keys: str
    where: str
    length: int
    slide: int

    def text(self, name: str) -> str:
        calls = ", ".join([*(f"{call} AS c{i}" for i, call in enumerate(self.calls)), "window_end() AS e"])
        keys = f"{self.keys}, " if self.keys and "%" not in self.keys else ""
        window = f"[RANGE {self.length} MILLISECONDS SLIDE {self.slide} MILLISECONDS]"
        where = f" WHERE {self.where}" if self.where else ""
        by = f" GROUP BY {self.keys}" if self.keys else ""
        return f"CREATE QUERY {name} AS SELECT {keys}{calls} FROM A {window}{where}{by};"


queries = st.builds(
    Query,
    st.lists(st.sampled_from(AGGREGATES), min_size=1, max_size=3, unique=True).map(tuple),
    st.sampled_from(KEYS),
    st.sampled_from(FILTERS),
    st.sampled_from([500, 1000, 2000, 3500]),
    st.sampled_from([500, 1000, 3000]),
)
doubles = st.one_of(
    st.integers(-500, 500).map(lambda cents: cents / 100),
    st.sampled_from([0.1, 1e16, -1e16, 1.7e308, 5e-324, math.inf, -math.inf, math.nan, 0.0, -0.0]),
)
row = st.tuples(
    st.one_of(st.none(), st.integers(0, 2)),
    st.one_of(st.none(), st.sampled_from(["a", "b", ""])),
    st.one_of(st.none(), st.integers(0, 9), st.sampled_from([2**40, 2**62])),
    st.one_of(st.none(), doubles),
    st.one_of(st.none(), st.integers(-999, 999).map(lambda cents: Decimal(cents) / 100)),
)


@dataclass(frozen=True)
class Batch:
    """The tuples of each chunk, how far the stream is complete behind them, and whether entries are read."""

    chunks: list[list[Timed]]
    until: int
    early: bool

    @property
    def tables(self) -> list[pa.Table]:
        return [to_table(chunk, SCHEMA, [ARRIVED] * len(chunk)) for chunk in self.chunks]


@st.composite
def batches(draw: st.DrawFn) -> list[Batch]:
    """Three runs; the times of a run's chunks overlap."""
    made, now = [], draw(st.sampled_from([-3000, 0, 7000]))
    for number in range(3):
        chunks: list[list[Timed]] = [[] for _ in range(draw(st.integers(1, 3)))]
        for _ in range(draw(st.integers(0, 9))):
            now += draw(st.sampled_from([0, 0, 1, 250, 500, 1000, 2500]))
            ts = now * 1000
            draw(st.sampled_from(chunks)).append(Timed(ts, (*draw(row), ts)))
        now += draw(st.sampled_from([0, 1, 600, 4000]))
        made.append(Batch(chunks, END if number == 2 else now * 1000, draw(st.integers(0, 3)) > 0))
    return made


def run(text: str, given_: list[Batch], buckets: int, folder: Path) -> tuple[dict[str, list[str]], set[str]]:
    """The results by query, and the queries that failed; state is stored and loaded between runs."""
    (folder / SLICES).mkdir(parents=True)
    catalog = bind(STREAM + text).catalog
    graph = share(optimize(build_graph(catalog)), catalog)
    found: dict[str, list[str]] = {}
    failed: set[str] = set()
    for unit in cut(graph):
        known = recipe_of_unit(unit, graph)
        assert known is not None and known[0] == "A"
        reduction = reduction_of(known[1], SCHEMA)
        count = bucket_count(unit, graph, buckets)
        stored: list[tuple[ChunkInfo, ...]] = [()] * count
        for batch in given_:
            tables = [table for table in batch.tables if table.num_rows]
            early = [reduction.entries(table) for table in tables] if batch.early else [None]
            for bucket in range(count):
                program = UnitProgram(
                    UnitPlan(unit, graph, catalog, {}, count), bucket, load_state(folder, stored[bucket])
                )
                complete = {"A": batch.until}
                outcome: Outcome
                if all(entries is not None for entries in early):
                    parts = [(entries, ARRIVED) for entries in early]
                    outcome = program.run({"A": program.empty_input("A")}, complete, early=parts)
                else:
                    rows = merge_sorted(tables) if tables else program.empty_input("A")
                    outcome = program.run({"A": rows}, complete)
                stored[bucket] = store_state(folder, program.states)
                failed |= outcome.errors.keys()
                for log, table in outcome.tables.items():
                    found.setdefault(log, []).extend(
                        repr((t.ts, [plain(value) for value in t.row]))
                        for t in timed_rows(table, graph[log].schema)
                    )
    return {log: sorted(rows) for log, rows in found.items() if log not in failed}, failed


def plain(value: object) -> object:
    if isinstance(value, Decimal):
        return str(value.normalize())
    return value + 0.0 if isinstance(value, float) else value


def by_reference(query: Query, tuples: list[Timed]) -> list[str] | None:
    """What the query gives alone, if tuples arrive at their times; None if it fails."""
    catalog = bind(STREAM.replace("ORDER BY at", "ORDER BY current_time") + query.text("q")).catalog
    engine = Engine(translate(build_graph(catalog), catalog, {}))
    engine.feed("A", [Arrival(t.ts, t.row) for t in tuples])
    try:
        engine.run()
    except SlicemillError:
        return None
    return sorted(repr((t.ts, [plain(value) for value in t.row])) for t in engine.results("q"))


@settings(max_examples=40)
@given(st.lists(queries, min_size=1, max_size=4), batches(), st.sampled_from([1, 2, 5]))
def test_entries_lead_where_rows_lead(chosen: list[Query], given_: list[Batch], buckets: int) -> None:
    text = "".join(query.text(f"q{place}") for place, query in enumerate(chosen))
    with tempfile.TemporaryDirectory() as folder:
        found, failed = run(text, given_, buckets, Path(folder, "two"))
        rows = [Batch(batch.chunks, batch.until, early=False) for batch in given_]
        assert (found, failed) == run(text, rows, buckets, Path(folder, "one"))
    in_order = [t for batch in given_ for t in sorted(chain(*batch.chunks), key=lambda t: t.ts)]
    for place, query in enumerate(chosen):
        expected = by_reference(query, in_order)
        name = f"q{place}"
        assert (name in failed) == (expected is None)
        if expected is not None:
            assert found[name] == expected


def test_the_first_and_the_last_value_of_a_pane_that_two_runs_share(tmp_path: Path) -> None:
    """Places go on from run to run, also in a bucket that has few of the entries that were read."""
    query = Query(("first(v)", "last(v)"), "k", "", 1000, 1000)
    rows = [Timed(place, (place % 40, None, place, None, None, place)) for place in range(100)]
    early = [Batch([rows[:60]], 60, early=True), Batch([rows[60:80], rows[80:]], END, early=True)]
    found, failed = run(query.text("q"), early, 5, tmp_path)
    assert not failed
    assert found["q"] == by_reference(query, rows)


def test_entries_of_many_rows_against_duckdb(tmp_path: Path) -> None:
    """Ten thousand tuples in five chunks whose times overlap, two filters, with and without keys."""
    random = np.random.default_rng(7)
    count = 10_000
    times = np.sort(random.integers(0, 20_000_000, count))
    columns = [
        random.integers(0, 20, count),
        random.integers(0, 100, count),
        random.integers(0, 64, count) / 8,
    ]
    tuples = [
        Timed(int(ts), (int(k), None, int(v), float(w), None, int(ts)))
        for ts, k, v, w in zip(times, *columns, strict=True)
    ]
    window = "[RANGE 4 SECONDS SLIDE 2 SECONDS]"
    figures = "count(*) AS n, sum(v) AS s, avg(w) AS m, max(v) AS x, window_end() AS e"
    text = (
        f"CREATE QUERY keyed AS SELECT k, {figures} FROM A {window} WHERE v > 10 GROUP BY k;"
        f"CREATE QUERY every AS SELECT {figures} FROM A {window} WHERE w < 6;"
    )
    batch = Batch([tuples[first::5] for first in range(5)], END, early=True)
    found, failed = run(text, [batch], 2, tmp_path)
    assert not failed
    events = pa.table({"ts": times, **dict(zip("kvw", columns, strict=True))})
    for name, keys, where in (("keyed", "k, ", "v > 10"), ("every", "", "w < 6")):
        sql = f"""
            SELECT {keys}count(*), sum(v)::BIGINT, avg(w), max(v), e * 1000000 AS e
            FROM events, range(2, 26, 2) AS ends(e)
            WHERE {where} AND ts >= (e - 4) * 1000000 AND ts < e * 1000000 GROUP BY {keys}e"""
        with duckdb.connect() as connection:
            connection.register("events", events)
            expected = connection.execute(sql).fetchall()
        assert found[name] == sorted(repr((row[-1], list(row))) for row in expected)
