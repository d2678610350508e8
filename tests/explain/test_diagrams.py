"""Query graph as Mermaid flowchart and in DOT: every node and arc occurs once, and all text is escaped."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slicemill.binder import bind
from slicemill.catalog.catalog import Catalog
from slicemill.explain.diagrams import dot_string, explain_dot, explain_mermaid, mermaid_string
from slicemill.explain.text import describe_node, printable, role_of
from slicemill.operators.graph import QueryGraph
from slicemill.operators.protocol import Role
from slicemill.plan.build import build_graph
from slicemill.plan.optimizer import optimize, share
from slicemill.plan.tasks import split_into_tasks
from support.corpus import Case, prepare, read_cases

STREAMS = """
CREATE STREAM Open(item int, seller char(10), price real, ts timestamp) ORDER BY ts;
CREATE STREAM Closed(item int, buyer char(10), price real, ts timestamp) ORDER BY current_time;
CREATE TABLE Seller(id char(10), name varchar);
"""
AUCTION = """
CREATE STREAM dear AS SELECT item, seller, price FROM Open WHERE price > 1000;
CREATE QUERY sellers AS SELECT D.item, S.name FROM dear D, Seller S WHERE D.seller = S.id;
CREATE QUERY sold AS SELECT O.item, C.buyer FROM Open [RANGE 1 DAY] O, Closed [RANGE 1 DAY] C
  WHERE O.item = C.item AND O.price > 50;
"""
HOSTILE = """
CREATE QUERY "a<b>&""c#;[]|{}\\n%%{init}%% end" AS SELECT item AS "x_ _y" FROM Open "O `*]"
  WHERE seller = '<&"''\x1b\x00\\ \\l &lt; #35; style x:#1; é ⋈ 🙂]]>';
"""
TEXTS = st.text(st.one_of(st.sampled_from("""ab1 \n"'\\#;&<>[](){}|%`*_.:-lnN°¶ßﬂé\xa0"""), st.characters()))
CASES = [pytest.param(case, id=case.name) for case in read_cases() if not case.errors]


@dataclass(slots=True)
class Diagram:
    """Parsed diagram: labels by id, frames by title, arrows as (source, label, target, dashed)."""

    boxes: dict[str, str] = field(default_factory=dict)
    roles: dict[str, str] = field(default_factory=dict)
    frames: list[tuple[str, list[str]]] = field(default_factory=list)
    arrows: list[tuple[str, str, str, bool]] = field(default_factory=list)

    def add_box(self, name: str, label: str, framed: bool) -> None:
        assert name not in self.boxes, "a box occurs once"
        self.boxes[name] = label
        if framed:
            self.frames[-1][1].append(name)


# Mermaid. A string ends at the next quote. `#35;` is a character, `<br>` a line break, other `<` begin a tag.
# Characters that Mermaid, Markdown or HTML interpret must be escaped.

M_STRING = r'"([^"\n]*)"'
M_BOX = re.compile(rf"(n\d+)(>|\[\(|\[\[|\(\[|\[){M_STRING}(\)\]|\]\]|\]\)|\]):::(\w+)")
M_ARROW = re.compile(rf"(n\d+) (-->|-\.->)(?:\|{M_STRING}\|)? (n\d+)")
M_FRAME = re.compile(rf"subgraph (u\d+)\[{M_STRING}\]")
M_CLASS = re.compile(r"classDef (\w+) fill:#[0-9a-f]{6},stroke:#[0-9a-f]{6},color:#[0-9a-f]{6}")
M_PAIRS = {">": "]", "[(": ")]", "[[": "]]", "([": "])", "[": "]"}


def mermaid_lines(inside: str) -> list[str]:
    """Return the lines of a string without its quotes."""
    lines = inside.split("<br>")
    for line in lines:
        rest = re.sub(r"#\d+;", "x", line)  # Markdown is parsed first, and sees a character code as letters.
        assert not re.search(r'[<>"#;&`*~|\[\]{}%$\\:\n\r°¶-]', rest), rest
        assert not re.search(r"(?<!\w)[_.]|[_.](?!\w)", rest), "Markdown would see emphasis or a list"
    return [re.sub(r"#(\d+);", lambda found: chr(int(found[1])), line) for line in lines]


def parse_mermaid(text: str) -> Diagram:
    found = Diagram()
    first, *lines = text.splitlines()
    assert first == "flowchart LR"
    open_frame, classes, ids = False, set[str](), set[str]()
    for line in map(str.strip, lines):
        if box := M_BOX.fullmatch(line):
            assert M_PAIRS[box[2]] == box[4]
            found.add_box(box[1], "\n".join(mermaid_lines(box[3])), open_frame)
            found.roles[box[1]] = box[5]
        elif arrow := M_ARROW.fullmatch(line):
            label = "\n".join(mermaid_lines(arrow[3] or ""))
            found.arrows.append((arrow[1], label, arrow[4], arrow[2] == "-.->"))
        elif frame := M_FRAME.fullmatch(line):
            assert not open_frame and frame[1] not in ids
            ids.add(frame[1])
            found.frames.append(("\n".join(mermaid_lines(frame[2])), []))
            open_frame = True
        elif declared := M_CLASS.fullmatch(line):
            classes.add(declared[1])
        else:
            assert line == "end" and open_frame, line
            open_frame = False
    assert not open_frame and classes == set(found.roles.values())
    return found


# DOT. In a string, a backslash escapes the next character; `\l` ends a line. Then HTML entities are replaced.

D_STRING = r'"((?:[^"\\\n]|\\.)*)"'
D_BOX = re.compile(
    rf'(n\d+) \[label={D_STRING}, shape=(\w+)[^"]*(?:"filled,rounded", )?[^"]*("#.{{6}}"[^"]*)+\];'
)
D_ARROW = re.compile(rf"(n\d+) -> (n\d+)(?: \[(?:label={D_STRING})?(?:, )?(style=dashed)?\])?;")
D_LABEL = re.compile(rf"label={D_STRING};")
D_ROLES = {"note": Role.SOURCE, "cylinder": Role.TABLE}


def dot_lines(inside: str) -> list[str]:
    """Return the lines of a string without its quotes."""
    lines, line = [], ""
    for token in re.findall(r"\\.|[^\\]", inside):
        if token == "\\l":
            lines.append(html.unescape(line))
            line = ""
        else:
            assert token in ('\\"', "\\\\") or len(token) == 1
            line += token[-1]
    assert not line, "the last line is justified as well"
    return lines


def parse_dot(text: str) -> Diagram:
    found = Diagram()
    first, *lines, last = text.splitlines()
    assert (first, last) == ("digraph slicemill {", "}")
    open_frame = False
    for line in map(str.strip, lines):
        if box := D_BOX.fullmatch(line):
            found.add_box(box[1], "\n".join(dot_lines(box[2])), open_frame)
        elif arrow := D_ARROW.fullmatch(line):
            found.arrows.append((arrow[1], "\n".join(dot_lines(arrow[3] or "")), arrow[2], bool(arrow[4])))
        elif label := D_LABEL.fullmatch(line):
            found.frames[-1] = ("\n".join(dot_lines(label[1])), [])
        elif re.fullmatch(r"subgraph cluster_\d+ \{", line):
            assert not open_frame
            found.frames.append(("", []))
            open_frame = True
        elif line == "}":
            assert open_frame
            open_frame = False
        else:
            assert re.fullmatch(r"(graph|node|edge) \[.*\];", line), line
    return found


def planned(text: str) -> QueryGraph:
    return planned_catalog(bind(STREAMS + text).catalog)


def planned_catalog(catalog: Catalog) -> QueryGraph:
    return share(optimize(build_graph(catalog)), catalog)


def squeezed(text: str) -> str:
    """Return the text without white space, which wrapping changes."""
    return "".join(text.split())


def check(found: Diagram, graph: QueryGraph) -> None:
    """Compare a diagram with the graph: nodes, facts, arcs and tasks."""
    ids = {node.id: f"n{number}" for number, node in enumerate(graph)}
    assert found.boxes.keys() == set(ids.values())
    for node in graph:
        words, label = describe_node(node, graph), squeezed(found.boxes[ids[node.id]])
        wanted = [words.headline, *(text for _, text in words.facts)]
        assert [text for text in wanted if squeezed(printable(text)) not in label] == []
    arcs = Counter((ids[arc.source], ids[arc.target]) for arc in graph.arcs)
    assert Counter((source, target) for source, _, target, _ in found.arrows) == arcs
    framed = [name for _, names in found.frames for name in names]
    runs = Counter(node_id for task in split_into_tasks(graph) for node_id in task.nodes)
    assert sorted(framed) == sorted(ids[node_id] for node_id, times in runs.items() if times == 1)
    titles = {squeezed(printable(f"Task {task.id}")) for task in split_into_tasks(graph)}
    assert {squeezed(title) for title, _ in found.frames} <= titles


@given(st.lists(TEXTS, min_size=1, max_size=4))
@example(['#35; "a" <b> &lt; `c` [d] {e} %%{init}%%', "1. x", "- y", "_z_ __ ._. style x:#1;", "ﬂ°°35¶ß"])
def test_mermaid_strings_show_the_given_lines(lines: list[str]) -> None:
    quoted = mermaid_string(lines)
    assert re.fullmatch(M_STRING, quoted)
    assert mermaid_lines(quoted[1:-1]) == [printable(line) for line in lines]


@given(st.lists(TEXTS, min_size=1, max_size=4))
@example(["a\\", '\\"', "\\l\\N\\G", "&lt; &amp; &#60; <b>", "a" * 200])
def test_dot_strings_show_the_given_lines_wrapped(lines: list[str]) -> None:
    quoted = dot_string(lines)
    assert re.fullmatch(D_STRING, quoted)
    shown = dot_lines(quoted[1:-1])
    assert max(map(len, shown), default=0) <= 48
    assert squeezed("".join(shown)) == squeezed("".join(map(printable, lines)))


@pytest.mark.parametrize("case", CASES)
def test_a_diagram_of_a_corpus_case_has_every_node_and_arc_once(case: Case) -> None:
    graph = planned_catalog(prepare(case).catalog)
    check(parse_mermaid(explain_mermaid(graph)), graph)
    check(parse_dot(explain_dot(graph)), graph)


@pytest.mark.parametrize("script", [AUCTION, HOSTILE, ""], ids=["auction", "hostile", "empty"])
def test_mermaid_and_dot_have_the_same_content(script: str) -> None:
    graph = planned(script)
    mermaid, dot = parse_mermaid(explain_mermaid(graph)), parse_dot(explain_dot(graph))
    check(mermaid, graph)
    check(dot, graph)
    assert mermaid.arrows == dot.arrows
    assert [names for _, names in mermaid.frames] == [names for _, names in dot.frames]
    assert {name: squeezed(label) for name, label in mermaid.boxes.items()} == {
        name: squeezed(label) for name, label in dot.boxes.items()
    }
    assert list(mermaid.roles.values()) == [mermaid.roles[name] for name in mermaid.boxes]
    by_name = {f"n{number}": role_of(node).value for number, node in enumerate(graph)}
    assert mermaid.roles == by_name


def test_a_shared_node_lists_its_queries_and_streams() -> None:
    boxes = parse_mermaid(explain_mermaid(planned(AUCTION))).boxes.values()
    assert [label for label in boxes if "2 queries" in label] == [
        "Stream Open\nexternal timestamp\n2 queries: sellers, sold"
    ]
    assert [label.splitlines()[:2] for label in boxes if "stream dear" in label] == [
        ["π Project", "stream dear"]
    ]


def test_a_lookup_arrow_is_dashed_and_arrows_have_the_aliases_of_inputs() -> None:
    for found in (parse_mermaid(explain_mermaid(planned(AUCTION))), parse_dot(explain_dot(planned(AUCTION)))):
        assert [(label, dashed) for _, label, _, dashed in found.arrows if label.strip()] == [
            ("D", False),
            ("S", True),
        ]


def test_a_diagram_of_one_query_has_only_its_own_nodes() -> None:
    graph = planned(AUCTION)
    own = graph.only(graph.ancestors("sold"))
    for found in (parse_mermaid(explain_mermaid(own)), parse_dot(explain_dot(own))):
        check(found, own)
        assert not any("queries" in label or "sellers" in label for label in found.boxes.values())


GRAPHVIZ = pytest.mark.skipif(
    shutil.which("dot") is None, reason="dot is not installed: apt-get install graphviz"
)


def draw(*texts: str) -> list[str]:
    """Return the SVG documents that Graphviz draws from the texts."""
    done = subprocess.run(["dot", "-Tsvg"], input="".join(texts), capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split("<?xml ")[1:]


@GRAPHVIZ
def test_graphviz_draws_every_node_arc_and_task_of_the_corpus() -> None:
    graphs = [planned_catalog(prepare(case).catalog) for case in read_cases() if not case.errors]
    texts = [explain_dot(graph) for graph in graphs]
    for graph, text, drawn in zip(graphs, texts, draw(*texts), strict=True):
        assert drawn.count('class="node"') == len(graph)
        assert drawn.count('class="edge"') == len(graph.arcs)
        assert drawn.count('class="cluster"') == text.count("subgraph ")


@GRAPHVIZ
@pytest.mark.parametrize("script", [AUCTION, HOSTILE, ""], ids=["auction", "hostile", "empty"])
def test_graphviz_draws_the_text_of_the_labels(script: str) -> None:
    graph = planned(script)
    (drawn,) = draw(explain_dot(graph))
    shown = squeezed(html.unescape("".join(re.findall(r"<text[^>]*>(.*?)</text>", drawn))))
    for node in graph:
        words = describe_node(node, graph)
        for text in (words.headline, *(text for _, text in words.facts)):
            assert squeezed(printable(text)) in shown
