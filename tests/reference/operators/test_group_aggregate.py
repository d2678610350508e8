"""Base aggregates with GROUP BY (M29, M30)."""

from __future__ import annotations

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.aggregates.definition import RowAggregate, RowCall
from slicemill.aggregates.frames import Args
from slicemill.aggregates.registry import BUILTINS
from slicemill.operators.row_step import RowOperator
from slicemill.types import Row, Timed
from slicemill_oracle.operators.group_aggregate import GroupAggregateOperator
from support.stored import stored


class DecayOnlineAverage:
    """U2 of the spec: non-blocking, so it emits at every tuple."""

    def __init__(self) -> None:
        self.tsum = 0.0
        self.cnt = 0

    def initialize(self, args: Args) -> list[object]:
        self.tsum, self.cnt = args[0], 1
        return [args[0]]

    def iterate(self, args: Args) -> list[object]:
        self.tsum = 0.9 * self.tsum + 1.1 * args[0]
        self.cnt += 1
        return [self.tsum / self.cnt]

    def terminate(self) -> list[object]:
        return []


class Countdown:
    """Aggregate that emits n, n-1, ..., 1 for the argument n."""

    def initialize(self, args: Args) -> list[object]:
        return list(range(args[0], 0, -1))

    iterate = initialize

    def terminate(self) -> list[object]:
        return ["end"]


DECAY = RowAggregate("decay_online_avg", DecayOnlineAverage)
COUNTDOWN = RowAggregate("countdown", Countdown)


def call(definition: RowAggregate, column: int) -> RowCall:
    return RowCall(definition, lambda row: (row[column],))


def seller(row: Row) -> Row:
    return (row[0],)


def test_g14_the_decayed_average_emits_at_every_tuple() -> None:
    operator = GroupAggregateOperator([call(DECAY, 0)])
    out = [operator.process(0, Timed(ts, (price,))) for ts, price in enumerate([10.0, 20.0, 30.0])]
    assert [timed.row[0] for rows in out for timed in rows] == pytest.approx([10, 15.5, 20.3])
    assert list(operator.finish()) == []


def test_every_group_has_its_own_state() -> None:
    operator = GroupAggregateOperator([call(DECAY, 1)], seller)
    rows = [("ann", 10.0), ("bob", 8.0), ("ann", 20.0)]
    out = [timed for ts, row in enumerate(rows) for timed in operator.process(0, Timed(ts, row))]
    assert out == [Timed(0, ("ann", 10.0)), Timed(1, ("bob", 8.0)), Timed(2, ("ann", 15.5))]


def test_the_ith_row_has_the_ith_value_of_each_call_or_null() -> None:
    operator = GroupAggregateOperator([call(COUNTDOWN, 1), call(COUNTDOWN, 2)], seller)
    assert operator.process(0, Timed(5, ("ann", 3, 1))) == [
        Timed(5, ("ann", 3, 1)),
        Timed(5, ("ann", 2, None)),
        Timed(5, ("ann", 1, None)),
    ]


def test_a_tuple_without_a_result_of_any_call_emits_no_row() -> None:
    operator = GroupAggregateOperator([call(COUNTDOWN, 1), call(BUILTINS["sum"], 1)], seller)
    assert operator.process(0, Timed(5, ("ann", 0))) == []


def test_terminate_results_are_emitted_at_the_end_by_first_appearance_of_groups() -> None:
    operator = GroupAggregateOperator([call(BUILTINS["sum"], 1), call(COUNTDOWN, 1)], seller)
    for ts, row in enumerate([("bob", 0), ("ann", 0), ("bob", 0)]):
        assert operator.process(0, Timed(ts, row)) == []
    assert operator.finish() == [Timed(2, ("bob", 0, "end")), Timed(2, ("ann", 0, "end"))]


def test_an_empty_table_gives_one_row_without_group_by_and_none_with_group_by() -> None:
    calls = [RowCall(BUILTINS["count"], lambda row: ()), call(BUILTINS["sum"], 0)]
    assert list(GroupAggregateOperator(calls).finish()) == [Timed(0, (0, None))]
    assert list(GroupAggregateOperator(calls, seller).finish()) == []


def test_a_group_aggregate_never_waits_for_time() -> None:
    operator = GroupAggregateOperator([call(DECAY, 0)])
    assert isinstance(operator, RowOperator)
    assert (operator.inputs, operator.waits_for_time, operator.advance(9)) == (1, False, ())


ORACLE = {
    "count": "count(x)",
    "count_distinct": "count(DISTINCT x)",
    "sum": "sum(x)",
    "avg": "avg(x)",
    "variance": "var_samp(x)",
    "stddev": "stddev_samp(x)",
    "var_pop": "var_pop(x)",
    "stddev_pop": "stddev_pop(x)",
    "median": "median(x)",
    "min": "min(x)",
    "max": "max(x)",
    "first": "first(x ORDER BY n)",
    "last": "last(x ORDER BY n)",
}


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.none() | st.integers(-8, 8).map(lambda n: n / 4)), max_size=12
    )
)
def test_every_builtin_equals_duckdb_on_a_finite_table(table: list[tuple[str, float | None]]) -> None:
    operator = GroupAggregateOperator([call(BUILTINS[name], 1) for name in ORACLE], seller)
    for ts, row in enumerate(table):
        operator.process(0, Timed(ts, row))
    with duckdb.connect() as db:
        db.execute("CREATE TABLE t (n INTEGER, k VARCHAR, x DOUBLE)")
        if table:
            db.executemany("INSERT INTO t VALUES (?, ?, ?)", [(n, *row) for n, row in enumerate(table)])
        expected = db.sql(
            f"SELECT k, {', '.join(ORACLE.values())} FROM t GROUP BY k ORDER BY min(n)"
        ).fetchall()
    assert [timed.row for timed in operator.finish()] == [
        tuple(pytest.approx(value) if isinstance(value, float) else value for value in row)
        for row in expected
    ]


def test_nans_are_one_group_also_after_a_restart_and_both_zeros_are_one_group() -> None:
    operator = GroupAggregateOperator([RowCall(COUNT_ALL, _nothing)], _all)
    for value in (float("nan"), -0.0, 0.0, None):
        operator.process(0, Timed(0, (value,)))
    kept = stored(operator.state())
    operator = GroupAggregateOperator([RowCall(COUNT_ALL, _nothing)], _all)
    operator.restore(kept)
    for value in (float("nan"), 0.0, None):
        operator.process(0, Timed(0, (value,)))
    assert repr([t.row for t in operator.finish()]) == "[(nan, 2), (0.0, 3), (None, 2)]"


class CountAll:
    def __init__(self) -> None:
        self.tuples = 0

    def initialize(self, args: Args) -> list[object]:
        self.tuples += 1
        return []

    iterate = initialize

    def terminate(self) -> list[object]:
        return [self.tuples]

    def state(self) -> object:
        return self.tuples

    def restore(self, state: int) -> None:
        self.tuples = state


COUNT_ALL = RowAggregate("tuples", CountAll)


def _nothing(row: Row) -> Args:
    return ()


def _all(row: Row) -> Row:
    return row
