"""Rewrite rules for models in operator letters (C22).

A flow is a chain of vector operators. Its letters are T (transform each element), F (filter), P (permute), M
(append a vector), A (search for an element) and Ac (accumulate all elements with an operator ⊕). A transform
is uniform if it applies the same function to all elements. A rule returns a flow with the same value, or None
if the rule does not apply. The first line of a rule's docstring is printed by EXPLAIN.
"""

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

# Accumulators whose results have another type than their elements, such as concat, which returns a list
_OTHER_DOMAIN = frozenset({"concat"})


def accumulate_merged(of: FlowStep) -> Flow | None:
    """R3: accumulate two appended vectors separately, and combine the results, if ⊕ is associative.

    In letters: Ac · M(X, Y) = Ac · M(Ac · X, Ac · Y). Panes, parallel partial aggregates and incremental
    updates (C15) use this rule. An operator that counts elements apart accepts its own results: a product
    counts zeros, and a partial product of 0 counts as one zero.
    """
    inner = of.inputs[0]
    if of.op is not Op.AC or not isinstance(inner, FlowStep) or inner.op is not Op.M:
        return None
    if not of.accumulator.associative or of.text in _OTHER_DOMAIN:
        return None
    if all(map(accumulates, inner.inputs)):
        return None  # the rule has been applied already
    left, right = (step(Op.AC, of.text, part) for part in inner.inputs)
    return step(Op.AC, of.text, step(Op.M, "", left, right))


def accumulate_permuted(of: FlowStep) -> Flow | None:
    """R6: drop a permutation (P) before a commutative accumulator.

    In letters: Ac · P = Ac, if ⊕ is commutative.
    """
    inner = of.inputs[0]
    if of.op is not Op.AC or not isinstance(inner, FlowStep) or inner.op is not Op.P:
        return None
    return step(Op.AC, of.text, inner.inputs[0]) if of.accumulator.commutative else None


_IDENTITIES = {"+": Fraction(0), "×": Fraction(1), "xor": Fraction(0), "gcd": Fraction(0)}


def filter_as_transform(of: FlowStep) -> Flow | None:
    """R8: replace a filter before an accumulator by a transform: excluded elements become the identity.

    In letters: Ac · F[where p] = Ac · T[where(p, x, e)], if e is the identity of ⊕.
    """
    inner = of.inputs[0]
    if of.op is not Op.AC or of.text not in _IDENTITIES or not isinstance(inner, FlowStep):
        return None
    if inner.op is not Op.F or inner.by_index:
        return None
    condition = parse(inner.text.removeprefix("where "))
    chosen = Apply("where", (condition, Parameter("x"), Number(_IDENTITIES[of.text])))
    return step(Op.AC, of.text, transform(chosen, inner.inputs[0]))


def fuse_transforms(of: FlowStep) -> Flow | None:
    """R1: fuse two transforms into one, so that elements are read once.

    In letters: T[g] · T[f] = T[g∘f].
    """
    inner = of.inputs[0]
    if not of.uniform or not isinstance(inner, FlowStep) or not inner.uniform:
        return None
    return transform(compose(of.functions[0], inner.functions[0]), inner.inputs[0])


def compose(outer: Expr, inner: Expr) -> Expr:
    """Return the composition of two functions of x: outer(inner(x))."""
    return replace_parts(outer, lambda part: inner if part == Parameter("x") else None)


def merge_equal(graph: ModelGraph) -> ModelGraph | None:
    """R9: compute equal operators on equal inputs once.

    Nodes of a model's graph with the same operator and the same inputs are merged. Sources (S) and stored
    values (W) are not merged. Return None if no nodes are equal.
    """
    first_nodes: dict[object, str] = {}
    same: dict[str, str] = {}
    while True:
        first_nodes.clear()
        before = len(same)
        for node in graph.nodes:
            if node.op in (Op.S, Op.W) or node.id in same or node.id == graph.result:
                continue
            first = first_nodes.setdefault(_content(node, graph, same), node.id)
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
    """R10: move a constant factor out of a sum, so that multiples of a function share one sum.

    In letters: Ac[+] · T[c·f] = T[c·] · Ac[+] · T[f]. Only explicit factors are moved: expanding (x - 1)^2
    would cause loss of digits by cancellation (C24).
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
    """Split an expression into a constant factor and the remaining expression."""
    match function:
        case Apply("neg", (rest,)):
            return Fraction(-1), rest
        case Apply("*", (Number(value), rest)) | Apply("*", (rest, Number(value))):
            return value, rest
        case Apply("/", (rest, Number(value))) if value != 0:
            return 1 / value, rest
    terms = polynomial(function).terms
    degree = max((sum(power for _, power in monomial) for monomial, _ in terms), default=0)
    if not terms or (degree > 1 and len({each > 0 for _, each in terms}) > 1):
        return Fraction(1), function
    factor = terms[0][1]
    return factor, expression_of(Polynomial.of((monomial, each / factor) for monomial, each in terms))


_OTHER = {"max": "min", "min": "max"}


def search_transformed(of: FlowStep) -> Flow | None:
    """R7: search first and transform only the result, if the function is monotonic.

    In letters: A[max] · T[f] = T[f] · A[max] if f is increasing, and T[f] · A[min] if f is decreasing.
    """
    inner = of.inputs[0]
    if of.op is not Op.A or of.text not in _OTHER or not isinstance(inner, FlowStep) or not inner.uniform:
        return None
    monotonicity = direction(inner.functions[0])
    if monotonicity == 0:
        return None
    name = of.text if monotonicity > 0 else _OTHER[of.text]
    return transform(inner.functions[0], step(Op.A, name, inner.inputs[0]))


def direction(expr: Expr) -> int:
    """Return 1 if an expression increases with x, -1 if it decreases, and 0 if neither is known."""
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
    """R4: filter by position first, and transform only the selected elements.

    In letters: F · T = T · F, if T is uniform and F selects by position.
    """
    inner = of.inputs[0]
    if not of.by_index or not isinstance(inner, FlowStep) or not inner.uniform:
        return None
    return transform(inner.functions[0], step(Op.F, of.text, inner.inputs[0]))


def transform_merged(of: FlowStep) -> Flow | None:
    """R2: transform two appended vectors separately, so that old elements are not transformed again.

    In letters: T · M(X, Y) = M(T · X, T · Y), if T is uniform.
    """
    inner = of.inputs[0]
    if not of.uniform or not isinstance(inner, FlowStep) or inner.op is not Op.M:
        return None
    left, right = (transform(of.functions[0], part) for part in inner.inputs)
    return step(Op.M, "", left, right)


def transform_permuted(of: FlowStep) -> Flow | None:
    """R5: permute after a transform, where R6 may drop the permutation.

    In letters: T · P = P · T, if T is uniform and P reorders by position.
    """
    inner = of.inputs[0]
    if not of.uniform or not isinstance(inner, FlowStep) or inner.op is not Op.P or inner.text == "sort":
        return None
    return step(Op.P, inner.text, transform(of.functions[0], inner.inputs[0]))


# Rewrite rules by name (C22)
#
# Rule R9 is not in the table. It merges equal nodes of graphs and equal core statistics of models
# (`extensions.models.cores`).


Rule = Callable[[FlowStep], Flow | None]


def rule_description(name: str) -> str:
    """Return the one-line description of a rewrite rule for EXPLAIN, from the rule's docstring."""
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
