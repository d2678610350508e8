"""Joint evaluation of several aggregate calls over one window, which share state.

An extension (`slicemill.extension`) may evaluate calls of its aggregates together. For example, models
(formulas over a window) store equal sums only once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol

from slicemill.aggregates.calls import Uda
from slicemill.aggregates.frames import WindowFrame
from slicemill.catalog.catalog import Catalog
from slicemill.catalog.expressions import Expr
from slicemill.catalog.queries import AggregateCall, WindowCall
from slicemill.extension import load


class JointCall(Protocol):
    """Aggregate call that can share state with other calls over the same window.

    Implementations are frozen dataclasses that are registered in `codec`.
    """

    @property
    def arguments(self) -> tuple[Expr, ...]: ...

    def shares_with(self, others: Sequence[Any]) -> bool:
        """Return True if this call can share state with the calls `others`."""
        ...

    def together(
        self,
        calls: Sequence[Any],
        frame: WindowFrame | None,
        arguments: tuple[Expr, ...] | None = None,
        costs: Any = None,
    ) -> JointCalls:
        """Compile the joint evaluation of `calls`, which include this call.

        The layout of the state depends on `arguments`, by default those of the calls, and on `costs`.
        NoCompiledForm is raised if the calls cannot be compiled together.
        """
        ...


class JointCalls(Protocol):
    """Several compiled calls with shared state. The result has one column per call."""

    @property
    def asked(self) -> tuple[Any, ...]: ...

    @property
    def arguments(self) -> tuple[Expr, ...]: ...

    @property
    def uda(self) -> Uda: ...

    def only(self, wanted: Collection[Any], state: Any) -> JointCalls:
        """Return a joint evaluation of only the calls in `wanted`. State of other calls is dropped."""
        ...


def joint_call(call: WindowCall | AggregateCall, catalog: Catalog) -> JointCall | None:
    """Return a call as a JointCall, or None if the call cannot share state with other calls."""
    base, _ = catalog.aggregates(call.name)
    provider = None if base is None else base.provider
    if call.distinct or provider is None or provider.joint is None:
        return None
    made: JointCall | None = load(provider.joint)(base, call.arguments)
    return made
