"""Recipes of panes that are made early, and for whom there is none."""

from __future__ import annotations

import pytest

from slicemill.esl import bind
from slicemill.plan.build import build_graph
from slicemill.plan.early_panes import Recipe, recipe_of_unit, why_rows
from slicemill.plan.explain import explain_text
from slicemill.plan.operators import SharedWindows
from slicemill.plan.optimize import optimize, share
from slicemill.plan.units import cut

TIMED = "CREATE STREAM s (k int, v bigint, t timestamp) ORDER BY t"
LONG = "[RANGE 60 SECONDS SLIDE 10 SECONDS]"
SHORT = "[RANGE 20 SECONDS SLIDE 10 SECONDS]"


def recipe(*selects: str, stream: str = TIMED) -> Recipe | None:
    queries = "".join(f"CREATE QUERY q{place} AS {text};" for place, text in enumerate(selects))
    catalog = bind(f"{stream};{queries}").catalog
    graph = share(optimize(build_graph(catalog)), catalog)
    (unit,) = cut(graph)
    found = recipe_of_unit(unit, graph)
    assert found is None or found[0] == "s"
    return None if found is None else found[1]


def test_queries_that_need_the_same_of_rows_have_one_recipe() -> None:
    """What they call results, and how long their windows are, makes no difference."""
    one = recipe(f"SELECT k, avg(v) AS m FROM s {LONG} GROUP BY k")
    assert one == recipe(
        f"SELECT k, avg(v) AS m FROM s {LONG} GROUP BY k", f"SELECT k, avg(v) AS n FROM s {SHORT} GROUP BY k"
    )
    assert one is not None
    assert one.columns == {"k", "v"}
    assert one.conditions == (None,)
    assert one.edges == ((10_000_000, 0),)


@pytest.mark.parametrize(
    "other",
    [
        f"SELECT avg(v) AS m FROM s {LONG}",
        f"SELECT k, sum(v) AS m FROM s {LONG} GROUP BY k",
        f"SELECT k, avg(v + 1) AS m FROM s {LONG} GROUP BY k",
        f"SELECT k, avg(v) AS m FROM s {LONG} WHERE v > 1 GROUP BY k",
        "SELECT k, avg(v) AS m FROM s [RANGE 60 SECONDS SLIDE 5 SECONDS] GROUP BY k",
    ],
)
def test_whatever_changes_entries_changes_the_digest(other: str) -> None:
    one, two = recipe(f"SELECT k, avg(v) AS m FROM s {LONG} GROUP BY k"), recipe(other)
    assert one is not None and two is not None
    assert one.digest != two.digest


@pytest.mark.parametrize(
    ("select", "stream", "why"),
    [
        ("median(v)", TIMED, "some aggregates need all values"),
        ("avg(v)", TIMED + " SLACK 1 SECOND", "SLACK"),
        ("avg(v)", TIMED.replace("BY t", "BY current_time"), "tuples get their timestamps"),
    ],
)
def test_some_panes_are_made_of_rows_and_explain_says_why(select: str, stream: str, why: str) -> None:
    catalog = bind(f"{stream}; CREATE QUERY q AS SELECT {select} AS x FROM s {LONG};").catalog
    graph = share(optimize(build_graph(catalog)), catalog)
    (node,) = (node for node in graph if isinstance(node.operator, SharedWindows))
    assert why in (why_rows(node, graph) or "")
    assert why in " ".join(explain_text(graph).split())
    (unit,) = cut(graph)
    assert recipe_of_unit(unit, graph) is None


def test_over_and_derived_streams_need_rows() -> None:
    window = "OVER (RANGE 60 SECONDS PRECEDING SLIDE 10 SECONDS)"
    assert recipe(f"SELECT k, avg(v) {window} AS m FROM s") is None
    derived = f"{TIMED}; CREATE STREAM d AS SELECT k, v * 2 AS v FROM s; CREATE QUERY q AS"
    catalog = bind(f"{derived} SELECT avg(v) AS m FROM d {LONG};").catalog
    graph = share(optimize(build_graph(catalog)), catalog)
    assert all(recipe_of_unit(unit, graph) is None for unit in cut(graph))
