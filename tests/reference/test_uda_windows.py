"""Aggregates written in ESL give the results of built-in aggregates, with every strategy (M31-M37)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggregate.interpreter.test_uda import U1
from slicemill.aggregates.definition import RowAggregate, RowCall, Strategy, strategy_of
from slicemill.aggregates.frames import WindowFrame
from slicemill.aggregates.registry import BUILTINS
from slicemill.aggregates.udf.lookup import resolve_aggregate
from slicemill.binder import bind
from slicemill.types import Row, Timed
from slicemill_oracle.operators.window_aggregate import FramedCall, WindowAggregateOperator

AVG = f"""{U1}
CREATE WINDOW AGGREGATE avg(Next Real) : Real {{
  TABLE state(tsum Real, cnt Int); TABLE inwindow(wnext Real);
  INITIALIZE: {{ INSERT INTO state VALUES (Next, 1); INSERT INTO RETURN VALUES (Next); }}
  ITERATE:    {{ UPDATE state SET tsum = tsum + Next, cnt = cnt + 1;
                INSERT INTO RETURN SELECT tsum / cnt FROM state; }}
  EXPIRE:     {{ UPDATE state SET cnt = cnt - 1, tsum = tsum - oldest();
                INSERT INTO RETURN SELECT tsum / cnt FROM state WHERE cnt > 0; }} }};"""
SUM = """CREATE ALGEBRAIC AGGREGATE sum(Next BigInt) : BigInt { TABLE state(s BigInt);
  INITIALIZE: { INSERT INTO state VALUES (Next); }
  ITERATE:    { UPDATE state SET s = s + Next; }
  TERMINATE:  { INSERT INTO RETURN SELECT s FROM state; } };
CREATE ALGEBRAIC WINDOW AGGREGATE sum(Next BigInt) : BigInt {
  TABLE state(s BigInt, cnt Int); TABLE inwindow(w BigInt);
  INITIALIZE: { INSERT INTO state VALUES (Next, 1); INSERT INTO RETURN VALUES (Next); }
  ITERATE:    { UPDATE state SET s = s + Next, cnt = cnt + 1; INSERT INTO RETURN SELECT s FROM state; }
  EXPIRE:     { UPDATE state SET s = s - Next, cnt = cnt - 1;
                INSERT INTO RETURN SELECT s FROM state WHERE cnt > 0; } };"""
MAX = """CREATE ALGEBRAIC AGGREGATE max(Next Int) : Int { TABLE state(best Int);
  INITIALIZE: { INSERT INTO state VALUES (Next); }
  ITERATE:    { UPDATE state SET best = Next WHERE Next > best; }
  TERMINATE:  { INSERT INTO RETURN SELECT best FROM state; } };
CREATE ALGEBRAIC WINDOW AGGREGATE max(Next Int) : Int { TABLE inwindow(w Int);
  INITIALIZE: ITERATE: { DELETE FROM inwindow WHERE w < Next; INSERT INTO RETURN VALUES (oldest()); }
  EXPIRE: {
    INSERT INTO RETURN VALUES (Next) WHERE (SELECT count(*) FROM inwindow WHERE w = Next) > 1;
    INSERT INTO RETURN SELECT max(w) FROM inwindow WHERE w < Next
      HAVING count(*) > 0 AND (SELECT count(*) FROM inwindow WHERE w = Next) = 1; } };"""
WRITTEN = {
    name: resolve_aggregate(name, bind(text).catalog)
    for name, text in (("avg", AVG), ("sum", SUM), ("max", MAX))
}


def key_of(row: Row) -> object:
    return row[0]


def run(definition: RowAggregate, frame: WindowFrame, tuples: list[Timed]) -> list[Timed]:
    """Return results of one call; for an empty window a built-in emits NULL, a user's aggregate none."""
    operator = WindowAggregateOperator([FramedCall(RowCall(definition, lambda row: row[1:2]), frame)])
    out = [timed for tuple_ in tuples for timed in operator.process(0, tuple_)]
    return [timed for timed in (*out, *operator.finish()) if timed.row[-1] is not None]


@st.composite
def streams(draw: st.DrawFn) -> list[Timed]:
    gaps = st.tuples(st.integers(0, 3), st.sampled_from("ab"), st.integers(-4, 4))
    tuples, ts = [], 0
    for gap, key, value in draw(st.lists(gaps, max_size=16)):
        ts += gap
        tuples.append(Timed(ts, (key, value)))
    return tuples


units = st.sampled_from(["ROWS", "RANGE"])
FRAMES = {
    Strategy.UNBOUNDED: st.builds(WindowFrame, units, st.none()),
    Strategy.FINITE: st.builds(WindowFrame, units, st.integers(0, 5)),
    Strategy.TUMBLE: st.builds(WindowFrame, units, st.integers(1, 3), slide=st.integers(4, 7)),
    Strategy.PANES: st.builds(WindowFrame, units, st.integers(4, 8), slide=st.integers(1, 4)),
    Strategy.SLIDING: st.builds(WindowFrame, units, st.integers(5, 8), slide=st.integers(1, 4)),
    Strategy.ACTIVE: st.builds(WindowFrame, st.just("RANGE"), st.integers(0, 5), active=st.just(True)),
}


@pytest.mark.parametrize("strategy", FRAMES, ids=lambda strategy: strategy.name.lower())
@pytest.mark.parametrize("name", WRITTEN)
@settings(max_examples=40)
@given(data=st.data(), tuples=streams())
def test_an_aggregate_written_in_esl_equals_the_built_in_aggregate(
    name: str, strategy: Strategy, data: st.DataObject, tuples: list[Timed]
) -> None:
    frame = replace(data.draw(FRAMES[strategy]), partition=key_of)
    written, builtin = WRITTEN[name], BUILTINS[name]
    if strategy is Strategy.SLIDING:
        written = replace(written, algebraic=False)
    assert strategy_of(written, frame) in (
        {strategy, Strategy.TUMBLE} if written.algebraic else set(Strategy) - {Strategy.PANES}
    )
    expected = run(builtin, frame, tuples)
    assert run(replace(written, window=None), frame, tuples) == expected
    if not (
        strategy is Strategy.ACTIVE and name == "max"
    ):  # it reports no expiry of tuples that it deletes from the window
        assert run(written, frame, tuples) == expected


PARTS = """CREATE ALGEBRAIC AGGREGATE parts(s Int, n Int) : (s Int, n Int) { TABLE state(ts Int, tn Int);
  INITIALIZE: { INSERT INTO state VALUES (s, n); }
  ITERATE:    { UPDATE state SET ts = ts + s, tn = tn + n; }
  TERMINATE:  { INSERT INTO RETURN SELECT ts, tn FROM state; } };"""


@settings(max_examples=40)
@given(streams(), FRAMES[Strategy.PANES])
def test_m35_an_average_is_evaluated_in_panes_as_sum_and_count(
    tuples: list[Timed], frame: WindowFrame
) -> None:
    parts = resolve_aggregate("parts", bind(PARTS).catalog)
    assert parts.columns == 2
    operator = WindowAggregateOperator([FramedCall(RowCall(parts, lambda row: (row[1], 1)), frame)])
    out = [timed for tuple_ in tuples for timed in operator.process(0, tuple_)]
    averages = [
        Timed(ts, (key, value, total / count))
        for ts, (key, value, total, count) in (*out, *operator.finish())
        if count is not None
    ]
    assert averages == run(BUILTINS["avg"], frame, tuples)
