"""Groups over all history by running figures: change by change those of the row form, wherever runs end."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slicemill.binder import bind
from slicemill.columns.arrow_schema import ARRIVAL, SEQ, TS
from slicemill.errors import SlicemillError
from slicemill.operators.changelog.group import GroupChangesState, GroupChangesStep
from slicemill.operators.changelog.group_rows import changing_groups
from slicemill.operators.changelog.spec import GroupChanges
from slicemill.operators.row_step import RowStep, row_step
from slicemill.operators.step import StepContext
from slicemill.operators.window.running import RunningMoments
from slicemill.plan.build import build_graph
from support.stored import stored

Given: TypeAlias = list[tuple[int | None, int | None, int | None, str | None]]
Broken: TypeAlias = list[tuple[int | None, float | None, int | None]]  # group, double, digits of decimals

_STREAM = (
    "CREATE STREAM s (k bigint, v bigint, i int, w varchar, t timestamp, x double, m decimal(12, 2), "
    "n decimal(38, 4), p decimal(24, 8), ts timestamp) ORDER BY ts;"
)
CALLS = (
    "count(*)",
    "count(v)",
    "count(*) FILTER (WHERE v < 3)",
    "count(DISTINCT v)",
    "count(DISTINCT w)",
    "count(DISTINCT v) FILTER (WHERE i > 0)",
    "sum(v)",
    "sum(i)",
    "avg(v)",
    "avg(i)",
    "mean(i)",
    "min(v)",
    "max(v)",
    "min(i)",
    "max(t)",
    "stddev(v)",
    "avg(x)",
    "avg(m)",
    "var_pop(x)",
    "max(w)",
    "median(x)",
    "skewness(v)",
    "kurtosis(m)",
)
BROKEN = (
    *(f"{name}({column})" for name in ("sum", "avg", "mean", "stddev", "var_pop") for column in "xmnp"),
    "var_samp(v)",
    "stddev_pop(v)",
)
LARGEST = 2**63 - 1


def context_of(calls: list[str], keys: list[str]) -> StepContext:
    selected = ", ".join([*keys, *(f"{call} AS c{index}" for index, call in enumerate(calls))])
    grouped = f"GROUP BY {', '.join(keys)}" if keys else ""
    catalog = bind(f"{_STREAM} CREATE QUERY q AS SELECT {selected} FROM s {grouped};").catalog
    graph = build_graph(catalog)
    (node,) = [node for node in graph if isinstance(node.operator, GroupChanges)]
    return StepContext(node=node, graph=graph, catalog=catalog, tables={}, state=None)


def broken_of(rows: Broken, names: tuple[str, ...], first: int) -> pa.Table:
    """Rows of doubles and decimals."""
    given: Given = [(k, d, None, None) for k, _, d in rows]
    table = table_of(given, (*(name for name in names if name not in "xmnp"),), first)
    digits = [None if d is None else Decimal(d) for _, _, d in rows]
    made = {
        "x": pa.array([x for _, x, _ in rows], pa.float64()),
        "m": pa.array([None if d is None else d.scaleb(-2) for d in digits], pa.decimal128(12, 2)),
        "n": pa.array([None if d is None else d.scaleb(20) for d in digits], pa.decimal128(38, 4)),
        "p": pa.array([None if d is None else d.scaleb(-8) for d in digits], pa.decimal128(24, 8)),
    }
    for name, column in made.items():
        table = table.append_column(name, column)
    return table.select([TS, SEQ, ARRIVAL, *names])


def table_of(rows: Given, names: tuple[str, ...], first: int) -> pa.Table:
    numbers = list(range(first, first + len(rows)))
    times = [1_000_000 * number for number in numbers]
    ends = [None if i is None else datetime.fromtimestamp(abs(i) % 1_000, UTC) for _, _, i, _ in rows]
    made = {
        TS: times,
        SEQ: numbers,
        ARRIVAL: times,
        "k": pa.array([k for k, _, _, _ in rows], pa.int64()),
        "v": pa.array([v for _, v, _, _ in rows], pa.int64()),
        "i": pa.array([i for _, _, i, _ in rows], pa.int32()),
        "w": pa.array([w for _, _, _, w in rows], pa.string()),
        "t": pa.array(ends, pa.timestamp("us", "UTC")),
        "x": pa.nulls(len(rows), pa.float64()),
        "m": pa.nulls(len(rows), pa.decimal128(12, 2)),
        "n": pa.nulls(len(rows), pa.decimal128(38, 4)),
        "p": pa.nulls(len(rows), pa.decimal128(24, 8)),
        "ts": pa.array(times, pa.timestamp("us", "UTC")),
    }
    return pa.table({name: made[name] for name in (TS, SEQ, ARRIVAL, *names)})


def told_by(step: GroupChangesStep | RowStep, table: pa.Table) -> list[tuple[Any, ...]] | str:
    """Changes without their numbers, or the error."""
    try:
        made, _ = step.run([table], [2**62])
    except SlicemillError as error:
        return str(error)
    return [tuple(repr(value) for value in row.values()) for row in made.drop_columns([SEQ]).to_pylist()]


def restored(step: GroupChangesStep, context: StepContext) -> GroupChangesStep:
    """The step as it is behind a checkpoint."""
    state = stored(step.state)
    assert isinstance(state, GroupChangesState) and isinstance(context.node.operator, GroupChanges)
    made = StepContext(
        node=context.node, graph=context.graph, catalog=context.catalog, tables=context.tables, state=state
    )
    return GroupChangesStep(context.node.operator, made)


@given(
    st.lists(
        st.tuples(
            st.none() | st.integers(0, 2),
            st.none() | st.integers(-2, 4) | st.sampled_from([LARGEST, -LARGEST - 1, 2**53 + 1, 2**61]),
            st.none() | st.integers(-1, 1) | st.sampled_from([2**31 - 1, -(2**31)]),
            st.none() | st.sampled_from(["a", "b"]),
        ),
        max_size=24,
    ),
    st.lists(st.sampled_from(CALLS), min_size=1, max_size=4, unique=True),
    st.sampled_from([["k"], ["k", "w"], []]),
    st.lists(st.integers(0, 8), max_size=3),
)
@example([(0, LARGEST, 1, "a"), (0, LARGEST, 1, "a"), (0, -5, 1, "a")], ["avg(v)"], ["k"], [1, 1])
@example([(0, LARGEST, 1, "a"), (0, 1, 1, "a")], ["sum(v)"], [], [1])
def test_changes_are_those_of_the_row_form(
    rows: Given, calls: list[str], keys: list[str], cuts: list[int]
) -> None:
    _compare(
        context_of(calls, keys),
        cuts,
        len(rows),
        lambda names, first, end: table_of(rows[first:end], names, first),
    )


DOUBLES = (
    0.0,
    -0.0,
    0.1,
    -2.5,
    1e16,
    5e-324,
    -1e300,
    1.7e308,
    1e-200,
    float("nan"),
    float("inf"),
    -float("inf"),
)


@given(
    st.lists(
        st.tuples(
            st.none() | st.integers(0, 2),
            st.none() | st.sampled_from(DOUBLES) | st.floats(),
            st.none() | st.integers(-3, 3) | st.integers(-(10**12) + 1, 10**12 - 1),
        ),
        max_size=20,
    ),
    st.lists(st.sampled_from(BROKEN), min_size=1, max_size=4, unique=True),
    st.sampled_from([["k"], []]),
    st.lists(st.integers(0, 8), max_size=3),
)
@example([(0, 0.1, 1), (0, 0.2, 2), (0, -0.3, -4)], list(BROKEN), ["k"], [1])
@example([(0, 1.0, 10**12 - 1)] * 3 + [(1, None, None)], ["sum(n)", "avg(n)"], ["k"], [2])
@example([(0, 1.0, 10**12 - 1)] * 12, ["sum(n)"], [], [2])
@example(
    [(0, 1e300, 1), (0, 5e-324, 1), (1, -1e300, 1), (0, -1e300, 1)], ["avg(x)", "stddev(x)"], ["k"], [1, 1]
)
def test_figures_of_doubles_and_decimals_are_those_of_the_row_form(
    rows: Broken, calls: list[str], keys: list[str], cuts: list[int]
) -> None:
    _compare(
        context_of(calls, keys),
        cuts,
        len(rows),
        lambda names, first, end: broken_of(rows[first:end], names, first),
    )


def test_a_group_with_more_numbers_than_32_bits_count_has_an_exact_mean() -> None:
    context = context_of(["avg(x)", "sum(x)", "avg(m)"], ["k"])
    operator = context.node.operator
    assert isinstance(operator, GroupChanges)
    step = GroupChangesStep(operator, context)
    names, count = tuple(context.schemas[0].names), 3 * 2**32
    step.run([broken_of([(0, 0.5, 50)], names, 0)], [2**62])
    for figure in step.state.accumulators or ():
        assert isinstance(figure, RunningMoments)
        figure.counts[0] = count
    made, _ = step.run([broken_of([(0, 0.25, 25)], names, 1)], [2**62])
    mean, total, of_decimals = (column[-1].as_py() for column in made.columns[-3:])
    assert mean == 0.75 / (count + 1) and total == 0.75
    assert of_decimals == (Decimal("0.75") / (count + 1)).quantize(Decimal("0.000001"))


def _compare(context: StepContext, cuts: list[int], rows: int, part_of: Callable[..., pa.Table]) -> None:
    operator = context.node.operator
    assert isinstance(operator, GroupChanges) and not operator.one_subtask
    step, by_rows = GroupChangesStep(operator, context), row_step(changing_groups(operator, context), context)
    first, names = 0, tuple(context.schemas[0].names)
    for size in [*cuts, rows]:
        part = part_of(names, first, first + size)
        told, expected = told_by(step, part), told_by(by_rows, part)
        if isinstance(told, str) or isinstance(expected, str):
            assert told == expected
            return
        assert told == expected
        first += len(part)
        step = restored(step, context)


@pytest.mark.parametrize(("call", "has"), [(call, index < 19) for index, call in enumerate(CALLS)])
def test_numbers_and_times_have_running_figures_and_others_keep_rows(call: str, has: bool) -> None:
    context = context_of([call], ["k"])
    assert isinstance(context.node.operator, GroupChanges)
    state = GroupChangesStep(context.node.operator, context).state
    assert state.accumulators is not None and (state.accumulators[0] is not None) == has == (
        state.windows is None
    )


def test_groups_of_the_first_version_go_on_in_windows() -> None:
    """It kept all calls in windows, and the groups there."""
    context = context_of(["count(*)", "sum(v)"], ["k"])
    operator = context.node.operator
    assert isinstance(operator, GroupChanges)
    before = GroupChangesState(accumulators=None)
    step = GroupChangesStep(
        operator,
        StepContext(
            node=context.node,
            graph=context.graph,
            catalog=context.catalog,
            tables=context.tables,
            state=before,
        ),
    )
    by_rows = row_step(changing_groups(operator, context), context)
    rows: Given = [(0, 1, 1, "a"), (1, 2, 1, "a"), (0, 5, 1, "b")]
    for first in (0, 3):
        part = table_of(rows, tuple(context.schemas[0].names), first)
        assert told_by(step, part) == told_by(by_rows, part)
    assert before.windows is not None and before.accumulators is None


def test_pairs_that_were_met_lie_in_few_runs() -> None:
    context = context_of(["count(DISTINCT v)"], ["k"])
    assert isinstance(context.node.operator, GroupChanges)
    step, names = GroupChangesStep(context.node.operator, context), tuple(context.schemas[0].names)
    for first in range(0, 3_200, 32):
        step.run([table_of([(0, first + n, 1, "a") for n in range(32)], names, first)], [2**62])
    assert step.state.accumulators is not None
    (figure,) = step.state.accumulators
    assert figure is not None and sum(map(len, figure.met)) == 3_200 and len(figure.met) <= 8  # type: ignore[attr-defined]
