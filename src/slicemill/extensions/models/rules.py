"""Rewrite rules of flows (C22): a rule returns an equal flow, or None if it does not apply."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

from slicemill.extensions.models.algebra import Polynomial, expression_of, polynomial
from slicemill.extensions.models.flow import Flow, FlowStep, accumulates, step, transform
from slicemill.extensions.models.graph import ModelGraph, ModelNode, Op
from slicemill.extensions.models.parse import parse
from slicemill.extensions.models.terms import Apply, Expr, Number, Parameter, replace_parts

# Operators whose results have another type than their elements. For example, concat returns a list.
_OTHER_DOMAIN = frozenset({"concat"})


def accumulate_merged(of: FlowStep) -> Flow | None:
    """R3: Ac · M(X, Y) = Ac · M(Ac · X, Ac · Y), if ⊕ is associative.

    Panes, parallel partial results and C15 use this rule. An operator on a wider domain accepts its own
    results. For example, a product counts zeros, and a partial product of 0 counts as one zero.
    """
    inner = of.inputs[0]
    if of.op is not Op.AC or not isinstance(inner, FlowStep) or inner.op is not Op.M:
        return None
    if not of.accumulator.associative or of.text in _OTHER_DOMAIN:
        return None
    if all(map(accumulates, inner.inputs)):
        return None  # applied already
    left, right = (step(Op.AC, of.text, part) for part in inner.inputs)
    return step(Op.AC, of.text, step(Op.M, "", left, right))


def accumulate_permuted(of: FlowStep) -> Flow | None:
    """R6: Ac · P = Ac, if ⊕ is commutative."""
    inner = of.inputs[0]
    if of.op is not Op.AC or not isinstance(inner, FlowStep) or inner.op is not Op.P:
        return None
    return step(Op.AC, of.text, inner.inputs[0]) if of.accumulator.commutative else None


_IDENTITIES = {"+": Fraction(0), "×": Fraction(1), "xor": Fraction(0), "gcd": Fraction(0)}


def filter_as_transform(of: FlowStep) -> Flow | None:
    """R8: Ac · F[where p] = Ac · T[where(p, x, e)], if e is the identity of ⊕."""
    inner = of.inputs[0]
    if of.op is not Op.AC or of.text not in _IDENTITIES or not isinstance(inner, FlowStep):
        return None
    if inner.op is not Op.F or inner.by_index:
        return None
    condition = parse(inner.text.removeprefix("where "))
    chosen = Apply("where", (condition, Parameter("x"), Number(_IDENTITIES[of.text])))
    return step(Op.AC, of.text, transform(chosen, inner.inputs[0]))


def fuse_transforms(of: FlowStep) -> Flow | None:
    """R1: T[g] · T[f] = T[g∘f]. One pass over the elements in place of two."""
    inner = of.inputs[0]
    if not of.uniform or not isinstance(inner, FlowStep) or not inner.uniform:
        return None
    return transform(compose(of.functions[0], inner.functions[0]), inner.inputs[0])


def compose(outer: Expr, inner: Expr) -> Expr:
    """Return outer(inner(x))."""
    return replace_parts(outer, lambda part: inner if part == Parameter("x") else None)


def merge_equal(graph: ModelGraph) -> ModelGraph | None:
    """R9: equal parts of a graph are merged: the same operator on the same inputs is computed once.

    Sources and registers are not merged. Return None if no nodes are equal.
    """
    kept: dict[object, str] = {}
    same: dict[str, str] = {}
    while True:
        kept.clear()
        before = len(same)
        for node in graph.nodes:
            if node.op in (Op.S, Op.W) or node.id in same or node.id == graph.result:
                continue
            first = kept.setdefault(_content(node, graph, same), node.id)
            if first != node.id:
                same[node.id] = first
        if len(same) == before:
            break
    if not same:
        return None
    edges = []
    for edge in graph.edges:
        if edge.dst not in same:
            edges.append(replace(edge, src=same.get(edge.src, edge.src)))
    nodes = tuple(node for node in graph.nodes if node.id not in same)
    return replace(graph, nodes=nodes, edges=tuple(edges))


def _content(node: ModelNode, graph: ModelGraph, same: dict[str, str]) -> object:
    arrows = sorted(
        (edge.dst_port, same.get(edge.src, edge.src), edge.src_port, edge.phase)
        for edge in graph.edges
        if edge.dst == node.id
    )
    return node.op, json.dumps(dict(node.params), sort_keys=True), tuple(arrows)


def pull_factor(of: FlowStep) -> Flow | None:
    """R10: Ac[+] · T[c·f] = T[c·] · Ac[+] · T[f], so that multiples share one sum.

    Only explicit factors are moved: expanding (x - 1)^2 would cause cancellation (C24).
    """
    inner = of.inputs[0]
    if of.op is not Op.AC or of.text != "+" or not isinstance(inner, FlowStep) or not inner.uniform:
        return None
    factor, rest = _split_factor(inner.functions[0])
    if factor in (0, 1):
        return None
    total = step(Op.AC, "+", transform(rest, inner.inputs[0]))
    return transform(Apply("*", (Number(factor), Parameter("x"))), total)


def _split_factor(function: Expr) -> tuple[Fraction, Expr]:
    """Split an expression into a constant factor and the rest."""
    match function:
        case Apply("neg", (rest,)):
            return Fraction(-1), rest
        case Apply("*", (Number(value), rest)) | Apply("*", (rest, Number(value))):
            return value, rest
        case Apply("/", (rest, Number(value))) if value != 0:
            return 1 / value, rest
    terms = polynomial(function).terms
    degree = max((sum(power for _, power in monomial) for monomial, _ in terms), default=0)
    if not terms or (degree > 1 and len({own > 0 for _, own in terms}) > 1):
        return Fraction(1), function
    factor = terms[0][1]
    return factor, expression_of(Polynomial.of((monomial, own / factor) for monomial, own in terms))


_OTHER = {"max": "min", "min": "max"}


def search_transformed(of: FlowStep) -> Flow | None:
    """R7: A[max] · T[f] = T[f] · A[max], if f is increasing; A[min] if f is decreasing."""
    inner = of.inputs[0]
    if of.op is not Op.A or of.text not in _OTHER or not isinstance(inner, FlowStep) or not inner.uniform:
        return None
    sense = direction(inner.functions[0])
    if sense == 0:
        return None
    name = of.text if sense > 0 else _OTHER[of.text]
    return transform(inner.functions[0], step(Op.A, name, inner.inputs[0]))


def direction(expr: Expr) -> int:
    """Return 1 for increasing x ↦ expr, -1 for decreasing, else 0."""
    match expr:
        case Parameter("x"):
            return 1
        case Apply("neg", (inner,)):
            return -direction(inner)
        case Apply("+", (left, Number())) | Apply("+", (Number(), left)) | Apply("-", (left, Number())):
            return direction(left)
        case Apply("-", (Number(), right)):
            return -direction(right)
        case Apply("*", (Number(value), inner)) | Apply("*", (inner, Number(value))):
            return direction(inner) * _sign(value > 0, value < 0)
        case Apply("/", (inner, Number(value))):
            return direction(inner) * _sign(value > 0, value < 0)
        case Apply("^", (inner, Number(value))) if value > 0 and value.denominator == 1:
            return direction(inner) if value.numerator % 2 else 0
    return 0


def _sign(positive: bool, negative: bool) -> int:
    return int(positive) - int(negative)


def transform_filtered(of: FlowStep) -> Flow | None:
    """R4: T · F = F · T, if T is uniform and F goes by index. T then reads fewer elements."""
    inner = of.inputs[0]
    if not of.by_index or not isinstance(inner, FlowStep) or not inner.uniform:
        return None
    return transform(inner.functions[0], step(Op.F, of.text, inner.inputs[0]))


def transform_merged(of: FlowStep) -> Flow | None:
    """R2: T · M(X, Y) = M(T · X, T · Y), if T is uniform.

    The images of unchanged elements need not be computed again.
    """
    inner = of.inputs[0]
    if not of.uniform or not isinstance(inner, FlowStep) or inner.op is not Op.M:
        return None
    left, right = (transform(of.functions[0], part) for part in inner.inputs)
    return step(Op.M, "", left, right)


def transform_permuted(of: FlowStep) -> Flow | None:
    """R5: T · P = P · T, if T is uniform and P goes by index.

    P moves outwards, where R6 may remove it.
    """
    inner = of.inputs[0]
    if not of.uniform or not isinstance(inner, FlowStep) or inner.op is not Op.P or inner.text == "sort":
        return None
    return step(Op.P, inner.text, transform(of.functions[0], inner.inputs[0]))


# Rewrite rules of flows (C22) by name.
#
# A rule returns a flow with the same value, or None if it does not apply. R9 merges equal nodes of graphs
# and equal cores of models (`extensions.models.cores`). All other rules apply to flows.


Rule = Callable[[FlowStep], Flow | None]


def rule_description(name: str) -> str:
    """Return the one-line description of a rule."""
    rule: Callable[..., object] = merge_equal if name == "R9" else RULES[name]
    return str(rule.__doc__).partition("\n")[0].partition(": ")[2].strip()


RULES: dict[str, Rule] = {
    "R1": fuse_transforms,
    "R2": transform_merged,
    "R3": accumulate_merged,
    "R4": transform_filtered,
    "R5": transform_permuted,
    "R6": accumulate_permuted,
    "R7": search_transformed,
    "R8": filter_as_transform,
    "R10": pull_factor,
}
