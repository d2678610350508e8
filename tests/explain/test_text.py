"""Query graph as text and as JSON."""

from __future__ import annotations

import json

import pytest

from slicemill.binder import bind
from slicemill.explain.json import explain_data, explain_json
from slicemill.explain.text import explain_text
from slicemill.operators.graph import QueryGraph
from slicemill.plan.build import build_graph
from slicemill.plan.rules.push_selections import push_selections

STREAMS = """
CREATE STREAM Open(item int, seller char(10), price real, ts timestamp) ORDER BY ts;
CREATE STREAM Closed(item int, buyer char(10), price real, ts timestamp) ORDER BY current_time;
CREATE STREAM Bid(item int, price real);
CREATE TABLE Seller(id char(10), name varchar);
"""


def graph_of(text: str) -> QueryGraph:
    return push_selections(build_graph(bind(STREAMS + text).catalog))


def test_the_text_of_a_query_runs_from_the_sink_down_to_the_source() -> None:
    graph = graph_of("CREATE QUERY dear AS SELECT item, price * 2 AS twice FROM Open WHERE price > 1000")
    assert explain_text(graph) == (
        """\
Query dear
│    columns  item INT, twice DOUBLE
└─ π Project  item, price * 2 AS twice
   └─ σ Filter  price > 1000
      └─ Stream Open  external timestamp
              columns  item INT, seller VARCHAR(10), price DOUBLE, ts TIMESTAMP

1 component · 1 source (1 external) · 2 operators · 1 sink
"""
    )


def test_a_join_shows_windows_condition_inputs_and_waiting() -> None:
    graph = graph_of(
        """CREATE QUERY sold AS SELECT O.item, S.name FROM Open [RANGE 1 DAY] O, Closed [ROWS 100] C, Seller S
        WHERE O.item = C.item AND O.price > 50 AND O.seller = S.id"""
    )
    assert explain_text(graph) == (
        """\
Query sold
│    columns  item INT, name VARCHAR
└─ π Project  O.item, S.name
   └─ ⋈ Look up Seller AS S  O.seller = S.id
      │    columns  O.item INT, O.seller VARCHAR(10), O.price DOUBLE, O.ts TIMESTAMP, C.item INT,
      │             C.buyer VARCHAR(10), C.price DOUBLE, C.ts TIMESTAMP, S.id VARCHAR(10),
      │             S.name VARCHAR
      ├─ ⋈ Join  O.item = C.item  [waits for watermark]
      │  │    windows  O RANGE 1 DAY, C ROWS 100
      │  │    columns  O.item INT, O.seller VARCHAR(10), O.price DOUBLE, O.ts TIMESTAMP, C.item INT,
      │  │             C.buyer VARCHAR(10), C.price DOUBLE, C.ts TIMESTAMP
      │  ├─ O = σ Filter  price > 50
      │  │  └─ Stream Open  external timestamp
      │  │          columns  item INT, seller VARCHAR(10), price DOUBLE, ts TIMESTAMP
      │  └─ C = Stream Closed  internal timestamp
      │          columns  item INT, buyer VARCHAR(10), price DOUBLE, ts TIMESTAMP
      └─ S = Table Seller
              columns  id VARCHAR(10), name VARCHAR

1 component · 2 sources (1 external, 1 internal) · 4 operators (1 waits for watermarks) · 1 table or
view · 1 sink
"""
    )


def test_a_shared_operator_is_printed_once_and_then_referenced() -> None:
    text = explain_text(
        graph_of(
            """CREATE STREAM dear AS SELECT item, price FROM Bid WHERE price > 10;
            CREATE QUERY a AS SELECT item FROM dear; CREATE QUERY b AS SELECT price FROM Bid"""
        )
    )
    assert text.count("\nStream dear\n") == 1
    assert text.count("↗ Stream dear") == 1
    assert text.startswith("Stream Bid  no timestamp (latent)\n")
    assert text.count("↗ Stream Bid (no timestamp (latent))") == 2


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT item, avg(price) OVER (PARTITION BY item ROWS 9 PRECEDING) AS p FROM Bid",
         ["γ Window aggregate  avg(price)", "partition by  item", "window        ROWS 9 PRECEDING"]),
        ("SELECT max(price) OVER (RANGE 1 HOUR PRECEDING SLIDE 1 MINUTE) AS p FROM Open",
         ["[waits for watermark]", "RANGE 1 HOUR PRECEDING SLIDE 1 MINUTE"]),
        ("SELECT item, count(*) AS n FROM Open [RANGE 1 HOUR SLIDE 5 MIN] GROUP BY item HAVING count(*) > 3",
         ["σ Filter  count(*) > 3", "γ Aggregate  count(*)  [waits for watermark]", "every     5 MINUTES"]),
        ("SELECT item FROM Open UNION ALL SELECT item FROM Closed",
         ["∪ Union  by timestamp  [waits for watermark]"]),
        ("SELECT item FROM Bid UNION ALL SELECT item FROM Bid", ["∪ Union  as tuples arrive\n"]),
        ("SELECT O.item, S.name FROM Open O LEFT JOIN Seller S ON O.seller = S.id",
         ["⋈ Look up Seller AS S  O.seller = S.id", "keep the tuple, with NULLs"]),
        ("SELECT S.price, VALID(S) FROM Open(price) AS S RANGE 15 MINUTE SLIDES 1 MINUTE",
         ["Coalesce  price", "RANGE 15 MINUTES SLIDE 1 MINUTE"]),
    ],
)  # fmt: skip
def test_every_operator_has_a_description(query: str, words: list[str]) -> None:
    text = explain_text(graph_of(query))
    assert [word for word in words if word not in text] == []


@pytest.mark.parametrize("width", [60, 80, 120])
def test_lines_fit_the_terminal(width: int) -> None:
    graph = graph_of(
        """CREATE QUERY sold AS SELECT O.item, O.price * 1.19 + C.price / 2 AS strange_mixture
        FROM Open [RANGE 1 DAY] O, Closed [RANGE 1 DAY] C
        WHERE O.item = C.item AND O.price > 50 AND (C.buyer LIKE 'a%' OR C.buyer IN ('x', 'y', 'z'))"""
    )
    assert max(len(line) for line in explain_text(graph, width).splitlines()) <= width


def test_control_characters_are_escaped() -> None:
    text = explain_text(graph_of("SELECT item FROM Open WHERE seller = '\x1b[31m'"))
    assert "\x1b" not in text and "\\x1b[31m" in text


def test_a_graph_without_queries_is_an_empty_summary() -> None:
    assert explain_text(QueryGraph({})) == "0 components · 0 sources · 0 operators · 0 sinks\n"


def test_json_has_every_node_arc_component_and_stream() -> None:
    graph = graph_of(
        """CREATE STREAM both AS SELECT item FROM Open UNION ALL SELECT item FROM Closed;
        CREATE QUERY a AS SELECT O.item, S.name FROM Open O, Seller S WHERE O.seller = S.id;
        CREATE QUERY b AS SELECT item FROM Bid"""
    )
    data = json.loads(explain_json(graph))
    assert data == explain_data(graph)
    assert [node["id"] for node in data["nodes"]] == list(graph.nodes)
    assert [(a["source"], a["target"], a["port"]) for a in data["arcs"]] == [
        (arc.source, arc.target, arc.port) for arc in graph.arcs
    ]
    assert sorted(i for part in data["components"] for i in part["nodes"]) == sorted(graph.nodes)
    assert data["streams"] == graph.streams
    assert len(data["components"]) == 2
    lookup = next(arc for arc in data["arcs"] if arc["kind"] == "lookup")
    assert (lookup["source"], lookup["port"], lookup["alias"]) == ("Seller", 1, "S")
    union = next(node for node in data["nodes"] if node["operator"] == "merge")
    assert union["waits_for_time"] and union["timestamp"] == "external" and union["role"] == "stateless"
    source = next(node for node in data["nodes"] if node["id"] == "Bid")
    assert source == {
        "id": "Bid",
        "label": "Bid",
        "operator": "source",
        "role": "source",
        "title": "Stream Bid",
        "facts": [{"what": "time", "text": "no timestamp (latent)"}],
        "inputs": [],
        "columns": [{"name": "item", "type": "INT"}, {"name": "price", "type": "DOUBLE"}],
        "timestamp": "latent",
        "waits_for_time": False,
        "component": 1,
    }
