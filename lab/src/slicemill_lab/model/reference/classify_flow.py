"""Classification of flows (C14): post ∘ core ∘ pre with one core."""

from __future__ import annotations

from slicemill.extensions.models.cores import (
    Classification,
    Core,
    CoreKind,
    CoreMethod,
    classify,
    collect,
    worst,
)
from slicemill.extensions.models.flow import Flow, FlowInput, FlowStep
from slicemill.extensions.models.graph import Op
from slicemill.extensions.models.operators import ACCUMULATORS, RANKED, SEARCHES
from slicemill.extensions.models.parse import parse
from slicemill.extensions.models.rules import compose
from slicemill.extensions.models.terms import PI, Expr, ModelError, Parameter, Symbol, walk


def classify_flow(of: Flow) -> Classification:
    """Classify a flow.

    >>> from slicemill.extensions.models.flow import flow
    >>> print(classify_flow(flow("T[sqrt(x)] · Ac[+] · T[x^2] · P[reverse]")))
    INCREMENTAL: uniform, and + can be undone
    """
    while isinstance(of, FlowStep) and of.op is Op.T:
        of = of.inputs[0]
    if isinstance(of, FlowInput) or of.op not in (Op.AC, Op.A):
        raise ModelError(f"{of} has neither an accumulator nor a search, whose value could be kept")
    core, pre = of, _before(of.inputs[0])
    reordered = any(step.op is Op.P for step in pre)
    if reordered and not _ignores_order(core):
        return _blocking(f"P changes the order, on which {core.op}[{core.text}] depends")
    for step in pre:
        if step.op is Op.M or step.by_index:
            return _blocking(f"{step.op}[{step.text}] takes elements by their place in the window")
        if step.op is Op.T and not step.uniform:
            return _blocking("T not uniform: its functions differ from place to place")
    transforms = [step for step in pre if step.op is Op.T]
    function: Expr = Parameter("x")
    for step in reversed(transforms):
        function = compose(step.functions[0], function)
    name = _name_of(core)
    if any(isinstance(part, Symbol) and part != PI for part in walk(function)):
        if name is None or len(transforms) < len(pre):
            return _blocking(f"T not uniform: {function} depends on the place of an element")
        return worst([classify(core) for core in collect(parse(f"{name}({function})")).cores])
    if name is not None:
        return classify(Core(name, function if core.op is Op.AC else Parameter("x")))
    if core.op is Op.A:
        reason = "a search cannot be undone; keeps a queue of the elements that match"
        return Classification(CoreKind.AUX_MEMORY, reason, CoreMethod.QUEUE, per_element=1)
    accumulator = core.accumulator
    if accumulator.associative:
        reason = f"uniform, but {accumulator.symbol} cannot be undone; it is associative"
        return Classification(CoreKind.TWO_STACK, reason, CoreMethod.TWO_STACK, state=1, per_element=1)
    return _blocking(f"{accumulator.symbol} can neither be undone nor be put together from parts")


def _name_of(core: FlowStep) -> str | None:
    """Return a core's name in expressions, or None."""
    if core.op is Op.A:
        return core.text if core.text in SEARCHES else None
    return next((name for name, known in ACCUMULATORS.items() if known is core.accumulator), None)


def _ignores_order(core: FlowStep) -> bool:
    if core.op is Op.AC:
        return core.accumulator.commutative
    return core.text in SEARCHES and (SEARCHES[core.text].ordered or SEARCHES[core.text].structure == RANKED)


def _before(of: Flow) -> list[FlowStep]:
    steps: list[FlowStep] = []
    while isinstance(of, FlowStep):
        steps.append(of)
        of = of.inputs[0]
    return steps


def _blocking(reason: str) -> Classification:
    return Classification(CoreKind.BLOCKING, reason, CoreMethod.RECOMPUTE)
