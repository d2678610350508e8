"""Aggregates over sliding windows share one node: which aggregates, under which name, in which task."""

from __future__ import annotations

import pytest

from slicemill.binder import bind
from slicemill.explain.svg import explain_svg
from slicemill.explain.text import explain_text
from slicemill.operators.graph import QueryGraph
from slicemill.operators.specs import Filter, Part
from slicemill.operators.window.spec import SharedWindows
from slicemill.plan.build import build_graph
from slicemill.plan.optimizer import optimize, share
from slicemill.plan.tasks import split_into_tasks
from support.tasks import exchanges_of

STREAMS = """
CREATE STREAM Bid(item int, price real) ORDER BY current_time;
CREATE STREAM Ask(item int, price real) ORDER BY current_time;
"""
MEAN = """CREATE QUERY mean AS SELECT item, avg(price) AS m FROM Bid [RANGE 1 MINUTE SLIDE 10 SECONDS]
GROUP BY item;"""
DEAR = """CREATE QUERY dear AS SELECT item, max(price) AS p, window_end() AS e
FROM Bid [RANGE 25 SECONDS SLIDE 20 SECONDS] WHERE price > 9 GROUP BY item HAVING count(*) > 1;"""
OVER = """CREATE QUERY beside AS SELECT price, sum(price) OVER (PARTITION BY item RANGE 9 SECONDS PRECEDING
SLIDE 3 SECONDS) AS s FROM Bid;"""
MIDDLE = "CREATE QUERY middle AS SELECT median(price) AS m FROM Bid [RANGE 1 MINUTE SLIDE 1 MINUTE];"


def shared(text: str) -> QueryGraph:
    catalog = bind(STREAMS + text).catalog
    return share(optimize(build_graph(catalog)), catalog)


def test_selections_move_into_the_shared_node_and_readers_have_their_columns() -> None:
    graph = shared(MEAN + DEAR + OVER)
    (node,) = (node for node in graph if node.label == "windows of Bid by item")
    assert isinstance(node.operator, SharedWindows) and node.inputs == ("Bid",)
    members = {graph[member.name].label: member for member in node.operator.members}
    assert list(members) == ["mean: aggregate", "dear: aggregate", "beside: window"]
    assert [len(member.conditions) for member in members.values()] == [0, 1, 0]
    dear = [column.name for column in members["dear: aggregate"].columns]
    assert dear == ["item", "max(price)", "count(*)", "window_end"]
    assert members["beside: window"].columns[0].name == "price"
    assert all(graph[member.name].operator == Part(member.name) for member in members.values())
    assert not any(isinstance(node.operator, Filter) for node in graph.consumers("Bid"))


def test_all_queries_of_a_shared_node_are_one_task_with_a_stable_id() -> None:
    (task,) = split_into_tasks(shared(MEAN + DEAR + OVER))
    (less,) = split_into_tasks(shared(OVER))
    assert task.id == less.id == "aggregates of Bid by item"
    assert task.stateful_nodes == less.stateful_nodes
    assert [log for _, log in task.outputs] == ["mean", "dear", "beside"]
    assert exchanges_of(task, shared(MEAN + DEAR + OVER), 5).keys() == {"Bid"}


def test_other_keys_make_another_task_and_other_selections_another_node() -> None:
    changed = """CREATE QUERY c AS SELECT max(p) AS m
    FROM (SELECT price * 2 AS p FROM Bid) [RANGE 1 MINUTE SLIDE 1 MINUTE] AS b;"""
    keyed, whole = split_into_tasks(shared(MEAN + MIDDLE + changed))
    assert [keyed.id, whole.id] == ["aggregates of Bid by item", "aggregates of Bid"]
    assert len(keyed.stateful_nodes) == 1 and len(whole.stateful_nodes) == 2
    again = changed.replace("QUERY c", "QUERY d")
    (one,), (two,) = split_into_tasks(shared(again)), split_into_tasks(shared(changed + again))
    assert one.stateful_nodes == two.stateful_nodes == whole.stateful_nodes[1:]
    assert len(two.outputs) == 2


@pytest.mark.parametrize(
    "text",
    [
        "CREATE QUERY q AS SELECT item, count(*) AS n FROM Bid [RANGE 1 MINUTE] GROUP BY item;",
        "CREATE QUERY q AS SELECT item, count(*) AS n FROM Bid [ROWS 9 SLIDE 3] GROUP BY item;",
        """CREATE QUERY q AS SELECT median(price) OVER (RANGE 9 SECONDS PRECEDING SLIDE 3 SECONDS) AS m
        FROM Bid;""",
        "CREATE QUERY q AS SELECT sum(price) OVER (RANGE 9 SECONDS PRECEDING) AS s FROM Bid;",
        """CREATE QUERY q AS SELECT count(*) AS n FROM Bid [RANGE 9 SECONDS SLIDE 3 SECONDS] B,
        Ask [RANGE 9 SECONDS] A WHERE A.item = B.item;""",
        """CREATE AGGREGATE sum(next real) : real
        { TABLE t(x real); INITIALIZE : { INSERT INTO t VALUES (next); } ITERATE : { UPDATE t SET x = next; }
        TERMINATE : { INSERT INTO RETURN SELECT x FROM t; } };
        CREATE QUERY q AS SELECT sum(price) OVER (RANGE 9 SECONDS PRECEDING SLIDE 3 SECONDS) AS s
        FROM Bid;""",
    ],
)
def test_unsupported_aggregates_are_not_shared(text: str) -> None:
    assert not any(isinstance(node.operator, SharedWindows) for node in shared(text))


def test_equal_windows_in_from_that_cannot_be_shared_have_separate_nodes() -> None:
    counts = "SELECT count(*) AS n FROM Bid [RANGE 9 SECONDS SLIDE 3 SECONDS] UNION ALL SELECT item FROM Ask"
    graph = shared(f"CREATE QUERY q AS {counts}; CREATE QUERY r AS {counts};")
    found = [node for node in graph if isinstance(node.operator, SharedWindows)]
    assert [node.label for node in found] == ["windows of q: aggregate", "windows of r: aggregate"]


def test_explain_lists_panes_partial_aggregates_and_queries() -> None:
    graph = shared(MEAN + DEAR)
    text = explain_text(graph)
    assert "γ Windows of 2 aggregates" in text
    assert "in            panes cut every 10 SECONDS and every 20 SECONDS from 15 SECONDS" in text
    assert "per pane      count, sum, greatest of price" in text
    assert "γ From panes  max(price), count(*)" in text and "where     price > 9" in text
    assert "From panes" in explain_svg(graph)


def test_panes_store_the_values_for_an_aggregate_without_partial_aggregates() -> None:
    assert "per pane  values of price" in explain_text(shared(MIDDLE))
