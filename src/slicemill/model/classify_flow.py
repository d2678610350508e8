"""The test of C14 on flows: post ∘ core ∘ pre, where core is the one Ac or A."""

from __future__ import annotations

from slicemill.model.classify import Classification, CoreKind, CoreMethod, classify
from slicemill.model.core import Core
from slicemill.model.flow import Flow, FlowInput, FlowStep
from slicemill.model.graphs.graph import Op
from slicemill.model.operators import ACCUMULATORS, SEARCHES
from slicemill.model.rules.fuse_transforms import composed
from slicemill.model.terms import Expr, ModelError, Parameter


def classify_flow(of: Flow) -> Classification:
    """
    >>> from slicemill.model.flow import flow
    >>> print(classify_flow(flow("T[sqrt(x)] · Ac[+] · T[x^2] · P[reverse]")))
    INCREMENTAL: uniform, and + can be undone
    """
    while isinstance(of, FlowStep) and of.op is Op.T:
        of = of.inputs[0]
    if isinstance(of, FlowInput) or of.op not in (Op.AC, Op.A):
        raise ModelError(f"{of} has neither an accumulator nor a search, whose value could be kept")
    core, pre = of, _before(of.inputs[0])
    if core.op is Op.A:
        return _search(core)
    accumulator = core.accumulator
    if any(step.op is Op.P for step in pre) and not accumulator.commutative:
        return _blocking(f"P changes the order, and {accumulator.symbol} is not commutative")
    function: Expr = Parameter("x")
    for step in reversed(pre):
        if step.op is Op.M or step.by_index:
            return _blocking(f"{step.op}[{step.text}] takes elements by their place in the window")
        if step.op is Op.T and not step.uniform:
            return _blocking("T not uniform: its functions differ from place to place")
        if step.op is Op.T:
            function = composed(step.functions[0], function)
    names = [name for name, known in ACCUMULATORS.items() if known is accumulator]
    if names:
        return classify(Core(names[0], function))
    if accumulator.associative:
        reason = f"uniform, but {accumulator.symbol} cannot be undone; it is associative"
        return Classification(CoreKind.TWO_STACK, reason, CoreMethod.TWO_STACK, state=1, per_element=1)
    return _blocking(f"{accumulator.symbol} can neither be undone nor be put together from parts")


def _before(of: Flow) -> list[FlowStep]:
    steps: list[FlowStep] = []
    while isinstance(of, FlowStep):
        steps.append(of)
        of = of.inputs[0]
    return steps


def _search(core: FlowStep) -> Classification:
    if core.text in SEARCHES:
        return classify(Core(core.text, Parameter("x")))
    reason = "a search cannot be undone; keeps a queue of the elements that match"
    return Classification(CoreKind.AUX_MEMORY, reason, CoreMethod.QUEUE, per_element=1)


def _blocking(reason: str) -> Classification:
    return Classification(CoreKind.BLOCKING, reason, CoreMethod.RECOMPUTE)
