"""The chain that explain shows of shared joins: where slices end, and what they save."""

from __future__ import annotations

from slicemill.binder import bind
from slicemill.explain.text import explain_text
from slicemill.operators.join.slices.cuts import chain_of_join
from slicemill.operators.join.spec import SharedJoin
from slicemill.plan.build import build_graph
from slicemill.plan.optimizer import optimize, share

SCRIPT = """
CREATE STREAM a (k int, v double, ts timestamp) ORDER BY ts;
CREATE STREAM b (k int, w double, ts timestamp) ORDER BY ts;
CREATE QUERY q1 AS SELECT a.k, v, w FROM a [{first}], b [{first}] WHERE a.k = b.k;
CREATE QUERY q2 AS SELECT a.k, v, w FROM a [{second}], b [{second}] WHERE a.k = b.k AND v > 10;
"""


def shared_join(first: str, second: str) -> tuple[SharedJoin, str]:
    catalog = bind(SCRIPT.format(first=first, second=second)).catalog
    graph = share(optimize(build_graph(catalog)), catalog)
    (join,) = (node.operator for node in graph if isinstance(node.operator, SharedJoin))
    return join, explain_text(graph)


def test_explain_shows_the_chain_beside_the_ways_without_slices() -> None:
    join, text = shared_join("RANGE 5 SECONDS", "RANGE 60 SECONDS")
    chain = chain_of_join(join)
    assert chain is not None and chain.ends == ((5, 60), (5, 60))
    assert chain.queries(0) == tuple(member.name for member in join.members)
    assert len(chain.queries(1)) == 1
    # The last slice holds only what the query with the long window selects of the first stream.
    assert chain.expected.memory == 100 * (5 + 0.5 * 55 + 60)
    assert chain.expected.memory < min(cost.memory for cost in chain.baselines.values())
    assert "slices end at  5 s, 60 s" in text
    assert "slices 9,250, isolated 10,000" in text


def test_windows_that_count_rows_have_no_such_chain() -> None:
    join, text = shared_join("ROWS 5", "ROWS 6")
    assert chain_of_join(join) is None
    assert "slices end at" not in text
