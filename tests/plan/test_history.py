"""Time span of tuples on which a result depends, and tasks after the removal of queries."""

from __future__ import annotations

import pytest

from slicemill.binder import bind
from slicemill.operators.graph import QueryGraph
from slicemill.operators.join.spec import SharedJoin
from slicemill.operators.specs import Part
from slicemill.plan.build import build_graph
from slicemill.plan.history import history_us
from slicemill.plan.optimizer import optimize, share
from slicemill.plan.state_reuse import without_outputs
from slicemill.plan.tasks import split_into_tasks

STREAMS = (
    "CREATE STREAM A (k int, v int) ORDER BY current_time; CREATE STREAM B (k int) ORDER BY current_time;"
)
JOIN = "SELECT A.k, A.v FROM A [RANGE 5 SECONDS], B [RANGE 3 SECONDS] WHERE A.k = B.k"
SECOND = 1_000_000


def _graph(**queries: str) -> QueryGraph:
    text = "".join(f"CREATE QUERY {name} AS {query};" for name, query in queries.items())
    catalog = bind(STREAMS + text).catalog
    return share(optimize(build_graph(catalog)), catalog)


@pytest.mark.parametrize(
    ("query", "seconds"),
    [
        ("SELECT k FROM A WHERE v > 1", 0),
        (JOIN, 5),
        ("SELECT A.k FROM A [RANGE 5 SECONDS], B [ROWS 3] WHERE A.k = B.k", None),
        ("SELECT A.k FROM A [RANGE UNBOUNDED], B [RANGE 3 SECONDS] WHERE A.k = B.k", None),
        ("SELECT k, count(*) AS n FROM A [RANGE 8 SECONDS SLIDE 2 SECONDS] GROUP BY k", 8),
        (f"SELECT j.k, B.k AS b FROM ({JOIN}) [RANGE 7 SECONDS] AS j, B [RANGE 4 SECONDS]", 5 + 7),
        (f"SELECT k, count(*) OVER (RANGE 2 SECONDS PRECEDING) AS n FROM ({JOIN}) AS j", 5 + 2),
        ("SELECT R.v FROM A(v) AS R RANGE 9 SECONDS SLIDES 3 SECONDS PARTITION BY k", 9),
        ("SELECT R.v FROM A(v) AS R RANGE 9 ROWS SLIDES 3 ROWS", None),
        (f"SELECT k FROM A UNION ALL ({JOIN.replace(', A.v', '')})", 5),
    ],
)
def test_the_spans_of_consecutive_windows_add_up(query: str, seconds: int | None) -> None:
    assert history_us(_graph(q=query), "q") == (None if seconds is None else seconds * SECOND)


def test_a_task_without_some_queries_keeps_only_the_other_queries() -> None:
    graph = _graph(one=JOIN, two=f"{JOIN} AND A.v > 1", three=f"{JOIN} AND A.v < B.k")
    (task,) = split_into_tasks(graph)
    reduced, kept = without_outputs(task, graph, {"one", "two"})
    assert [log for _, log in reduced.outputs] == ["three"]
    (join,) = (node.operator for node in kept if isinstance(node.operator, SharedJoin))
    (three,) = join.members
    assert kept[three.name].label == "three: join" and kept[three.name].operator == Part(three.name)
    nobody, rest = without_outputs(task, graph, {"one", "two", "three"})
    assert not nobody.nodes and {node.id for node in rest} == {"A", "B"}
