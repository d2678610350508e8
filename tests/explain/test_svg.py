"""SVG drawing of a query graph: complete, well formed, readable, and deterministic."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicemill.binder import bind
from slicemill.explain.svg import (
    FAINT_INK,
    INK,
    LOOKS,
    NAMED,
    PANEL,
    PAPER,
    WAITS,
    explain_svg,
    text_width,
    wrap_text,
)
from slicemill.explain.text import role_of
from slicemill.operators.graph import QueryGraph
from slicemill.operators.protocol import Role
from slicemill.plan.build import build_graph
from slicemill.plan.rules.push_selections import push_selections

SVG = "{http://www.w3.org/2000/svg}"
STREAMS = """
CREATE STREAM Open(item int, seller char(10), price real, ts timestamp) ORDER BY ts;
CREATE STREAM Closed(item int, buyer char(10), price real, ts timestamp) ORDER BY current_time;
CREATE STREAM Bid(item int, price real);
CREATE TABLE Seller(id char(10), name varchar);
"""
AUCTION = """
CREATE STREAM dear AS SELECT item, seller, price FROM Open WHERE price > 1000;
CREATE QUERY sellers AS SELECT D.item, S.name FROM dear D, Seller S WHERE D.seller = S.id;
CREATE QUERY sold AS SELECT O.item, C.buyer FROM Open [RANGE 1 DAY] O, Closed [RANGE 1 DAY] C
  WHERE O.item = C.item AND O.price > 50;
CREATE QUERY all_prices AS SELECT item, price FROM Open UNION ALL SELECT item, price FROM Closed;
CREATE QUERY top AS
  SELECT item, max(price) OVER (PARTITION BY item RANGE 1 HOUR PRECEDING SLIDE 1 MINUTE) AS m FROM Open;
CREATE QUERY twins AS SELECT A.item FROM Open [ROWS 10] A, Open [ROWS 20] B WHERE A.price = B.price;
CREATE QUERY bids AS SELECT item, price FROM Bid;
"""


def graph_of(text: str) -> QueryGraph:
    return push_selections(build_graph(bind(STREAMS + text).catalog))


def parsed(graph: QueryGraph) -> ElementTree.Element:
    return ElementTree.fromstring(explain_svg(graph))


def by_class(root: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    return [element for element in root.iter() if name in element.get("class", "").split()]


def test_every_node_and_arc_is_drawn_once() -> None:
    graph = graph_of(AUCTION)
    root = parsed(graph)
    assert [g.get("data-id") for g in by_class(root, "node")] == list(graph.nodes)
    arcs = [(g.get("data-source"), g.get("data-target"), g.get("data-port")) for g in by_class(root, "arc")]
    assert arcs == [(arc.source, arc.target, str(arc.port)) for arc in graph.arcs]


def test_tooltips_contain_all_facts_of_a_node() -> None:
    root = parsed(graph_of(AUCTION))
    join = next(g for g in by_class(root, "node") if g.get("data-id") == "sold: join")
    assert (join.findtext(f"{SVG}title") or "").splitlines() == [
        "⋈ Join",
        "on: O.item = C.item",
        "windows: RANGE 1 DAY each",
        "waits for the watermarks of its inputs",
        "columns: O.item INT, O.seller VARCHAR(10), O.price DOUBLE, O.ts TIMESTAMP, C.item INT, "
        "C.buyer VARCHAR(10), C.price DOUBLE, C.ts TIMESTAMP",
    ]
    arc = next(g for g in by_class(root, "arc") if g.get("data-source") == "Closed")
    assert (arc.findtext(f"{SVG}title") or "").splitlines() == [
        "Closed → sold: join, input 2 (C)",
        "item INT, buyer VARCHAR(10), price DOUBLE, ts TIMESTAMP",
    ]


def test_lookup_arcs_have_another_stroke() -> None:
    root = parsed(graph_of(AUCTION))
    dashed = [g for g in by_class(root, "arc") if by_class(g, "lookup")]
    assert [(g.get("data-source"), g.get("data-port")) for g in dashed] == [("Seller", "1")]


def test_the_legend_names_exactly_the_occurring_elements() -> None:
    def words(text: str) -> list[str | None]:
        return [element.text for element in by_class(parsed(graph_of(text)), "legend")]

    assert words("SELECT item FROM Bid WHERE price > 1") == [
        "stream", "stateless operator", "query result", "rows",
    ]  # fmt: skip
    assert words(AUCTION) == [
        "stream", "table or view", "stateless operator", "stateful operator", "query result",
        "waits for watermark", "rows", "lookup",
    ]  # fmt: skip


def test_names_and_constants_are_escaped() -> None:
    graph = graph_of("""CREATE QUERY "a<b>&""c" AS SELECT item FROM Open WHERE seller = '<&"''\x1b\x00]]>'""")
    root = parsed(graph)
    assert [g.get("data-id") for g in by_class(root, "node")] == list(graph.nodes)
    texts = [element.text or "" for element in root.iter(f"{SVG}text")]
    assert 'Query a<b>&"c' in texts


def test_the_same_script_gives_the_same_drawing() -> None:
    assert explain_svg(graph_of(AUCTION)) == explain_svg(graph_of(AUCTION))


def test_text_stays_inside_its_box() -> None:
    long = "SELECT item, price * 1.19 + item / 3 - 2 AS a_rather_long_name_for_a_column_of_a_stream FROM Open"
    root = parsed(
        graph_of(f"{AUCTION} {long} WHERE seller LIKE 'somebody with a very long name%' AND price > 3")
    )
    for node in by_class(root, "node"):
        left, right = horizontal_extent(node)
        for kind, size in (("title", 13.0), ("name", 10.5), ("fact", 10.5)):
            for text in by_class(node, kind):
                start = float(text.get("x") or 0)
                width = text_width(text.text or "", size, mono=kind == "fact", bold=kind != "fact")
                assert left < start and start + width <= right, text.text


def horizontal_extent(node: ElementTree.Element) -> tuple[float, float]:
    rect = node.find(f"{SVG}rect")
    if rect is not None:
        x = float(rect.get("x") or 0)
        return x, x + float(rect.get("width") or 0)
    path = node.find(f"{SVG}path")
    assert path is not None
    numbers = re.findall(r"[MLH](-?[\d.]+)|0 0 1 (-?[\d.]+)", path.get("d") or "")
    xs = [float(a or b) for a, b in numbers]
    return min(xs), max(xs)


def test_a_graph_without_queries_is_an_empty_drawing() -> None:
    root = parsed(QueryGraph({}))
    assert not by_class(root, "node")


def test_each_of_several_components_has_a_panel() -> None:
    assert len(by_class(parsed(graph_of(AUCTION)), "component")) == 2
    assert by_class(parsed(graph_of("SELECT item FROM Bid")), "component") == []


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    bright, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("role", list(Role))
def test_colours_have_the_contrast_required_by_wcag(role: Role) -> None:
    look = LOOKS[role]
    assert contrast(INK, look.fill) >= 7
    assert contrast(NAMED, look.fill) >= 4.5
    assert contrast(look.edge, look.fill) >= 3
    assert contrast(look.edge, PANEL) >= 3
    assert contrast(FAINT_INK, PANEL) >= 4.5
    assert contrast(WAITS, PAPER) >= 4.5


def test_every_role_occurs_in_the_example() -> None:
    assert {role_of(node) for node in graph_of(AUCTION)} == set(Role)


@given(st.text(max_size=80), st.integers(20, 200), st.integers(1, 4), st.booleans())
def test_wrapped_lines_fit_and_lose_text_only_with_an_ellipsis(
    text: str, width: int, lines: int, mono: bool
) -> None:
    made = wrap_text(text, 10.0, float(width), lines, mono)
    assert len(made) <= lines
    assert all(text_width(line, 10.0, mono) <= width or len(line) <= 1 for line in made)
    if not (made and made[-1].endswith("…")):
        assert "".join("".join(made).split()) == "".join(text.split())


def test_lines_break_at_spaces_outside_of_constants() -> None:
    text = "sellerID = 'Smith and Sons' OR price > 1000"
    assert wrap_text(text, 10.0, 130.0, 9, mono=True) == [
        "sellerID =",
        "'Smith and Sons' OR",
        "price > 1000",
    ]
