"""The grids of edges: all edges of the windows and no others, none of them twice; and what panes keep."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slicemill import types as t
from slicemill.binder import bind
from slicemill.catalog.builtin_aggregates import BUILTINS
from slicemill.catalog.expressions import ColumnRef
from slicemill.catalog.queries import AggregateCall
from slicemill.operators.window.pane_answers import pane_aggregate_of
from slicemill.operators.window.spec import KEPT, combines_panes, edge_grids
from slicemill.types import Column, Kind, Type

CATALOG = bind("CREATE STREAM S (v bigint) ORDER BY current_time;").catalog
TYPES = [
    t.BOOLEAN, t.INT, t.BIGINT, t.DOUBLE, t.VARCHAR, t.BINARY, t.TIMESTAMP, t.DATE, t.INTERVAL, t.MONTHS,
    t.PERIOD, t.NULL, t.decimal(5, 2), t.decimal(38, 0),
]  # fmt: skip


@given(st.lists(st.tuples(st.integers(1, 24), st.integers(1, 24)), min_size=1, max_size=4))
@example([(7, 10)])
@example([(10, 10), (10, 10), (20, 10)])
@example([(3, 4), (5, 6)])
def test_grids_are_the_edges_of_all_windows(windows: list[tuple[int, int]]) -> None:
    period = math.lcm(*(slide for _, slide in windows))
    edges = {e % period for w, s in windows for k in range(period // s) for e in (k * s, k * s - w)}
    grids = edge_grids(windows)
    on_grids = [{k % period for k in range(offset, offset + period, step)} for step, offset in grids]
    assert set().union(*on_grids) == edges
    for index, own in enumerate(on_grids):
        assert not any(own <= other for other in on_grids[:index] + on_grids[index + 1 :])
    assert all(0 <= offset < step for step, offset in grids)


def call(name: str, type_: Type, distinct: bool = False) -> AggregateCall:
    result = BUILTINS[name].result(type_)
    return AggregateCall(name, (ColumnRef("x", type_),), distinct, (Column("r", result),))


def is_bound(name: str, type_: Type) -> bool:
    """Does the binder let such a call through?"""
    numbers = (Kind.INT, Kind.BIGINT, Kind.DOUBLE, Kind.DECIMAL, Kind.NULL)
    return BUILTINS[name].parameters != ("number",) or type_.kind in numbers


@pytest.mark.parametrize("name", sorted(BUILTINS))
def test_what_the_plan_leaves_to_panes_they_answer(name: str) -> None:
    kept = [type_ for type_ in TYPES if is_bound(name, type_) and combines_panes(call(name, type_), CATALOG)]
    assert all(pane_aggregate_of(call(name, type_)) is not None for type_ in kept)
    assert bool(kept) == (name in KEPT) and (BUILTINS[name].algebraic or not kept)


def test_distinct_calls_and_aggregates_of_users_are_not_kept_in_panes() -> None:
    assert combines_panes(call("count", t.INT), CATALOG)
    assert not combines_panes(call("count", t.INT, distinct=True), CATALOG)
    assert pane_aggregate_of(call("count", t.INT, distinct=True)) is None
    own = bind(
        """CREATE AGGREGATE sum(next int) : int { TABLE state(x int);
        INITIALIZE : { INSERT INTO state VALUES (next); } ITERATE : { UPDATE state SET x = next; }
        TERMINATE : { INSERT INTO RETURN SELECT x FROM state; } };"""
    ).catalog
    assert combines_panes(call("sum", t.INT), CATALOG) and not combines_panes(call("sum", t.INT), own)
