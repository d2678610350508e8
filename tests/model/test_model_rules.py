"""Rewrite rules: equal values on random vectors, and no rewrite where the value would change."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.binder import bind
from slicemill.extensions.models import rules as merge_equal
from slicemill.extensions.models.canonical_graphs import blocking_graph
from slicemill.extensions.models.explain import explain_model, models_named
from slicemill.extensions.models.flow import FlowStep, flow, run
from slicemill.extensions.models.graph import ModelEdge, ModelGraph, ModelNode, Op
from slicemill.extensions.models.letters import from_letters
from slicemill.extensions.models.model import expression
from slicemill.extensions.models.rules import RULES
from slicemill_lab.model.reference.interpret import Instance
from slicemill_lab.model.reference.interpret import run as run_graph

VECTORS = st.lists(st.fractions(-9, 9, max_denominator=4), min_size=2, max_size=6).map(tuple)
WHOLE = st.lists(st.integers(-9, 9).map(Fraction), min_size=2, max_size=6).map(tuple)

HOLDS = {
    "R1": ["T[x + 1] · T[x^2] · X", "T[where(x > 0, x, 0)] · T[x - 3] · X"],
    "R2": ["T[2*x + 1] · M(X, Y)"],
    "R3": [
        "Ac[+] · M(X, Y)",
        "Ac[×] · M(X, Y)",
        "Ac[gcd] · M(X, Y)",
        "Ac[or] · M(X, Y)",
        "Ac[and] · M(X, Y)",
    ],
    "R4": ["F[oldest 2] · T[x^2] · X", "F[rest 1] · T[x^2] · X"],
    "R5": ["T[x^2] · P[reverse] · X", "T[x + 1] · P[rotate] · X"],
    "R6": ["Ac[+] · P[sort] · X", "Ac[×] · P[reverse] · X"],
    "R7": ["A[max] · T[2*x - 1] · X", "A[max] · T[1 - x^3] · X", "A[min] · T[-x] · X"],
    "R8": ["Ac[+] · F[where x > 0] · X", "Ac[×] · F[where x <> 0] · X"],
    "R10": ["Ac[+] · T[3*x^2] · X", "Ac[+] · T[4 - 2*x] · X"],
}
DOES_NOT = {
    "R1": ["T[x + 1] · T[x^2; x] · X"],
    "R2": ["T[x; x + 1; …] · M(X, Y)"],
    "R3": ["Ac[concat] · M(X, Y)", "A[max] · M(X, Y)"],
    "R4": ["F[where x > 0] · T[x^2] · X", "F[oldest 1] · T[x; 2*x; …] · X"],
    "R5": ["T[x^2] · P[sort] · X", "T[x; 2*x; …] · P[reverse] · X"],
    "R6": ["Ac[concat] · P[reverse] · X"],
    "R7": ["A[max] · T[x^2] · X", "A[first x > 0] · T[x] · X", "A[max] · T[0*x] · X"],
    "R8": ["Ac[and] · F[where x > 0] · X", "Ac[+] · F[oldest 1] · X"],
    "R10": ["Ac[×] · T[3*x] · X", "Ac[+] · T[x] · X"],
}


@pytest.mark.parametrize(("rule", "text"), [(rule, text) for rule, texts in HOLDS.items() for text in texts])
@settings(max_examples=20)
@given(x=VECTORS, y=VECTORS, whole=WHOLE)
def test_a_rule_does_not_change_the_value(
    rule: str, text: str, x: tuple[Fraction, ...], y: tuple[Fraction, ...], whole: tuple[Fraction, ...]
) -> None:
    before = flow(text)
    assert isinstance(before, FlowStep)
    after = RULES[rule](before)
    assert after is not None and after != before
    inputs = {"X": whole, "Y": whole[::-1]} if "gcd" in text else {"X": x, "Y": y}
    assert run(after, inputs) == run(before, inputs)


@pytest.mark.parametrize(
    ("rule", "text"), [(rule, text) for rule, texts in DOES_NOT.items() for text in texts]
)
def test_a_rule_does_not_apply_where_the_value_would_change(rule: str, text: str) -> None:
    found = flow(text)
    assert isinstance(found, FlowStep)
    assert RULES[rule](found) is None


@settings(max_examples=20)
@given(x=st.lists(st.integers(-9, 9), min_size=1, max_size=5), y=st.integers(-9, 9))
def test_r9_equal_parts_of_a_graph_are_merged(x: list[int], y: int) -> None:
    """T[x^2] occurs twice, once for each of two sums."""
    nodes = (
        ModelNode("s", Op.S),
        ModelNode("t1", Op.T, {"f": "x^2"}),
        ModelNode("t2", Op.T, {"f": "x^2"}),
        ModelNode("a1", Op.AC, {"op": "sum"}),
        ModelNode("a2", Op.AC, {"op": "sum"}),
        ModelNode("m", Op.M),
        ModelNode("g", Op.T, {"f": "c0 + c1", "gather": ["c0", "c1"]}),
    )
    arrows = [
        ("s", "t1", 0),
        ("s", "t2", 0),
        ("t1", "a1", 0),
        ("t2", "a2", 0),
        ("a1", "m", 0),
        ("a2", "m", 1),
    ]
    edges = (*(ModelEdge(src, dst, dst_port=port) for src, dst, port in arrows), ModelEdge("m", "g"))
    graph = ModelGraph(nodes, edges, "g")
    merged = merge_equal.merge_equal(graph)
    assert merged is not None
    assert [node.id for node in merged.nodes] == ["s", "t1", "a1", "m", "g"]
    instances = [Instance(tuple(x)), Instance((y,))]
    assert list(run_graph(merged, instances)) == list(run_graph(graph, instances))


def test_r9_does_not_apply_to_core_statistics_that_are_already_shared() -> None:
    assert merge_equal.merge_equal(blocking_graph(expression("sum(x*x)/n + sum(x^2)"))) is None


# Letters that the compiler rewrites by a rule, and an expression for R9.
FIRES = {
    "R1": "Ac[+] · T[x + 1] · T[x^3]",
    "R2": "Ac[×] · T[x + 1] · M(X, P[reverse])",
    "R3": "Ac[+] · M(X, F[oldest 1])",
    "R4": "A[max] · F[rest 1] · T[x^2]",
    "R5": "Ac[×] · T[x^2] · P[rotate]",
    "R6": "Ac[+] · P[sort]",
    "R7": "A[min] · T[3 - x]",
    "R8": "Ac[+] · F[where x > 0]",
    "R9": "T[x^2] · Ac[+] · M(X, X)",
    "R10": "Ac[+] · T[x/4]",
}


@pytest.mark.parametrize(("rule", "text"), FIRES.items())
@settings(max_examples=15)
@given(x=VECTORS)
def test_the_compiler_uses_every_rule_without_a_change_of_value(
    rule: str, text: str, x: tuple[Fraction, ...]
) -> None:
    model = expression(text, ["x"])
    used = {*from_letters(text).rules, *(name for name, _ in model.rewrites)}
    assert rule in used and used <= set(FIRES)
    assert model.value([{"x": value} for value in x]) == run(flow(text), {"X": x})[0]


@pytest.mark.parametrize("rule", FIRES)
def test_explain_prints_the_effect_of_a_rule(rule: str) -> None:
    catalog = bind(f"CREATE MODEL m(x REAL) AS {FIRES[rule]};").catalog
    (definition,) = models_named("m", catalog)
    lines = explain_model(definition, catalog).splitlines()
    told = next(place for place, line in enumerate(lines) if line.startswith(f"  by {rule}: "))
    assert lines[told + 1].startswith("    ")
