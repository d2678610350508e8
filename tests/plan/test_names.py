"""Ids of nodes and tasks depend on their content, not on other queries that are created or dropped."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicemill.binder import bind
from slicemill.catalog.catalog import Catalog
from slicemill.extensions.models.spec import SharedModels
from slicemill.operators.graph import Node, QueryGraph
from slicemill.operators.join.spec import SharedJoin
from slicemill.operators.session.spec import SharedSessions
from slicemill.operators.specs import Merge, QueryResults
from slicemill.operators.window.spec import SharedOver, SharedWindows
from slicemill.plan.build import build_graph
from slicemill.plan.optimizer import optimize, share
from slicemill.plan.overlapping_joins import merge_overlapping_joins
from slicemill.plan.planner import Planner
from slicemill.plan.state_reuse import names_of_state
from slicemill.plan.tasks import Task, log_of, select_stateful, split_into_tasks
from support.corpus import Case, prepare, read_cases

DECLARED = """
CREATE STREAM bid(item int, bidder int, price real) ORDER BY current_time;
CREATE STREAM ask(item int, price real) ORDER BY current_time;
CREATE STREAM won(item int, price real) ORDER BY current_time;
CREATE TABLE shop(item int, name varchar) SOURCE 'x.csv';
CREATE STREAM dear AS SELECT item, price FROM bid WHERE price > 9;
CREATE STREAM same AS SELECT item, price FROM bid WHERE price > 9;
CREATE VIEW lately AS SELECT item, price FROM ask [RANGE 1 MINUTE];
CREATE MODEL centre(x REAL) AS mean(x);
CREATE AGGREGATE spread(x real) : real
{ TABLE t(low real, high real);
  INITIALIZE : { INSERT INTO t VALUES (x, x); }
  ITERATE : { UPDATE t SET low = CASE WHEN x < low THEN x ELSE low END,
                           high = CASE WHEN x > high THEN x ELSE high END; }
  TERMINATE : { INSERT INTO RETURN SELECT high - low FROM t; } };
CREATE AGGREGATE seen(x real) : int
{ TABLE t(n int);
  INITIALIZE : { INSERT INTO t VALUES (1); INSERT INTO RETURN VALUES (1); }
  ITERATE : { UPDATE t SET n = n + 1; INSERT INTO RETURN SELECT n FROM t; } };
CREATE WINDOW AGGREGATE spread(x real) : real
{ TABLE t(n int);
  INITIALIZE : { INSERT INTO t VALUES (1); INSERT INTO RETURN VALUES (x); }
  ITERATE : { INSERT INTO RETURN SELECT x - n FROM t; } };
"""
SELECTS = [
    "SELECT item, price FROM bid WHERE price > 9",
    "SELECT item FROM bid WHERE price > 9",
    "SELECT x.item FROM (SELECT item, price * 2 AS p FROM bid WHERE price > 9) AS x WHERE x.p > 30",
    "SELECT bid.item, name FROM bid, shop WHERE bid.item = shop.item AND price > 9",
    "SELECT item, sum(price) OVER (PARTITION BY item ROWS 9 PRECEDING) AS s FROM bid WHERE price > 9",
    "SELECT item, sum(price) OVER (PARTITION BY item RANGE 9 SECONDS PRECEDING) AS s FROM bid",
    "SELECT item, spread(price) OVER (PARTITION BY item ROWS 9 PRECEDING) AS s FROM bid",
    "SELECT item, centre(price) OVER (PARTITION BY item ROWS 9 PRECEDING) AS s FROM bid",
    """SELECT i, max(p) OVER (PARTITION BY i ROWS 3 PRECEDING) AS m
    FROM (SELECT item AS i, price AS p FROM bid WHERE price > 9) AS x""",
    "SELECT item, avg(price) AS m FROM bid [RANGE 9 SECONDS SLIDE 1 SECOND] WHERE price > 9 GROUP BY item",
    "SELECT item, spread(price) AS m FROM bid [RANGE 9 SECONDS SLIDE 3 SECONDS] GROUP BY item",
    "SELECT avg(price) AS m FROM bid [RANGE 9 SECONDS SLIDE 1 SECOND]",
    "SELECT item, count(*) AS n FROM bid [RANGE 1 MINUTE] GROUP BY item",
    "SELECT item, seen(price) AS n FROM bid GROUP BY item",
    "SELECT bid.item, ask.price FROM bid [RANGE 9 SECONDS], ask [RANGE 3 SECONDS] "
    "WHERE bid.item = ask.item AND bid.price > 9",
    "SELECT bid.item FROM bid [RANGE 1 SECOND], ask [RANGE 3 SECONDS] WHERE bid.item = ask.item",
    "SELECT bid.item FROM bid [RANGE 1 SECOND], ask [RANGE 3 SECONDS], won [RANGE 2 SECONDS] "
    "WHERE bid.item = ask.item AND ask.item = won.item AND bid.price > 9",
    "SELECT item FROM bid WHERE price > 9 UNION ALL SELECT item FROM ask WHERE price > 9",
    "SELECT item, count(*) AS n FROM dear [RANGE 9 SECONDS SLIDE 1 SECOND] GROUP BY item",
    "SELECT item FROM dear WHERE price > 30",
    "SELECT bid.item, lately.price FROM bid, lately WHERE bid.item = lately.item AND bid.price > 9",
]


def planned(queries: dict[str, str]) -> tuple[QueryGraph, tuple[Task, ...]]:
    texts = "".join(f"CREATE QUERY {name} AS {text};\n" for name, text in queries.items())
    return planned_from(bind(DECLARED + texts).catalog)


def planned_from(catalog: Catalog) -> tuple[QueryGraph, tuple[Task, ...]]:
    graph = share(optimize(build_graph(catalog)), catalog)
    return graph, split_into_tasks(graph)


def seen_by(query: str, graph: QueryGraph, tasks: tuple[Task, ...]) -> object:
    """Return everything of a plan that one query depends on: nodes, queries, tasks, and names of state."""
    behind = graph.ancestors(query)
    nodes = [_without_others(graph[node_id], behind) for node_id in sorted(behind)]
    holding = []
    for task in tasks:
        roots = [root for root, _ in task.outputs if root in behind]
        if roots:
            kept = sorted({name for root in roots for name in names_of_state(graph, task, root)})
            stateful = sorted(set(task.stateful_nodes) & behind)
            holding.append((task.id, task.inputs, sorted(roots), kept, stateful))
    return nodes, sorted(holding)


def _without_others(node: Node, behind: frozenset[str]) -> Node:
    operator = node.operator
    shared = (SharedJoin, SharedModels, SharedOver, SharedSessions, SharedWindows)
    if isinstance(operator, shared):
        operator = replace(operator, members=tuple(m for m in operator.members if m.name in behind))
    return replace(node, operator=operator)


ALONE = {
    (name, text): seen_by(name, *planned({name: text})) for name in ("q0", "q1", "q2") for text in SELECTS
}


@given(
    st.lists(st.sampled_from(SELECTS), min_size=3, max_size=12),
    st.randoms(use_true_random=False),
)
def test_the_plan_of_a_query_does_not_depend_on_other_queries_or_their_order(
    texts: list[str], chance: random.Random
) -> None:
    queries = {f"q{number}": text for number, text in enumerate(texts)}
    order = list(queries)
    chance.shuffle(order)
    graph, tasks = planned({name: queries[name] for name in order})
    for name in ("q0", "q1", "q2"):
        assert seen_by(name, graph, tasks) == ALONE[name, queries[name]]


@given(st.lists(st.lists(st.integers(0, len(SELECTS) - 1), unique=True), min_size=1, max_size=4))
def test_a_plan_built_incrementally_equals_a_plan_built_at_once(chosen: list[list[int]]) -> None:
    planner, known = Planner(), bind(DECLARED).catalog
    queries = {
        number: bind(f"CREATE QUERY q{number} AS {SELECTS[number]};", known).catalog.queries[f"q{number}"]
        for number in {number for numbers in chosen for number in numbers}
    }
    for numbers in chosen:
        catalog = known.copy()
        catalog.queries = {f"q{number}": queries[number] for number in numbers}
        made, (graph, tasks) = planner.plan(catalog), merge_overlapping_joins(*planned_from(catalog))
        assert made.graph == graph
        assert {task.id: task_without_order(task) for task in made.tasks} == {
            task.id: task_without_order(task) for task in tasks
        }
        position = {node_id: number for number, node_id in enumerate(made.graph.nodes)}
        assert all(position[arc.source] < position[arc.target] for arc in made.graph.arcs)
        for task in made.tasks:
            assert list(task.nodes) == sorted(task.nodes, key=position.__getitem__)


def task_without_order(task: Task) -> object:
    return task.id, set(task.nodes), task.inputs, set(task.outputs), set(task.stateful_nodes)


def test_a_planner_forgets_nodes_of_dropped_streams() -> None:
    planner = Planner()
    texts = [f"CREATE STREAM s(v {kind}); CREATE QUERY q AS SELECT v FROM s;" for kind in ("int", "real")]
    catalogs = [bind(text).catalog for text in texts]
    schemas = [planner.plan(catalog).graph["q"].schema for catalog in catalogs]
    assert [str(schema.columns[0].type) for schema in schemas] == ["INT", "DOUBLE"]


@pytest.mark.parametrize("case", [pytest.param(c, id=c.name) for c in read_cases() if not c.errors])
def test_the_plan_of_a_corpus_query_is_equal_without_the_other_queries(case: Case) -> None:
    catalog = prepare(case).catalog
    names = [query.name for query in catalog.queries.values() if query.continuous]
    whole = planned_from(catalog)
    for name in names:
        less = catalog.copy()
        less.queries = {key: query for key, query in catalog.queries.items() if query.name == name}
        assert seen_by(name, *planned_from(less)) == seen_by(name, *whole)


def test_equal_selections_and_subqueries_occur_once() -> None:
    graph, _ = planned({"a": SELECTS[2], "b": SELECTS[2], "c": SELECTS[0]})
    assert graph["a"].inputs == graph["b"].inputs
    (where,) = graph.consumers("bid")
    assert where.label == "bid: where price > 9" and not where.owner


def test_every_derived_stream_has_its_own_last_node() -> None:
    graph, _ = planned({"q": SELECTS[0]})
    ends = [graph.streams["dear"], graph.streams["same"], graph["q"].inputs[0]]
    assert len(set(ends)) == 3 and len({graph[end].inputs for end in ends}) == 1
    assert [log_of(graph[end], graph) for end in ends] == ["dear", "same", None]


def test_stateful_nodes_belong_to_one_query_and_equal_state_in_it_is_stored_once() -> None:
    twice = f"{SELECTS[13]} UNION ALL {SELECTS[13]}"
    graph, tasks = planned({"a": SELECTS[13], "b": SELECTS[13], "c": twice})
    own = {node_id: graph[node_id].owner for task in tasks for node_id in task.stateful_nodes}
    assert sorted(own.values()) == [
        "a",
        "b",
        "c",
        "c",
    ]  # one aggregate for each of a and b, and two nodes for the union of c
    (union,) = (node for node in graph if isinstance(node.operator, Merge))
    assert len(set(union.inputs)) == 1


def test_queries_named_like_nodes_and_tasks_have_distinct_ids() -> None:
    odd = ["aggregates of bid by item", "select from bid", "bid: where price > 9", "a: aggregate", "a"]
    texts = "".join(f'CREATE QUERY "{name}" AS {SELECTS[9 + n]};' for n, name in enumerate(odd))
    catalog = bind(f"{DECLARED}{texts}CREATE QUERY plain AS {SELECTS[0]};").catalog
    graph, tasks = planned_from(catalog)
    assert {node.operator.query for node in graph if isinstance(node.operator, QueryResults)} == {
        *odd,
        "plain",
        "lately",
    }
    assert len({task.id for task in tasks}) == len(tasks)
    for name in odd:
        less = catalog.copy()
        less.queries = {key: query for key, query in catalog.queries.items() if query.name == name}
        assert seen_by(name, *planned_from(less)) == seen_by(name, graph, tasks)


def test_drawings_and_texts_contain_no_digests() -> None:
    graph, tasks = planned({f"q{number}": text for number, text in enumerate(SELECTS)})
    assert all("#" not in node.name for node in graph)
    assert all("#" not in task.id for task in tasks)
    assert all(select_stateful(graph, task.nodes) == list(task.stateful_nodes) for task in tasks)


OF_EXTENSIONS = """
CREATE STREAM trade(ts TIMESTAMP, k INT, price DOUBLE, size DOUBLE) ORDER BY ts;
CREATE MODEL center(x REAL, w REAL) AS sum(x*w)/sum(w);
CREATE MODEL ewma(x REAL; alpha REAL) AS alpha*sum(x*(1 - alpha)^j);
CREATE QUERY q1 AS SELECT ts, center(price, size) OVER (PARTITION BY k ROWS 9 PRECEDING) AS c,
    ewma(price, 0.5) OVER (ROWS 5 PRECEDING) AS e FROM trade;
CREATE QUERY q2 AS SELECT k, center(price, size) AS c, kurtosis(price) AS m
    FROM trade [RANGE 10 SECONDS SLIDE 5 SECONDS] GROUP BY k;
CREATE TABLE examples(price DOUBLE, size DOUBLE, class VARCHAR) SOURCE 'x.csv';
CREATE CLASSIFIER c ON trade(price, size) LEARN class FROM examples EVERY 1 SECOND WITH (capacity = 1);
"""


def test_ids_of_models_and_classifiers_equal_those_of_earlier_versions() -> None:
    catalog = bind(OF_EXTENSIONS).catalog
    ids = [node.id for node in share(optimize(build_graph(catalog)), catalog)]
    stateful = {"c: classify #1a17bfb29b", "q1: window #e442b08599", "q2: aggregate #4b9f03d337"}
    assert stateful <= set(ids), ids
