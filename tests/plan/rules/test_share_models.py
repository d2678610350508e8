"""Models with OVER share one node: which models, under which name, and with which core statistics."""

from __future__ import annotations

from slicemill.binder import bind
from slicemill.explain.json import explain_data
from slicemill.explain.svg import explain_svg
from slicemill.explain.text import explain_text
from slicemill.extensions.models.spec import SharedModels, cores_of
from slicemill.operators.graph import QueryGraph
from slicemill.operators.specs import Part
from slicemill.operators.window.spec import WindowAggregate
from slicemill.plan.build import build_graph
from slicemill.plan.optimizer import optimize, share
from slicemill.plan.tasks import split_into_tasks
from support.tasks import exchanges_of

STREAM = """CREATE STREAM s(k int, x real, y real, at timestamp) ORDER BY at;
CREATE MODEL fading(x REAL) AS sum(x * 0.5^age)/n;
CREATE MODEL centre(x REAL) AS mean(x);
CREATE MODEL tilt(x REAL) AS let m = mean(x) in sqrt(n)*sum((x - m)^3)/nonnegative(sum((x - m)^2))^1.5;
"""
OVER = "OVER (PARTITION BY k ROWS 9 PRECEDING)"
A = f"CREATE QUERY a AS SELECT k, centre(x) {OVER} AS m, tilt(x) {OVER} AS w FROM s;"
B = f"CREATE QUERY b AS SELECT y, slope(x, y) {OVER} AS m FROM s;"
WIDER = "CREATE QUERY c AS SELECT centre(x) OVER (PARTITION BY k RANGE 9 SECONDS PRECEDING) AS m FROM s;"


def shared(text: str) -> QueryGraph:
    catalog = bind(STREAM + text).catalog
    return share(optimize(build_graph(catalog)), catalog)


def node(graph: QueryGraph, name: str = "models of s by k") -> SharedModels:
    (operator,) = (node.operator for node in graph if node.label == name)
    assert isinstance(operator, SharedModels)
    return operator


def test_models_of_one_stream_and_key_share_one_node() -> None:
    graph = shared(A + B)
    members = node(graph).members
    assert [(graph[member.name].label, member.query) for member in members] == [
        ("a: window", "a"),
        ("b: window", "b"),
    ]
    assert members[1].columns[0].name == "y"
    assert all(graph[member.name].operator == Part(member.name) for member in members)


def test_the_task_of_shared_models_has_a_stable_id_and_is_split_by_key() -> None:
    (task,) = split_into_tasks(shared(A + B))
    (less,) = split_into_tasks(shared(B))
    assert task.id == less.id == "aggregates of s by k"
    assert task.stateful_nodes == less.stateful_nodes and [log for _, log in task.outputs] == ["a", "b"]
    assert exchanges_of(task, shared(A + B), 4).keys() == {"s"}


def test_a_different_condition_makes_a_different_input() -> None:
    dear, again, other = (
        f"CREATE QUERY {name} AS SELECT centre(x) {OVER} AS m FROM s WHERE y > {limit};"
        for name, limit in (("d", 1), ("e", 1), ("f", 2))
    )
    (task,) = split_into_tasks(graph := shared(A + dear + again + other))
    operators = [graph[node].operator for node in task.stateful_nodes]
    queries = [[m.query for m in one.members] for one in operators if isinstance(one, SharedModels)]
    assert queries == [["a"], ["d", "e"], ["f"]]


def test_windows_with_other_aggregates_or_several_keys_are_not_shared() -> None:
    mixed = f"CREATE QUERY q AS SELECT centre(x) {OVER} AS m, avg(x) {OVER} AS n FROM s;"
    keys = f"CREATE QUERY q AS SELECT centre(x) {OVER} AS m, centre(x) OVER (ROWS 9 PRECEDING) AS n FROM s;"
    for text in (mixed, keys):
        (window,) = (node for node in shared(text) if node.label == "q: window")
        assert isinstance(window.operator, WindowAggregate)


def test_each_core_statistic_is_stored_once_for_all_its_users() -> None:
    cores = cores_of(node(shared(A + B + WIDER)))
    found = {
        (str(core.window), core.core): [f"{query} {call.name}" for query, call in core.users]
        for core in cores
    }
    assert found == {
        ("ROWS 9", "sum(x)"): ["a centre", "a tilt", "b slope"],
        ("ROWS 9", "sum(1)"): ["a centre", "a tilt", "b slope"],
        ("ROWS 9", "sum(x^2) about a pivot"): ["a tilt", "b slope"],
        ("ROWS 9", "sum(x^3) about a pivot"): ["a tilt"],
        ("ROWS 9", "sum(x*y) about a pivot"): ["b slope"],
        ("ROWS 9", "sum(y)"): ["b slope"],
        ("RANGE 9 SECONDS", "sum(x)"): ["c centre"],
        ("RANGE 9 SECONDS", "sum(1)"): ["c centre"],
    }


def test_models_with_different_time_columns_have_separate_core_statistics() -> None:
    two = "CREATE STREAM t(x real, p timestamp, q timestamp) ORDER BY current_time;"
    calls = ", ".join(f"fading(x, {at}) OVER (ROWS 9 PRECEDING) AS {at}1" for at in "pq")
    cores = cores_of(node(shared(f"{two} CREATE QUERY r AS SELECT {calls} FROM t;"), "models of t"))
    assert [core.core for core in cores].count("sum(1)") == 2


def test_every_explain_format_lists_the_shared_core_statistics() -> None:
    graph = shared(A + B)
    line = "sum(x^2) about a pivot for tilt(x) of a, slope(x, y) of b"
    text = explain_text(graph, 120)
    assert "γ Core statistics of 3 models  6 core statistics, used 11 times" in text
    assert f"core          {line}" in text
    assert line in explain_svg(graph)
    (found,) = [n for n in explain_data(graph)["nodes"] if n["operator"] == "shared_models"]
    assert len(found["cores"]) == 6
    assert found["cores"][2] == {
        "core": "sum(x^2) about a pivot",
        "window": "ROWS 9",
        "users": [{"query": "a", "call": "tilt(x)"}, {"query": "b", "call": "slope(x, y)"}],
    }
