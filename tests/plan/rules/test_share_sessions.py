"""Sessions of one stream and key share one node, and windows are shared in every syntax."""

from __future__ import annotations

from slicemill.binder import bind
from slicemill.operators.graph import QueryGraph
from slicemill.operators.session.spec import SessionAggregate, SharedSessions
from slicemill.operators.window.spec import SharedWindows
from slicemill.plan.build import build_graph
from slicemill.plan.optimizer import optimize, share

BID = "CREATE STREAM bid (item int, price double, ts timestamp) ORDER BY ts;"


def shared(*selects: str) -> QueryGraph:
    catalog = bind(BID + "".join(f"{select};" for select in selects)).catalog
    return share(optimize(build_graph(catalog)), catalog)


def test_sessions_of_one_key_with_different_gaps_share_one_node() -> None:
    graph = shared(
        "SELECT item, count(*) FROM bid [SESSION 5 SECONDS] GROUP BY item",
        "SELECT item, max(price) FROM bid [SESSION 1 DAY CLOSE WHEN price > 9] WHERE price > 1 GROUP BY item",
        "SELECT item, count(*) FROM bid GROUP BY session_window(ts, '9 seconds'), item",
    )
    (node,) = [node for node in graph if isinstance(node.operator, SharedSessions)]
    assert isinstance(node.operator, SharedSessions)
    assert len(node.operator.members) == 3 and node.inputs == ("bid",)


def test_sessions_by_another_key_have_a_separate_node() -> None:
    graph = shared(
        "SELECT item, count(*) FROM bid [SESSION 5 SECONDS] GROUP BY item",
        "SELECT count(*) FROM bid [SESSION 5 SECONDS]",
    )
    assert len([node for node in graph if isinstance(node.operator, SharedSessions)]) == 2


def test_sessions_behind_a_stateful_operator_are_not_shared() -> None:
    inner = "SELECT item, sum(price) OVER (PARTITION BY item ROWS 2 PRECEDING) AS s FROM bid"
    graph = shared(f"SELECT item, max(s) FROM ({inner}) AS q [SESSION 5 SECONDS] GROUP BY item")
    assert [node.operator for node in graph if isinstance(node.operator, SharedSessions)] == []
    assert any(isinstance(node.operator, SessionAggregate) for node in graph)


def test_windows_are_shared_in_every_syntax() -> None:
    graph = shared(
        "SELECT item, sum(price) FROM bid [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY item",
        "SELECT item, sum(price) FROM TUMBLE(TABLE bid, ts, 10 SECONDS) GROUP BY item, window_end",
        "SELECT item, avg(price) FROM bid GROUP BY window(ts, '20 seconds', '5 seconds'), item",
        "SELECT item, max(price) FROM CUMULATE(bid, ts, 5 SECONDS, 1 MINUTE) GROUP BY item, window_end",
        "SELECT item, count(*) FILTER (WHERE price > 9) FROM bid GROUP BY window(ts, '5 seconds'), item",
    )
    (node,) = [node for node in graph if isinstance(node.operator, SharedWindows)]
    assert isinstance(node.operator, SharedWindows)
    assert len(node.operator.members) == 5
