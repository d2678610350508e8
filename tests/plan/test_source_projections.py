"""Rows and columns of a stream that are stored, because a query reads them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.test_program import BEYOND_TASKS
from slicemill.binder import bind
from slicemill.catalog.catalog import Stream
from slicemill.catalog.expressions import Expr, children
from slicemill.functions.render import render
from slicemill.plan.build import build_graph
from slicemill.plan.optimizer import optimize, share
from slicemill.plan.planner import Planner
from slicemill.plan.projection_pushdown import SourceProjection, merge_projections, source_projections
from support.corpus import Case, Runnable, check_rows, parameters, prepare
from support.tasks import run_tasks

STREAMS = """
CREATE STREAM s (a int, b int, c varchar, d double, ts timestamp) ORDER BY ts;
CREATE STREAM t (a int, e int, ts timestamp) ORDER BY ts;
CREATE TABLE names (id int, name varchar);
"""


def need(query: str, stream: str = "s") -> SourceProjection:
    graph = optimize(build_graph(bind(STREAMS + query).catalog))
    return merge_projections([stream], [source_projections(graph)])[stream]


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        ("SELECT * FROM s", "a b c d ts"),
        ("SELECT a FROM s WHERE b > 1", "a b"),
        ("SELECT 1 AS one FROM s", ""),
        ("SELECT a FROM s; SELECT c FROM s WHERE d > 0", "a c d"),
        ("SELECT a FROM s; SELECT c FROM s_late", "a c"),
        ("SELECT a, avg(d) OVER (PARTITION BY b ROWS 5 PRECEDING) AS m FROM s", "a b d"),
        ("SELECT b, sum(d) AS n FROM s [RANGE 10 SECONDS SLIDE 5 SECONDS] GROUP BY b", "b d"),
        ("SELECT s.c FROM s [RANGE 9 SECONDS], t [RANGE 9 SECONDS] WHERE s.a = t.a", "a c"),
        ("SELECT s.d, n.name FROM s, names AS n WHERE s.b = n.id", "b d"),
        ("SELECT a FROM s UNION ALL SELECT e FROM t", "a"),
        ("CREATE STREAM u AS SELECT a, c FROM s; SELECT a FROM u", "a c"),
        ("SELECT reason FROM s_errors", ""),
        ("SELECT a FROM t", ""),
    ],
)
def test_the_stored_columns_are_those_that_some_query_reads(query: str, columns: str) -> None:
    assert need(query).columns == set(columns.split())


@pytest.mark.parametrize(
    ("query", "condition"),
    [
        ("SELECT a FROM s", None),
        ("SELECT a FROM s WHERE b > 1", "b > 1"),
        ("SELECT a FROM s WHERE b > 1; SELECT a FROM s WHERE b < 0", "b > 1 OR b < 0"),
        ("SELECT a FROM s WHERE 1 DIV b > 1", None),
        # Late rows are detected after this filter, and the query reads all of them.
        ("SELECT a FROM s WHERE b > 1; SELECT a FROM s_late", None),
        ("SELECT a FROM t", "FALSE"),
    ],
)
def test_rows_that_no_query_reads_are_not_stored(query: str, condition: str | None) -> None:
    found = need(query).condition
    assert (None if found is None else render(found, "spark").replace("`", "")) == condition


def test_conditions_of_too_many_queries_are_not_evaluated() -> None:
    many = ";".join(f"SELECT a FROM s WHERE b = {n}" for n in range(65))
    assert need(many).condition is None
    assert need(many.rpartition(";")[0]).condition is not None


@pytest.mark.parametrize("case", parameters()[::2])
def test_merged_projections_of_statements_equal_the_projection_of_all_together(case: Case) -> None:
    catalog = prepare(case).catalog
    plan = Planner().plan(catalog)
    streams = [name for name, one in catalog.relations.items() if isinstance(one, Stream)]
    together, by_hand = (
        merge_projections(streams, plan.needs),
        merge_projections(streams, [source_projections(plan.graph)]),
    )
    assert {name: found.columns for name, found in together.items()} == {
        name: found.columns for name, found in by_hand.items()
    }
    for name, found in together.items():
        assert (found.condition is None) == (by_hand[name].condition is None), name


def forgetful(runnable: Runnable) -> Runnable:
    """Return the input with NULL in all columns that no query reads."""
    graph = share(optimize(build_graph(runnable.catalog)), runnable.catalog)
    events = []
    for event in runnable.events:
        stream = runnable.catalog.declared_stream(event.stream)
        columns = merge_projections([stream.name], [source_projections(graph)])[stream.name].columns
        pairs = zip(stream.schema.names, event.row or (), strict=event.row is not None)
        row = tuple(value if name in columns else None for name, value in pairs)
        events.append(event if event.row is None else replace(event, row=row))
    return replace(runnable, events=tuple(events))


@pytest.mark.parametrize("case", parameters(BEYOND_TASKS)[::4])  # Other tests run the whole corpus.
def test_unread_columns_change_no_result(case: Case) -> None:
    runnable = prepare(case)
    known = forgetful(runnable)
    results = run_tasks(known.catalog, known.events, known.tables, 1, 1)
    for query, expected in runnable.expected.items():
        check_rows(expected, results[query.lower()], query)


def test_the_condition_of_many_queries_is_not_deeply_nested() -> None:
    found = need("".join(f"SELECT a FROM s WHERE b > {n};" for n in range(64))).condition
    assert found is not None and depth(found) <= 8


def depth(expr: Expr) -> int:
    return 1 + max((depth(part) for part in children(expr)), default=0)
