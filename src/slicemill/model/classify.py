"""Classification of cores: incremental or blocking, and required state (C14, C17, C21)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from slicemill.model.core import Core
from slicemill.model.operators import QUEUE
from slicemill.model.terms import AGE, ONE, POSITION


class CoreKind(StrEnum):
    """Classes of cores, from best to worst."""

    INCREMENTAL = "INCREMENTAL"
    SHIFT_INCREMENTAL = "SHIFT_INCREMENTAL"
    TWO_STACK = "TWO_STACK"
    AUX_MEMORY = "AUX_MEMORY"
    BLOCKING = "BLOCKING"

    @property
    def rank(self) -> int:
        return list(CoreKind).index(self)


class CoreMethod(StrEnum):
    """Method by which a core is computed."""

    DELTA = "delta"
    DEQUE = "deque"
    QUEUE = "queue"
    RANKED = "two heaps"
    TWO_STACK = "two stacks"
    RECOMPUTE = "recomputation"


@dataclass(frozen=True, slots=True)
class Classification:
    """Class of a core, with its reason, method and state.

    `state` is the number of values besides the window's elements, `per_element` that of values per element.
    """

    kind: CoreKind
    reason: str
    way: CoreMethod
    state: int = 0
    per_element: int = 0

    @property
    def state_text(self) -> str:
        parts = (
            [f"{self.state} number{'s' * (self.state != 1)}"] if self.state or not self.per_element else []
        )
        if self.per_element:
            parts.append(f"up to {'' if self.per_element == 1 else f'{self.per_element}·'}n")
        return " and ".join(parts)

    def __str__(self) -> str:
        return f"{self.kind}: {self.reason}"


def classify(core: Core) -> Classification:
    """Classify a core.

    >>> from slicemill.model import expression
    >>> print(classify(expression("max(x)").cores[0]))
    AUX_MEMORY: a search cannot be undone; keeps a deque of candidates, at most n
    """
    if core.blocked:
        return Classification(CoreKind.BLOCKING, core.blocked, CoreMethod.RECOMPUTE)
    search, accumulator = core.search, core.accumulator
    if search is not None:
        way = CoreMethod(search.structure)
        extra = 1 if search.structure == QUEUE else 2
        reason = f"a search cannot be undone; keeps {search.memory}"
        return Classification(CoreKind.AUX_MEMORY, reason, way, per_element=extra)
    assert accumulator is not None, "a core searches or accumulates"
    if core.weight is not None:
        return _weighted(core)
    if accumulator.reversible:
        undone = f"{accumulator.symbol} can be undone"
        if accumulator.counter:
            undone += f" ({accumulator.counter} are counted apart)"
        what = "counts elements" if core.transform == ONE else "uniform"
        state = 2 if accumulator.counter and core.aggregate == "prod" else 1
        return Classification(CoreKind.INCREMENTAL, f"{what}, and {undone}", CoreMethod.DELTA, state)
    reason = f"uniform, but {accumulator.symbol} cannot be undone; it is associative"
    return Classification(CoreKind.TWO_STACK, reason, CoreMethod.TWO_STACK, state=1, per_element=1)


def _weighted(core: Core) -> Classification:
    weight = core.weight
    assert weight is not None
    count = weight.state
    if weight.variable == AGE and count == 1 and not weight.growing and not weight.modes_turn:
        return Classification(
            CoreKind.INCREMENTAL, "exponential decay by age: one factor ages all", CoreMethod.DELTA, 1
        )
    uses = "age" if weight.variable == AGE else "position i"
    unstable = weight.shrinking if weight.variable == POSITION else weight.growing
    if unstable:
        reason = (
            f"not uniform: uses {uses}; weights {core.weight_expr} are closed under shifts, but favour the "
            f"oldest, so that undoing them would magnify rounding errors"
        )
        if weight.variable != POSITION or weight.modes_turn:
            return Classification(CoreKind.BLOCKING, reason, CoreMethod.RECOMPUTE)
        return Classification(
            CoreKind.TWO_STACK, reason, CoreMethod.TWO_STACK, state=count, per_element=count
        )
    values = f"{count} value{'s' * (count != 1)}"
    reason = f"not uniform: uses {uses}, but weights {core.weight_expr} are closed under shifts with {values}"
    return Classification(CoreKind.SHIFT_INCREMENTAL, reason, CoreMethod.DELTA, count)


def worst(classes: Sequence[Classification]) -> Classification:
    """Return the class of a model: the worst of its cores' classes."""
    if not classes:
        return Classification(CoreKind.INCREMENTAL, "a constant: looks at no element", CoreMethod.DELTA)
    hardest = max(classes, key=lambda found: found.kind.rank)
    state = sum(found.state for found in classes)
    return Classification(
        hardest.kind, hardest.reason, hardest.way, state, sum(found.per_element for found in classes)
    )
