"""What a join measures, and the cuts that follow: from streams whose rates and shares are known."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from slicemill.binder import bind
from slicemill.operators.join.spec import SharedJoin
from slicemill.operators.join.state import JoinState
from slicemill.operators.join.step import SharedJoinStep
from slicemill.plan.build import build_graph
from slicemill.plan.optimizer import optimize, share

SECOND = 1_000_000
RATE, KEYS, RUN_S = 600, 50, 5


def _state(queries: str, seconds: int) -> JoinState:
    """A join of two streams of 600 rows a second with 50 keys, values evenly from 0 to 99."""
    streams = "CREATE STREAM a (k bigint, v bigint, ts timestamp) ORDER BY ts;"
    catalog = bind(streams + streams.replace("STREAM a", "STREAM b") + queries).catalog
    graph = share(optimize(build_graph(catalog)), catalog)
    (operator,) = (node.operator for node in graph if isinstance(node.operator, SharedJoin))
    state = JoinState()
    join = SharedJoinStep(operator, [graph["a"].schema, graph["b"].schema], state)
    chance = np.random.default_rng(1)
    rows = RATE * RUN_S
    for begin in range(0, seconds * SECOND, RUN_S * SECOND):
        tables = []
        for _ in "ab":
            times = begin + np.sort(chance.integers(0, RUN_S * SECOND, rows))
            columns = {
                "_ts": times,
                "_seq": times,
                "_arr": times,
                "ts": pa.array(times, pa.timestamp("us", tz="UTC")),
            }
            numbers = {"k": chance.integers(0, KEYS, rows), "v": chance.integers(0, 100, rows)}
            tables.append(pa.table(columns | numbers))
        end = begin + RUN_S * SECOND
        join.run(tables, [end, end])
    return state


def _query(name: str, window_s: int, where: str = "") -> str:
    window = f"[RANGE {window_s} SECONDS]"
    return f"CREATE QUERY {name} AS SELECT a.v, b.v AS w FROM a {window}, b {window} WHERE a.k = b.k{where};"


def test_rates_comparisons_and_shares_are_those_of_the_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slicemill.operators.join.state._SMALL_ROWS", 1)
    state = _state(_query("short", 5) + _query("long", 20, " AND a.v < 10"), 40)
    left, right = state.cuts()
    for side in (left, right):
        assert side.rate == pytest.approx(RATE, rel=0.02)
        assert side.finest == (5, 20) and side.rewriting > 0
        # Every row meets all new ones of its key.
        assert side.compared == pytest.approx(RATE / KEYS, rel=0.25)
    assert left.used == left.cheapest == (5, 20), "one row in ten of the left stream is wanted for long"
    assert right.used == (20,), "the right stream is wanted as a whole, up to the longest window"
    assert left.expected_rows == pytest.approx(RATE * (5 + 15 * 0.1), rel=0.05)
    known = state.statistics()
    assert known is not None and known.measured
    assert known.rates == pytest.approx((RATE, RATE), rel=0.02)
    assert known.matching == pytest.approx(1 / KEYS, rel=0.25)
    assert sorted(known.passing.values()) == pytest.approx([0.1, 1, 1, 1], rel=0.1)
    held = sum(part.rows for part in state.held() if part.part == "input 0")
    assert left.expected_rows * 0.9 < held < left.expected_rows + RATE * RUN_S


def test_without_selections_nothing_is_cut_and_other_windows_are_not_planned() -> None:
    plain = _state(_query("short", 5) + _query("long", 20), 20)
    assert [cuts.used for cuts in plain.cuts()] == [(20,), (20,)]
    rows = "CREATE QUERY q AS SELECT a.v FROM a [ROWS 5], b [RANGE 20 SECONDS] WHERE a.k = b.k;"
    counted = _state(rows, 20)
    assert [cuts.part for cuts in counted.cuts()] == ["input 1"]
    assert [side.cuts_us for side in counted.sides.values()] == [None, (20 * SECOND,)]
