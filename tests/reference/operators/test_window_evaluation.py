"""Windows without slide: the order of evaluation, deltas against recomputation, and an oracle.

(M31, M32; the oracle is batch SQL in DuckDB over the finished input.)
"""

from __future__ import annotations

from dataclasses import replace

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.aggregates.definition import RowAggregate, RowCall
from slicemill.aggregates.frames import Args, Inwindow, WindowFrame
from slicemill.aggregates.registry import BUILTINS
from slicemill.types import Row, Timed
from slicemill_oracle.operators.window_aggregate import FramedCall, WindowAggregateOperator


class BlockingAverage:
    """U1 of the spec."""

    def initialize(self, args: Args) -> list[object]:
        self.tsum, self.cnt = args[0], 1
        return []

    def iterate(self, args: Args) -> list[object]:
        self.tsum += args[0]
        self.cnt += 1
        return []

    def terminate(self) -> list[object]:
        return [self.tsum / self.cnt]


class DeltaAverage:
    """N2 of the spec."""

    def __init__(self, inwindow: Inwindow) -> None:
        self.inwindow = inwindow

    def initialize(self, args: Args) -> list[object]:
        self.tsum, self.cnt = args[0], 1
        return [args[0]]

    def iterate(self, args: Args) -> list[object]:
        self.tsum += args[0]
        self.cnt += 1
        return [self.tsum / self.cnt]

    def expire(self, args: Args) -> list[object]:
        self.cnt -= 1
        self.tsum -= self.inwindow.oldest()[0]
        return []


class Trace:
    """Window aggregate that records its calls and the content of its window."""

    def __init__(self, inwindow: Inwindow, log: list[str]) -> None:
        self.inwindow = inwindow
        self.log = log

    def write(self, routine: str, args: Args) -> list[object]:
        self.log.append(f"{routine} {args[0]} sees {''.join(str(seen[0]) for seen in self.inwindow)}")
        return []

    def initialize(self, args: Args) -> list[object]:
        return self.write("INITIALIZE", args)

    def iterate(self, args: Args) -> list[object]:
        return self.write("ITERATE", args)

    def expire(self, args: Args) -> list[object]:
        return self.write("EXPIRE", args)


N1 = RowAggregate("avg", BlockingAverage)
N2 = RowAggregate("myavg", BlockingAverage, DeltaAverage)


def value_of(row: Row) -> Args:
    return (row[-1],)


def key_of(row: Row) -> object:
    return row[0]


def over(definition: RowAggregate, frame: WindowFrame) -> FramedCall:
    return FramedCall(RowCall(definition, value_of), frame)


def run(calls: list[FramedCall], tuples: list[Timed]) -> list[Timed]:
    operator = WindowAggregateOperator(calls)
    return [*(out for tuple_ in tuples for out in operator.process(0, tuple_)), *operator.finish()]


def in_seconds(*values: object) -> list[Timed]:
    return [Timed(ts, (value,)) for ts, value in enumerate(values)]


@pytest.mark.parametrize("definition", [N1, N2, BUILTINS["avg"]])
def test_g15_recomputation_and_delta_give_the_same_averages(definition: RowAggregate) -> None:
    #  10 20 30 40      ROWS 2 PRECEDING
    #  [10            → 10
    #  [10 20         → 15
    #  [10 20 30]     → 20
    #     [20 30 40]  → 30
    out = run([over(definition, WindowFrame("ROWS", 2))], in_seconds(10, 20, 30, 40))
    assert [timed.row for timed in out] == [(10, 10), (20, 15), (30, 20), (40, 30)]


def test_g16_max_over_three_rows_has_the_published_values() -> None:
    out = run([over(BUILTINS["max"], WindowFrame("ROWS", 2))], in_seconds(5, 3, 4, 1, 2, 6))
    assert [timed.row[1] for timed in out] == [5, 5, 5, 4, 4, 6]


def test_an_arrival_expires_then_inserts_then_iterates() -> None:
    log: list[str] = []
    trace = RowAggregate("trace", None, lambda inwindow: Trace(inwindow, log))
    tuples = [Timed(ts, (name,)) for ts, name in ((0, "a"), (1, "b"), (3, "c"), (9, "d"))]
    run([over(trace, WindowFrame("RANGE", 2))], tuples)
    assert log == [
        "INITIALIZE a sees a",
        "ITERATE b sees ab",
        "EXPIRE a sees ab",
        "ITERATE c sees bc",
        "EXPIRE b sees bc",
        "EXPIRE c sees c",
        "ITERATE d sees d",
    ]


def test_a_range_window_includes_the_tuple_at_exactly_its_extent() -> None:
    count = over(BUILTINS["count"], WindowFrame("RANGE", 5))
    out = run([count], [Timed(ts, (0,)) for ts in (0, 5, 6, 11)])
    assert [timed.row[1] for timed in out] == [1, 2, 2, 2]


def test_an_unbounded_window_is_cumulative_by_partition() -> None:
    tuples = [Timed(ts, row) for ts, row in enumerate([("a", 5), ("b", 9), ("a", 3), ("b", 10), ("a", 4)])]
    out = run([over(BUILTINS["min"], WindowFrame("RANGE", None, partition=key_of))], tuples)
    assert [timed.row[2] for timed in out] == [5, 9, 3, 9, 3]


numbers = st.none() | st.integers(-6, 6) | st.floats()
keyed = st.lists(st.tuples(st.integers(0, 3), st.sampled_from("ab"), numbers), max_size=20)


def timed_rows(steps: list[tuple[int, str, object]]) -> list[Timed]:
    """Return rows whose timestamps are the running sums of the gaps: ordered, with ties."""
    tuples, ts = [], 0
    for gap, key, value in steps:
        ts += gap
        tuples.append(Timed(ts, (key, value)))
    return tuples


finite_frames = st.builds(
    WindowFrame, st.sampled_from(["ROWS", "RANGE"]), st.integers(0, 6), partition=st.just(key_of)
)


@settings(max_examples=150)
@given(keyed, finite_frames)
def test_every_delta_version_equals_recomputation_bit_by_bit(
    steps: list[tuple[int, str, object]], frame: WindowFrame
) -> None:
    for texts in (False, True):
        tuples = timed_rows([(gap, key, str(v) if texts and v is not None else v) for gap, key, v in steps])
        definitions = [d for name, d in BUILTINS.items() if (name in ("listagg", "string_agg")) == texts]
        delta = run([over(definition, frame) for definition in definitions], tuples)
        derived = run([over(replace(definition, window=None), frame) for definition in definitions], tuples)
        assert repr(delta) == repr(derived)


ORACLE = {
    "count": "count(x) OVER w",
    "count_distinct": "count(DISTINCT x) OVER w",
    "sum": "sum(x) OVER w",
    "avg": "avg(x) OVER w",
    "variance": "var_samp(x) OVER w",
    "stddev": "stddev_samp(x) OVER w",
    "var_pop": "var_pop(x) OVER w",
    "stddev_pop": "stddev_pop(x) OVER w",
    "median": "median(x) OVER w",
    "min": "min(x) OVER w",
    "max": "max(x) OVER w",
    "first": "first_value(x) OVER w",
    "last": "last_value(x) OVER w",
}
quarters = st.none() | st.integers(-8, 8).map(lambda n: n / 4)


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from("ab"), quarters), min_size=1, max_size=20),
    st.sampled_from(["ROWS", "RANGE"]),
    st.none() | st.integers(0, 6),
)
def test_every_builtin_equals_duckdb_over_the_finished_input(
    steps: list[tuple[int, str, float | None]], unit: str, preceding: int | None
) -> None:
    tuples = timed_rows(steps)
    extent = "UNBOUNDED" if preceding is None else preceding
    order = "n" if unit == "ROWS" else "ts"
    with duckdb.connect() as db:
        db.execute("CREATE TABLE t (n INTEGER, ts INTEGER, k VARCHAR, x DOUBLE)")
        db.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", [(n, t.ts, *t.row) for n, t in enumerate(tuples)])
        expected = db.sql(
            f"SELECT n, k, x, {', '.join(ORACLE.values())} FROM t WINDOW w AS "
            f"(PARTITION BY k ORDER BY {order} {unit} BETWEEN {extent} PRECEDING AND CURRENT ROW) ORDER BY n"
        ).fetchall()
    frame = WindowFrame(unit, preceding, partition=key_of)
    out = run([over(BUILTINS[name], frame) for name in ORACLE], tuples)
    # SQL's RANGE frame includes later rows of the same timestamp; a stream has all of them at the last tie.
    last_ties = {(t.ts, t.row[0]): n for n, t in enumerate(tuples)}.values()
    for n in last_ties if unit == "RANGE" else range(len(tuples)):
        assert out[n].row == tuple(
            pytest.approx(value) if isinstance(value, float) else value for value in expected[n][1:]
        )
