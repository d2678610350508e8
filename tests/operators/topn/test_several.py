"""Several first rows by kernels are those of the row form, change by change, wherever runs end."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicemill.binder import bind
from slicemill.codec.registry import codec_of
from slicemill.columns.arrow_schema import ARRIVAL, SEQ, TS
from slicemill.columns.keys import Keys
from slicemill.operators.changelog.spec import TopN
from slicemill.operators.changelog.topn import SeveralRowsState, SeveralRowsStep, top_rows
from slicemill.operators.row_step import RowStep, row_step
from slicemill.operators.step import StepContext
from slicemill.plan.build import build_graph
from support.stored import stored

Given: TypeAlias = list[tuple[int | None, float | None, str | None]]

_STREAM = "CREATE STREAM s (k bigint, v double, w varchar, ts timestamp) ORDER BY ts;"
_RANKED = "row_number() OVER ({partition} ORDER BY {order})"
QUERIES = {
    "places": f"SELECT k, v, w, {_RANKED} AS place FROM s QUALIFY place <= {{limit}}",
    "rows": f"SELECT k, v, w FROM s QUALIFY {_RANKED} <= {{limit}}",
}


def context_of(query: str, partition: str, order: str, limit: int) -> StepContext:
    text = QUERIES[query].format(partition=partition, order=order, limit=limit)
    catalog = bind(f"{_STREAM} CREATE QUERY q AS {text};").catalog
    graph = build_graph(catalog)
    (node,) = [node for node in graph if isinstance(node.operator, TopN)]
    return StepContext(node=node, graph=graph, catalog=catalog, tables={}, state=None)


def table_of(rows: Given, names: tuple[str, ...], first: int) -> pa.Table:
    """Rows a second apart; every third has the time of the one before it."""
    numbers = list(range(first, first + len(rows)))
    times = [1_000_000 * (number - number % 3 // 2) for number in numbers]
    made = {
        TS: times,
        SEQ: numbers,
        ARRIVAL: times,
        "k": pa.array([k for k, _, _ in rows], pa.int64()),
        "v": pa.array([v for _, v, _ in rows], pa.float64()),
        "w": pa.array([w for _, _, w in rows], pa.string()),
        "ts": pa.array(times, pa.timestamp("us", "UTC")),
    }
    return pa.table({name: made[name] for name in (TS, SEQ, ARRIVAL, *names)})


def told_by(step: SeveralRowsStep | RowStep, table: pa.Table) -> list[tuple[Any, ...]]:
    """Changes without their numbers."""
    made, _ = step.run([table], [2**62])
    seqs = made.column(SEQ).to_pylist()
    assert seqs == sorted(seqs) and len(set(seqs)) == len(seqs)
    return [tuple(repr(value) for value in row.values()) for row in made.drop_columns([SEQ]).to_pylist()]


@given(
    st.lists(
        st.tuples(
            st.none() | st.integers(0, 2),
            st.none() | st.sampled_from([0.0, 1.0, 2.0, float("nan"), -0.0]),
            st.none() | st.sampled_from(["a", "b"]),
        ),
        max_size=30,
    ),
    st.sampled_from(list(QUERIES)),
    st.sampled_from(["PARTITION BY k", "PARTITION BY k, w", ""]),
    st.sampled_from(["v", "v DESC", "w DESC, v", "v, ts DESC", "ts DESC"]),
    st.integers(2, 4),
    st.lists(st.integers(0, 8), max_size=4),
)
def test_changes_are_those_of_the_row_form(
    rows: Given, query: str, partition: str, order: str, limit: int, cuts: list[int]
) -> None:
    context = context_of(query, partition, order, limit)
    operator = context.node.operator
    assert isinstance(operator, TopN) and operator.several
    by_rows: RowStep = row_step(top_rows(operator, context), context)
    step = SeveralRowsStep(operator, context)
    first, names = 0, tuple(context.schemas[0].names)
    for size in [*cuts, len(rows)]:
        part = table_of(rows[first : first + size], names, first)
        assert told_by(step, part) == told_by(by_rows, part)
        first += len(part)
        step = restored(step, operator, context)


def restored(step: SeveralRowsStep, operator: TopN, context: StepContext) -> SeveralRowsStep:
    """The step as it is behind a checkpoint."""
    state = stored(step.state)
    assert isinstance(state, SeveralRowsState)
    return SeveralRowsStep(
        operator,
        StepContext(
            node=context.node,
            graph=context.graph,
            catalog=context.catalog,
            tables=context.tables,
            state=state,
        ),
    )


@pytest.mark.parametrize("query", QUERIES)
def test_no_more_rows_are_kept_than_are_among_the_first(query: str) -> None:
    context = context_of(query, "PARTITION BY k", "v DESC", 3)
    operator = context.node.operator
    assert isinstance(operator, TopN)
    step, names = SeveralRowsStep(operator, context), tuple(context.schemas[0].names)
    for first in range(0, 4_000, 100):
        rows: Given = [(number % 5, float(number * 7 % 101), "a") for number in range(first, first + 100)]
        step.run([table_of(rows, names, first)], [2**62])
        step = restored(step, operator, context) if first % 1_000 == 0 else step
    state = step.state
    assert state.used == 15 and state.added.rows <= 15 + 1_024 + 100
    indices, _ = state.chains(np.arange(5))
    assert set(state.added.at(indices).column("v").to_pylist()) <= {100.0, 99.0, 98.0}


def test_a_state_of_the_first_version_goes_on() -> None:
    rows = pa.table({"v": [3, 9, 7, 5]})
    of = np.array([2, 0, 2, 0], np.int32)
    keys = Keys.restored([pa.array(["a", "b", "c"])])
    codec = codec_of(SeveralRowsState)
    assert codec is not None
    state = codec.new()
    codec.fill(state, codec.upgrade({"keys": keys, "rows": rows, "of": of}, 1))
    indices, partitions = state.chains(np.arange(3))
    assert state.added.at(indices).column("v").to_pylist() == [9, 5, 3, 7]
    assert partitions.tolist() == [0, 0, 2, 2] and state.used == 4
