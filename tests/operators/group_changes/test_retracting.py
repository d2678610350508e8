"""Groups over a changelog by running figures: change by change those of the row form, wherever runs end."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slicemill.binder import bind
from slicemill.columns.arrow_schema import ARRIVAL, SEQ, TS
from slicemill.errors import SlicemillError
from slicemill.operators.changelog import group as retracting
from slicemill.operators.changelog.group import RetractingGroupsStep, group_changes
from slicemill.operators.changelog.group_rows import changing_groups
from slicemill.operators.changelog.spec import GroupChanges
from slicemill.operators.row_step import RowStep, row_step
from slicemill.operators.step import StepContext
from slicemill.plan.build import build_graph
from slicemill.types import OP, OPS
from support.stored import stored

# A group and a value; what happens is that a row comes, or that one of those there leaves or becomes another.
Pair: TypeAlias = tuple[int | None, int | None]
Change: TypeAlias = tuple[str, int, Pair]

BROKEN = ("avg(x)", "stddev(x)", "var_pop(v)", "avg(m)", "sum(m)", "stddev(m)", "mean(x)")
CALLS = ("count(*)", "count(v)", "count(*) FILTER (WHERE v < 3)", "sum(v)", "avg(v)", "avg(i)", *BROKEN)
LARGEST = 2**63 - 1


def context_of(calls: list[str], grouped: bool) -> StepContext:
    selected = ", ".join([*["k"] * grouped, *(f"{call} AS c{index}" for index, call in enumerate(calls))])
    catalog = bind(
        "CREATE STREAM s (id bigint, k bigint, v bigint, ts timestamp) ORDER BY ts;"
        f"CREATE QUERY q AS SELECT {selected} FROM "
        "(SELECT id, max(k) AS k, max(v) AS v, CAST(max(v) % 7 AS int) AS i, "
        "CAST(max(v) AS double) / 3 AS x, CAST(max(v) % 1000 AS decimal(12, 2)) AS m "
        "FROM s GROUP BY id) AS t "
        f"{'GROUP BY k' if grouped else ''};"
    ).catalog
    graph = build_graph(catalog)
    (node,) = [n for n in graph if isinstance(n.operator, GroupChanges) and n.operator.retracts]
    return StepContext(node=node, graph=graph, catalog=catalog, tables={}, state=None)


def changelog(changes: list[Change]) -> list[list[tuple[str, Pair]]]:
    """The rows of each change."""
    there: list[Pair] = []
    made: list[list[tuple[str, Pair]]] = []
    for what, which, pair in changes:
        if what == "insert" or not there:
            there.append(pair)
            made.append([("insert", pair)])
            continue
        left = there.pop(which % len(there))
        if what == "delete":
            made.append([("delete", left)])
        else:
            there.append(pair)
            made.append([("update_before", left), ("update_after", pair)])
    return made


def table_of(changes: list[list[tuple[str, Pair]]], names: tuple[str, ...], first: int) -> pa.Table:
    rows = [(first + n, op, k, v) for n, change in enumerate(changes) for op, (k, v) in change]
    times = [1_000_000 * number for number, _, _, _ in rows]
    made = {
        TS: times,
        SEQ: [number for number, _, _, _ in rows],
        ARRIVAL: [time + 1 for time in times],
        OP: pa.array([OPS.index(op) for _, op, _, _ in rows], pa.int8()),
        "id": pa.array([0] * len(rows), pa.int64()),
        "k": pa.array([k for _, _, k, _ in rows], pa.int64()),
        "v": pa.array([v for _, _, _, v in rows], pa.int64()),
        "i": pa.array([None if v is None else v % 7 for _, _, _, v in rows], pa.int32()),
        "x": pa.array([None if v is None else v / 3 for _, _, _, v in rows], pa.float64()),
        "m": pa.array(
            [None if v is None else Decimal(v % 1000) for _, _, _, v in rows], pa.decimal128(12, 2)
        ),
    }
    return pa.table({name: made[name] for name in (TS, SEQ, ARRIVAL, *names)})


def told_by(step: RetractingGroupsStep | RowStep, table: pa.Table) -> list[dict[str, Any]] | str:
    try:
        made, _ = step.run([table], [2**62])
    except SlicemillError as error:
        return str(error)
    return [{name: repr(value) for name, value in row.items()} for row in made.to_pylist()]


def step_of(context: StepContext, state: object | None = None) -> RetractingGroupsStep:
    assert isinstance(context.node.operator, GroupChanges)
    made = group_changes(
        context.node.operator,
        StepContext(
            node=context.node,
            graph=context.graph,
            catalog=context.catalog,
            tables=context.tables,
            state=state,
        ),
    )
    assert isinstance(made, RetractingGroupsStep)
    return made


def restored(step: RetractingGroupsStep, context: StepContext) -> RetractingGroupsStep:
    """The step as it is behind a checkpoint."""
    return step_of(context, stored(step.state))


pairs = st.tuples(
    st.none() | st.integers(0, 2),
    st.none() | st.integers(-2, 4) | st.sampled_from([LARGEST, -LARGEST - 1, 2**53 + 1, 2**61]),
)


@given(
    st.lists(
        st.tuples(st.sampled_from(["insert", "delete", "update"]), st.integers(0, 20), pairs), max_size=24
    ),
    st.lists(st.sampled_from(CALLS), min_size=1, max_size=4, unique=True),
    st.booleans(),
    st.lists(st.integers(0, 8), max_size=3),
)
@example([("insert", 0, (0, 1)), ("delete", 0, (0, 1)), ("insert", 0, (0, 2))], ["sum(v)"], False, [1, 1])
@example([("insert", 0, (0, 1)), ("update", 0, (1, 1)), ("update", 0, (0, 3))], ["count(*)"], True, [2])
@example([("insert", 0, (0, LARGEST)), ("insert", 0, (0, 1))], ["sum(v)"], True, [1])
def test_changes_are_those_of_the_row_form(
    changes: list[Change], calls: list[str], grouped: bool, cuts: list[int]
) -> None:
    context = context_of(calls, grouped)
    operator = context.node.operator
    assert isinstance(operator, GroupChanges)
    step, by_rows = step_of(context), row_step(changing_groups(operator, context), context)
    made, first, names = changelog(changes), 0, tuple(context.schemas[0].names)
    for size in [*cuts, len(made)]:
        part = table_of(made[first : first + size], names, first)
        told, expected = told_by(step, part), told_by(by_rows, part)
        assert told == expected
        if isinstance(told, str):
            return
        first += size
        step = restored(step, context)


def test_groups_without_rows_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retracting, "_EVICTED", 8)
    context = context_of(["count(*)", "avg(v)"], True)
    operator = context.node.operator
    assert isinstance(operator, GroupChanges)
    step, by_rows = step_of(context), row_step(changing_groups(operator, context), context)
    names, most = tuple(context.schemas[0].names), 0
    for first in range(0, 200, 4):
        changes = [("insert", 0, (first + n, n)) for n in range(3)] + [("update", 2, (first + 3, 1))]
        made = [*changelog(changes), *[[("delete", (first + n, n))] for n in range(2)]]
        part = table_of(made, names, first)
        assert told_by(step, part) == told_by(by_rows, part)
        most = max(most, len(step.state.keys))
    assert len(step.state.keys) < 2 * 50 + 8 and most < 4 * 50


def test_rows_of_an_older_state_go_on_as_rows() -> None:
    context = context_of(["sum(v)"], True)
    operator = context.node.operator
    assert isinstance(operator, GroupChanges)
    before = row_step(changing_groups(operator, context), context)
    names = tuple(context.schemas[0].names)
    before.run([table_of([[("insert", (1, 5))]], names, 0)], [2**62])
    state = stored(before.state)
    made = group_changes(
        operator,
        StepContext(
            node=context.node,
            graph=context.graph,
            catalog=context.catalog,
            tables=context.tables,
            state=state,
        ),
    )
    assert isinstance(made, RowStep)
    told, _ = made.run([table_of([[("insert", (1, 6))]], names, 1)], [2**62])
    assert told.column(told.num_columns - 1).to_pylist() == [5, 11]
